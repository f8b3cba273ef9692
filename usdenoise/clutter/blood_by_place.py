"""The choice of the cutoffs by place, from a first blood map of every second pixel, and the blood map itself."""

from dataclasses import replace

import numpy as np

from usdenoise.blood.blood_map import map_blood
from usdenoise.blood.clutter_projection import ClutterProjection, clutter_projection
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.picture_quality import shows_blood
from usdenoise.clutter.lattice import Lattice
from usdenoise.clutter.local_cutoffs import LocalCutoffs, local_cutoffs
from usdenoise.linalg.low_rank import LowRank
from usdenoise.stack.rows import Rows


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
        The cutoffs by place of that filter; None without clutter or without visible blood, where it has the global one.
    """
    projection = clutter_projection(model.right[:, :low], used=rows.used)
    if low == 0:
        return projection, None
    lattice = Lattice.over(grid)
    lags = rows.lag_sums(projection.n_lags, model.band(0, low), lattice.pixels)
    coarse = map_blood(lags, projection, lattice.coarse, rows.executor, with_halves=False)
    if not shows_blood(coarse, rows.n_used_frames):
        return projection, None
    first = replace(
        coarse,
        blood_power=lattice.interpolated(coarse.blood_power),
        noise_power=lattice.interpolated(coarse.noise_power),
    )
    cutoffs = local_cutoffs(model, low, first, grid)
    by_place = clutter_projection(
        model.right[:, : cutoffs.stop],
        blood_shares=cutoffs.power_taken(first.blood_power),
        image_shares=cutoffs.power_taken(np.ones(rows.n_pixels)),
        used=rows.used,
    )
    return by_place, cutoffs
