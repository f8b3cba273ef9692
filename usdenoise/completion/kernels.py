"""Two evaluations of the same sums over a block of rows: dense blocks through BLAS, and sampled entries.

With R the residual (U V^H - M) on the sampled entries of the block and zero elsewhere, both return
sum |R|^2, R V and U^H R. Nothing here is scaled by the number of entries.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from usdenoise.rows import squared_norm

SPARSE_BELOW_DENSITY = 0.12
SPARSE_FROM_WORK = 3e7


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

    Attributes
    ----------
    starts : (b + 1,) array
        Where each row's entries begin.
    columns : array
        Their columns, row after row.
    values : array
        Their values.
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[Any]


def prefers_sparse(density: float, n_entries: int, rank: int) -> bool:
    """Whether the sampled entries one by one are faster than whole blocks.

    Dense blocks cost the same at any density; one entry at a time costs some eight times more for each.
    Below SPARSE_FROM_WORK products the compiled kernel does not repay its loading. Both figures are
    measured by the evaluation benchmark.
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
    values: NDArray[Any],
    entries: Entries,
    held_out: tuple[NDArray[np.int32], NDArray[np.int32]],
) -> BlockSums:
    """Sums of a block over its sampled entries one by one, in a compiled sweep.

    Parameters
    ----------
    u, v, values, held_out
        As for :func:`dense_block`; of `values` only the held-out entries are read.
    entries : Entries
        The sampled entries of the block.
    """
    from usdenoise.completion import sparse_kernels

    rows, held_columns = held_out
    missed = np.vecdot(v[held_columns], u[rows]) - values[rows, held_columns]
    held_out_loss = squared_norm(missed.reshape(1, -1))
    if np.iscomplexobj(values):
        # Real and imaginary planes apart let the compiler use whole vectors.
        u_planes, v_planes = _planes(u), _planes(v)
        residual_v, residual_u = np.zeros_like(u_planes), np.zeros_like(v_planes)
        loss = sparse_kernels.complex_rows(*entries, u_planes, v_planes, residual_v, residual_u)
        return BlockSums(loss, _from_planes(residual_v), _from_planes(residual_u).conj().T, held_out_loss)
    residual_v, residual_u = np.zeros_like(u), np.zeros_like(v)
    loss = sparse_kernels.real_rows(*entries, u, v, residual_v, residual_u)
    return BlockSums(loss, residual_v, residual_u.T, held_out_loss)


def _planes(factor: NDArray[Any]) -> NDArray[Any]:
    return np.stack([factor.real, factor.imag], axis=1)


def _from_planes(planes: NDArray[Any]) -> NDArray[Any]:
    return planes[:, 0] + 1j * planes[:, 1]
