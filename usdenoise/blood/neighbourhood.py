"""Averages over a pixel's neighbours, and medians over a wide window at its depth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.row_blocks import row_blocks

DEPTH_WINDOW = 7
"""Pixels of the wide window in depth: with a gain of 20 dB over 100 pixels noise differs by 0.6 dB from its middle."""

WIDTH_WINDOWS: dict[int, tuple[int, ...]] = {1: (), 2: (41,), 3: (13, 13)}
"""Pixels of the wide window in the other directions, by the number of spatial axes. It has some hundred pixels."""

COARSE = 3
"""The wide median is taken at every third of a window, and interpolated: it is smoothed over two pixels afterwards."""

SMOOTHING_SIGMAS = (2.0, 6.0, 6.0)
"""Standard deviations in pixels, in depth and across it, by which wide medians are smoothed."""

REACH = 9.0
"""Standard deviations beyond which a Gaussian weight, at most 3e-18 of the largest, is 0. Many of those beyond would be
subnormal numbers, with which a product takes four times as long."""

AVERAGED_TOGETHER = 32
"""Pixels along an axis that are smoothed together, from those in their reach."""


@dataclass(frozen=True)
class Neighbourhood:
    """Pixels on a grid: (n_z,), (n_z, n_x) or (n_z, n_x, n_y), in the order of the Casorati matrix."""

    shape: tuple[int, ...]

    @property
    def n_pixels(self) -> int:
        """Number of pixels."""
        return math.prod(self.shape)

    @property
    def n_axes(self) -> int:
        """Number of spatial axes."""
        return len(self.shape)

    def average(self, values: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
        """Return Gaussian averages over neighbours; the weights of pixels inside the image sum to 1.

        Parameters
        ----------
        values : (n_pixels, ...) array
            Values by pixel.
        sigma : float
            Standard deviation in pixels.
        """
        return self._smoothed(values, (sigma,) * len(self.shape))

    def wide_median(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the median over a wide window around each pixel: narrow in depth and wide across it.

        Medians are taken on a coarse grid and interpolated.

        Parameters
        ----------
        values : (n_pixels,) array
            Values by pixel.
        """
        sizes = [
            min(size, n)
            for size, n in zip((DEPTH_WINDOW, *WIDTH_WINDOWS[len(self.shape)]), self.shape, strict=True)
        ]
        image = values.reshape(self.shape)
        windows = np.lib.stride_tricks.sliding_window_view(image, sizes)
        centres = [
            _coarse(n - size + 1, max(size // COARSE, 1)) for n, size in zip(self.shape, sizes, strict=True)
        ]
        chosen = windows[np.ix_(*centres)]
        coarse = np.median(chosen.reshape(*chosen.shape[: len(sizes)], -1), axis=-1)
        places = [centre + (size - 1) / 2 for size, centre in zip(sizes, centres, strict=True)]
        return self._smoothed(self.interpolated(coarse, places), SMOOTHING_SIGMAS[: len(self.shape)])

    def interpolated(
        self, values: NDArray[np.float64], places: Sequence[NDArray[Any]]
    ) -> NDArray[np.float64]:
        """Return values on a coarse grid in all pixels: linear between its points, constant beyond the last.

        Parameters
        ----------
        values : array
            Values at the points, of as many as there are places.
        places : sequence of arrays
            Places of the points along each axis, in pixels.
        """
        fine = values.reshape([len(along) for along in places])
        for axis, (n, along) in enumerate(zip(self.shape, places, strict=True)):
            fine = _along(_interpolation(n, along), fine, axis)
        return fine.reshape(-1)

    def _smoothed(self, values: NDArray[np.float64], sigmas: tuple[float, ...]) -> NDArray[np.float64]:
        image = values.reshape(*self.shape, -1)
        for axis, sigma in enumerate(sigmas):
            image = _smoothed_along(image, sigma, axis)
        return image.reshape(values.shape)


def _coarse(n: int, step: int) -> NDArray[np.int64]:
    """Return 0, about every step-th number, and n - 1."""
    return np.unique(np.linspace(0, n - 1, -(-(n - 1) // step) + 1).round()).astype(np.int64)


def _interpolation(n: int, nodes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the (n, nodes) matrix of linear interpolation from nodes to 0..n-1, constant beyond the nodes."""
    return np.stack([np.interp(np.arange(n), nodes, column) for column in np.eye(len(nodes))], axis=1)


def _gaussian(n: int, sigma: float) -> NDArray[np.float64]:
    """Return the (n, n) matrix of Gaussian weights; each row sums to 1."""
    offset = np.abs(np.arange(n)[:, None] - np.arange(n))
    weights = np.where(offset <= REACH * sigma, np.exp(-0.5 * (offset / sigma) ** 2), 0.0)
    matrix: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return matrix


def _smoothed_along(image: NDArray[np.float64], sigma: float, axis: int) -> NDArray[np.float64]:
    """Return the Gaussian averages of an image along one of its axes."""
    n, reach = image.shape[axis], math.ceil(REACH * sigma)
    matrix, lines = _gaussian(n, sigma), _lines(image, axis)
    smoothed = np.empty_like(lines)
    for part in row_blocks(n, AVERAGED_TOGETHER):
        near = slice(max(part.start - reach, 0), part.stop + reach)
        np.matmul(matrix[part, near], lines[:, near], out=smoothed[:, part])
    return smoothed.reshape(image.shape)


def _along(matrix: NDArray[np.float64], image: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return the product of a matrix with an image of any number of axes, along one of them."""
    product: NDArray[np.float64] = matrix @ _lines(image, axis)
    return product.reshape(*image.shape[:axis], len(matrix), *image.shape[axis + 1 :])


def _lines(image: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return a view of an image with three axes: all before `axis` in one, `axis` itself, and all after it in one."""
    return image.reshape(-1, image.shape[axis], math.prod(image.shape[axis + 1 :]))
