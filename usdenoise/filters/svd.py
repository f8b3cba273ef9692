"""The truncated SVD of the whole stack (Demene et al., IEEE Trans. Med. Imaging 34(11), 2015)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.gram_matrices import frame_gram
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.orthonormal_bases import eigenvectors
from usdenoise.linalg.row_blocks import block_rows


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

    total = frame_gram(matrix, executor, wide)
    n = len(total)
    right = eigenvectors(total, subset_by_index=[n - rank, n - 1]).astype(matrix.dtype)
    parts = executor.map(lambda rows: matrix[rows] @ right, block_rows(matrix.shape))
    return LowRank.from_factors(np.concatenate(list(parts)), right)
