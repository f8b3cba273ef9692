"""Registration: the shift of images against a reference, by phase correlation and by least squares."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PEAK_SIGMA = 1.5
"""Standard deviation, in pixels, of the Gaussian peak of a shift. The normalised spectrum is weighted with the Gaussian's
transform, so that the logarithm of the peak is a parabola through three points, which gives fractions of a pixel."""

GAUSS_NEWTON_STEPS = 2
"""Steps after the phase correlation: it finds the shift to some hundredths of a pixel, the steps to a hundredth."""

SPECKLE_PIXELS = 8
"""Pixels of an image whose envelopes count as one independent value, for standard errors."""

TINY = float(np.finfo(np.float32).tiny)


def hann_window(size: tuple[int, ...], dtype: type[np.floating]) -> NDArray[Any]:
    """Return a Hann window, (pixels along each axis...), which is 0 one pixel outside the image."""
    window = np.ones(size, dtype)
    for axis in np.ix_(*(np.hanning(n + 2)[1:-1] for n in size)):
        window = window * axis.astype(dtype)
    return window


def image_spectra(images: NDArray[np.float32]) -> NDArray[np.complex64]:
    """Return the Fourier transforms of real images, (n_images, pixels along each axis...), along all axes but the first."""
    return np.fft.rfftn(images, axes=_axes(images)).astype(np.complex64, copy=False)


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
    cross = spectra * reference.conj()
    cross *= _peak_spectrum(size) / np.maximum(np.abs(cross), TINY)
    correlation = np.fft.irfftn(cross, size, axes=_axes(cross)).astype(np.float32, copy=False)
    return _peaks(correlation)


def _axes(images: NDArray[Any]) -> tuple[int, ...]:
    return tuple(range(1, images.ndim))


def _peak_spectrum(size: tuple[int, ...]) -> NDArray[np.float32]:
    squares: Any = sum(along**2 for along in _frequencies(size))
    spectrum: NDArray[np.float32] = np.exp(-2 * (np.pi * PEAK_SIGMA) ** 2 * squares).astype(np.float32)
    return spectrum


def _peaks(correlation: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the position of the largest value of each image, between the pixels, as a signed shift."""
    n_images, *size = correlation.shape
    flat = correlation.reshape(n_images, math.prod(size))
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
        low, peak, high = np.log(np.maximum(near, TINY))
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
    hessian : (n_axes, n_axes) array
        Sums of their products under the window.
    """

    window: NDArray[np.float32]
    image: NDArray[np.float32]
    gradients: NDArray[np.float32]
    hessian: NDArray[np.float64]

    @classmethod
    def of(cls, reference: NDArray[np.floating]) -> "Registration":
        """Return the prepared reference image, (pixels along each axis...)."""
        window = hann_window(reference.shape, np.float32)
        image = _normalised(reference, window)
        gradients = _gradients(np.fft.rfftn(image), image.shape)
        axes = tuple(range(1, gradients.ndim))
        hessian = np.stack([(window * gradients * one).sum(axis=axes, dtype=np.float64) for one in gradients])
        return cls(window, image, gradients, hessian)

    def shift(self, image: NDArray[np.floating]) -> Shift:
        """Return the shift of an image against the reference.

        The peak of the phase correlation, then Gauss-Newton steps on the squared difference (Lucas and Kanade, IJCAI, 1981).

        Parameters
        ----------
        image : (pixels along each axis...) array
            The image.
        """
        size, axes = image.shape, tuple(range(1, self.gradients.ndim))
        moving = _normalised(image, self.window)
        spectra = image_spectra(np.stack([moving * self.window, self.image * self.window]))
        shift: NDArray[np.float64] = shifts(spectra[:1], spectra[1], size)[0]
        if not self.hessian.any() or not moving.any():
            return Shift(np.zeros(image.ndim), 0.0, math.inf)
        spectrum, frequencies = np.fft.rfftn(moving), _frequencies(size)

        def back() -> NDArray[Any]:
            shifted: NDArray[Any] = spectrum
            for along, d in zip(frequencies, shift, strict=True):
                shifted = shifted * np.exp(2j * np.pi * d * along).astype(spectrum.dtype)
            return shifted

        for _ in range(GAUSS_NEWTON_STEPS):
            difference = self.window * (np.fft.irfftn(back(), size, axes=range(len(size))) - self.image)
            slopes = (difference * self.gradients).sum(axis=axes, dtype=np.float64)
            shift = shift - np.linalg.lstsq(self.hessian, slopes)[0]
        gradients = _gradients(back(), size)
        weighted = self.window * gradients
        energies = np.sum(weighted * gradients, dtype=np.float64) * np.trace(self.hessian)
        likeness = (
            float(np.sum(weighted * self.gradients, dtype=np.float64) / np.sqrt(energies))
            if energies > 0
            else 0.0
        )
        # Least squares: the variance of the difference, of which neighbouring pixels have the same, over the curvature
        variance = float(
            np.sum(difference * difference, dtype=np.float64) / np.sum(self.window**2, dtype=np.float64)
        )
        of_axes = np.diag(np.linalg.pinv(self.hessian))
        return Shift(shift, likeness, float(np.sqrt(SPECKLE_PIXELS * variance * of_axes.max())))


def _gradients(spectrum: NDArray[Any], size: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the gradients along each axis of an image, given by its spectrum."""
    slopes = [(2j * np.pi * along).astype(spectrum.dtype) * spectrum for along in _frequencies(size)]
    return np.stack([np.fft.irfftn(slope, size, axes=range(len(size))) for slope in slopes])


def _normalised(image: NDArray[np.floating], window: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an image without its mean and with unit energy, both under a window."""
    values = image - np.sum(window * image, dtype=np.float64) / np.sum(window, dtype=np.float64)
    energy = np.sum(window * values**2)
    normalised: NDArray[np.float64] = values / np.sqrt(energy) if energy > TINY else 0 * values
    return normalised.astype(np.float32)


def _frequencies(size: tuple[int, ...]) -> list[NDArray[np.float64]]:
    """Return the frequency along each axis of a real transform, in cycles a pixel, of arrays that broadcast."""
    frequencies: list[Any] = [*map(np.fft.fftfreq, size[:-1]), np.fft.rfftfreq(size[-1])]
    return list(np.ix_(*frequencies))
