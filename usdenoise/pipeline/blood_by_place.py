"""The blood map with cutoffs by place: a first map says where blood is, and so what is taken out of each pixel."""

from dataclasses import dataclass

import numpy as np

from usdenoise.linalg.low_rank import LowRank
from usdenoise.pipeline.band import local_lags
from usdenoise.pipeline.blood.blood_background import measure_noise
from usdenoise.pipeline.blood.blood_map import BloodMap, estimate_blood
from usdenoise.pipeline.blood.clutter_projection import ClutterProjection, clutter_projection
from usdenoise.pipeline.blood.lags import LagSums
from usdenoise.pipeline.blood.local_cutoffs import LocalCutoffs, local_cutoffs
from usdenoise.pipeline.blood.neighbourhood import Neighbourhood
from usdenoise.pipeline.blood.picture_quality import shows_blood
from usdenoise.stack.casorati import CasoratiMatrix


@dataclass(frozen=True)
class MappedBlood:
    """A blood map, and the cutoffs by place with which it was made; None without clutter or without visible blood."""

    map: BloodMap
    cutoffs: LocalCutoffs | None


def map_blood(
    residual: CasoratiMatrix,
    model: LowRank,
    projection: ClutterProjection,
    lags: LagSums,
    low: int,
    grid: Neighbourhood,
) -> MappedBlood:
    """Return the blood map of a residual.

    Parameters
    ----------
    residual : CasoratiMatrix
        The data minus the components below the global cutoff.
    model : LowRank
        The components.
    projection : ClutterProjection
        The effect of the global cutoff.
    lags : LagSums
        Lagged products of the residual.
    low : int
        The global cutoff.
    grid : Neighbourhood
        Shape of the image.
    """
    executor = residual.executor
    noise = measure_noise(lags, projection, grid, executor)
    if low == 0:
        return MappedBlood(estimate_blood(lags, projection, noise, grid, executor), None)
    first = estimate_blood(lags, projection, noise, grid, executor, with_halves=False)
    if not shows_blood(first, residual.n_used_frames):
        return MappedBlood(estimate_blood(lags, projection, noise, grid, executor), None)
    cutoffs = local_cutoffs(model, low, first, grid)
    by_place = clutter_projection(
        model.right[:, : cutoffs.stop],
        of_blood=cutoffs.power_taken(first.blood_power),
        of_image=cutoffs.power_taken(np.ones(residual.n_pixels)),
        used=residual.used,
    )
    again = local_lags(residual, model, cutoffs, by_place.n_lags)
    return MappedBlood(estimate_blood(again, by_place, noise, grid, executor), cutoffs)
