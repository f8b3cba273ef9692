"""Orthonormal bases: of a span, and of leading eigenvectors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.system.blas_threads import blas_on_one_thread


def orthonormal(columns: NDArray[Any]) -> NDArray[Any]:
    """Orthonormal basis of the span of some columns, computed in double precision."""
    wide = columns.astype(np.result_type(columns.dtype, np.float64))
    return np.linalg.qr(wide)[0].astype(columns.dtype)


def eigenvectors(gram: NDArray[Any], **subset: Any) -> NDArray[Any]:
    """Eigenvectors of a Hermitian matrix by decreasing eigenvalue: those that scipy's `subset_by_...` picks."""
    from scipy.linalg import eigh

    # The BLAS of scipy may not have been there when the executor looked for all of them.
    with blas_on_one_thread():
        vectors: NDArray[Any] = eigh(gram, **subset)[1][:, ::-1]
    return vectors
