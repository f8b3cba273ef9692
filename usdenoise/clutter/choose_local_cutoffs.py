"""The choice of the per-pixel cutoffs, from a first blood map of every second pixel, and the blood map itself."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_map import map_blood
from usdenoise.blood.clutter_projection import MOST_LAGS, ClutterProjection, clutter_projection
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.picture_quality import shows_blood
from usdenoise.clutter.lattice import Lattice
from usdenoise.clutter.local_cutoffs import LocalCutoffs, local_cutoffs
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.row_blocks import block_rows

WHITE = (5.0, 6.0)
"""A temporal vector is white up to L + 5 sqrt(L) + 6 for the statistic of L lags, which has the mean L: white noise
exceeds it in one vector of a million."""

LEAST_FRAMES = 24
"""Frames in which three lags are measured. With fewer frames, noise and slow motion cannot be distinguished."""

EVEN = 6.0
"""Largest kurtosis of a temporal vector of complex noise, which has 2, and of real noise, which has 3, times 3/2. For one
that is concentrated in some of the frames it is larger by all frames over those."""


@dataclass(frozen=True)
class LatticeFrames:
    """Some pixels of a stack in consecutive frames, from which the first blood map is made.

    Attributes
    ----------
    lattice : Lattice
        The pixels.
    values : (n_lattice, n) array
        Their values, which may hold NaN.
    start : int
        The first frame.
    used : (n_frames,) boolean array or None
        Frames of the stack that are not excluded; None for all.
    """

    lattice: Lattice
    values: NDArray[Any]
    start: int
    used: NDArray[np.bool_] | None

    @property
    def used_here(self) -> NDArray[np.bool_] | None:
        """Which of its frames are not excluded."""
        return None if self.used is None else self.used[self.start : self.start + self.values.shape[1]]

    def lag_sums(self, model: LowRank, low: int, n_lags: int, executor: Executor) -> LagSums:
        """Return the lags of the values without the components [0, low) of a model."""
        factor, factor_h = model.band(0, low)
        factor = factor[self.lattice.pixels]
        factor_h = np.ascontiguousarray(factor_h[:, self.start : self.start + self.values.shape[1]])
        used = self.used_here

        def products(rows: slice) -> LagSums:
            block = self.values[rows] - factor[rows] @ factor_h
            if used is not None:
                block[:, ~used] = 0
            observed = np.isfinite(block)
            if observed.all():
                return LagSums.from_rows(block, None, n_lags, used)
            return LagSums.from_rows(np.where(observed, block, 0), observed, n_lags, used)

        return LagSums.joined(executor.map(products, block_rows(self.values.shape)))


def choose_local_cutoffs(
    lattice_frames: LatticeFrames, model: LowRank, low: int, grid: Neighbourhood, executor: Executor
) -> tuple[ClutterProjection, LocalCutoffs | None]:
    """Choose per-pixel cutoffs, from a blood map of every second pixel with the global cutoff.

    Parameters
    ----------
    lattice_frames : LatticeFrames
        Values of every second pixel, with their clutter.
    model : LowRank
        The components.
    low : int
        The global cutoff.
    grid : Neighbourhood
        Shape of the image.
    executor : Executor
        Maps over the pixels.

    Returns
    -------
    projection : ClutterProjection
        The effect on autocorrelations over time of the filter with which a blood map is made.
    cutoffs : LocalCutoffs or None
        The per-pixel cutoffs of that filter; None if it removes the components below the global cutoff in all pixels.
    """
    clutter = without_noise(model.right[:, :low])
    projection = clutter_projection(model.right[:, :clutter], used=lattice_frames.used)
    nowhere = LocalCutoffs(low, clutter, np.zeros((grid.n_pixels, low - clutter), np.float32))
    cutoffs = None if clutter == low else nowhere
    if clutter == 0:
        return projection, cutoffs
    stop = lattice_frames.start + lattice_frames.values.shape[1]
    band_projection = clutter_projection(
        model.right[lattice_frames.start : stop, :clutter], used=lattice_frames.used_here
    )
    lags = lattice_frames.lag_sums(model, clutter, band_projection.n_lags, executor)
    coarse = map_blood(lags, band_projection, lattice_frames.lattice.coarse, executor, with_halves=False)
    n_used = len(model.right) if lattice_frames.used is None else int(np.count_nonzero(lattice_frames.used))
    clutter_power = float(np.sum(model.singular_values**2)) / (grid.n_pixels * n_used)
    if not shows_blood(coarse, n_used, clutter_power):
        return projection, cutoffs
    first = replace(
        coarse,
        blood_power=lattice_frames.lattice.interpolated(coarse.blood_power),
        noise_power=lattice_frames.lattice.interpolated(coarse.noise_power),
    )
    cutoffs = local_cutoffs(model, clutter, first, grid).up_to(low)
    per_pixel = clutter_projection(
        model.right[:, : cutoffs.stop],
        blood_shares=cutoffs.removed_power_share(first.blood_power),
        image_shares=cutoffs.removed_power_share(np.ones(grid.n_pixels)),
        used=lattice_frames.used,
    )
    return per_pixel, cutoffs


def without_noise(right: NDArray[Any]) -> int:
    """Return the number of leading components without the noise components at the end.

    Where more components are removed than clutter has, the last ones are the strongest directions of the noise. They
    hold more of it than the share that they have of the frames, the more so where noise is correlated in space or grows
    with depth. A component counts as noise where its temporal vector is white by its autocorrelation (Ljung and Box,
    Biometrika 65(2), 1978) and is not concentrated in some frames, as interference is.

    Parameters
    ----------
    right : (n_frames, k) array
        Temporal singular vectors.
    """
    n = len(right)
    if n < LEAST_FRAMES:
        return int(right.shape[1])
    lags = np.arange(1, min(MOST_LAGS, n // 8) + 1)
    spectra = np.abs(np.fft.fft(right.astype(np.complex128), 2 * n, axis=0)) ** 2
    autocorrelation = np.fft.ifft(spectra, axis=0)[lags]
    statistic = n * np.sum(np.abs(autocorrelation) ** 2, axis=0)
    kurtosis = n * np.sum(np.abs(right) ** 4, axis=0)
    times = (
        1 if np.iscomplexobj(right) else 2
    )  # the variance of a real statistic is twice the variance of a complex one
    most = len(lags) + WHITE[0] * np.sqrt(times * len(lags)) + WHITE[1] * times
    # In few frames noise may have as much as a component with half of the largest autocorrelation: that is none.
    most = min(most, n * float(np.sum((1 - lags / n) ** 2)) / 4)
    is_noise = (statistic <= most) & (kurtosis <= EVEN * (1 + times) / 2)
    return int(np.flatnonzero(~is_noise)[-1]) + 1 if not is_noise.all() else 0
