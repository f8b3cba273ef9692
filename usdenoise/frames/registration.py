"""Registration: the shift of images against a reference, by phase correlation and by least squares."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PEAK_SIGMA = 1.5
"""Standard deviation, in pixels, of the Gaussian peak of a shift. The normalised spectrum is weighted with the Gaussian's
transform, so that the logarithm of the peak is a parabola through three points, which gives fractions of a pixel."""

GAUSS_NEWTON_STEPS = 3
"""Steps after the phase correlation: it finds the shift to some hundredths of a pixel, the steps to a hundredth."""

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
    frequencies = [*map(np.fft.fftfreq, size[:-1]), np.fft.rfftfreq(size[-1])]
    squares = sum(along**2 for along in np.ix_(*frequencies))
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

    window: NDArray[np.float64]
    image: NDArray[np.float64]
    gradients: NDArray[np.float64]
    hessian: NDArray[np.float64]

    @classmethod
    def of(cls, reference: NDArray[np.floating]) -> "Registration":
        """Return the prepared reference image, (pixels along each axis...)."""
        window = hann_window(reference.shape, np.float64)
        image = _normalised(reference, window)
        spectrum = np.fft.fftn(image)
        gradients = np.stack(
            [np.fft.ifftn(2j * np.pi * along * spectrum).real for along in _frequencies(image.shape)]
        )
        axes = tuple(range(1, gradients.ndim))
        hessian = np.stack([(window * gradients * one).sum(axis=axes) for one in gradients])
        return cls(window, image, gradients, hessian)

    def shift(self, image: NDArray[np.floating]) -> tuple[NDArray[np.float64], float]:
        """Return the shift of an image against the reference, in pixels, and how alike they are without it.

        The peak of the phase correlation, then Gauss-Newton steps on the squared difference (Lucas and Kanade, IJCAI, 1981).

        Parameters
        ----------
        image : (pixels along each axis...) array
            The image.

        Returns
        -------
        shift : (n_axes,) float64 array
            Positive where the image is shifted towards larger indices; 0 if it is the same everywhere.
        likeness : float
            Correlation of the gradients of both: 1 for the same image, about 0 for two images of noise alone.
        """
        moving = _normalised(image, self.window)
        both = np.stack([moving * self.window, self.image * self.window]).astype(np.float32)
        spectra = image_spectra(both)
        shift: NDArray[np.float64] = shifts(spectra[:1], spectra[1], image.shape)[0]
        if not self.hessian.any() or not moving.any():
            return np.zeros(image.ndim), 0.0
        spectrum = np.fft.fftn(moving)
        frequencies = _frequencies(image.shape)

        def back() -> NDArray[Any]:
            phase = sum(along * d for along, d in zip(frequencies, shift, strict=True))
            shifted: NDArray[Any] = spectrum * np.exp(2j * np.pi * phase)
            return shifted

        for _ in range(GAUSS_NEWTON_STEPS):
            difference = self.window * (np.fft.ifftn(back()).real - self.image)
            slopes = (difference * self.gradients).sum(axis=tuple(range(1, self.gradients.ndim)))
            shift = shift - np.linalg.lstsq(self.hessian, slopes)[0]
        return shift, self._likeness(back())

    def _likeness(self, spectrum: NDArray[Any]) -> float:
        """Return the correlation of the gradients of an image, given by its spectrum, and of the reference."""
        gradients = np.stack(
            [np.fft.ifftn(2j * np.pi * f * spectrum).real for f in _frequencies(spectrum.shape)]
        )
        weighted = self.window * gradients
        energies = np.sum(weighted * gradients) * np.trace(self.hessian)
        return float(np.sum(weighted * self.gradients) / np.sqrt(energies)) if energies > 0 else 0.0


def _normalised(image: NDArray[np.floating], window: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an image without its mean and with unit energy, both under a window."""
    values = image - np.sum(window * image) / np.sum(window)
    energy = np.sum(window * values**2)
    normalised: NDArray[np.float64] = values / np.sqrt(energy) if energy > TINY else 0 * values
    return normalised


def _frequencies(size: tuple[int, ...]) -> list[NDArray[np.float64]]:
    """Return the frequency along each axis, in cycles a pixel, of arrays that broadcast."""
    return list(np.ix_(*map(np.fft.fftfreq, size)))
