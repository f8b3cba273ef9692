"""The sparse evaluation: one compiled sweep over the sampled entries of a row block.

For each sampled entry (i, j) with error e = (U V^H)_ij - M_ij the sweep adds |e|^2 to the loss, e v_j to row i of R V
and conj(e) u_i to row j of R^H U; ``tests/reference/loops.py`` has that loop as it is written here. The kernels are the
same loop over vectors as long as a cache line (:mod:`usdenoise.completion.vector_lanes`); real entries are taken in
pairs, so that the processor has two independent sums to add up. ``benchmarks/evaluation.py`` times them.

Imported only where the sparse evaluation is used: loading the compiler takes half a second.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.vector_lanes import LANE_BYTES, fill, load, multiply_add, store, totals, zero

MOST_UNROLLED = 4
"""Rows of at most this many lanes have loops of a fixed length, which the compiler unrolls; longer loops gain nothing."""

# Products and sums may be fused; the order of additions is fixed, so that results are reproducible.
_OPTIONS = {"nogil": True, "cache": True, "fastmath": {"contract"}}


def sweep(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[Any],
    u: NDArray[Any],
    v: NDArray[Any],
) -> tuple[float, NDArray[Any], NDArray[Any]]:
    """Return the sum of |R|^2 in double precision, R V and R^H U for the residual R on the sampled entries.

    Parameters
    ----------
    starts, columns, values : arrays
        Fields of :class:`usdenoise.completion.block_sums.Entries`, of b rows.
    u : (b, r) array
        Rows of U.
    v : (n, r) array
        The factor V.

    Returns
    -------
    loss : float
        Sum of |R|^2.
    residual_v : (b, r) array
        R V.
    residual_u : (n, r) array
        R^H U.
    """
    rank = v.shape[1]
    if not np.iscomplexobj(values):
        own, others = _padded(u), _padded(v)
        residual_v, residual_u = _zeros(own.shape, own.dtype), _zeros(others.shape, own.dtype)
        loss = real_rows(_unrolled(own))(starts, columns, values, own, others, residual_v, residual_u)
        return loss, residual_v[:, :rank], residual_u[:, :rank]
    # Re(conj(a) b) and Im(conj(a) b) are real dot products of rows that hold real and imaginary parts.
    own, turned, others = _padded(u.real, u.imag), _padded(u.imag, -u.real), _padded(v.real, v.imag)
    by_real, by_imaginary, residual_u = (_zeros(like.shape, own.dtype) for like in (own, own, others))
    loss = complex_rows(_unrolled(own))(
        starts, columns, values, own, turned, others, by_real, by_imaginary, residual_u
    )
    both = slice(0, rank), slice(rank, 2 * rank)
    residual_v = np.empty_like(u)
    residual_v.real = by_real[:, both[0]] - by_imaginary[:, both[1]]
    residual_v.imag = by_real[:, both[1]] + by_imaginary[:, both[0]]
    return loss, residual_v, residual_u[:, both[0]] + 1j * residual_u[:, both[1]]


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros of a shape, each row padded to whole lanes and beginning at a cache line."""
    n_rows, length = shape
    row_bytes = -(-length * dtype.itemsize // LANE_BYTES) * LANE_BYTES
    memory = np.zeros(n_rows * row_bytes + LANE_BYTES, np.uint8)
    first = -memory.ctypes.data % LANE_BYTES
    return memory[first : first + n_rows * row_bytes].view(dtype).reshape(n_rows, -1)


def _padded(*parts: NDArray[Any]) -> NDArray[Any]:
    """Return real matrices joined along their columns, each row padded to whole lanes with zeros."""
    values = np.concatenate(parts, axis=1)
    rows = _zeros(values.shape, values.dtype)
    rows[:, : values.shape[1]] = values
    return rows


def _unrolled(rows: NDArray[Any]) -> int:
    """Return the number of lanes of a row where their loop is to be unrolled, otherwise 0."""
    lanes = rows.shape[1] * rows.itemsize // LANE_BYTES
    return lanes if lanes <= MOST_UNROLLED else 0


@cache
def real_rows(unrolled: int) -> Callable[..., float]:
    """Return the kernel for real factors whose rows have `unrolled` lanes, or any number of lanes with 0.

    kernel(starts, columns, values, u, v, residual_v, residual_u) adds R V to `residual_v` and R^T U to
    `residual_u`, all in whole lanes, and returns the sum of R^2 in double precision. `starts`,
    `columns` and `values` are those of :class:`usdenoise.completion.block_sums.Entries`.
    """

    @numba.njit(**_OPTIONS)
    def kernel(
        starts: Any, columns: Any, values: Any, u: Any, v: Any, residual_v: Any, residual_u: Any
    ) -> float:
        step = LANE_BYTES // u.itemsize
        n = unrolled if unrolled else u.shape[1] // step
        width = n * step
        u_, v_, rv, ru = u.reshape(-1), v.reshape(-1), residual_v.reshape(-1), residual_u.reshape(-1)
        loss = 0.0
        for t, i in np.ndindex(starts.shape[0], u.shape[0]):
            row, end = i * width, starts[t, i + 1]
            for k in range(starts[t, i], end, 2):
                j = columns[k] * width
                pair = k + 1 < end
                h = columns[k + 1] * width if pair else j
                a, b = zero(u_), zero(u_)
                for g in range(n):
                    own = load(u_, row + g * step)
                    a = multiply_add(own, load(v_, j + g * step), a)
                    b = multiply_add(own, load(v_, h + g * step), b)
                error, other = totals(a, b)
                error -= values[k]
                other = other - values[k + 1] if pair else values.dtype.type(0)
                loss += np.float64(error) * np.float64(error) + np.float64(other) * np.float64(other)
                e, f = fill(error), fill(other)
                for g in range(n):
                    at = row + g * step
                    sums = multiply_add(f, load(v_, h + g * step), load(rv, at))
                    store(rv, at, multiply_add(e, load(v_, j + g * step), sums))
                for g in range(n):
                    own, to, then = load(u_, row + g * step), j + g * step, h + g * step
                    store(ru, to, multiply_add(e, own, load(ru, to)))
                    store(ru, then, multiply_add(f, own, load(ru, then)))
        return loss

    compiled: Callable[..., float] = kernel
    return compiled


@cache
def complex_rows(unrolled: int) -> Callable[..., float]:
    """Return the kernel for complex factors in real lanes; otherwise as :func:`real_rows`.

    kernel(starts, columns, values, u, turned, v, residual_v, residual_iv, residual_u) takes rows
    [Re u, Im u], [Im u, -Re u] and [Re v, Im v] and adds sum Re(R) [Re v, Im v] to `residual_v`, the same with Im(R)
    to `residual_iv`, and [Re, Im] of R^H U to `residual_u`.
    """

    @numba.njit(**_OPTIONS)
    def kernel(
        starts: Any,
        columns: Any,
        values: Any,
        u: Any,
        turned: Any,
        v: Any,
        residual_v: Any,
        residual_iv: Any,
        residual_u: Any,
    ) -> float:
        step = LANE_BYTES // u.itemsize
        n = unrolled if unrolled else u.shape[1] // step
        width = n * step
        u_, iu, v_ = u.reshape(-1), turned.reshape(-1), v.reshape(-1)
        rv, riv, ru = residual_v.reshape(-1), residual_iv.reshape(-1), residual_u.reshape(-1)
        loss = 0.0
        for t, i in np.ndindex(starts.shape[0], u.shape[0]):
            row = i * width
            for k in range(starts[t, i], starts[t, i + 1]):
                j = columns[k] * width
                a, b = zero(u_), zero(u_)
                for g in range(n):
                    other = load(v_, j + g * step)
                    a = multiply_add(load(u_, row + g * step), other, a)
                    b = multiply_add(load(iu, row + g * step), other, b)
                real, imaginary = totals(a, b)
                real -= values[k].real
                imaginary -= values[k].imag
                loss += np.float64(real) * np.float64(real) + np.float64(imaginary) * np.float64(imaginary)
                e, f = fill(real), fill(imaginary)
                for g in range(n):
                    at, other = row + g * step, load(v_, j + g * step)
                    store(rv, at, multiply_add(e, other, load(rv, at)))
                    store(riv, at, multiply_add(f, other, load(riv, at)))
                for g in range(n):
                    at, to = row + g * step, j + g * step
                    sums = multiply_add(f, load(iu, at), load(ru, to))
                    store(ru, to, multiply_add(e, load(u_, at), sums))
        return loss

    compiled: Callable[..., float] = kernel
    return compiled
