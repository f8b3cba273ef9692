"""Phase correlation of images with a reference, at the low frequencies that its smooth peak has, by matrix products."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

PEAK_SIGMA = 1.5
"""Standard deviation, in pixels, of the Gaussian peak that a displacement makes. The normalised spectrum is weighted with
the Gaussian's transform, so that its logarithm is a parabola through three points, which gives fractions of a pixel."""

SPACING = 1.5
"""Pixels between the points at which the peak is looked for. The frequencies that such points tell apart have all but 0.7 %
of the weight; on moved speckle the error was 0.026 pixels, and 0.024 with every pixel and frequency."""

SMALL = 16
"""Pixels along an axis up to which every pixel and frequency is taken."""


@dataclass(frozen=True)
class PhaseCorrelation:
    """The discrete Fourier transform of images of one size at low frequencies, and back to the peak.

    Attributes
    ----------
    size, points : tuple of int
        Pixels, and points of the correlation, along each axis.
    forward, backward : tuple of complex64 arrays
        By axis: (frequencies, pixels) and (points, frequencies). Along the first axis there are no negative frequencies:
        the images are real.
    weight : (frequencies along each axis..., 1) float32 array
        Transform of the Gaussian peak.
    """

    size: tuple[int, ...]
    points: tuple[int, ...]
    forward: tuple[NDArray[np.complex64], ...]
    backward: tuple[NDArray[np.complex64], ...]
    weight: NDArray[np.float32]

    @classmethod
    def for_size(cls, size: tuple[int, ...]) -> Self:
        """Return the transforms of images of a size."""
        points = tuple(max(math.ceil(n / SPACING), min(n, SMALL)) for n in size)
        forward, backward = [], []
        weight = np.ones(1)
        for axis, (n, m) in enumerate(zip(size, points, strict=True)):
            cycles = _frequencies(n, m, only_positive=axis == 0)
            turn = 2j * np.pi * cycles
            forward.append(np.exp(-turn[:, None] * np.arange(n) / n).astype(np.complex64))
            # Of a real image the negative frequencies are the conjugates of the positive ones.
            counted = np.where((cycles == 0) | (2 * cycles == n), 1, 2) if axis == 0 else np.ones(len(cycles))
            backward.append((counted * np.exp(np.arange(m)[:, None] * turn / m)).astype(np.complex64))
            weight = weight[..., None] * np.exp(-2 * (np.pi * PEAK_SIGMA * cycles / n) ** 2)
        return cls(size, points, tuple(forward), tuple(backward), weight[0, ..., None].astype(np.float32))

    def spectra(self, images: NDArray[np.float32]) -> NDArray[np.complex64]:
        """Return the spectra of images, (pixels along each axis..., n_images), at the low frequencies."""
        first = self.forward[0]
        parts = np.concatenate([first.real, first.imag]) @ images.reshape(self.size[0], -1)
        spectra = np.empty((len(first), parts.shape[1]), np.complex64)
        spectra.real, spectra.imag = np.split(parts, 2)
        spectra = spectra.reshape(len(first), *images.shape[1:])
        for axis in range(1, len(self.size)):
            spectra = _along(self.forward[axis], spectra, axis)
        return spectra

    def displacements(
        self, spectra: NDArray[np.complex64], reference: NDArray[np.complex64]
    ) -> NDArray[np.float64]:
        """Return the displacement of images against a reference, in pixels.

        Parameters
        ----------
        spectra : (frequencies along each axis..., n_images) array
            From :meth:`spectra`.
        reference : (frequencies along each axis...) array
            The spectrum of the reference.

        Returns
        -------
        (n_images, n_axes) float64 array
            Positive where an image is displaced towards larger indices; 0 where one is the same everywhere.
        """
        cross = spectra * reference.conj()[..., None]
        cross *= self.weight / np.maximum(np.abs(cross), np.finfo(np.float32).tiny)
        for axis in range(1, len(self.size)):
            cross = _along(self.backward[axis], cross, axis)
        first = self.backward[0]
        # The real part of a complex product is a real product with both parts.
        parts = np.concatenate([cross.real, cross.imag]).reshape(2 * len(cross), -1)
        correlation = np.concatenate([first.real, -first.imag], axis=1) @ parts
        return self._peaks(np.moveaxis(correlation.reshape(*self.points, -1), -1, 0))

    def _peaks(self, correlation: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the place of the largest value of each image, between the points, as a signed displacement."""
        flat = correlation.reshape(len(correlation), -1)
        best = np.stack(np.unravel_index(flat.argmax(axis=1), self.points), axis=1)
        places = best.astype(np.float64)
        numbers = np.arange(len(correlation))
        for axis, (n, m) in enumerate(zip(self.size, self.points, strict=True)):
            if m < 3:
                continue
            near = []
            for step in (-1, 0, 1):
                index = best.copy()
                index[:, axis] = (index[:, axis] + step) % m
                near.append(correlation[(numbers, *index.T)].astype(np.float64))
            low, peak, high = np.log(np.maximum(near, np.finfo(np.float32).tiny))
            curvature = low - 2 * peak + high
            places[:, axis] += np.where(curvature < 0, 0.5 * (low - high) / np.minimum(curvature, -1e-12), 0)
            places[:, axis] -= m * (places[:, axis] > m / 2)
            places[:, axis] *= n / m
        return np.where(flat.max(axis=1, keepdims=True) > 0, places, 0.0)


def _frequencies(n: int, n_points: int, only_positive: bool) -> NDArray[np.int64]:
    """Return the frequencies, in cycles over n pixels, that so many points tell apart."""
    if n_points == n:
        return np.arange(n // 2 + 1) if only_positive else np.arange(n) - n // 2
    highest = (n_points - 1) // 2
    return np.arange(0 if only_positive else -highest, highest + 1)


def _along(matrix: NDArray[np.complex64], values: NDArray[np.complex64], axis: int) -> NDArray[np.complex64]:
    """Return the product of a matrix with an array, along one of its axes."""
    shape = values.shape
    flat = values.reshape(math.prod(shape[:axis]), shape[axis], -1)
    product: NDArray[np.complex64] = np.matmul(matrix, flat)
    return product.reshape(*shape[:axis], len(matrix), *shape[axis + 1 :])
