"""Randomized SVD."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.gram_matrices import normal_product
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.orthonormal_bases import orthonormal
from usdenoise.linalg.row_blocks import block_rows

OVERSAMPLING = 20
"""Number of columns of the test matrix beyond the rank."""

POWER_ITERATIONS = 6
"""Number of products with M^H M. Each one reads the matrix once."""


def randomized_svd(matrix: NDArray[Any], rank: int, executor: Executor, rng: np.random.Generator) -> LowRank:
    """Return the leading singular triplets of a matrix, by a randomized range finder with power iterations.

    The result approximates the L of the given rank that minimises |M - L|_F [1]_. The range finder works on the frames:
    from a Gaussian Q with rank + 20 columns, every power iteration sets

        Q <- orth(M^H M Q),

    and the result has the singular triplets of (M Q) Q^H. The basis is made orthonormal in every power iteration
    (algorithm 4.4). Without this step rounding would lose the components whose singular values are below eps times
    the largest one.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The matrix M, finite everywhere.
    rank : int
        Number of components to return.
    executor : Executor
        Maps over the row blocks.
    rng : numpy.random.Generator
        Draws the Gaussian test matrix, which is complex where the matrix is.

    Returns
    -------
    LowRank

    References
    ----------
    .. [1] N. Halko, P. G. Martinsson and J. A. Tropp, "Finding structure with randomness", SIAM Review 53(2), 2011.
    """
    n_frames = matrix.shape[1]
    columns = min(rank + OVERSAMPLING, *matrix.shape)
    test = rng.standard_normal((n_frames, columns))
    if np.iscomplexobj(matrix):
        test = test + 1j * rng.standard_normal((n_frames, columns))
    blocks = block_rows(matrix.shape)
    right = orthonormal(test).astype(matrix.dtype)
    for _ in range(POWER_ITERATIONS):
        product = normal_product(lambda rows: matrix[rows], blocks, right, executor)
        right = orthonormal(product).astype(matrix.dtype)
    left = np.concatenate(list(executor.map(lambda rows: matrix[rows] @ right, blocks)))
    return LowRank.from_factors(left, right).truncated(rank)
