"""Keep a band [low, high) of the components, with or without the residual."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.local_cutoffs import LocalCutoffs
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.linalg.low_rank import LowRank
from usdenoise.stack.rows import Rows


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


def remove_clutter(
    rows: Rows, model: LowRank, low: int, n_lags: int, cutoffs: LocalCutoffs | None = None
) -> tuple[Rows, NDArray[np.float64], LagSums]:
    """Take the components [0, low) out of the data, and measure what is left.

    Parameters
    ----------
    rows : Rows
        The data. The values of an array become the residual.
    model : LowRank
        The components.
    low : int
        Low cutoff.
    n_lags : int
        Number of lags, lag 0 included; 0 for none.
    cutoffs : LocalCutoffs, optional
        With them, the lagged products are those of a residual from which every pixel's own share of the components is
        taken. By default they are those of the residual, as the power is in any case.

    Returns
    -------
    residual : Rows
        The residual, 0 where an entry is unobserved.
    power : (n_pixels,) float64 array
        Power Doppler: mean of |s|^2 over frames, with 0 for unobserved entries.
    lags : LagSums
        Lagged products of the residual.
    """
    further = None if cutoffs is None else cutoffs.correction(model)
    return rows.subtract(model.band(0, low), n_lags, further)


def keep_band(
    residual: Rows,
    model: LowRank,
    band: Band,
    power: NDArray[np.float64],
) -> tuple[Rows, NDArray[np.float64]]:
    """Turn a residual into the band that is kept, and measure its power Doppler.

    Excluded frames are filled by the model, and do not count in the power.

    Parameters
    ----------
    residual : Rows
        From :func:`remove_clutter`, with the low cutoff of the band. The values of an array become the band. Where the
        band is without the residual, they may be anything.
    model : LowRank
        The components. Those of the band fill unobserved entries.
    band : Band
        The part that is kept.
    power : (n_pixels,) float64 array
        Power of the residual.

    Returns
    -------
    kept : Rows
        The band.
    power : (n_pixels,) float64 array
        Mean of |s|^2 over its frames.
    """
    if band.keeps_residual and residual.is_complete and residual.excluded is None:
        return residual, power
    return residual.fill(model.band(band.low, band.high), keep_observed=band.keeps_residual)
