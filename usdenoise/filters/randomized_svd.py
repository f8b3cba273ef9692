"""Randomized SVD (Halko, Martinsson and Tropp, SIAM Review 53(2), 2011)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.orthonormal_bases import orthonormal
from usdenoise.linalg.row_blocks import block_rows


def randomized_svd(
    matrix: NDArray[Any],
    rank: int,
    executor: Executor,
    rng: np.random.Generator,
    *,
    oversampling: int = 20,
    power_iterations: int = 6,
) -> LowRank:
    """Leading singular triplets from a random temporal subspace, by power iterations.

    The basis is made orthonormal after each power iteration (their algorithm 4.4); without that, what is
    more than 1/eps below the largest singular value is lost.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        Finite everywhere.
    rank : int
        Number of components.
    executor : Executor
        Maps over the row blocks.
    rng : numpy.random.Generator
        Draws the Gaussian test matrix, complex where the data are.
    oversampling : int
        Further columns of the test matrix.
    power_iterations : int
        Products with M^H M.
    """
    n_frames = matrix.shape[1]
    columns = min(rank + oversampling, *matrix.shape)
    test = rng.standard_normal((n_frames, columns))
    if np.iscomplexobj(matrix):
        test = test + 1j * rng.standard_normal((n_frames, columns))
    right = orthonormal(test).astype(matrix.dtype)
    for _ in range(power_iterations):

        def moment(rows: slice, right: NDArray[Any] = right) -> NDArray[Any]:
            block = matrix[rows]
            product: NDArray[Any] = (block @ right).conj().T @ block
            return product

        total: Any = 0.0
        for part in executor.map(moment, block_rows(matrix.shape)):
            total = total + part.astype(np.result_type(part.dtype, np.float64))
        right = orthonormal(total.conj().T).astype(matrix.dtype)
    left = np.concatenate(list(executor.map(lambda rows: matrix[rows] @ right, block_rows(matrix.shape))))
    return LowRank.from_factors(left, right).truncated(rank)
