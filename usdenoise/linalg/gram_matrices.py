"""Gram matrices of tall matrices, and products with them, by row blocks and summed in double precision."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.row_blocks import block_rows


def gram(factor: NDArray[Any]) -> NDArray[Any]:
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
    # Blocks of 4096 rows keep the double-precision copy small.
    for start in range(0, factor.shape[0], 4096):
        # A real matrix times itself takes half of the products.
        rows = factor[start : start + 4096].astype(wide, order="C").view(np.float64)
        total += rows.T @ rows
    if not is_complex:
        return total
    real, imaginary = slice(0, None, 2), slice(1, None, 2)
    square: NDArray[Any] = total[real, real] + total[imaginary, imaginary]
    return square + 1j * (total[real, imaginary] - total[imaginary, real])


def frame_gram(matrix: NDArray[Any], executor: Executor, dtype: Any) -> NDArray[Any]:
    """Return the Gram matrix of the frames, M^H M: the inner product of every frame with every other.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The matrix M, finite everywhere.
    executor : Executor
        Maps over the row blocks.
    dtype : dtype
        Type of the products within a row block. The blocks are added up in double precision.

    Returns
    -------
    (n_frames, n_frames) float64 or complex128 array
    """

    def product(rows: slice) -> NDArray[Any]:
        block = matrix[rows].astype(dtype, copy=False)
        square: NDArray[Any] = block.conj().T @ block
        return square

    return _sum_in_double(executor.map(product, block_rows(matrix.shape)))


def normal_product(
    read_block: Callable[[slice], NDArray[Any]],
    blocks: Iterable[slice],
    right: NDArray[Any],
    executor: Executor,
) -> NDArray[Any]:
    """Return M^H M Q, reading M once.

    Each row block B of M gives (B Q)^H B in its own precision. These are added up in double precision and in the
    order of the blocks, so the result is the same for any number of threads.

    Parameters
    ----------
    read_block : callable
        Takes a slice of rows and returns that row block of M, an (n_rows, n_frames) array.
    blocks : iterable of slice
        The row blocks, which cover all rows of M once.
    right : (n_frames, r) array
        The matrix Q.
    executor : Executor
        Maps over the row blocks.

    Returns
    -------
    (n_frames, r) float64 or complex128 array
    """

    def product(rows: slice) -> NDArray[Any]:
        block = read_block(rows)
        projected: NDArray[Any] = (block @ right).conj().T @ block
        return projected

    return _sum_in_double(executor.map(product, blocks)).conj().T


def _sum_in_double(parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
    total: Any = 0.0
    for part in parts:
        total = total + part.astype(np.result_type(part.dtype, np.float64))
    return np.asarray(total)
