"""Matrices by their rows: the blocks in which they are worked through, and the energy of each row."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEWEST_BLOCKS, LEAST_ROWS = 8, 64


def row_blocks(n_rows: int, rows_a_block: int) -> Iterator[slice]:
    """Consecutive slices that cover `n_rows` rows, the last one shorter where it must be."""
    return (slice(start, min(start + rows_a_block, n_rows)) for start in range(0, n_rows, rows_a_block))


def block_rows(shape: tuple[int, int]) -> list[slice]:
    """Row blocks of equal size: about a million entries, which the caches hold between the passes over them.

    Of a small matrix they are smaller, so that several threads have about the same to do.
    """
    n_rows, n_columns = shape
    most = min(max((1 << 20) // n_columns, 16), 1024)
    count = max(-(-n_rows // most), min(FEWEST_BLOCKS, n_rows // LEAST_ROWS), 1)
    return list(row_blocks(n_rows, -(-n_rows // count)))


def row_squared_norms(values: NDArray[Any]) -> NDArray[np.float64]:
    """Sum of |x|^2 along each row of a C-contiguous matrix, in its own precision."""
    real = values.view(values.real.dtype)
    # Unlike vecdot it lets other threads run meanwhile.
    norms: NDArray[np.float64] = np.einsum("ij,ij->i", real, real).astype(np.float64)
    return norms


def squared_norm(values: NDArray[Any]) -> float:
    """Sum of |x|^2 of a C-contiguous matrix, by rows and over them in double precision."""
    return float(row_squared_norms(values).sum()) if values.size else 0.0
