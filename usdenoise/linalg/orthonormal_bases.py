"""Orthonormal bases: of the span of some columns, and of leading eigenvectors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.system.blas_threads import blas_on_one_thread


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
    wide = columns.astype(np.result_type(columns.dtype, np.float64))
    return np.linalg.qr(wide)[0].astype(columns.dtype)


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
