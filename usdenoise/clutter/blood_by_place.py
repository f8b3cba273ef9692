"""The choice of the cutoffs by place, from a first blood map of every second pixel, and the blood map itself."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_map import map_blood
from usdenoise.blood.clutter_projection import MOST_LAGS, ClutterProjection, clutter_projection
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.picture_quality import shows_blood
from usdenoise.clutter.lattice import Lattice
from usdenoise.clutter.local_cutoffs import LocalCutoffs, local_cutoffs
from usdenoise.linalg.low_rank import LowRank
from usdenoise.stack.rows import Rows

WHITE = (5.0, 6.0)
"""A temporal vector is white up to L + 5 sqrt(L) + 6 for the statistic of L lags, which has the mean L: that of white noise
is above in one vector of a million."""

LEAST_FRAMES = 24
"""Frames in which three lags are measured. With fewer, noise and slow motion are not told apart."""

EVEN = 6.0
"""Largest kurtosis of a temporal vector of complex noise, which has 2, and of real noise, which has 3, times 3/2. For one
that is concentrated in some of the frames it is larger by all frames over those."""


def filter_by_place(
    rows: Rows, model: LowRank, low: int, grid: Neighbourhood
) -> tuple[ClutterProjection, LocalCutoffs | None]:
    """Choose cutoffs by place, from a blood map of every second pixel with the global cutoff.

    Parameters
    ----------
    rows : Rows
        The data, with their clutter.
    model : LowRank
        The components.
    low : int
        The global cutoff.
    grid : Neighbourhood
        Shape of the image.

    Returns
    -------
    projection : ClutterProjection
        The effect on autocorrelations over time of the filter with which a blood map is made.
    cutoffs : LocalCutoffs or None
        The cutoffs by place of that filter; None where it takes out the components below the global cutoff everywhere.
    """
    clutter = without_noise(model.right[:, :low])
    projection = clutter_projection(model.right[:, :clutter], used=rows.used)
    nowhere = LocalCutoffs(low, clutter, np.zeros((rows.n_pixels, low - clutter), np.float32))
    cutoffs = None if clutter == low else nowhere
    if clutter == 0:
        return projection, cutoffs
    lattice = Lattice.over(grid)
    lags = rows.lag_sums(projection.n_lags, model.band(0, clutter), lattice.pixels)
    coarse = map_blood(lags, projection, lattice.coarse, rows.executor, with_halves=False)
    clutter_power = float(np.sum(model.singular_values**2)) / (rows.n_pixels * rows.n_used_frames)
    if not shows_blood(coarse, rows.n_used_frames, clutter_power):
        return projection, cutoffs
    first = replace(
        coarse,
        blood_power=lattice.interpolated(coarse.blood_power),
        noise_power=lattice.interpolated(coarse.noise_power),
    )
    cutoffs = local_cutoffs(model, clutter, first, grid).up_to(low)
    by_place = clutter_projection(
        model.right[:, : cutoffs.stop],
        blood_shares=cutoffs.power_taken(first.blood_power),
        image_shares=cutoffs.power_taken(np.ones(rows.n_pixels)),
        used=rows.used,
    )
    return by_place, cutoffs


def without_noise(right: NDArray[Any]) -> int:
    """Return the number of components that is left of some when those at the end that are noise are taken off.

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
    )  # the variance of a real statistic is twice that of a complex one
    most = len(lags) + WHITE[0] * np.sqrt(times * len(lags)) + WHITE[1] * times
    # In few frames noise may have as much as a component with half of the largest autocorrelation: that is none.
    most = min(most, n * float(np.sum((1 - lags / n) ** 2)) / 4)
    is_noise = (statistic <= most) & (kurtosis <= EVEN * (1 + times) / 2)
    return int(np.flatnonzero(~is_noise)[-1]) + 1 if not is_noise.all() else 0
