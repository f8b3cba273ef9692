"""Lagged products along the rows of a matrix, by halves of the columns: the autocorrelation over time of a stack.

:class:`LagSums` holds them. :func:`lag_sums` makes those of whole rows in memory, :func:`part_lag_sums` those of a part of
the columns, whose sums over all parts are the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

QUARTERS = 4
"""The columns are cut into four parts. The first and the third one are half 0, the others half 1."""


def lag_sums(rows: NDArray[Any], n_lags: int, in_halves: bool = True) -> NDArray[Any]:
    """Return sum_t x[t + l] conj(x[t]) for each row x, lag l and half of the columns.

    Parameters
    ----------
    rows : (m, n) array
        Contiguous along the rows; real or complex.
    n_lags : int
        Number of lags: 0 to n_lags - 1. At most n.
    in_halves : bool
        Whether the halves are summed apart, as by default; otherwise half 0 has all columns, in half the time where they
        are few.

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
    for quarter, (first, last) in enumerate(pairwise(quarter_edges(n) if in_halves else (0, n))):
        part = rows[:, first : last + n_lags - 1]
        # Beyond the end there are zeros.
        missing = last + n_lags - 1 - n
        if missing > 0:
            part = np.pad(part, ((0, 0), (0, missing)))
        # All lags in one call: with many short ones, threads would wait for each other.
        lagged = sliding_window_view(part, last - first, axis=1)
        sums[quarter % 2] += np.vecdot(part[:, None, : last - first], lagged)
    return sums


def part_lag_sums(rows: NDArray[Any], first: int, start: int, n_columns: int, n_lags: int) -> NDArray[Any]:
    """Return the products of :func:`lag_sums` whose later column is in one part of the columns.

    Parameters
    ----------
    rows : (m, n) array
        The columns `first` and later, to the end of the part.
    first, start : int
        Number of the first column of `rows`, and of the first column of the part; `first` is up to n_lags - 1 before
        `start`.
    n_columns : int
        Number of columns of the matrix.
    n_lags : int
        Number of lags.

    Returns
    -------
    (2, m, n_lags) float64 or complex128 array
    """
    double = np.complex128 if np.iscomplexobj(rows) else np.float64
    sums = np.zeros((2, len(rows), n_lags), double)
    edges, stop = quarter_edges(n_columns), first + rows.shape[1]
    for quarter in range(QUARTERS):
        for lag in range(n_lags):
            begin = max(int(edges[quarter]), start - lag, first)
            end = min(int(edges[quarter + 1]), stop - lag)
            if begin < end:
                early = rows[:, begin - first : end - first]
                late = rows[:, begin + lag - first : end + lag - first]
                sums[quarter % 2, :, lag] += np.vecdot(early, late)
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


@dataclass(frozen=True)
class LagSums:
    """Lagged products of the rows of a stack, and their numbers, by halves of the frames.

    Attributes
    ----------
    sums : (2, n_pixels, L + 1) array
        Sum of f[t + l] conj(f[t]) over the pairs of frames of a half in which both entries are observed.
    counts : (2, n_pixels, L + 1) or (2, 1, L + 1) array
        Number of these pairs; one row where it is the same in all pixels.
    """

    sums: NDArray[np.complex128] | NDArray[np.float64]
    counts: NDArray[np.float64]

    @classmethod
    def from_rows(
        cls,
        rows: NDArray[Any],
        observed: NDArray[np.bool_] | None,
        n_lags: int,
        used: NDArray[np.bool_] | None = None,
        in_halves: bool = True,
    ) -> Self:
        """Return the lagged products of some rows.

        Parameters
        ----------
        rows : (m, n_frames) array
            The rows, 0 where an entry is unobserved.
        observed : (m, n_frames) boolean array or None
            Observed entries; None when all are.
        n_lags : int
            Number of lags, lag 0 included.
        used : (n_frames,) boolean array, optional
            Frames that count, those whose entries are not all 0; by default all.
        in_halves : bool
            As for :func:`lag_sums`. The numbers of products are those of halves in any case, and right for both together.
        """
        sums = lag_sums(rows, n_lags, in_halves)
        if observed is None:
            counts = pair_counts(rows.shape[1], n_lags, used)[:, None]
        else:
            if used is not None:
                observed = observed & used
            counts = lag_sums(observed.astype(np.float32), n_lags)
        return cls(sums, counts)

    @classmethod
    def joined(cls, blocks: Iterable[Self]) -> Self:
        """Return the lagged products of consecutive row blocks together."""
        blocks = list(blocks)
        counts = blocks[0].counts
        if not all(np.array_equal(block.counts, counts) for block in blocks) or len(counts[0]) > 1:
            counts = np.concatenate(
                [np.broadcast_to(block.counts, block.sums.shape) for block in blocks], axis=1
            )
        return cls(np.concatenate([block.sums for block in blocks], axis=1), counts)

    @property
    def is_complex(self) -> bool:
        """Whether the stack is complex."""
        return np.iscomplexobj(self.sums)

    def rows(self, pixels: NDArray[np.intp]) -> Self:
        """Return the lagged products of some pixels."""
        counts = self.counts if self.counts.shape[1] == 1 else self.counts[:, pixels]
        return type(self)(self.sums[:, pixels], counts)

    def mean(self, halves: slice, n_frames: int) -> NDArray[Any]:
        """Return the lags r_l = (1 - l/n) times the mean product over the given halves; 0 without pairs.

        They are complex128 or float64, as the sums are.
        """
        means: NDArray[Any] = self.sums[halves].sum(axis=0)
        fade = 1 - np.arange(means.shape[-1]) / n_frames
        means *= fade / np.maximum(self.counts[halves].sum(axis=0), 1)
        return means

    def difference(self, n_frames: int) -> NDArray[Any]:
        """Return the scaled difference of the halves, whose noise has the variance of that of the mean."""
        scaled = self.mean(slice(0, 1), n_frames)
        scaled -= self.mean(slice(1, 2), n_frames)
        a, b = self.counts
        scaled *= np.sqrt(a * b) / np.maximum(a + b, 1)
        return scaled
