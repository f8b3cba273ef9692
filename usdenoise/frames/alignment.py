"""Alignment of the blocks of a session: one rigid shift and one gain for each block, against a reference image.

Within a block nothing is shifted. Rotation and motion out of the image are not corrected.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.registration import Registration
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.row_blocks import envelope

ENVELOPE_FRAMES = 32
"""Frames of a block, evenly spread, whose mean envelope is registered."""

LEAST_SHIFT, MOST_SHIFT = 0.05, 0.25
"""Smallest shift that is corrected, in pixels along any axis, and largest one, as a part of the image."""

LEAST_LIKENESS = 0.6
"""Correlation of the gradients of an image and of the reference from which a block is aligned. It is about 0 for images of
noise alone, and 0.7 between one of two such images and their mean, against which the shift is 0."""

LEAST_GAIN_DB, MOST_GAIN_DB, GAIN_ERRORS = 0.05, 10.0, 4.0
"""Smallest and largest gain that is divided out, in dB, and its least ratio to its standard error."""

DEPTH_BANDS, UNEVEN_DB = 4, 0.5
"""Number of bands of the depth, and difference of the gain of one of them, in dB, from which the gain is uneven."""

SPECKLE_PIXELS = 8
"""Pixels of the image whose envelopes count as one independent value, for the standard error of a gain."""

LEAST_PIXELS = 12
"""Pixels along every axis of an image that is registered."""

EDGE, EDGE_SHARE = 2, 20
"""Pixels at the edge of the image that are masked if a block is shifted, at most, and this part of the image: there the
interpolation has no data beyond the edge."""

REFERENCE_ROUNDS = 3
"""Number of registrations of the blocks to the median of the aligned blocks."""

CHUNK_FRAMES = 8
"""Frames that are shifted together: 1 MB of 128 x 128 pixels, which stays in the cache."""


@dataclass(frozen=True)
class Alignment:
    """Where the image of a block is, and how strong, against the reference of the session.

    Attributes
    ----------
    shift : tuple of float
        Displacement along z, x and y in pixels, positive towards larger indices; NaN if the images are not alike.
    gain_db : float
        Ratio of the tissue power to the tissue power of the reference, in dB.
    likeness : float
        How alike the image and the reference are, from :meth:`usdenoise.frames.registration.Registration.shift`.
    is_shifted : bool
        Whether the shift was compensated.
    is_scaled : bool
        Whether the gain was divided out.
    is_uneven : bool
        Whether the gain is not the same at all depths; then it is not divided out.
    """

    shift: tuple[float, ...]
    gain_db: float
    likeness: float
    is_shifted: bool = False
    is_scaled: bool = False
    is_uneven: bool = False


@dataclass(frozen=True)
class Reference:
    """The image to which the blocks of a session are aligned.

    Attributes
    ----------
    image : (pixels along z, x, y) float32 array
        Median over the blocks of their mean envelopes.
    mask : boolean array of this shape
        Pixels that are inside the image in every block; all other pixels become 0.
    registers, scales : bool
        Whether shifts are compensated, and gains divided out.
    """

    image: NDArray[np.float32]
    mask: NDArray[np.bool_]
    registers: bool = True
    scales: bool = True

    @cached_property
    def _registration(self) -> Registration:
        return Registration.of(self.image)

    def align(self, x: NDArray[Any]) -> tuple[NDArray[Any], Alignment]:
        """Return a chunk, (n, n_pixels), as it is in the reference, and its alignment."""
        alignment = self.alignment(mean_envelope(x, self.image.shape))
        return self.apply(x, alignment), alignment

    def alignment(self, image: NDArray[np.float32]) -> Alignment:
        """Return the alignment of a block from its mean envelope, (pixels along z, x, y)."""
        shift, likeness = self._registration.shift(image)
        is_like = likeness >= LEAST_LIKENESS
        is_near = bool((np.abs(shift) <= MOST_SHIFT * np.array(image.shape)).all())
        # Interpolation would spread pixels without data over their neighbours.
        is_whole = not (self.mask & (image == 0) & (self.image > 0)).any()
        is_displaced = is_like and is_near and is_whole and bool(_matter(shift[None])[0])
        if is_displaced:
            image = shifted(image[None], shift)[0]
        gain = _gain(image, self.image, self.mask & (image > 0))
        # Where nothing is alike the displacement is not known.
        return Alignment(
            tuple(float(along) if is_like else math.nan for along in shift),
            gain.db,
            likeness,
            is_shifted=self.registers and is_displaced,
            is_scaled=self.scales and is_like and gain.is_known and not gain.is_uneven,
            is_uneven=is_like and gain.is_uneven,
        )

    def apply(self, x: NDArray[Any], alignment: Alignment) -> NDArray[Any]:
        """Return a chunk, (n, n_pixels), shifted back, without the gain, 0 outside the mask; itself if nothing changes."""
        if not (alignment.is_shifted or alignment.is_scaled) and self.mask.all():
            return x
        frames = x.reshape(len(x), *self.image.shape)
        aligned = shifted(frames, np.array(alignment.shift)) if alignment.is_shifted else frames.copy()
        if alignment.is_scaled:
            with np.errstate(invalid="ignore"):
                aligned *= aligned.real.dtype.type(10 ** (-alignment.gain_db / 20))
        aligned[:, ~self.mask] = 0
        return aligned.reshape(len(x), -1)


def mean_envelope(x: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the mean envelope of some frames of a chunk, (n, n_pixels), without values that are not finite, as an image."""
    subset = x[:: max(1, len(x) // ENVELOPE_FRAMES)]
    magnitudes = envelope(subset)
    counts = np.maximum(np.count_nonzero(np.isfinite(subset), axis=0), 1)
    mean: NDArray[np.float32] = (magnitudes.sum(axis=0, dtype=np.float64) / counts).astype(np.float32)
    return mean.reshape(shape)


def reference_of(
    images: Sequence[NDArray[np.float32]],
    executor: Executor,
    registers: bool,
    scales: bool,
    before: Reference | None = None,
) -> Reference | None:
    """Return the reference of a session.

    Blocks are registered to one of them, then to the median of the aligned blocks, which a burst of motion does not change.
    The reference is where the median block is.

    Parameters
    ----------
    images : sequence of (pixels along z, x, y) float32 arrays
        Mean envelope of each block.
    executor : Executor
        Maps over the blocks.
    registers, scales : bool
        Whether shifts are compensated, and gains divided out.
    before : Reference, optional
        An earlier reference of the session, where the new one stays.

    Returns
    -------
    Reference or None
        None for a single block.
    """
    if len(images) < 2:
        return None
    values = np.stack(images)
    registers = registers and min(values.shape[1:]) >= LEAST_PIXELS
    median = np.median(values, axis=0)
    image = (
        values[np.argmax(values.reshape(len(values), -1) @ median.ravel())]
        if before is None
        else before.image
    )
    shifts = np.zeros((len(values), median.ndim))
    for _ in range(REFERENCE_ROUNDS if registers else 0):
        target = Registration.of(image)
        registrations = list(executor.map(target.shift, values))
        is_like = np.array([likeness >= LEAST_LIKENESS for _, likeness in registrations])
        shifts = np.where(is_like[:, None], [shift for shift, _ in registrations], 0.0)
        if before is None:
            shifts -= np.median(shifts, axis=0)
        if not _matter(shifts).any():
            break
        moved = executor.map(_shifted_image, zip(values, shifts, strict=True))
        image = np.median(list(moved), axis=0).astype(np.float32)
    if not _matter(shifts).any():
        return Reference(median.astype(np.float32), np.ones(median.shape, bool), registers, scales)
    return Reference(image, _common(values, shifts), registers, scales)


def shifted(frames: NDArray[Any], shift: NDArray[np.float64]) -> NDArray[Any]:
    """Return frames that are displaced by a shift as they are without it.

    Along each axis the image is interpolated by its discrete cosine transform, which keeps the power of noise and does not
    wrap: beyond the edge the image is mirrored.

    Parameters
    ----------
    frames : (n, pixels along z, x, y) array
        The frames. A value that is not finite is replaced by the mean of its pixel, and is missing again in the result.
    shift : (n_axes,) array
        Shift in pixels.
    """
    finite = np.isfinite(frames)
    is_finite = bool(finite.all())
    if not is_finite:
        known = np.where(finite, frames, 0)
        frames = np.where(finite, frames, known.sum(axis=0) / np.maximum(finite.sum(axis=0), 1))
    result = np.empty(frames.shape, frames.dtype)
    matrices = [
        _shift_matrix(n, d).astype(frames.real.dtype) for n, d in zip(frames.shape[1:], shift, strict=True)
    ]
    for first in range(0, len(frames), CHUNK_FRAMES):
        part = np.ascontiguousarray(frames[first : first + CHUNK_FRAMES])
        for axis, matrix in enumerate(matrices, 1):
            if shift[axis - 1]:
                part = _along(part, matrix, axis)
        result[first : first + CHUNK_FRAMES] = part
    if not is_finite:
        result[_nearest(~finite, shift)] = np.nan
    return result


def _shifted_image(item: tuple[NDArray[np.float32], NDArray[np.float64]]) -> NDArray[np.float32]:
    image, shift = item
    moved: NDArray[np.float32] = shifted(image[None], shift)[0]
    return moved


def _along(frames: NDArray[Any], matrix: NDArray[Any], axis: int) -> NDArray[Any]:
    """Return the product of a real matrix with contiguous frames along an axis."""
    product: NDArray[Any] = np.empty(frames.shape, frames.dtype)
    n, after = frames.shape[axis], math.prod(frames.shape[axis + 1 :])
    if after > 1:
        # Real and imaginary parts are columns of one real product.
        columns = after * _parts(frames)
        flat, result = (array.view(matrix.dtype).reshape(-1, n, columns) for array in (frames, product))
        np.matmul(matrix, flat, out=result)
        return product
    rows, into = (array.reshape(-1, n) for array in (frames, product))
    into.real = np.ascontiguousarray(rows.real) @ matrix.T
    if np.iscomplexobj(frames):
        into.imag = np.ascontiguousarray(rows.imag) @ matrix.T
    return product


def _parts(frames: NDArray[Any]) -> int:
    return 2 if np.iscomplexobj(frames) else 1


def _shift_matrix(n: int, shift: float) -> NDArray[np.float64]:
    """Return the (n, n) matrix that interpolates n values, mirrored at both ends, at the positions i + shift."""
    positions, values = np.arange(n)[:, None] + shift, np.arange(n)

    def kernel(distance: NDArray[Any]) -> NDArray[Any]:
        # Sum of the cosines of period 2 n, half of the highest one.
        angle = np.pi * distance / (2 * n)
        slow = np.sin(angle)
        is_zero = np.abs(slow) < 1e-9
        ratio = np.sin(2 * n * angle) * np.cos(angle) / np.where(is_zero, 1, 2 * n * slow)
        return np.where(is_zero, 1.0, ratio)

    matrix: NDArray[np.float64] = kernel(positions - values) + kernel(positions + values + 1)
    return matrix


def _nearest(values: NDArray[Any], shift: NDArray[np.float64], edge: int = 0) -> NDArray[Any]:
    """Return the nearest of values, (n, pixels along z, x, y), at the pixels of the reference; 0 outside the image.

    Along an axis that is shifted, `edge` pixels at each edge count as outside.
    """
    for axis, along in enumerate(shift, 1):
        n = values.shape[axis]
        positions = np.arange(n) + along
        values = values.take(np.clip(np.rint(positions).astype(int), 0, n - 1), axis=axis)
        margin = min(edge, n // EDGE_SHARE) * (abs(along) >= LEAST_SHIFT)
        outside = (positions < margin - 0.5) | (positions > n - 0.5 - margin)
        np.moveaxis(values, axis, 0)[outside] = 0
    return values


def _matter(shifts: NDArray[np.float64]) -> NDArray[np.bool_]:
    matter: NDArray[np.bool_] = np.abs(shifts).max(axis=1) >= LEAST_SHIFT
    return matter


def _common(images: NDArray[np.float32], shifts: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the pixels that are inside the image in all blocks but those that are displaced unusually far.

    A pixel that has a signal in one block is inside the image in all other blocks.
    """
    distance = np.abs(shifts)
    middle = np.median(distance, axis=0)
    usual = distance <= np.maximum(6 * middle, MOST_SHIFT * np.array(images.shape[1:]) / 4)
    has_signal = np.any(images > 0, axis=0, keepdims=True)
    inside = [_nearest(has_signal, shift, EDGE)[0] for shift in shifts[usual.all(axis=1)]]
    common: NDArray[np.bool_] = np.all(inside, axis=0)
    return common


@dataclass(frozen=True)
class _Gain:
    """A gain in dB, whether it is larger than its error and not too large, and whether it differs between depths."""

    db: float
    is_known: bool
    is_uneven: bool


def _gain(image: NDArray[np.float32], reference: NDArray[np.float32], mask: NDArray[np.bool_]) -> _Gain:
    """Return the gain of an image over the reference, in its brighter half."""
    if not mask.any():
        return _Gain(0.0, False, False)
    bright = mask & (reference > np.median(reference[mask]))
    levels = np.full(image.shape, np.nan)
    levels[bright] = 20 * np.log10(image[bright] / reference[bright])
    db, error = _median_and_error(levels)
    is_uneven = False
    for band in np.array_split(levels, DEPTH_BANDS):
        gain, own_error = _median_and_error(band)
        is_uneven |= abs(gain - db) > max(UNEVEN_DB, GAIN_ERRORS * own_error)
    return _Gain(db, max(LEAST_GAIN_DB, GAIN_ERRORS * error) < abs(db) <= MOST_GAIN_DB, is_uneven)


def _median_and_error(levels: NDArray[np.float64]) -> tuple[float, float]:
    """Return the median of the levels that are not NaN, and its standard error."""
    known = levels[np.isfinite(levels)]
    if not len(known):
        return 0.0, math.inf
    median = float(np.median(known))
    spread = 1.4826 * float(np.median(np.abs(known - median)))
    return median, 1.25 * spread / math.sqrt(max(len(known) / SPECKLE_PIXELS, 1.0))
