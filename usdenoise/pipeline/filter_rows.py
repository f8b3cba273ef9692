"""The filter that a model of the components makes: what is left of the rows, and its blood map."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_map import BloodMap, map_blood
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.clutter.band import Band, keep_band, remove_clutter
from usdenoise.clutter.blood_by_place import filter_by_place
from usdenoise.frames.filling import interpolated
from usdenoise.linalg.low_rank import LowRank
from usdenoise.stack.rows import Rows


@dataclass(frozen=True)
class FilteredRows:
    """A filtered stack with its images.

    Attributes
    ----------
    kept : Rows
        The band that is kept.
    power : (n_pixels,) float64 array
        Its power Doppler: mean of |s|^2 over the frames.
    residual_power : (n_pixels,) float64 array
        The same of the data without the components below the low cutoff.
    blood : BloodMap
        The blood map.
    model : LowRank
        The components, interpolated over excluded frames.
    """

    kept: Rows
    power: NDArray[np.float64]
    residual_power: NDArray[np.float64]
    blood: BloodMap
    model: LowRank


def filter_rows(
    rows: Rows,
    model: LowRank,
    band: Band,
    grid: Neighbourhood,
    *,
    with_halves: bool = True,
) -> FilteredRows:
    """Keep a band of the components, and map the blood that is left.

    Parameters
    ----------
    rows : Rows
        The data, with their clutter. The values of an array become the band.
    model : LowRank
        The components.
    band : Band
        The part that is kept.
    grid : Neighbourhood
        Shape of the image.
    with_halves : bool
        Whether blood maps of two halves of the frames are compared; by default True.
    """
    projection, cutoffs = filter_by_place(rows, model, band.low, grid)
    rest, residual_power, lags = remove_clutter(rows, model, band.low, projection.n_lags, cutoffs)
    blood = map_blood(lags, projection, grid, rows.executor, with_halves)
    model = interpolated(model, rows.excluded)
    kept, power = keep_band(rest, model, band, residual_power)
    return FilteredRows(kept, power, residual_power, blood, model)
