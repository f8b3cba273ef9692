"""Sums of lagged products along the rows of a matrix, by halves of the columns."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

QUARTERS = 4
"""The columns are cut into four parts. The first and the third one are half 0, the others half 1."""


def lag_sums(rows: NDArray[Any], n_lags: int) -> NDArray[Any]:
    """Return sum_t x[t + l] conj(x[t]) for each row x, lag l and half of the columns.

    Parameters
    ----------
    rows : (m, n) array
        Contiguous along the rows; real or complex.
    n_lags : int
        Number of lags: 0 to n_lags - 1. At most n.

    Returns
    -------
    (2, m, n_lags) float64 or complex128 array
        Sums over the column numbers t of half 0 and of half 1, with t + l < n. Each quarter is summed in the
        precision of the rows, and the quarters are added in double precision.
    """
    m, n = rows.shape
    sums = np.zeros((2, m, n_lags), np.result_type(rows.dtype, np.float64))
    if n_lags == 0:
        return sums
    for quarter, (first, last) in enumerate(pairwise(quarter_edges(n))):
        part = rows[:, first : last + n_lags - 1]
        # Beyond the end there are zeros.
        missing = last + n_lags - 1 - n
        if missing > 0:
            part = np.pad(part, ((0, 0), (0, missing)))
        # All lags in one call: with many short ones, threads would wait for each other.
        lagged = sliding_window_view(part, last - first, axis=1)
        sums[quarter % 2] += np.vecdot(part[:, None, : last - first], lagged)
    return sums


def quarter_edges(n: int) -> NDArray[np.int64]:
    """Return the five edges of the four quarters of n columns."""
    return np.linspace(0, n, QUARTERS + 1).astype(np.int64)


def pair_counts(n: int, n_lags: int, used: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    """Return the number of products in each sum of :func:`lag_sums`: a (2, n_lags) array.

    Parameters
    ----------
    n : int
        Number of columns.
    n_lags : int
        Number of lags.
    used : (n,) boolean array, optional
        Columns that count; by default all.
    """
    if used is not None:
        return lag_sums(used[None].astype(np.float64), n_lags)[:, 0]
    counts = np.zeros((2, n_lags))
    edges = quarter_edges(n)
    for quarter in range(QUARTERS):
        last = np.minimum(edges[quarter + 1], n - np.arange(n_lags))
        counts[quarter % 2] += np.maximum(last - edges[quarter], 0)
    return counts
