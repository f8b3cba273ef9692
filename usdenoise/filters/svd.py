"""The truncated SVD of the whole stack (Demene et al., IEEE Trans. Med. Imaging 34(11), 2015)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.executor import Executor, blas_on_one_thread
from usdenoise.filters.lowrank import LowRank
from usdenoise.rows import block_rows


def truncated_svd(matrix: NDArray[Any], rank: int, executor: Executor) -> LowRank:
    """Leading singular triplets, through the Gram matrix of the shorter side.

    The Gram matrix squares the dynamic range, so it is formed in double precision: singular values are
    right down to 140 dB below the largest.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        Finite everywhere.
    rank : int
        Number of components.
    executor : Executor
        Maps over the row blocks.
    """
    wide = np.result_type(matrix.dtype, np.float64)
    if matrix.shape[0] < matrix.shape[1]:
        left, singular, right_h = np.linalg.svd(matrix.astype(wide), full_matrices=False)
        return LowRank(
            left[:, :rank].astype(matrix.dtype),
            singular[:rank],
            np.ascontiguousarray(right_h[:rank].conj().T, dtype=matrix.dtype),
        )

    total = temporal_gram(matrix, executor, wide)
    n = len(total)
    right = eigenvectors(total, subset_by_index=[n - rank, n - 1]).astype(matrix.dtype)
    parts = executor.map(lambda rows: matrix[rows] @ right, block_rows(matrix.shape))
    return LowRank.from_factors(np.concatenate(list(parts)), right)


def temporal_gram(matrix: NDArray[Any], executor: Executor, dtype: Any) -> NDArray[Any]:
    """Gram matrix M^H M of the frames.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        Finite everywhere.
    executor : Executor
        Maps over the row blocks.
    dtype : dtype
        Of the products within a row block; blocks are added in double precision.

    Returns
    -------
    (n_frames, n_frames) array of double precision
    """

    def part(rows: slice) -> NDArray[Any]:
        block = matrix[rows].astype(dtype, copy=False)
        product: NDArray[Any] = block.conj().T @ block
        return product

    total: Any = 0.0
    for product in executor.map(part, block_rows(matrix.shape)):
        total = total + product.astype(np.result_type(dtype, np.float64))
    return np.asarray(total)


def eigenvectors(gram: NDArray[Any], **subset: Any) -> NDArray[Any]:
    """Eigenvectors of a Hermitian matrix by decreasing eigenvalue: those that scipy's `subset_by_...` picks."""
    from scipy.linalg import eigh

    # The BLAS of scipy may not have been there when the executor looked for all of them.
    with blas_on_one_thread():
        vectors: NDArray[Any] = eigh(gram, **subset)[1][:, ::-1]
    return vectors
