"""Tall matrices by parts of their rows: norms of rows, Gram matrices in double precision, orthonormal bases."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.array_library import Array, Inexact, Numbers, namespace, squared_magnitudes, to_host
from usdenoise.linalg.executor import Executor
from usdenoise.system.resources import blas_on_one_thread

NEGLIGIBLE = 1e-12
"""Ratio of two powers below which the smaller one does not count: rounding errors of single precision are above it."""

TINY = float(np.finfo(float).tiny)
"""Least power or energy by which is divided."""

COMPILED_ENTRIES = 60_000_000
"""Entries from which compiled loops repay their loading, 0.5 to 1 s: where tissue is held still they save 12 ns an entry,
and 22 ns where memory has the frames of a pixel side by side."""

CACHED_ENTRIES = 40_000
"""Entries of a tile: with its copies it stays in a cache of 1 MB. With 65,000 the filter of a block of 128 x 128 x 300 took
a fifth longer, with 20,000 as long."""

PART_ENTRIES = 600_000
"""Entries of a part that a thread works on before it takes the next one, or that is held with its copies: 5 MB in
complex64. Eight are a block of 128 x 128 x 300, so that threads finish at about the same time."""

HELD_ENTRIES = 4_194_304
"""Entries that are held in memory at once, whatever it has: 32 MB in complex64."""

_LEAST_ROWS = 16
"""Fewer rows make matrix products slow."""

FEWEST_PARTS, _ROWS_WORTH_A_PART = 8, 64
"""Parts of a small matrix, so that threads finish at about the same time, and least number of their rows."""

_SQUARED_ROWS, CACHED_COLUMNS = 256, 1024
"""Rows and columns whose squares are summed together: they stay in the cache for both sums, and are few enough to be summed
in the precision of the matrix. Extremes over the columns are found for as many together."""


def slices_of(n: int, length: int) -> Iterator[slice]:
    """Yield consecutive slices that cover `n` rows, frames or pixels.

    Parameters
    ----------
    n : int
        Number of rows.
    length : int
        Rows of each slice; the last one may have fewer.
    """
    return (slice(start, min(start + length, n)) for start in range(0, n, length))


def cached_slices(n: int, n_entries: int) -> Iterator[slice]:
    """Yield consecutive slices that cover `n` rows of some entries each: a cache holds those of a slice."""
    return slices_of(n, max(1, CACHED_ENTRIES // max(1, n_entries)))


def part_slices(n: int, n_entries: int) -> Iterator[slice]:
    """Yield consecutive slices that cover `n` rows of some entries each, which are worked on one after the other."""
    return slices_of(n, max(1, PART_ENTRIES // max(1, n_entries)))


def row_parts(shape: tuple[int, int]) -> list[slice]:
    """Return the rows of a matrix in parts of equal size.

    A part has at most PART_ENTRIES entries, and 16 to 1024 rows. A small matrix has 8 parts, if each has 64 rows.

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
    # More rows gain nothing, and keep several threads waiting for the last part
    most = min(max(PART_ENTRIES // n_columns, _LEAST_ROWS), CACHED_COLUMNS)
    count = max(-(-n_rows // most), min(FEWEST_PARTS, n_rows // _ROWS_WORTH_A_PART), 1)
    return list(slices_of(n_rows, -(-n_rows // count)))


def row_squared_norms(values: Array) -> NDArray[np.float64]:
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
    return np.asarray(np.einsum("ij,ij->i", real, real).astype(np.float64))


def squared_norms(values: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sum of |x|^2 along each row and along each column.

    Parameters
    ----------
    values : (n_rows, n_columns) array
        In either memory order, which is the order in which it is read; a copy of a few rows is made of any other.

    Returns
    -------
    of_rows : (n_rows,) float64 array
        Parts of at most 1024 terms are summed in the precision of the matrix, and added up in double precision.
    of_columns : (n_columns,) float64 array
        Parts of at most 256 terms are summed in the precision of the matrix, and added up in double precision.
    """
    if not isinstance(values, np.ndarray):
        return _norms(values, 1), _norms(values, 0)
    if values.strides[0] < values.strides[1]:
        of_columns, of_rows = squared_norms(values.T)
        return of_rows, of_columns
    of_rows, of_columns = np.zeros(len(values)), np.zeros(values.shape[1])
    for rows in slices_of(len(values), _SQUARED_ROWS):
        for columns in slices_of(values.shape[1], CACHED_COLUMNS):
            part = values[rows, columns]
            if part.strides[1] != part.itemsize:
                part = np.ascontiguousarray(part)
            of_rows[rows] += row_squared_norms(part)
            real = part.view(part.real.dtype)
            sums = np.einsum("ij,ij->j", real, real)
            of_columns[columns] += sums[::2] + sums[1::2] if np.iscomplexobj(part) else sums
    return of_rows, of_columns


def weighted_squares(values: Numbers, weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return sum_k w_k |x_k|^2 of each row x, in double precision.

    Parameters
    ----------
    values : (n, k) array
        A tall matrix; a copy is made of one that is not contiguous along the rows.
    weights : (k,) or (k, m) array
        One set of weights, or several.

    Returns
    -------
    (n,) or (n, m) float64 array
    """
    values = values if values.strides[1] == values.itemsize else np.ascontiguousarray(values)
    real = values.view(values.real.dtype)
    of_parts = np.repeat(weights, 2 if np.iscomplexobj(values) else 1, axis=0).astype(np.float64)
    sums = np.empty((len(values), *of_parts.shape[1:]))
    for rows in part_slices(len(values), real.shape[1]):
        squares = real[rows].astype(np.float64)
        np.multiply(squares, squares, out=squares)
        sums[rows] = squares @ of_parts
    return sums


def column_squared_norms(values: Array) -> NDArray[np.float64]:
    """Return the sum of |x|^2 along each column of a matrix, (n_columns,).

    Parts of at most 256 terms are summed in the precision of the matrix, and added up in double precision.
    """
    if not isinstance(values, np.ndarray):
        return _norms(values, 0)
    values = np.ascontiguousarray(values)
    real = values.view(values.real.dtype)
    sums = np.zeros(real.shape[1])
    for rows in slices_of(len(real), _SQUARED_ROWS):
        sums += np.einsum("ij,ij->j", real[rows], real[rows])
    return np.asarray(sums.reshape(values.shape[1], -1).sum(axis=1))


def _norms(values: Array, axis: int) -> NDArray[np.float64]:
    """Return the sum of |x|^2 along an axis of a matrix of any library, in its precision."""
    return to_host(namespace(values).sum(squared_magnitudes(values), axis=axis)).astype(np.float64)


def third_difference_norms(values: Numbers) -> NDArray[np.float64]:
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


def squared_norm(values: Numbers) -> float:
    """Return the sum of |x|^2 of a C-contiguous matrix: by rows in its own precision, over rows in float64."""
    return float(row_squared_norms(values).sum()) if values.size else 0.0


def envelope(values: Array) -> Array:
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


def gram(factor: Numbers) -> Numbers:
    """Return the Gram matrix F^H F of a tall factor in double precision, whatever the factor's precision.

    Parameters
    ----------
    factor : (n, r) array
        The factor F.

    Returns
    -------
    (r, r) float64 or complex128 array
    """
    wide = np.result_type(factor.dtype, np.float64)
    is_complex = np.iscomplexobj(factor)
    size = factor.shape[1] * (2 if is_complex else 1)
    total = np.zeros((size, size))
    # Parts of 4096 rows keep the double-precision copy small.
    for start in range(0, factor.shape[0], 4096):
        # A real matrix times itself takes half of the products.
        rows = factor[start : start + 4096].astype(wide, order="C").view(np.float64)
        total += rows.T @ rows
    if not is_complex:
        return total
    real, imaginary = slice(0, None, 2), slice(1, None, 2)
    square: Numbers = total[real, real] + total[imaginary, imaginary]
    return square + 1j * (total[real, imaginary] - total[imaginary, real])


def frame_gram(matrix: Numbers, executor: Executor) -> Numbers:
    """Return the Gram matrix of the frames, M^H M: the inner product of every frame with every other.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The matrix M, finite everywhere.
    executor : Executor
        Maps over the parts of the rows.

    Returns
    -------
    (n_frames, n_frames) float64 or complex128 array
    """
    return np.asarray(sum(executor.map(lambda rows: gram(matrix[rows]), row_parts(matrix.shape))))


def normal_product(
    read_rows: Callable[[slice], Numbers], parts: Iterable[slice], right: Numbers, executor: Executor
) -> Numbers:
    """Return M^H M Q, reading M once.

    Each part B of the rows of M gives (B Q)^H B in its own precision. These are added up in double precision and in the
    order of the parts, so the result is the same for any number of threads.

    Parameters
    ----------
    read_rows : callable
        Takes a slice of rows and returns these rows of M, an (n_rows, n_frames) array.
    parts : iterable of slice
        Parts of the rows, which cover all rows of M once.
    right : (n_frames, r) array
        The matrix Q.
    executor : Executor
        Maps over the parts of the rows.

    Returns
    -------
    (n_frames, r) float64 or complex128 array
    """

    def product(rows: slice) -> Numbers:
        part = read_rows(rows)
        return (part @ right).conj().T @ part

    products = executor.map(product, parts)
    total = sum(part.astype(np.result_type(part.dtype, np.float64)) for part in products)
    return np.asarray(total).conj().T


_LEAST_SINE = 1e-3
"""Sine of the angle between a column and the span of the previous columns from which Q is orthonormal to about 1e-10."""


def orthonormal(columns: NDArray[Inexact]) -> NDArray[Inexact]:
    """Return an orthonormal basis of the span of some columns, computed in double precision.

    Parameters
    ----------
    columns : (n, r) array
        r at most n.

    Returns
    -------
    (n, r) array of the same dtype
    """
    return tall_qr(columns)[0].astype(columns.dtype)


def tall_qr(columns: Numbers, in_place: bool = False) -> tuple[Numbers, Numbers]:
    """Return the QR factorisation of a tall matrix in double precision.

    R is the Cholesky factor of the Gram matrix, and Q = A R^-1, unless the columns are nearly dependent: then Q would not
    be orthonormal, and Householder reflections are used.

    Parameters
    ----------
    columns : (n, r) array
        A; r at most n.
    in_place : bool
        Whether Q takes the memory of the columns, which are in double precision then; by default False.

    Returns
    -------
    q : (n, r) float64 or complex128 array
        Orthonormal columns.
    r : (r, r) array of the same dtype
        Upper triangle.
    """
    triangle = _cholesky_triangle(columns)
    if triangle is None:
        return _householder(columns, in_place)
    out = columns if in_place else np.empty(columns.shape, triangle.dtype)
    return _multiplied(columns, np.linalg.inv(triangle), out), triangle


def triangular(columns: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return B, W and R of the QR factorisation Q = B W and R, as :func:`tall_qr` has it, without the product.

    B is the matrix itself and W the inverse of R, unless the columns are nearly dependent: then B is Q and W is 1.

    Parameters
    ----------
    columns : (n, r) array
        The matrix; r at most n.
    """
    triangle = _cholesky_triangle(columns)
    if triangle is not None:
        return columns, np.linalg.inv(triangle), triangle
    basis, triangle = _householder(columns, False)
    return basis, np.eye(len(triangle), dtype=triangle.dtype), triangle


def _cholesky_triangle(columns: Numbers) -> Numbers | None:
    """Return R with R^H R = A^H A; None if a column of A is nearly in the span of the previous columns."""
    square = gram(columns)
    lengths = np.sqrt(np.diagonal(square).real)
    if not lengths.all():
        return None
    try:
        factor = np.linalg.cholesky(square / np.outer(lengths, lengths))
    except np.linalg.LinAlgError:
        return None
    # The diagonal has the sine of the angle between a column and the span of the previous columns.
    is_independent = np.diagonal(factor).real.min() > _LEAST_SINE
    return factor.conj().T * lengths if is_independent else None


def _householder(columns: Numbers, in_place: bool) -> tuple[Numbers, Numbers]:
    """Return Q and R by Householder reflections.

    A long matrix is factorised by parts, which takes less memory: LAPACK and NumPy hold it five times. Its R is the R factor
    of the stacked R factors of the parts (Demmel, Grigori, Hoemmen and Langou, SIAM J. Sci. Comput. 34(1), 2012).
    """
    n, r = columns.shape
    basis = columns if in_place else np.empty((n, r), np.result_type(columns.dtype, np.float64))
    parts = list(slices_of(n, -(-n // max(1, n // max(PART_ENTRIES // max(r, 1), 2 * r)))))
    triangles = []
    for part in parts:
        basis[part], triangle = np.linalg.qr(columns[part].astype(basis.dtype))
        triangles.append(triangle)
    if len(parts) > 1:
        rotation, triangle = np.linalg.qr(np.concatenate(triangles))
        for part, turn in zip(parts, np.split(rotation, len(parts)), strict=True):
            basis[part] = basis[part] @ turn
    return basis, triangle


def rotated(columns: Numbers, rotation: Numbers, dtype: np.dtype[np.inexact]) -> Numbers:
    """Return the product of a tall matrix with a small one in another precision, without a second one in the first.

    Parameters
    ----------
    columns : (n, r) array
        The tall matrix.
    rotation : (r, k) array
        The small one.
    dtype : numpy.dtype
        Type of the product.

    Returns
    -------
    (n, k) array, C-contiguous
    """
    return _multiplied(columns, rotation, np.empty((len(columns), rotation.shape[1]), dtype))


def _multiplied(columns: Numbers, rotation: Numbers, out: Numbers) -> Numbers:
    """Set `out`, which may be the tall matrix itself, to the product of a tall matrix with a small one, part by part."""
    for part in part_slices(*columns.shape):
        out[part] = columns[part] @ rotation
    return out


def eigenvectors(gram: Numbers, **subset: Sequence[float]) -> Numbers:
    """Return eigenvectors of a Hermitian matrix, by decreasing eigenvalue.

    Parameters
    ----------
    gram : (n, n) array
        Hermitian.
    **subset
        Which ones: the arguments ``subset_by_index`` or ``subset_by_value`` of :func:`scipy.linalg.eigh`.

    Returns
    -------
    (n, k) array
        One eigenvector a column.
    """
    from scipy.linalg import eigh

    # SciPy brings a BLAS of its own, which may have been loaded after the executor limited those it found.
    with blas_on_one_thread():
        return np.asarray(eigh(gram, **subset)[1][:, ::-1])


def covered_shares(powers: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the part of the pixels that each of some components covers, (sum p)^2 / (n sum p^2) of its powers p, (k, n)."""
    squares = np.maximum((powers**2).sum(axis=1), np.finfo(np.float64).tiny)
    return np.asarray(powers.sum(axis=1) ** 2 / squares / powers.shape[1])


def correlation_of(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """Return the correlation of two vectors, such as maps; None if one of them is constant."""
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / scale if scale > 0 else None
