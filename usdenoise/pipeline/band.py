"""Keep a band [low, high) of the components, with or without the residual."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.row_blocks import row_squared_norms
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


def keep_band(matrix: CasoratiMatrix, model: LowRank, band: Band, out: NDArray[Any]) -> NDArray[np.float64]:
    """Write the filtered matrix, and return its power Doppler.

    Parameters
    ----------
    matrix : CasoratiMatrix
        The data; its values may be `out`.
    model : LowRank
        The components.
    band : Band
        The part that is kept.
    out : (n_pixels, n_frames) array
        Receives the filtered matrix.

    Returns
    -------
    (n_pixels,) float64 array
        Mean of |s|^2 over frames.
    """
    kept, kept_h = model.band(band.low, band.high)
    clutter, clutter_h = model.band(0, band.low)

    def filtered(rows: slice) -> NDArray[np.float64]:
        target = out[rows]
        if band.keeps_residual:
            np.subtract(matrix.values[rows], clutter[rows] @ clutter_h, out=target)
            observed = matrix.observed_mask(rows)
            if observed is not None and not observed.all():
                target[~observed] = (kept[rows] @ kept_h)[~observed]
        else:
            np.matmul(kept[rows], kept_h, out=target)
        power: NDArray[np.float64] = row_squared_norms(target) / matrix.n_frames
        return power

    return np.concatenate(list(matrix.map_row_blocks(filtered)))
