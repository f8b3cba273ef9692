"""Two evaluations of the same sums over a block of rows: dense blocks through BLAS, and sampled entries.

With R the residual (U V^H - M) on the sampled entries of the block and zero elsewhere, both return
sum |R|^2, R V and U^H R. Nothing here is scaled by the number of entries.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.row_blocks import squared_norm

SPARSE_BELOW_DENSITY = 0.12
SPARSE_FROM_WORK = 3e7
TILE_COLUMNS = 512


class BlockSums(NamedTuple):
    """Sums of a block of b rows for factors of rank r.

    Attributes
    ----------
    loss : float
        Sum of |R|^2, accumulated in double precision.
    residual_v : (b, r) array
        R V.
    u_residual : (r, n) array
        U^H R.
    held_out : float
        Sum of |U V^H - M|^2 over the held-out entries.
    """

    loss: float
    residual_v: NDArray[Any]
    u_residual: NDArray[Any]
    held_out: float


class Entries(NamedTuple):
    """The sampled entries of a block of b rows, gathered once: scattered they cost as much as the whole block.

    They stand by tiles of TILE_COLUMNS columns, whose rows of V the caches hold, and row after row in each.

    Attributes
    ----------
    starts : (n_tiles, b + 1) array
        Where the entries of each row in each tile begin.
    columns : array
        Their columns.
    values : array
        Their values.
    held_out : (3,) tuple of arrays
        Rows, columns and values of the held-out entries.
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[Any]
    held_out: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]


def gather(
    values: NDArray[Any],
    mask: NDArray[np.bool_],
    held_out: tuple[NDArray[np.int32], NDArray[np.int32]],
) -> Entries:
    """The entries of a block.

    Parameters
    ----------
    values, mask, held_out
        As for :func:`dense_block`.
    """
    starts, columns, picked, total = [], [], [], 0
    for first in range(0, mask.shape[1], TILE_COLUMNS):
        tile = slice(first, first + TILE_COLUMNS)
        sampled = mask[:, tile]
        row_starts = np.concatenate([[0], np.count_nonzero(sampled, axis=1).cumsum()]) + total
        total = int(row_starts[-1])
        starts.append(row_starts)
        columns.append((np.nonzero(sampled)[1] + first).astype(np.int32))
        picked.append(values[:, tile][sampled])
    return Entries(
        np.array(starts, np.int64),
        np.concatenate(columns),
        np.concatenate(picked),
        (*held_out, values[held_out]),
    )


def prefers_sparse(density: float, n_entries: int, rank: int) -> bool:
    """Whether the sampled entries one by one are faster than whole blocks.

    Dense blocks cost the same at any density; an entry alone costs two to four times its part of that, and its
    place and value are kept, which above SPARSE_BELOW_DENSITY would take too much memory. Below
    SPARSE_FROM_WORK products the compiled kernel does not repay its loading. The times are measured by the
    evaluation benchmark.
    """
    return density <= SPARSE_BELOW_DENSITY and density * n_entries * rank >= SPARSE_FROM_WORK


@np.errstate(over="ignore", invalid="ignore")
def dense_block(
    u: NDArray[Any],
    v: NDArray[Any],
    v_h: NDArray[Any],
    values: NDArray[Any],
    mask: NDArray[np.bool_],
    held_out: tuple[NDArray[np.int32], NDArray[np.int32]],
) -> BlockSums:
    """Sums of a block by three matrix products, with the mask applied in place between them.

    Parameters
    ----------
    u : (b, r) array
        Rows of U.
    v, v_h : (n, r) and (r, n) arrays
        V and its conjugate transpose, both C-contiguous.
    values : (b, n) array
        Rows of M, finite everywhere.
    mask : (b, n) array of booleans
        The sampled entries.
    held_out : pair of index arrays
        Rows and columns of the held-out entries of the block.
    """
    residual = u @ v_h
    residual -= values
    missed = residual[held_out]
    residual *= mask
    return BlockSums(
        squared_norm(residual), residual @ v, u.conj().T @ residual, squared_norm(missed.reshape(1, -1))
    )


@np.errstate(over="ignore", invalid="ignore")
def sparse_block(
    u: NDArray[Any],
    v: NDArray[Any],
    entries: Entries,
) -> BlockSums:
    """Sums of a block over its sampled entries one by one, in a compiled sweep.

    Parameters
    ----------
    u, v
        As for :func:`dense_block`.
    entries : Entries
        The sampled entries of the block.
    """
    from usdenoise.completion import sparse_sweep as sparse_kernels

    rows, columns, values = entries.held_out
    missed = np.vecdot(v.take(columns, axis=0), u.take(rows, axis=0)) - values
    loss, residual_v, residual_u = sparse_kernels.sweep(*entries[:3], u, v)
    return BlockSums(loss, residual_v, residual_u.conj().T, squared_norm(missed.reshape(1, -1)))
