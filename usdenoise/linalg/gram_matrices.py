"""Gram matrices of tall matrices, by row blocks and in double precision."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.row_blocks import block_rows


def gram(factor: NDArray[Any]) -> NDArray[Any]:
    """F^H F of an (n, r) factor, in double precision, whatever the precision of the factor."""
    wide = np.result_type(factor.dtype, np.float64)
    total = np.zeros((factor.shape[1], factor.shape[1]), wide)
    for start in range(0, factor.shape[0], 4096):
        rows = factor[start : start + 4096].astype(wide)
        total += rows.conj().T @ rows
    return total


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
