"""Row blocks of a matrix, the squared norms of its rows, and the magnitudes of its entries."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.array_library import namespace, squared_magnitudes, to_host

_BLOCK_ENTRIES = 1 << 20
"""Entries of a row block: 8 MB in complex64, which the caches hold from one pass over it to the next."""

_LEAST_ROWS, _MOST_ROWS = 16, 1024
"""Fewer rows make matrix products slow; more gain nothing and keep several threads waiting for the last block."""

_FEWEST_BLOCKS, _ROWS_WORTH_A_BLOCK = 8, 64
"""A small matrix has this many blocks, so that threads finish at about the same time, of at least this many rows."""

_SQUARED_ENTRIES, _SQUARED_ROWS = 1 << 18, (16, 128)
"""Entries whose squares are summed together, about, and least and largest number of their rows: they stay in the cache for
both sums, and are few enough to be summed in the precision of the matrix."""


def row_blocks(n_rows: int, rows_per_block: int) -> Iterator[slice]:
    """Yield consecutive slices that cover `n_rows` rows.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    rows_per_block : int
        Rows of each slice; the last one may have fewer.
    """
    return (slice(start, min(start + rows_per_block, n_rows)) for start in range(0, n_rows, rows_per_block))


def block_rows(shape: tuple[int, int]) -> list[slice]:
    """Return row blocks of equal size for a matrix.

    A block has at most a million entries, and 16 to 1024 rows. A small matrix has 8 blocks, if each has 64 rows.

    Parameters
    ----------
    shape : (int, int)
        Shape of the matrix.

    Returns
    -------
    list of slice
        They cover all rows in order. The last one may have fewer rows.
    """
    n_rows, n_columns = shape
    most = min(max(_BLOCK_ENTRIES // n_columns, _LEAST_ROWS), _MOST_ROWS)
    count = max(-(-n_rows // most), min(_FEWEST_BLOCKS, n_rows // _ROWS_WORTH_A_BLOCK), 1)
    return list(row_blocks(n_rows, -(-n_rows // count)))


def row_squared_norms(values: Any) -> NDArray[np.float64]:
    """Return the sum of |x|^2 along each row, summed in the precision of the matrix.

    Parameters
    ----------
    values : (n_rows, n_columns) array
        Contiguous along the rows.

    Returns
    -------
    (n_rows,) float64 array
    """
    if not isinstance(values, np.ndarray):
        return _norms(values, 1)
    real = values.view(values.real.dtype)
    # vecdot would do the same, but it does not let other threads run.
    norms: NDArray[np.float64] = np.einsum("ij,ij->i", real, real).astype(np.float64)
    return norms


def squared_norms(values: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sum of |x|^2 along each row and along each column.

    Parameters
    ----------
    values : (n_rows, n_columns) array
        In either memory order, which is the order in which it is read; a copy of a few rows is made of any other.

    Returns
    -------
    of_rows : (n_rows,) float64 array
        Each is summed in the precision of the matrix along memory.
    of_columns : (n_columns,) float64 array
        Parts of at most 128 terms are summed in the precision of the matrix, and added up in double precision.
    """
    if not isinstance(values, np.ndarray):
        return _norms(values, 1), _norms(values, 0)
    if values.strides[0] < values.strides[1]:
        of_columns, of_rows = squared_norms(values.T)
        return of_rows, of_columns
    of_rows, sums = np.empty(len(values)), np.zeros(values.shape[1] * (2 if np.iscomplexobj(values) else 1))
    together = int(np.clip(_SQUARED_ENTRIES // values.shape[1], *_SQUARED_ROWS))
    for rows in row_blocks(len(values), together):
        part = values[rows]
        if part.strides[1] != part.itemsize:
            part = np.ascontiguousarray(part)
        of_rows[rows] = row_squared_norms(part)
        real = part.view(part.real.dtype)
        sums += np.einsum("ij,ij->j", real, real)
    return of_rows, sums.reshape(values.shape[1], -1).sum(axis=1)


def column_squared_norms(values: Any) -> NDArray[np.float64]:
    """Return the sum of |x|^2 along each column of a matrix, (n_columns,).

    Parts of at most 128 terms are summed in the precision of the matrix, and added up in double precision.
    """
    if not isinstance(values, np.ndarray):
        return _norms(values, 0)
    values = np.ascontiguousarray(values)
    real = values.view(values.real.dtype)
    sums = np.zeros(real.shape[1])
    for rows in row_blocks(len(real), _SQUARED_ROWS[1]):
        sums += np.einsum("ij,ij->j", real[rows], real[rows])
    norms: NDArray[np.float64] = sums.reshape(values.shape[1], -1).sum(axis=1)
    return norms


def _norms(values: Any, axis: int) -> NDArray[np.float64]:
    """Return the sum of |x|^2 along an axis of a matrix of any library, in its precision."""
    return to_host(namespace(values).sum(squared_magnitudes(values), axis=axis)).astype(np.float64)


def third_difference_norms(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sum of |x_t - 3 x_(t-1) + 3 x_(t-2) - x_(t-3)|^2 along each row; for white noise 20 times its power a term.

    Parameters
    ----------
    values : (n_rows, n_columns) array
        Rows; with fewer than four columns their sums are 0.

    Returns
    -------
    (n_rows,) float64 array
    """
    return row_squared_norms(np.ascontiguousarray(np.diff(values, n=3, axis=1)))


def squared_norm(values: NDArray[Any]) -> float:
    """Return the sum of |x|^2 of a C-contiguous matrix: by rows in its own precision, over rows in float64."""
    return float(row_squared_norms(values).sum()) if values.size else 0.0


def envelope(values: Any) -> Any:
    """Return the magnitudes of values whose squares single precision holds, as a new array; 0 for those not finite.

    Values of another library than NumPy have magnitudes of their own library and precision.
    """
    if not isinstance(values, np.ndarray):
        xp = namespace(values)
        of_library = xp.sqrt(squared_magnitudes(values))
        return xp.where(xp.isfinite(of_library), of_library, xp.zeros_like(of_library))
    squares = (values.real**2).astype(np.float32, copy=False)
    if np.iscomplexobj(values):
        squares += values.imag**2
    magnitudes = np.sqrt(squares, out=squares)
    magnitudes[~np.isfinite(magnitudes)] = 0
    return magnitudes
