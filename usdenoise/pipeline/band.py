"""Keep a band [low, high) of the components, with or without the residual."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.lag_sums import COMPILED_ENTRIES
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.row_blocks import row_squared_norms
from usdenoise.pipeline.blood.lags import LagSums
from usdenoise.stack.casorati import CasoratiMatrix


@dataclass(frozen=True)
class Band:
    """The part of a stack that a filter keeps.

    Attributes
    ----------
    low : int
        Low cutoff: the components [0, low) are removed.
    high : int
        High cutoff: the components [low, high) of the model are kept.
    keeps_residual : bool
        Whether the result is the data minus the components [0, low), as a classical clutter filter gives. Then
        `high` counts only where entries are unobserved: the model's components [low, high) fill them.
    """

    low: int
    high: int
    keeps_residual: bool


@dataclass(frozen=True)
class FilteredBand:
    """What is measured on a stack while it is filtered.

    Attributes
    ----------
    power : (n_pixels,) float64 array
        Power Doppler: mean of |s|^2 over frames of the filtered stack.
    lags : LagSums
        Lagged products of the residual, the data minus the components below the low cutoff.
    """

    power: NDArray[np.float64]
    lags: LagSums


def keep_band(
    matrix: CasoratiMatrix, model: LowRank, band: Band, n_lags: int, out: NDArray[Any]
) -> FilteredBand:
    """Write the filtered matrix, and return its power Doppler and the lagged products of the residual.

    Parameters
    ----------
    matrix : CasoratiMatrix
        The data; its values may be `out`.
    model : LowRank
        The components.
    band : Band
        The part that is kept.
    n_lags : int
        Number of lags, lag 0 included; 0 for none.
    out : (n_pixels, n_frames) array
        Receives the filtered matrix.
    """
    kept, kept_h = model.band(band.low, band.high)
    clutter, clutter_h = model.band(0, band.low)
    compiled = matrix.values.size >= COMPILED_ENTRIES

    def filtered(rows: slice) -> tuple[NDArray[np.float64], LagSums]:
        target = out[rows]
        observed = matrix.observed_mask(rows)
        if observed is not None and observed.all():
            observed = None
        if band.keeps_residual or n_lags > 0:
            np.subtract(matrix.values[rows], clutter[rows] @ clutter_h, out=target)
            if observed is not None:
                target[~observed] = 0
        lags = LagSums.of_rows(target, observed, n_lags, compiled)
        if not band.keeps_residual:
            np.matmul(kept[rows], kept_h, out=target)
        elif observed is not None:
            target[~observed] = (kept[rows] @ kept_h)[~observed]
        return row_squared_norms(target) / matrix.n_frames, lags

    powers, lags = zip(*matrix.map_row_blocks(filtered), strict=True)
    return FilteredBand(np.concatenate(powers), LagSums.joined(lags))
