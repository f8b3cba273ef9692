"""Two evaluations of the same sums over a row block: dense, through BLAS, and sparse, over the sampled entries.

Let R be the residual U V^H - M on the sampled entries of the block, and zero elsewhere. Both return sum |R|^2, R V
and U^H R. The sums are not divided by the number of entries.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.row_blocks import squared_norm

SPARSE_BELOW_DENSITY = 0.12
"""Density up to which the sparse evaluation is used: above it the kept entries would take too much memory, and the
gain shrinks (benchmarks/evaluation.py)."""

SPARSE_FROM_WORK = 3e7
"""Products of an evaluation, entries times rank, from which the compiled kernel repays the half second of its loading."""

TILE_COLUMNS = 512
"""Columns of a tile of entries: its rows of V, 80 kB at rank 20 in complex64, stay in the cache."""


class BlockSums(NamedTuple):
    """The sums over a block of b rows, for factors of rank r.

    Attributes
    ----------
    loss : float
        Sum of |R|^2, added up in double precision.
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
    """The sampled entries of a block of b rows, gathered once.

    Read where they are in the matrix, they would cost as much as the whole block. They are ordered by tiles of
    TILE_COLUMNS columns, whose rows of V the caches hold, and by rows within a tile.

    Attributes
    ----------
    starts : (n_tiles, b + 1) array
        Index of the first entry of each row in each tile.
    columns : array
        Column of each entry.
    values : array
        Value of each entry.
    held_out : (3,) tuple of arrays
        Row, column and value of each held-out entry.
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
    """Gather the sampled and the held-out entries of a row block.

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
    """Return whether the sparse evaluation is preferred to the dense one.

    The dense evaluation costs the same at any density. The sparse one costs two to four times the dense cost of an
    entry, for each sampled entry, and stores the position and the value of each.

    Parameters
    ----------
    density : float
        Number of fitted entries over the number of all entries.
    n_entries : int
        Number of all entries of the matrix.
    rank : int
        Number of columns of the factors.
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
    """Return the sums of a row block by three matrix products, with the mask applied between them.

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
def sparse_block(u: NDArray[Any], v: NDArray[Any], entries: Entries) -> BlockSums:
    """Return the sums of a row block over its sampled entries, by a compiled sweep.

    Parameters
    ----------
    u, v
        As for :func:`dense_block`.
    entries : Entries
        The sampled entries of the block.
    """
    from usdenoise.completion.sparse_sweep import sweep

    rows, columns, values = entries.held_out
    missed = np.vecdot(v.take(columns, axis=0), u.take(rows, axis=0)) - values
    loss, residual_v, residual_u = sweep(*entries[:3], u, v)
    return BlockSums(loss, residual_v, residual_u.conj().T, squared_norm(missed.reshape(1, -1)))
