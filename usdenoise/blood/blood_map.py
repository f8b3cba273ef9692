"""The blood map: blood power without the noise, compensated for the part that the clutter filter removed."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood, Slab
from usdenoise.blood.noise import (
    CELL_SIGMA,
    HALVES,
    ClutterProjection,
    measure_noise,
    remaining_tissue,
    to_channels,
    to_lags,
)
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.linalg.tall_matrices import NEGLIGIBLE, TINY, cached_slices, correlation_of

_ALL = slice(None)
"""Lag sums of all frames."""


@dataclass(frozen=True)
class BloodMap:
    """Blood and noise power of each pixel.

    Attributes
    ----------
    blood_power, noise_power : (n_pixels,) float64 arrays
        Powers before the clutter filter, in the squared unit of the stack.
    evidence : (n_pixels,) float64 array
        Share in [0, 1] of the signal of a pixel that noise and remaining tissue do not explain.
    kept_share : (n_pixels,) float64 array
        Share of the blood's power that the clutter filter keeps at the pixel's Doppler spectrum, in [0, 1];
        meaningless without evidence of blood.
    error : (n_pixels,) float64 array
        Standard deviation of the noise in the average over neighbours, of which a map of noise alone is made.
    reproducibility : float or None
        Correlation of the maps of two interleaved halves of the frames, over the error; None if one of them is constant, or
        they were not made.
    """

    blood_power: NDArray[np.float64]
    noise_power: NDArray[np.float64]
    evidence: NDArray[np.float64]
    kept_share: NDArray[np.float64]
    error: NDArray[np.float64]
    reproducibility: float | None


def map_blood(
    lag_sums: LagSums,
    projection: ClutterProjection,
    grid: Neighbourhood,
    executor: Executor,
    with_halves: bool = True,
) -> BloodMap:
    """Measure the noise of a filtered stack, and return its blood map.

    The expected lags of a pixel are r_l = B s_l + N w_l: blood of power B whose autocorrelation has, after the
    clutter filter, the shape s_l, and noise of power N with the known shape w_l. The steps:

    1. N w_l is subtracted. N comes from :func:`usdenoise.blood.noise.measure_noise`.
    2. The lags are averaged over neighbours. The power before the filter is solved for (see
       :class:`usdenoise.blood.noise.ClutterProjection`).
    3. The ratio of the pixel to the average is the least-squares factor <pixel, average> / <average, average> over
       the lags.
    4. The power is multiplied by the share of the signal that noise and remaining tissue do not explain.

    docs/how-it-works.md has the sources, docs/evidence.md the measured figures.

    Parameters
    ----------
    lag_sums : LagSums
        Lagged products of the filtered stack.
    projection : ClutterProjection
        The clutter filter.
    grid : Neighbourhood
        Shape of the image; pixels in the order of the Casorati matrix.
    executor : Executor
        Makes the maps of all frames and of the two halves at the same time.
    with_halves : bool
        Whether the maps of two halves are made and compared; by default True.
    """
    is_complex, slabs = lag_sums.is_complex, grid.slabs(CELL_SIGMA)
    noise = measure_noise(lag_sums, projection, grid, executor)
    white = projection.white if is_complex else projection.white.real
    channels = to_channels(projection.remaining_tissue, is_complex)
    length = float(np.linalg.norm(channels))
    direction = channels / length if length > 0 else channels

    def cells(slab: Slab, halves: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # Channels of the pixels without the mean noise, and their averages over neighbours
        lags = lag_sums.mean(halves, projection.n_frames, slab.rows) - noise.power[slab.rows, None] * white
        pixel = to_channels(lags, is_complex)
        return pixel[slab.inner], slab.grid.average(pixel, CELL_SIGMA)[slab.inner]

    def first_look(slab: Slab) -> tuple[NDArray[np.float64], float, Any]:
        pixel, average = cells(slab, _ALL)
        # They are made again where memory would not hold them
        kept = (pixel, average) if len(slabs) == 1 else None
        return (average @ direction) ** 2, float(np.vdot(pixel, pixel)), kept

    along, squares, kept = zip(*executor.map(first_look, slabs), strict=True)
    least = max(NEGLIGIBLE * sum(squares) / (grid.n_pixels * len(direction)), TINY)
    noise = replace(noise, pixel=np.maximum(noise.pixel, least), average=np.maximum(noise.average, least))
    tissue = remaining_tissue(np.concatenate(along), noise, grid)

    # No power is negative, so a pixel has at most its average over the pixel's weight in it.
    most = (2 * np.pi * CELL_SIGMA**2) ** (grid.n_axes / 2)
    units = to_lags(np.eye(len(direction)), is_complex)
    before, after_filter = projection.power_before(units), units[:, 0].real

    def estimate(part: tuple[Slab, slice]) -> NDArray[np.float64]:
        slab, halves = part
        pixel, average = kept[0] if halves == _ALL and kept[0] is not None else cells(slab, halves)
        # The noise of half of the frames has twice the variance.
        variance = 1 if halves == _ALL else 2
        estimates = np.empty((3, len(pixel)))
        for rows in cached_slices(*pixel.shape):
            at = slice(slab.own.start + rows.start, slab.own.start + rows.stop)
            around, of_average = average[rows], variance * noise.average[at]
            power = np.maximum(around @ before, 0)
            # Along its direction the tissue gets the variance of the noise, as every other direction has
            shrink = np.sqrt(of_average / (of_average + tissue[at])) - 1
            whitened = around + (shrink * (around @ direction))[:, None] * direction
            evidence = _evidence(whitened, of_average)
            negligible = np.maximum(NEGLIGIBLE * variance * noise.pixel[at], TINY)
            total = np.maximum(np.vecdot(around, around), negligible)
            ratio = np.clip(np.vecdot(pixel[rows], around) / total, 0, most)
            after = np.maximum(around @ after_filter, 0)
            kept_share = after / np.maximum(np.maximum(power, after), TINY)
            estimates[:, rows] = ratio * power * evidence, evidence, kept_share
        return estimates

    parts = [_ALL, *(HALVES if with_halves else ())]
    found = list(executor.map(estimate, [(slab, halves) for halves in parts for slab in slabs]))
    of_parts = [
        np.concatenate(found[first : first + len(slabs)], axis=1)
        for first in range(0, len(found), len(slabs))
    ]
    power, evidence, kept_share = of_parts[0]
    # Noise that grows with depth would be alike in both
    error = np.sqrt(noise.average)
    agreement = correlation_of(*(half[0] / error for half in of_parts[1:])) if with_halves else None
    return BloodMap(power, noise.power, evidence, kept_share, error, agreement)


def _evidence(average: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the energy at lags above 0 that is above the mean of noise plus one standard deviation.

    The step at 0 is rounded over one standard deviation, so that weak vessels keep their rank.
    """
    n = average.shape[1] - 1
    energy = np.vecdot(average[:, 1:], average[:, 1:])
    deviation = np.sqrt(2 * n) * noise
    excess = energy - n * noise - deviation
    rounded = (excess + np.hypot(excess, deviation)) / 2
    return np.asarray(np.minimum(rounded, energy) / np.maximum(energy, TINY))
