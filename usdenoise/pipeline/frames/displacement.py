"""Displacement of the image in every frame, by phase correlation of the envelopes."""

from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.row_blocks import row_blocks
from usdenoise.stack.casorati import CasoratiMatrix

LARGEST_IMAGE: dict[int, int] = {1: 256, 2: 64, 3: 24}
"""Pixels along an axis of the middle part that is looked at, by the number of spatial axes."""

FRAMES_A_BLOCK = 64

REFERENCE_FRAMES = 256
"""Frames, evenly spread over the scan, whose mean is the reference."""

PEAK_SIGMA = 1.5
"""Standard deviation, in pixels, of the Gaussian peak that a displacement makes. The normalised spectrum is weighted with
the Gaussian's transform, so that its logarithm is a parabola through three pixels, which gives fractions of a pixel."""


@singledispatch
def displacements(matrix: CasoratiMatrix, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the displacement of each frame against a mean frame, in pixels.

    The peak of the phase correlation (Kuglin and Hines, Proc. IEEE Conf. Cybernetics and Society, 1975) of the
    envelopes, in the middle of the image and under a Hann window.

    Parameters
    ----------
    matrix : CasoratiMatrix
        The stack.
    shape : tuple of int
        Pixels along each spatial axis, in the order of the Casorati matrix.

    Returns
    -------
    (n_frames, n_axes) float64 array
        Positive where the image is displaced towards larger indices. 0 where a frame is the same everywhere.
    """
    return image_displacements(
        matrix.values.reshape(*shape, matrix.n_frames)[middle(shape, LARGEST_IMAGE[len(shape)])],
        matrix.executor,
    )


def middle(shape: tuple[int, ...], most: int) -> tuple[slice, ...]:
    """Return the middle part of an image, at most `most` pixels along an axis."""
    return tuple(slice((n - min(n, most)) // 2, (n + min(n, most)) // 2) for n in shape)


def image_displacements(image: NDArray[Any], executor: Executor) -> NDArray[np.float64]:
    """Return the displacement of each frame of an image; see :func:`displacements`.

    Parameters
    ----------
    image : array
        Spatial axes, then time.
    executor : Executor
        Maps over parts of the frames.
    """
    size, n_frames = image.shape[:-1], image.shape[-1]
    axes = tuple(range(1, len(size) + 1))
    window = np.ones(size, np.float32)
    for axis in np.ix_(*(np.hanning(n + 2)[1:-1] for n in size)):
        window = window * axis.astype(np.float32)
    weight = _gaussian_spectrum(size)

    def spectra(frames: slice | NDArray[np.intp]) -> NDArray[Any]:
        envelope = np.moveaxis(np.abs(image[..., frames]).astype(np.float32), -1, 0)
        envelope = envelope - envelope.mean(axis=axes, keepdims=True)
        transformed: NDArray[Any] = np.fft.rfftn(envelope * window, axes=axes)
        return transformed

    def peaks(spectrum: NDArray[Any], reference: NDArray[Any]) -> NDArray[np.float64]:
        cross = spectrum * reference.conj()
        size_of = np.abs(cross)
        cross *= weight / np.maximum(size_of, np.finfo(np.float32).tiny)
        return _peaks(np.fft.irfftn(cross, s=size, axes=axes))

    blocks = list(row_blocks(n_frames, FRAMES_A_BLOCK))
    step = n_frames // REFERENCE_FRAMES
    if step < 2:
        made = list(executor.map(spectra, blocks))
        mean = np.sum([spectrum.sum(axis=0) for spectrum in made], axis=0)
        found = executor.map(lambda spectrum: peaks(spectrum, mean), made)
    else:
        some = np.arange(0, n_frames, step)
        parts = [some[frames] for frames in row_blocks(len(some), FRAMES_A_BLOCK)]
        mean = np.sum(list(executor.map(lambda frames: spectra(frames).sum(axis=0), parts)), axis=0)
        found = executor.map(lambda frames: peaks(spectra(frames), mean), blocks)
    return np.concatenate(list(found))


def _gaussian_spectrum(size: tuple[int, ...]) -> NDArray[np.float32]:
    frequencies = [np.fft.fftfreq(n) for n in size[:-1]] + [np.fft.rfftfreq(size[-1])]
    weight = np.ones((*size[:-1], size[-1] // 2 + 1), np.float32)
    for axis in np.ix_(*frequencies):
        weight *= np.exp(-2 * (np.pi * PEAK_SIGMA * axis) ** 2).astype(np.float32)
    return weight


def _peaks(correlation: NDArray[Any]) -> NDArray[np.float64]:
    """Return the place of the largest value of each image, between the pixels, as a signed displacement."""
    n_frames, *size = correlation.shape
    flat = correlation.reshape(n_frames, -1)
    best = np.stack(np.unravel_index(flat.argmax(axis=1), size), axis=1)
    places = best.astype(np.float64)
    numbers = np.arange(n_frames)
    for axis, n in enumerate(size):
        if n < 3:
            continue
        near = []
        for step in (-1, 0, 1):
            index = best.copy()
            index[:, axis] = (index[:, axis] + step) % n
            near.append(correlation[(numbers, *index.T)].astype(np.float64))
        low, peak, high = np.log(np.maximum(near, np.finfo(np.float32).tiny))
        curvature = low - 2 * peak + high
        places[:, axis] += np.where(curvature < 0, 0.5 * (low - high) / np.minimum(curvature, -1e-12), 0)
        places[:, axis] -= n * (places[:, axis] > n / 2)
    return np.where(flat.max(axis=1, keepdims=True) > 0, places, 0.0)
