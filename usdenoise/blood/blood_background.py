"""What a pixel shows without blood: noise, and the tissue that the clutter filter left."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.channels import to_channels
from usdenoise.blood.clutter_projection import ClutterProjection
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.noise_map import MEDIAN_OF_SQUARE, median_of_chi_square, noise_map
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.lag_sums import LagSums

CELL_SIGMA = 0.85
"""Standard deviation in pixels of the average over neighbours: 2 pixels of full width at half maximum."""

NEGLIGIBLE = 1e-12
"""Ratio of two powers below which the smaller one does not count: rounding errors of single precision are above it."""

TINY = float(np.finfo(float).tiny)

HALVES = (slice(0, 1), slice(1, 2))
"""Lag sums of each half of the frames."""


@dataclass(frozen=True)
class Background:
    """Variances of the channels of a pixel without blood (see :mod:`usdenoise.blood.channels`).

    Attributes
    ----------
    pixel, average : (n_pixels,) float64 arrays
        Noise variance of a channel of a pixel, and of its average over neighbours; positive.
    tissue : (n_pixels,) float64 array
        Mean square of remaining tissue in the average, along `direction`.
    direction : (C,) float64 array
        Unit vector of the channels of remaining tissue; zeros where nothing was removed.
    """

    pixel: NDArray[np.float64]
    average: NDArray[np.float64]
    tissue: NDArray[np.float64]
    direction: NDArray[np.float64]

    def whiten(self, channels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return averages in which remaining tissue has the variance of the noise, as every other direction has."""
        shrink = np.sqrt(self.average / (self.average + self.tissue)) - 1
        along = channels @ self.direction
        whitened: NDArray[np.float64] = channels + (shrink * along)[:, None] * self.direction
        return whitened

    def rows(self, rows: slice) -> Self:
        """Return the background of some pixels."""
        return replace(self, pixel=self.pixel[rows], average=self.average[rows], tissue=self.tissue[rows])

    def for_half(self) -> Self:
        """Return the background of half of the frames: noise has twice the variance."""
        return replace(self, pixel=2 * self.pixel, average=2 * self.average)


@dataclass(frozen=True)
class NoiseLevels:
    """Noise of a stack.

    Attributes
    ----------
    power : (n_pixels,) float64 array
        Power of the noise before the clutter filter.
    pixel, average : (n_pixels,) float64 arrays
        Noise variance of a channel of a pixel, and of its average over neighbours, as in :class:`Background`.
    """

    power: NDArray[np.float64]
    pixel: NDArray[np.float64]
    average: NDArray[np.float64]


def measure_noise(
    lag_sums: LagSums, projection: ClutterProjection, grid: Neighbourhood, executor: Executor
) -> NoiseLevels:
    """Measure the power of the noise in the frequencies without blood, and its variance by two halves of the frames.

    The variances are medians over a wide window, so that vessels do not count. The difference of the halves holds
    noise that is correlated in space as it is.

    Parameters
    ----------
    lag_sums : LagSums
        Lagged products of the filtered stack.
    projection : ClutterProjection
        The clutter filter.
    grid : Neighbourhood
        Shape of the image.
    executor : Executor
        Measures both at the same time.
    """

    def power() -> tuple[NDArray[np.float64], ...]:
        halves = np.stack([lag_sums.mean(half, projection.n_frames) for half in HALVES])
        return (noise_map(halves, projection, grid),)

    def variances() -> tuple[NDArray[np.float64], ...]:
        difference = to_channels(lag_sums.difference(projection.n_frames), lag_sums.is_complex)
        freedom = difference.shape[1] - 1
        middle = freedom * median_of_chi_square(freedom)
        return tuple(
            grid.wide_median(np.vecdot(values[:, 1:], values[:, 1:])) / middle
            for values in (difference, grid.average(difference, CELL_SIGMA))
        )

    measured = executor.map(lambda task: task(), (power, variances))
    return NoiseLevels(*(values for part in measured for values in part))


def measure_background(
    average: NDArray[np.float64],
    noise: NoiseLevels,
    remaining_tissue: NDArray[np.float64],
    grid: Neighbourhood,
) -> Background:
    """Measure remaining tissue as the median over a wide window at the depth of each pixel.

    Parameters
    ----------
    average : (n_pixels, C) array
        Channels of the averages over neighbours, after subtraction of the mean noise.
    noise : NoiseLevels
        The noise.
    remaining_tissue : (C,) array
        Channels of remaining tissue; zeros where nothing was removed.
    grid : Neighbourhood
        Shape of the image.
    """
    least = max(NEGLIGIBLE * float(np.mean(average**2)), TINY)
    pixel, averaged = np.maximum(noise.pixel, least), np.maximum(noise.average, least)
    length = float(np.linalg.norm(remaining_tissue))
    direction = remaining_tissue / length if length > 0 else remaining_tissue
    along = grid.wide_median((average @ direction) ** 2) / MEDIAN_OF_SQUARE
    return Background(pixel, averaged, np.maximum(along - averaged, 0), direction)
