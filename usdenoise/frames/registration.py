"""Registration: the shift of images against a reference, by phase correlation."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

PEAK_SIGMA = 1.5
"""Standard deviation, in pixels, of the Gaussian peak of a shift. The normalised spectrum is weighted with the Gaussian's
transform, so that the logarithm of the peak is a parabola through three points, which gives fractions of a pixel."""

TINY = float(np.finfo(np.float32).tiny)


def image_spectra(images: NDArray[np.float32]) -> NDArray[np.complex64]:
    """Return the Fourier transforms of real images, (n_images, pixels along each axis...), along all axes but the first."""
    return np.fft.rfftn(images, axes=_axes(images)).astype(np.complex64, copy=False)


def shifts(
    spectra: NDArray[np.complex64], reference: NDArray[np.complex64], size: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the shifts of images against a reference, in pixels.

    The place of the peak of the phase correlation (Kuglin and Hines, Proc. IEEE Conf. Cybernetics and Society, 1975).

    Parameters
    ----------
    spectra : (n_images, frequencies along each axis...) array
        From :func:`image_spectra`.
    reference : (frequencies along each axis...) array
        The spectrum of the reference.
    size : tuple of int
        Pixels along each axis.

    Returns
    -------
    (n_images, n_axes) float64 array
        Positive where an image is shifted towards larger indices; 0 where one is the same everywhere.
    """
    cross = spectra * reference.conj()
    cross *= _peak_spectrum(size) / np.maximum(np.abs(cross), TINY)
    correlation = np.fft.irfftn(cross, size, axes=_axes(cross)).astype(np.float32, copy=False)
    return _peaks(correlation)


def _axes(images: NDArray[Any]) -> tuple[int, ...]:
    return tuple(range(1, images.ndim))


def _peak_spectrum(size: tuple[int, ...]) -> NDArray[np.float32]:
    frequencies = [*map(np.fft.fftfreq, size[:-1]), np.fft.rfftfreq(size[-1])]
    squares = sum(along**2 for along in np.ix_(*frequencies))
    spectrum: NDArray[np.float32] = np.exp(-2 * (np.pi * PEAK_SIGMA) ** 2 * squares).astype(np.float32)
    return spectrum


def _peaks(correlation: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the place of the largest value of each image, between the pixels, as a signed shift."""
    n_images, *size = correlation.shape
    flat = correlation.reshape(n_images, math.prod(size))
    best = np.stack(np.unravel_index(flat.argmax(axis=1), size), axis=1)
    places = best.astype(np.float64)
    for axis, n in enumerate(size):
        if n < 3:
            continue
        near = []
        for step in (-1, 0, 1):
            index = best.copy()
            index[:, axis] = (index[:, axis] + step) % n
            near.append(correlation[(np.arange(n_images), *index.T)].astype(np.float64))
        low, peak, high = np.log(np.maximum(near, TINY))
        curvature = low - 2 * peak + high
        places[:, axis] += np.where(curvature < 0, 0.5 * (low - high) / np.minimum(curvature, -1e-12), 0)
        places[:, axis] -= n * (places[:, axis] > n / 2)
    return np.where(flat.max(axis=1, keepdims=True) > 0, places, 0.0)
