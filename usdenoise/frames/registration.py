"""Registration of images."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PEAK_SIGMA = 1.5
"""Standard deviation, in pixels, of the Gaussian peak of a shift. The normalised spectrum is weighted with the Gaussian's
transform, so that the logarithm of the peak is a parabola through three points, which gives fractions of a pixel."""

GAUSS_NEWTON_STEPS = 2
"""Steps after the phase correlation: it finds the shift to some hundredths of a pixel, the steps to a hundredth."""

SPECKLE_PIXELS = 8
"""Pixels of an image whose envelopes count as one independent value, for standard errors."""

TINY_SINGLE = float(np.finfo(np.float32).tiny)


def hann_window(size: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a Hann window, (pixels along each axis...), which is 0 one pixel outside the image."""
    window = np.ones(size, np.float32)
    for axis in np.ix_(*(np.hanning(n + 2)[1:-1] for n in size)):
        window *= axis.astype(np.float32)
    return window


def image_spectra(images: NDArray[np.float32]) -> NDArray[np.complex64]:
    """Return the Fourier transforms of real images, (n_images, pixels along each axis...), along all axes but the first."""
    return np.fft.rfftn(images, axes=tuple(range(1, images.ndim))).astype(np.complex64, copy=False)


def shifts(
    spectra: NDArray[np.complex64], reference: NDArray[np.complex64], size: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return the shifts of images against a reference, in pixels.

    The position of the peak of the phase correlation (Kuglin and Hines, Proc. IEEE Conf. Cybernetics and Society, 1975).

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
    squares = np.asarray(sum(along**2 for along in _frequencies(size)))
    peak_spectrum = np.exp(-2 * (np.pi * PEAK_SIGMA) ** 2 * squares).astype(np.float32)
    cross = spectra * reference.conj()
    cross *= peak_spectrum / np.maximum(np.abs(cross), TINY_SINGLE)
    correlation = np.fft.irfftn(cross, size, axes=tuple(range(1, cross.ndim))).astype(np.float32, copy=False)
    # The largest value of each image, between the pixels
    n_images = len(correlation)
    flat = correlation.reshape(n_images, -1)
    best = np.stack(np.unravel_index(flat.argmax(axis=1), size), axis=1)
    positions = best.astype(np.float64)
    for axis, n in enumerate(size):
        if n < 3:
            continue
        near = []
        for step in (-1, 0, 1):
            index = best.copy()
            index[:, axis] = (index[:, axis] + step) % n
            near.append(correlation[(np.arange(n_images), *index.T)].astype(np.float64))
        low, peak, high = np.log(np.maximum(near, TINY_SINGLE))
        curvature = low - 2 * peak + high
        positions[:, axis] += np.where(curvature < 0, 0.5 * (low - high) / np.minimum(curvature, -1e-12), 0)
        positions[:, axis] -= n * (positions[:, axis] > n / 2)
    return np.where(flat.max(axis=1, keepdims=True) > 0, positions, 0.0)


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


@dataclass(frozen=True)
class Registration:
    """A reference image, prepared for the registration of other images.

    Attributes
    ----------
    window : (pixels along each axis...) array
        Hann window.
    image : array of this shape
        The reference, without its mean and with unit energy under the window.
    gradients : (n_axes, pixels along each axis...) array
        Gradients of it.
    """

    window: NDArray[np.float32]
    image: NDArray[np.float32]
    gradients: NDArray[np.float32]

    @classmethod
    def of(cls, reference: NDArray[np.floating]) -> "Registration":
        """Return the prepared reference image, (pixels along each axis...)."""
        window = hann_window(reference.shape)
        image = _normalised(reference, window)
        return cls(window, image, _gradients(np.fft.rfftn(image), image.shape))

    @cached_property
    def hessian(self) -> NDArray[np.float64]:
        """Sums of the products of the gradients under the window, (n_axes, n_axes)."""
        axes = tuple(range(1, self.gradients.ndim))
        products = [
            (self.window * self.gradients * one).sum(axis=axes, dtype=np.float64) for one in self.gradients
        ]
        return np.stack(products)

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
        spectra = image_spectra(np.stack([moving * window, self.image * window]))
        shift: NDArray[np.float64] = shifts(spectra[:1], spectra[1], size)[0]
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
