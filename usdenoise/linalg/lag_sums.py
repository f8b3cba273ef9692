"""Lagged products along the rows of a matrix, by halves of the columns: the autocorrelation over time of a stack.

:class:`LagSums` holds them. :func:`lag_sums` sums over pairs of columns in one chunk, :func:`boundary_products` over
pairs of columns in two neighbouring chunks. Together they cover all pairs.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from usdenoise.linalg.array_library import Array, Numbers, dtype_of, namespace, to_library, zero_outside
from usdenoise.linalg.tall_matrices import row_parts

QUARTERS = 4
"""The columns are cut into four parts. Parts 1 and 3 are half 0, parts 2 and 4 are half 1."""

Parts = list[tuple[int, int, int]]
"""Parts of some columns: the first one, the one after the last, and the half to which they belong."""


def half_parts(n: int, start: int = 0, stop: int | None = None) -> Parts:
    """Return the parts of the columns [start, stop) of n, counted from `start`; by default of all n."""
    stop = n if stop is None else stop
    edges = np.clip(quarter_edges(n), start, stop) - start
    quarters = enumerate(pairwise(edges.tolist()))
    return [(first, last, quarter % 2) for quarter, (first, last) in quarters if first < last]


def lag_sums(rows: Numbers, n_lags: int, parts: Parts | None = None, n_halves: int = 2) -> Numbers:
    """Return sum_t x[t + l] conj(x[t]) for each row x, lag l and half of the columns.

    Parameters
    ----------
    rows : (m, n) array
        Real or complex.
    n_lags : int
        Number of lags: 0 to n_lags - 1.
    parts : list of (int, int, int), optional
        The parts of the columns, from :func:`half_parts`; by default the parts of a matrix of n columns.
    n_halves : int
        1 to sum over all columns, which takes half the time where they are few; by default 2.

    Returns
    -------
    (n_halves, m, n_lags) float64 or complex128 array
        Sums over the column numbers t of half 0 and of half 1, with t + l < n. Each part is summed in the
        precision of the rows, and the parts are added in double precision.
    """
    n = rows.shape[1]
    if n_lags == 0:
        return np.zeros((n_halves, len(rows), 0), np.result_type(rows.dtype, np.float64))
    padded = np.zeros((len(rows), n + n_lags - 1), rows.dtype)
    padded[:, :n] = rows
    if parts is None:
        parts = half_parts(n) if n_halves == 2 else [(0, n, 0)]
    return _products(padded, padded, n_lags, parts, n_halves)


def column_lag_sums(
    values: Array, n_lags: int, parts: Parts, n_halves: int = 2, is_compiled: bool = False
) -> Array:
    """Return the sums of :func:`lag_sums` of columns.

    Parameters
    ----------
    values : (n, m) array
        The columns, whose rows are times; of any library.
    n_lags : int
        Number of lags.
    parts : list of (int, int, int)
        The parts of the rows, from :func:`half_parts`.
    n_halves : int
        1 if all parts are in half 0; by default 2.
    is_compiled : bool
        Whether compiled loops make the sums, in a third of the time; loading them takes half a second. By default not.

    Returns
    -------
    (n_halves, m, n_lags) array
        As :func:`lag_sums`. Columns of another library than NumPy have sums in it, in their precision.
    """
    if not isinstance(values, np.ndarray):
        return _sums_there(values, n_lags, parts, n_halves)
    if not is_compiled or n_lags == 0:
        return lag_sums(values.T, n_lags, parts, n_halves)
    from usdenoise.linalg.compiled_loops import complex_lags, real_lags

    sums = np.zeros((n_halves, values.shape[1], n_lags), np.result_type(values.dtype, np.float64))
    add = complex_lags if np.iscomplexobj(values) else real_lags
    add(values, np.array(parts, np.int64).reshape(-1, 3), sums)
    return sums


def boundary_products(before: Numbers, after: Numbers, n_lags: int, parts: Parts) -> Numbers:
    """Return the products of :func:`lag_sums` of pairs of columns in two neighbouring chunks.

    Parameters
    ----------
    before : (m, k) array
        The last columns of the first chunk: n_lags - 1 of them, or all if it has fewer.
    after : (m, j) array
        The first columns of the second chunk, as many.
    n_lags : int
        Number of lags.
    parts : list of (int, int, int)
        The parts of the columns before, as for :func:`lag_sums`.

    Returns
    -------
    (2, m, n_lags) float64 or complex128 array
    """
    # Column k + i of the padded matrix is column i after; the columns before have no products with each other.
    (m, k), n_after = before.shape, after.shape[1]
    padded = np.zeros((m, k + max(n_after, n_lags)), before.dtype)
    padded[:, k : k + n_after] = after
    return _products(np.ascontiguousarray(before), padded, n_lags, parts, 2)


def _products(rows: Numbers, later: Numbers, n_lags: int, parts: Parts, n_halves: int) -> Numbers:
    """Return sum_t later[t + l] conj(rows[t]) over each part, by halves, (n_halves, m, n_lags)."""
    sums = np.zeros((n_halves, len(rows), n_lags), np.result_type(rows.dtype, np.float64))
    row, column = later.strides
    # All lags in one call: with many short ones, threads would wait for each other.
    windows = as_strided(later, (len(rows), n_lags, later.shape[1] - n_lags + 1), (row, column, column))
    for first, last, half in parts:
        sums[half] += np.vecdot(rows[:, None, first:last], windows[:, :, first:last])
    return sums


def _sums_there(values: Array, n_lags: int, parts: Parts, n_halves: int) -> Array:
    """Return the sums of columns of another library than NumPy in this library, (n_halves, m, n_lags).

    They are inverse Fourier transforms of spectra, which a device makes in fewer reads of its memory than products of lags.
    """
    from scipy.fft import next_fast_len

    xp, n = namespace(values), values.shape[0]
    length = next_fast_len(n + n_lags - 1)
    is_complex = xp.isdtype(values.dtype, "complex floating")
    x = values
    if not is_complex:
        x = xp.astype(values, xp.complex64 if values.dtype == xp.float32 else xp.complex128)
    spectrum, sums = xp.fft.fft(x, n=length, axis=0), []
    # The frequencies become lags by a product, (length, n_lags), as the lags are few.
    angles = np.outer(np.arange(length), np.arange(n_lags)) % length * (2j * np.pi / length)
    to_lags = to_library((np.exp(angles) / length).astype(dtype_of(x)), x)
    for half in range(n_halves):
        own = np.zeros((n, 1), bool)
        for first, last, _ in (part for part in parts if part[2] == half):
            own[first:last] = True
        of_half = spectrum
        if not own.all():
            of_half = xp.fft.fft(zero_outside(x, to_library(own, x)), n=length, axis=0)
        sums.append((xp.conj(of_half) * spectrum).T @ to_lags)
    result = xp.stack(sums)
    return result if is_complex else xp.real(result)


def quarter_edges(n: int) -> NDArray[np.int64]:
    """Return the five edges of the four quarters of n columns."""
    return np.linspace(0, n, QUARTERS + 1).astype(np.int64)


def pair_counts(n_lags: int, used: NDArray[np.bool_], n_halves: int = 2) -> NDArray[np.float64]:
    """Return the number of products in each sum of :func:`lag_sums`: an (n_halves, n_lags) array.

    Parameters
    ----------
    n_lags : int
        Number of lags.
    used : (n,) boolean array
        Columns that count.
    n_halves : int
        1 for the sums over all columns; by default 2.
    """
    return lag_sums(used[None].astype(np.float64), n_lags, n_halves=n_halves)[:, 0].real


@dataclass(frozen=True)
class LagSums:
    """Lagged products of the rows of a stack, and the number of products, for each half of the frames or for all frames.

    Attributes
    ----------
    sums : (n_halves, n_pixels, L + 1) array
        Sum of f[t + l] conj(f[t]) over the pairs of frames of a half in which both entries are observed.
    counts : (n_halves, n_pixels, L + 1) or (n_halves, 1, L + 1) array
        Number of these pairs; one row where it is the same in all pixels.
    leak : (n_pixels,) and (L + 1,) arrays, or None
        Image of what is subtracted from the mean products, and its factors for each lag; None (the default) for nothing.
    """

    sums: Numbers
    counts: NDArray[np.float64]
    leak: tuple[NDArray[np.float64], Numbers] | None = None

    @classmethod
    def of_matrix(cls, matrix: Numbers, n_lags: int) -> Self:
        """Return the lags of a matrix, (n_pixels, n_frames), all of whose entries are observed; lag 0 is one of n_lags."""
        sums = np.concatenate([lag_sums(matrix[rows], n_lags) for rows in row_parts(matrix.shape)], axis=1)
        return cls(sums, pair_counts(n_lags, np.ones(matrix.shape[1], bool))[:, None])

    @property
    def is_complex(self) -> bool:
        """Whether the stack is complex."""
        return np.iscomplexobj(self.sums)

    def counts_of(self, pixels: slice) -> NDArray[np.float64]:
        """Return the numbers of pairs of some pixels; one row where all pixels have the same."""
        return self.counts[:, pixels if self.counts.shape[1] > 1 else slice(None)]

    def mean(self, halves: slice, n_frames: int, pixels: slice = slice(None)) -> Numbers:
        """Return the lags r_l = (1 - l/n) times the mean product over the given halves, without the leak; 0 without pairs.

        The means, of all pixels by default, have the type of the sums.
        """
        chosen = self.sums[halves, pixels]
        counts = self.counts_of(pixels)[halves].sum(axis=0)
        fade = 1 - np.arange(chosen.shape[-1]) / n_frames
        scale = (fade / np.maximum(counts, 1)).astype(chosen.dtype)
        means: Numbers = chosen[0] * scale if len(chosen) == 1 else np.add(*chosen)
        if len(chosen) > 1:
            means *= scale
        if self.leak is not None:
            image, factors = self.leak
            leak: Numbers = image[pixels, None] * factors
            if not counts.all():
                leak = np.where(counts > 0, leak, 0)
            np.subtract(means, leak, out=means, casting="same_kind")
        return means

    def difference(self, n_frames: int, pixels: slice = slice(None)) -> Numbers:
        """Return the difference of the halves, scaled to the noise of the mean; the leak, which both have, is not in it."""
        a, b = self.counts_of(pixels)
        whole = replace(self, leak=None)
        first, second = (whole.mean(slice(half, half + 1), n_frames, pixels) for half in (0, 1))
        difference: Numbers = np.subtract(first, second, out=first)
        difference *= (np.sqrt(a * b) / np.maximum(a + b, 1)).astype(difference.dtype)
        return difference
