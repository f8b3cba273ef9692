"""Orthonormal bases of the span of given columns, and of leading eigenvectors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.row_blocks import row_blocks
from usdenoise.system.blas_threads import blas_on_one_thread

_ROWS_AT_ONCE = 12288
"""Rows, at least, of a part of a long matrix that is factorised: LAPACK and NumPy hold it five times."""

_LEAST_SINE = 1e-3
"""Sine of the angle between a column and the span of the previous columns from which Q is orthonormal to about 1e-10."""


def orthonormal(columns: NDArray[Any]) -> NDArray[Any]:
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


def tall_qr(columns: NDArray[Any], in_place: bool = False) -> tuple[NDArray[Any], NDArray[Any]]:
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
    basis = columns if in_place else np.empty(columns.shape, triangle.dtype)
    inverse = np.linalg.inv(triangle)
    for part in row_blocks(len(columns), _ROWS_AT_ONCE):
        basis[part] = columns[part] @ inverse
    return basis, triangle


def triangular(columns: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
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


def _cholesky_triangle(columns: NDArray[Any]) -> NDArray[Any] | None:
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


def _householder(columns: NDArray[Any], in_place: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return Q and R by Householder reflections.

    A long matrix is factorised by parts, which takes less memory. Its R is the R factor of the stacked R factors of the
    parts (Demmel, Grigori, Hoemmen and Langou, SIAM J. Sci. Comput. 34(1), 2012).
    """
    n, r = columns.shape
    basis = columns if in_place else np.empty((n, r), np.result_type(columns.dtype, np.float64))
    parts = list(row_blocks(n, -(-n // max(1, n // max(_ROWS_AT_ONCE, 2 * r)))))
    triangles = []
    for part in parts:
        basis[part], triangle = np.linalg.qr(columns[part].astype(basis.dtype))
        triangles.append(triangle)
    if len(parts) > 1:
        rotation, triangle = np.linalg.qr(np.concatenate(triangles))
        for part, turn in zip(parts, np.split(rotation, len(parts)), strict=True):
            basis[part] = basis[part] @ turn
    return basis, triangle


def rotated(columns: NDArray[Any], rotation: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
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
    product = np.empty((len(columns), rotation.shape[1]), dtype)
    for part in row_blocks(len(columns), _ROWS_AT_ONCE):
        product[part] = columns[part] @ rotation
    return product


def eigenvectors(gram: NDArray[Any], **subset: Any) -> NDArray[Any]:
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
        vectors: NDArray[Any] = eigh(gram, **subset)[1][:, ::-1]
    return vectors
