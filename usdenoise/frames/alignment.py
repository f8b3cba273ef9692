"""Alignment of the blocks of a session: a rigid shift and a gain for each block, against a reference image.

The shifts are found by registration of the images. Within a block nothing is shifted, and rotation and deformation are
compensated after the filter (deformation.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.frames.gains import profile_of, profiles_of, rows_over
from usdenoise.linalg.array_library import (
    Array,
    Numbers,
    dtype_of,
    in_full_precision,
    namespace,
    to_host,
    to_library,
    used_frames,
)
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import fit_gapped_rows
from usdenoise.linalg.tall_matrices import PART_ENTRIES, cached_slices, eigenvectors, envelope, slices_of
from usdenoise.stack.sampling import ENOUGH_FRAMES, MANY_PIXELS, spread_rows

PEAK_SIGMA = 1.5
"""Standard deviation, in pixels, of the Gaussian peak of a shift. The normalised spectrum is weighted with the Gaussian's
transform, so that the logarithm of the peak is a parabola through three points, which gives fractions of a pixel."""

GAUSS_NEWTON_STEPS = 2
"""Steps after the phase correlation: it finds the shift to some hundredths of a pixel, the steps to a hundredth."""

SPECKLE_PIXELS = 8
"""Pixels of an image whose envelopes count as one independent value, for standard errors."""

TINY_SINGLE = float(np.finfo(np.float32).tiny)


def phase_correlation_shift(
    spectrum: Numbers, reference: Numbers, size: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the shift of an image against a reference, in pixels.

    The position of the peak of the phase correlation (Kuglin and Hines, Proc. IEEE Conf. Cybernetics and Society, 1975).

    Parameters
    ----------
    spectrum, reference : (frequencies along each axis...) arrays
        Fourier transforms of the real images along all axes.
    size : tuple of int
        Pixels along each axis.

    Returns
    -------
    (n_axes,) float64 array
        Positive where the image is shifted towards larger indices; 0 where one is the same everywhere.
    """
    squares = np.asarray(sum(along**2 for along in _frequencies(size)))
    cross = spectrum * reference.conj()
    peak_spectrum = np.exp(-2 * (np.pi * PEAK_SIGMA) ** 2 * squares).astype(np.float32)
    cross *= peak_spectrum / np.maximum(np.abs(cross), TINY_SINGLE)
    correlation = np.fft.irfftn(cross, size, axes=range(len(size)))
    best = np.unravel_index(correlation.argmax(), size)
    shift = np.zeros(len(size))
    if not correlation[best] > 0:
        return shift
    for axis, n in enumerate(size):
        shift[axis] = place = int(best[axis])
        if n < 3:
            continue
        # The largest value of the parabola through three points
        line = np.moveaxis(correlation, axis, 0)[(slice(None), *np.delete(best, axis))].astype(np.float64)
        low, peak, high = np.log(np.maximum(line[[place - 1, place, (place + 1) % n]], TINY_SINGLE))
        if (curvature := low - 2 * peak + high) < 0:
            shift[axis] += 0.5 * (low - high) / min(curvature, -1e-12)
        shift[axis] -= n * (shift[axis] > n / 2)
    return shift


class Shift(NamedTuple):
    """The shift of an image against a reference.

    Attributes
    ----------
    pixels : (n_axes,) float64 array
        Positive where the image is shifted towards larger indices; 0 if it is the same everywhere.
    likeness : float
        Correlation of the gradients of both without the shift: 1 for the same image, about 0 for two images of noise alone.
    error : float
        Standard error of the shift in pixels, of the axis with the largest one, by the difference of the images.
    """

    pixels: NDArray[np.float64]
    likeness: float
    error: float


class Registration:
    """A reference image, prepared for the registration of other images.

    Parameters
    ----------
    reference : (pixels along each axis...) array
        The image.
    """

    def __init__(self, reference: NDArray[np.floating]) -> None:
        # A Hann window, which is 0 one pixel outside the image
        self.window = np.ones(reference.shape, np.float32)
        for axis in np.ix_(*(np.hanning(n + 2)[1:-1] for n in reference.shape)):
            self.window *= axis.astype(np.float32)
        # Without its mean and with unit energy under the window
        self.image = _normalised(reference, self.window)
        self.gradients = _gradients(np.fft.rfftn(self.image), reference.shape)
        # Sums of the products of the gradients under the window, (n_axes, n_axes)
        products = (self.window * self.gradients * one for one in self.gradients)
        axes = tuple(range(1, self.gradients.ndim))
        self.hessian = np.stack([product.sum(axis=axes, dtype=np.float64) for product in products])

    def shift(self, image: NDArray[np.floating]) -> Shift:
        """Return the shift of an image against the reference.

        The peak of the phase correlation, then Gauss-Newton steps on the squared difference (Lucas and Kanade, IJCAI, 1981).

        Parameters
        ----------
        image : (pixels along each axis...) array
            The image.
        """
        size, axes = image.shape, tuple(range(1, self.gradients.ndim))
        window, hessian, moving = self.window, self.hessian, _normalised(image, self.window)
        spectra = [np.fft.rfftn(window * one) for one in (moving, self.image)]
        shift = phase_correlation_shift(spectra[0], spectra[1], size)
        if not hessian.any() or not moving.any():
            return Shift(np.zeros(image.ndim), 0.0, math.inf)
        spectrum, frequencies = np.fft.rfftn(moving), _frequencies(size)

        def back() -> NDArray[np.complexfloating]:
            shifted = spectrum
            for along, d in zip(frequencies, shift, strict=True):
                shifted = shifted * np.exp(2j * np.pi * d * along).astype(spectrum.dtype)
            return shifted

        for _ in range(GAUSS_NEWTON_STEPS):
            difference = window * (np.fft.irfftn(back(), size, axes=range(len(size))) - self.image)
            slopes = (difference * self.gradients).sum(axis=axes, dtype=np.float64)
            shift = shift - np.linalg.lstsq(hessian, slopes)[0]
        gradients = _gradients(back(), size)
        weighted = window * gradients
        energies = np.sum(weighted * gradients, dtype=np.float64) * np.trace(hessian)
        common = float(np.sum(weighted * self.gradients, dtype=np.float64))
        # Least squares: the variance of the difference, of which neighbouring pixels have the same, over the curvature
        variance = np.sum(difference**2, dtype=np.float64) / np.sum(window**2, dtype=np.float64)
        of_axes = np.diag(np.linalg.pinv(hessian))
        error = math.sqrt(SPECKLE_PIXELS * variance * of_axes.max())
        return Shift(shift, common / math.sqrt(energies) if energies > 0 else 0.0, error)


def _gradients(spectrum: NDArray[np.complexfloating], size: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the gradients along each axis of an image, given by its spectrum."""
    slopes = [(2j * np.pi * along).astype(spectrum.dtype) * spectrum for along in _frequencies(size)]
    return np.stack([np.fft.irfftn(slope, size, axes=range(len(size))) for slope in slopes])


def _normalised(image: NDArray[np.floating], window: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an image without its mean and with unit energy, both under a window."""
    values = image - np.sum(window * image, dtype=np.float64) / np.sum(window, dtype=np.float64)
    energy = np.sum(window * values**2)
    normalised: NDArray[np.float64] = values / np.sqrt(energy) if energy > TINY_SINGLE else 0 * values
    return normalised.astype(np.float32)


def _frequencies(size: tuple[int, ...]) -> list[NDArray[np.float64]]:
    """Return the frequency along each axis of a real transform, in cycles a pixel, of arrays that broadcast."""
    along = [*map(np.fft.fftfreq, size[:-1]), np.fft.rfftfreq(size[-1])]
    return list(np.meshgrid(*along, indexing="ij", sparse=True))


LEAST_SHIFT, MOST_SHIFT = 0.05, 0.25
"""Smallest shift that is corrected, in pixels along any axis, and the largest one, as a part of the image."""

LEAST_LIKENESS = 0.6
"""Correlation of the gradients of an image and of the reference from which a block is aligned. It is about 0 for images of
noise alone, and 0.7 between one of two such images and their mean, against which the shift is 0."""

LEAST_GAIN_DB, MOST_GAIN_DB, GAIN_ERRORS = 0.05, 10.0, 4.0
"""Smallest and largest gain that is divided out, in dB, and its least ratio to its standard error."""

DEPTH_BANDS, UNEVEN_DB = 4, 0.5
"""Number of bands of the depth, and difference of the gain of one of them, in dB, from which the gain is uneven."""

REGISTERED_PIXELS = 12
"""Pixels along every axis of an image that is registered."""

EDGE, EDGE_SHARE, FAR_SHIFT = 2, 20, 0.25
"""Pixels at the edge of the image that are masked if a block is shifted, at most, and this part of the image: there the
interpolation has no data beyond the edge. Below FAR_SHIFT pixels, from which a displacement is worth a doubt, it is one
pixel; with none, 1 to 9 of 24 blocks were bad in three of four fits of a session whose tissue was 50 dB over the blood."""

REFERENCE_BLOCKS, REFERENCE_ROUNDS = 32, 3
"""Least number of blocks, spread over the session, whose median is the reference, and number of registrations of them to the
median of the aligned blocks."""

FRAMES_A_COMPONENT = 8
"""Frames for each temporal component that fills missing entries. On sessions of blocks of 150 frames, with tissue 35 to
50 dB over the blood and up to 5 % of the entries missing, the error was the power of blood and noise."""

MOST_ENERGY = 4.0
"""Energy of a frame over the median above which these components have none of it: interference."""

TAPS, KAISER = 12, 4.0
"""Taps of the interpolation, and parameter of its window."""


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
        How alike the image and the reference are, from :meth:`usdenoise.frames.alignment.Registration.shift`.
    is_shifted : bool
        Whether the shift was compensated.
    is_scaled : bool
        Whether the gain was divided out.
    is_uneven : bool
        Whether the gain is not the same at all depths, even without the profile. Without one it is not divided out.
    profile_db : tuple of float or None
        Gain at each depth, in dB, which is divided out instead of `gain_db`; None (the default) if one number is enough.
    """

    shift: tuple[float, ...]
    gain_db: float
    likeness: float
    is_shifted: bool = False
    is_scaled: bool = False
    is_uneven: bool = False
    profile_db: tuple[float, ...] | None = None


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
    profiles : (pixels along z, n_curves) array or None
        Curves over depth by which the gains of the blocks differ; None (the default) if a gain is the same at all depths.
    """

    image: NDArray[np.float32]
    mask: NDArray[np.bool_]
    registers: bool = True
    scales: bool = True
    profiles: NDArray[np.float64] | None = None

    @cached_property
    def registration(self) -> Registration:
        """The image, prepared for the registration of blocks."""
        return Registration(self.image)

    def align(self, x: Array, excluded: NDArray[np.bool_]) -> tuple[Array, Alignment]:
        """Return a chunk, (n, n_pixels), as it is in the reference, and its alignment; the mask is not applied.

        Excluded frames, (n,), do not count in the alignment: those without tissue have no gain and no place.
        """
        counted = x if excluded.all() else used_frames(x, ~excluded)
        alignment = self.alignment(mean_envelope(counted, self.image.shape))
        return self.apply(x, alignment), alignment

    def alignment(self, image: NDArray[np.float32], found: Shift | None = None) -> Alignment:
        """Return the alignment of a block from its mean envelope, (pixels along z, x, y), and its shift if that is known."""
        found = self.registration.shift(image) if found is None else found
        is_like = found.likeness >= LEAST_LIKENESS
        image, counted, is_displaced = self._aligned(image, found)
        levels = _levels(image, self.image, counted)
        gain_db, gain_error = _median_and_error(levels)
        is_known = max(LEAST_GAIN_DB, GAIN_ERRORS * gain_error) < abs(gain_db) <= MOST_GAIN_DB
        profile = None
        if self.profiles is not None and is_like:
            profile = profile_of(rows_over(image, self.image, counted), self.profiles)
            if profile is not None and np.abs(profile).max() > MOST_GAIN_DB:
                profile = None
        is_uneven = _is_uneven(levels if profile is None else (levels.T - profile).T)
        # Where nothing is alike the displacement is not known.
        return Alignment(
            tuple(float(along) if is_like else math.nan for along in found.pixels),
            gain_db,
            found.likeness,
            is_shifted=self.registers and is_displaced,
            is_scaled=self.scales and is_like and (profile is not None or (is_known and not is_uneven)),
            is_uneven=is_like and is_uneven,
            profile_db=None if profile is None else tuple(profile.tolist()),
        )

    def rows(self, image: NDArray[np.float32], found: Shift) -> NDArray[np.float64]:
        """Return the rows of a block over the image, as :func:`rows_over`, from its mean envelope and its shift."""
        aligned, counted, _ = self._aligned(image, found)
        return rows_over(aligned, self.image, counted)

    def _aligned(
        self, image: NDArray[np.float32], found: Shift
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_], bool]:
        """Return a mean envelope without its shift, the pixels whose gain counts, and whether it is displaced."""
        shift, likeness, error = found
        is_near = bool((np.abs(shift) <= MOST_SHIFT * np.array(image.shape)).all())
        # Interpolation would spread pixels without data over their neighbours.
        is_whole = not (self.mask & (image == 0) & (self.image > 0)).any()
        is_displaced = likeness >= LEAST_LIKENESS and is_near and is_whole and _matters(shift, error)
        if is_displaced:
            image = shifted(image[None], shift)[0]
        return image, self.mask & (image > 0), is_displaced

    def apply(self, x: Array, alignment: Alignment, missing: NDArray[np.bool_] | None = None) -> Array:
        """Return a chunk, (n, n_pixels), shifted back and without the gain; itself if nothing changes.

        `missing` are entries that are filled in the chunk, and NaN in the result; by default those that are not finite.
        """
        xp, is_on_host = namespace(x), isinstance(x, np.ndarray)
        if alignment.is_shifted:
            if not is_on_host and not xp.all(xp.isfinite(x)):
                # Missing entries are filled on the host.
                return to_library(self.apply(to_host(x), alignment), x)
            if missing is None and is_on_host:
                x, missing = completed(x)
            shape, shift = (x.shape[0], *self.image.shape), np.array(alignment.shift)
            x = xp.reshape(shifted(xp.reshape(x, shape), shift), x.shape)
            missing = None if missing is None else _nearest(missing.reshape(shape), shift).reshape(x.shape)
        if missing is not None and missing.any():
            x[missing] = np.nan
        if alignment.is_scaled:
            factor: Array | float = float(10 ** (-alignment.gain_db / 20))
            if alignment.profile_db is not None:
                of_depth = 10 ** (-np.array(alignment.profile_db) / 20)
                of_pixel = np.repeat(of_depth, x.shape[1] // len(of_depth))
                factor = to_library(of_pixel.astype(np.empty(0, dtype_of(x)).real.dtype), x)
            with np.errstate(invalid="ignore"):
                x = x * factor
        return x


def completed(x: Numbers) -> tuple[Numbers, NDArray[np.bool_] | None]:
    """Return frames with values for the entries that are not finite, and which entries these are; None without any.

    They are what the leading temporal components of these frames have there: interpolation in space would spread any other
    value at the level of the tissue over the neighbours. The components come from some pixels, whose missing entries are
    filled by ever more of them: too many at once would fit the gaps. A frame or a pixel without a finite entry gets 0.

    Parameters
    ----------
    x : (n, n_pixels) array
        The frames.
    """
    missing = ~np.isfinite(x)
    if not missing.any():
        return x, None
    x, n_missing = np.where(missing, 0, x), np.count_nonzero(missing, axis=1)
    if not ((n_missing > 0) & (n_missing < x.shape[1])).any():
        return x, missing
    n, highest = len(x), max(len(x) // FRAMES_A_COMPONENT, 1)
    pixels = spread_rows(x.shape[1], MANY_PIXELS)
    some, gaps = x[:, pixels].astype(np.result_type(x, np.float64)), missing[:, pixels]
    energies = np.vecdot(some, some).real
    if not energies.any():
        return x, missing
    some[energies > MOST_ENERGY * np.median(energies[energies > 0])] = 0
    q = 0
    while q < highest:
        q = min(q + max(1, q // 3), highest)
        v = eigenvectors(some @ some.conj().T, subset_by_index=(n - q, n - 1))
        courses = v.conj().T @ some
        powers = np.vecdot(courses, courses).real
        rest = max(np.vdot(some, some).real - powers.sum(), 0.0) / n
        np.copyto(some, v @ courses, where=gaps)
    # Least squares of each pixel; the more a component is above the rest, the less its coefficient is pulled to 0.
    conjugate, ridge = v.conj().astype(x.dtype), rest / np.maximum(powers, TINY_SINGLE)
    fitted = fit_gapped_rows(x.T @ conjugate, ~missing.T, conjugate, ridge)
    for tile in slices_of(x.shape[1], MANY_PIXELS):
        np.copyto(x[:, tile], v.astype(x.dtype) @ fitted[tile].T, where=missing[:, tile])
    return x, missing


def nearest_good(bad: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the numbers of bad pixels of an image, and of the good pixel nearest to each."""
    good = np.flatnonzero(~bad).astype(np.float64)
    return np.flatnonzero(bad), Neighbourhood(~bad).filled(good)[bad.ravel()].astype(np.intp)


def mean_envelope(x: Array, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the mean envelope of some frames of a chunk, (n, n_pixels), without values that are not finite, as an image."""
    xp, subset = namespace(x), x[:: max(1, x.shape[0] // ENOUGH_FRAMES), :]
    counts = np.maximum(to_host(xp.count_nonzero(xp.isfinite(subset), axis=0)), 1)
    # Double precision, if the library has it
    wide = xp.__array_namespace_info__().dtypes(kind="real floating").get("float64")
    sums = to_host(xp.sum(envelope(subset), axis=0, dtype=wide))
    return (sums / counts).astype(np.float32).reshape(shape)


def reference_of(
    images: Sequence[NDArray[np.float32]],
    executor: Executor,
    registers: bool,
    scales: bool,
    before: Reference | None = None,
) -> tuple[Reference, list[Alignment]] | None:
    """Return the reference of a session, and the alignment of each block.

    Blocks are registered to one of them, then to the median of the aligned blocks, as a burst of motion in some blocks does
    not change the median. The reference is at the median of their places. Gains over depth count where gains differ.

    Parameters
    ----------
    images : sequence of (pixels along z, x, y) float32 arrays
        Mean envelope of each block.
    executor : Executor
        Maps over the blocks.
    registers, scales : bool
        Whether shifts are compensated, and gains divided out.
    before : Reference, optional
        An earlier reference of the session, in whose place the new one is; by default there is none.

    Returns
    -------
    (Reference, list of Alignment) or None
        None for a single block.
    """
    if len(images) < 2:
        return None
    # Some of many blocks have the same median.
    values = np.stack([images[number] for number in spread_rows(len(images), REFERENCE_BLOCKS)])
    registers = registers and min(values.shape[1:]) >= REGISTERED_PIXELS
    if registers:
        image = _aligned_median(values, None if before is None else before.image, executor)
    else:
        image = np.median(values, axis=0).astype(np.float32)
    reference = Reference(image, np.ones(image.shape, bool), registers, scales)
    found = list(executor.map(reference.registration.shift, images))
    if registers and (shifts := _corrected(found, False)).any():
        reference = replace(reference, mask=_common(np.stack(images), shifts))
    items = [*zip(images, found, strict=True)]
    alignments = list(executor.map(lambda item: reference.alignment(*item), items))
    if scales and any(alignment.is_uneven for alignment in alignments):
        alike = [item for item in items if item[1].likeness >= LEAST_LIKENESS]
        profiles = profiles_of(list(executor.map(lambda item: reference.rows(*item), alike)))
        if profiles is not None:
            reference = replace(reference, profiles=profiles)
            alignments = list(executor.map(lambda item: reference.alignment(*item), items))
    return reference, alignments


def _aligned_median(
    values: NDArray[np.float32], start: NDArray[np.float32] | None, executor: Executor
) -> NDArray[np.float32]:
    """Return the median of aligned images: against a start, or where the median image is."""
    median = np.median(values, axis=0).astype(np.float32)
    image = values[np.argmax(values.reshape(len(values), -1) @ median.ravel())] if start is None else start
    for _ in range(REFERENCE_ROUNDS):
        found = list(executor.map(Registration(image).shift, values))
        shifts = _corrected(found, start is None)
        if not shifts.any():
            return median
        items = zip(values, shifts, strict=True)
        aligned = np.stack(list(executor.map(lambda item: shifted(item[0][None], item[1])[0], items)))
        image = np.median(aligned, axis=0).astype(np.float32)
    return image


def _corrected(found: Sequence[Shift], to_median: bool) -> NDArray[np.float64]:
    """Return the shifts of blocks that are corrected, 0 for other blocks; on request against the median shift."""
    is_like = np.array([one.likeness >= LEAST_LIKENESS for one in found])
    shifts = np.where(is_like[:, None], [one.pixels for one in found], 0.0)
    if to_median:
        shifts -= np.median(shifts, axis=0)
    shifts[[not _matters(shift, one.error) for shift, one in zip(shifts, found, strict=True)]] = 0
    return shifts


def shifted(frames: Array, shift: NDArray[np.float64]) -> Array:
    """Return frames that are displaced by a shift as they are without it.

    Along each axis the image is interpolated by a sinc of 12 taps under a Kaiser window; beyond the edge it is mirrored. At
    a shift of 0.3 pixels the error is 18, 31 and 43 dB below speckle whose amplitude has a standard deviation of 0.6, 0.8
    and 1 pixel; the limit of the sampling is 17, 30 and 46 dB. Half a pixel along one axis takes 11 % of the power of white
    noise, and less of noise that is correlated.

    Parameters
    ----------
    frames : (n, pixels along z, x, y) array
        The frames.
    shift : (n_axes,) array
        Shift in pixels.

    References
    ----------
    J. F. Kaiser, Nonrecursive digital filter design using the I0-sinh window function. IEEE Int. Symp. Circuits and Systems,
    1974.
    """
    kernels = [(axis, *_kernel(frames.shape[axis], d)) for axis, d in enumerate(shift, 1) if d]
    # Compiled loops take half a second to load: a block of 128 x 128 x 300 takes 17 ms instead of 80
    if not isinstance(frames, np.ndarray) or frames.size < PART_ENTRIES:
        return _shifted_by_products(frames, kernels)
    from usdenoise.linalg.compiled_loops import along_columns, along_rows

    result, real = np.empty(frames.shape, frames.dtype), frames.real.dtype
    for chunk in cached_slices(len(frames), frames[0].size):
        part = np.ascontiguousarray(frames[chunk])
        for axis, taps, places in kernels:
            # Real and imaginary parts are columns of one real problem.
            columns = math.prod(part.shape[axis + 1 :]) * (part.itemsize // real.itemsize)
            into = np.empty_like(part)
            images = [array.view(real).reshape(-1, part.shape[axis], columns) for array in (part, into)]
            interpolate = along_rows if columns >= TAPS else along_columns
            interpolate(images[0], tuple(taps.astype(real)), places, images[1])
            part = into
        result[chunk] = part
    return result


Kernel = tuple[int, NDArray[np.float64], NDArray[np.intp]]
"""Axis of the frames, and taps and pixels from :func:`_kernel`."""


@in_full_precision
def _shifted_by_products(frames: Array, kernels: Sequence[Kernel]) -> Array:
    """Return frames of any library interpolated along some axes, by products with matrices."""
    xp, shape = namespace(frames), frames.shape
    for axis, taps, places in kernels:
        n = shape[axis]
        matrix = np.zeros((n, n), dtype_of(frames))
        for t, tap in enumerate(taps):
            np.add.at(matrix, (np.arange(n), places[t : t + n]), tap)
        if axis == len(shape) - 1:
            frames = frames @ to_library(matrix.T, frames)
        else:
            lines = xp.reshape(frames, (-1, n, math.prod(shape[axis + 1 :])))
            frames = xp.reshape(to_library(matrix, frames) @ lines, shape)
    return frames


def _kernel(n: int, shift: float) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the taps that interpolate n pixels at the places i + shift, and the n + TAPS - 1 pixels that they meet."""
    whole = math.floor(shift)
    offsets = np.arange(1 - TAPS // 2, TAPS // 2 + 1)
    distance = offsets - (shift - whole)
    taps = np.sinc(distance) * np.i0(KAISER * np.sqrt(np.maximum(1 - (2 * distance / TAPS) ** 2, 0)))
    places = (np.arange(n + TAPS - 1) + whole + offsets[0]) % (2 * n)
    return taps / taps.sum(), np.minimum(places, 2 * n - 1 - places)


def _nearest(values: NDArray[np.bool_], shift: NDArray[np.float64], edge: int = 0) -> NDArray[np.bool_]:
    """Return the nearest of values, (n, pixels along z, x, y), at the pixels of the reference; 0 outside the image.

    Along an axis that is shifted, `edge` pixels at each edge count as outside.
    """
    for axis, along in enumerate(shift, 1):
        n = values.shape[axis]
        positions = np.arange(n) + along
        values = values.take(np.clip(np.rint(positions).astype(int), 0, n - 1), axis=axis)
        margin = min(edge, n // EDGE_SHARE, 1 if abs(along) < FAR_SHIFT else edge)
        margin *= abs(along) >= LEAST_SHIFT
        outside = (positions < margin - 0.5) | (positions > n - 0.5 - margin)
        np.moveaxis(values, axis, 0)[outside] = 0
    return values


def _matters(shift: NDArray[np.float64], error: float) -> bool:
    """Return whether a shift is corrected: it is not small, and larger than its error."""
    return bool(np.abs(shift).max() >= max(LEAST_SHIFT, error))


def _common(images: NDArray[np.float32], shifts: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the pixels that are inside the image in all blocks but those that are displaced unusually far.

    A pixel that has a signal in one block is inside the image in all other blocks.
    """
    distance = np.abs(shifts)
    middle = np.median(distance, axis=0)
    usual = distance <= np.maximum(6 * middle, MOST_SHIFT * np.array(images.shape[1:]) / 4)
    has_signal = np.any(images > 0, axis=0, keepdims=True)
    inside = [_nearest(has_signal, shift, EDGE)[0] for shift in shifts[usual.all(axis=1)]]
    return np.asarray(np.all(inside, axis=0))


def _levels(
    image: NDArray[np.float32], reference: NDArray[np.float32], mask: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the level of an image over the reference in dB, in the brighter half of the pixels; NaN in the others."""
    levels = np.full(image.shape, np.nan)
    if mask.any():
        bright = mask & (reference > np.median(reference[mask]))
        levels[bright] = 20 * np.log10(image[bright] / reference[bright])
    return levels


def _is_uneven(levels: NDArray[np.float64]) -> bool:
    """Return whether levels, (pixels along z, x, y), differ between depths."""
    db = _median_and_error(levels)[0]
    bands = map(_median_and_error, np.array_split(levels, DEPTH_BANDS))
    return any(abs(gain - db) > max(UNEVEN_DB, GAIN_ERRORS * error) for gain, error in bands)


def _median_and_error(levels: NDArray[np.float64]) -> tuple[float, float]:
    """Return the median of the levels that are not NaN, and its standard error."""
    known = levels[np.isfinite(levels)]
    if not len(known):
        return 0.0, math.inf
    median = float(np.median(known))
    spread = 1.4826 * float(np.median(np.abs(known - median)))
    return median, 1.25 * spread / math.sqrt(max(len(known) / SPECKLE_PIXELS, 1.0))
