"""Keeping the band [low, high) of the components, row block by row block."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.row_blocks import block_rows, row_squared_norms
from usdenoise.stack.bit_mask import unpack


def keep_band(
    matrix: NDArray[Any],
    model: LowRank,
    low: int,
    high: int | None,
    executor: Executor,
    observed: NDArray[np.uint8] | None,
    out: NDArray[Any],
) -> NDArray[np.float64]:
    """Write the filtered matrix, and return its power Doppler.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The data, 0 where they are unobserved. May be `out`.
    model : LowRank
        The components.
    low : int
        Components below are removed.
    high : int or None
        With a number the result is the components [low, high) of the model. With None it is the data less
        the components [0, low): the residual stays; where the data are unobserved the model's components
        from low on stand in.
    executor : Executor
        Maps over the row blocks.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the observed entries; None when all are.
    out : (n_pixels, n_frames) array
        Receives the result.

    Returns
    -------
    (n_pixels,) float64 array
        Mean of |s|^2 over frames.
    """
    kept, kept_h = model.band(low, model.rank if high is None else high)
    clutter, clutter_h = model.band(0, low)

    def filtered(rows: slice) -> NDArray[np.float64]:
        target = out[rows]
        if high is not None:
            np.matmul(kept[rows], kept_h, out=target)
        else:
            np.subtract(matrix[rows], clutter[rows] @ clutter_h, out=target)
            if observed is not None:
                missing = ~unpack(observed[rows], matrix.shape[1])
                if missing.any():
                    target[missing] = (kept[rows] @ kept_h)[missing]
        power: NDArray[np.float64] = row_squared_norms(target) / matrix.shape[1]
        return power

    return np.concatenate(list(executor.map(filtered, block_rows(matrix.shape))))
