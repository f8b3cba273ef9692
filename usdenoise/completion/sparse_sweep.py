"""Compiled sweeps over sampled entries: for each one a dot product and two updates of a row.

Imported only where the sparse evaluation is used: loading the compiler takes half a second.

A row of a factor is a few lanes, vectors as long as a cache line, which are values of their own here: in loops of
a few dozen numbers the compiler finds them only in part. Entries are taken in pairs, so that the processor has
two sums to add up at a time.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

LANE_BYTES = 64
# As many lanes a row are unrolled; the loops over more are long enough as they are.
MOST_UNROLLED = 4

# The sums of squares may be fused products and sums; no order of additions is left to the compiler.
_OPTIONS = {"nogil": True, "cache": True, "fastmath": {"contract"}}


class _LaneType(types.Type):
    """A vector of LANE_BYTES as a type of numba's."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        super().__init__(name=f"lane({dtype})")


@register_model(_LaneType)
class _LaneModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, lane: _LaneType) -> None:
        super().__init__(manager, lane, _vector(lane))


def _vector(lane: _LaneType) -> ir.VectorType:
    kind = ir.FloatType() if lane.dtype.bitwidth == 32 else ir.DoubleType()
    return ir.VectorType(kind, 8 * LANE_BYTES // lane.dtype.bitwidth)


def _llvm_name(operation: str, vector: ir.VectorType) -> str:
    return f"llvm.{operation}.v{vector.count}f{32 if vector.element == ir.FloatType() else 64}"


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _vector(_LaneType(array_type.dtype)).as_pointer())


@intrinsic
def _load(context: Any, array: Any, index: Any) -> Any:
    """The lane that begins at an index of a flat array."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lane = builder.load(_pointer(context, builder, array, *arguments))
        lane.align = array.dtype.bitwidth // 8
        return lane

    return _LaneType(array.dtype)(array, types.intp), make


@intrinsic
def _store(context: Any, array: Any, index: Any, lane: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = builder.store(arguments[2], _pointer(context, builder, array, *arguments[:2]))
        stored.align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, lane), make


@intrinsic
def _zero(context: Any, array: Any) -> Any:
    """A lane of zeros of an array's type."""
    lane = _LaneType(array.dtype)

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(_vector(lane), [0.0] * _vector(lane).count)

    return lane(array), make


@intrinsic
def _fill(context: Any, value: Any) -> Any:
    """A lane of one number."""
    lane = _LaneType(value)

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = _vector(lane)
        first = ir.Constant(ir.IntType(32), 0)
        nothing = ir.Constant(vector, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
        return builder.shuffle_vector(
            builder.insert_element(nothing, arguments[0], first), nothing, everywhere
        )

    return lane(value), make


@intrinsic
def _multiply_add(context: Any, a: Any, b: Any, c: Any) -> Any:
    """The product of two lanes plus a third."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = _vector(a)
        function = ir.FunctionType(vector, [vector] * 3)
        name = _llvm_name("fmuladd", vector)
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name), arguments)

    return a(a, a, a), make


@intrinsic
def _totals(context: Any, a: Any, b: Any) -> Any:
    """The sums of two lanes' numbers, added up in the two halves of one lane: half the work of one by one."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = _vector(a)
        n = vector.count

        def shuffled(first: Any, second: Any, order: list[int]) -> Any:
            return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(ir.IntType(32), n), order))

        first, second = arguments
        lower, upper = list(range(n // 2)), list(range(n // 2, n))
        sums = builder.fadd(
            shuffled(first, second, lower + [n + k for k in lower]),
            shuffled(first, second, upper + [n + k for k in upper]),
        )
        distance = n // 4
        while distance:
            sums = builder.fadd(sums, shuffled(sums, sums, [k ^ distance for k in range(n)]))
            distance //= 2
        both = [builder.extract_element(sums, ir.Constant(ir.IntType(32), k)) for k in (0, n // 2)]
        return context.make_tuple(builder, signature.return_type, both)

    return types.containers.UniTuple(a.dtype, 2)(a, b), make


def sweep(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[Any],
    u: NDArray[Any],
    v: NDArray[Any],
) -> tuple[float, NDArray[Any], NDArray[Any]]:
    """Sum of |R|^2 in double precision, R V and R^H U for the residual R at the sampled entries.

    Parameters
    ----------
    starts, columns, values
        Those of :class:`usdenoise.completion.block_sums.Entries`, of b rows.
    u : (b, r) array
        Rows of U.
    v : (n, r) array
        V.
    """
    rank = v.shape[1]
    if not np.iscomplexobj(values):
        own, others = _padded(u), _padded(v)
        residual_v, residual_u = _zeros(own.shape, own.dtype), _zeros(others.shape, own.dtype)
        loss = real_rows(_unrolled(own))(starts, columns, values, own, others, residual_v, residual_u)
        return loss, residual_v[:, :rank], residual_u[:, :rank]
    # Conjugate products of complex numbers are real ones of their parts side by side.
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
    """Rows of so many numbers and more, in whole lanes that begin with a cache line."""
    n_rows, length = shape
    row_bytes = -(-length * dtype.itemsize // LANE_BYTES) * LANE_BYTES
    memory = np.zeros(n_rows * row_bytes + LANE_BYTES, np.uint8)
    first = -memory.ctypes.data % LANE_BYTES
    return memory[first : first + n_rows * row_bytes].view(dtype).reshape(n_rows, -1)


def _padded(*parts: NDArray[Any]) -> NDArray[Any]:
    """Real matrices side by side, zeros beyond them."""
    values = np.concatenate(parts, axis=1)
    rows = _zeros(values.shape, values.dtype)
    rows[:, : values.shape[1]] = values
    return rows


def _unrolled(rows: NDArray[Any]) -> int:
    lanes = rows.shape[1] * rows.itemsize // LANE_BYTES
    return lanes if lanes <= MOST_UNROLLED else 0


@cache
def real_rows(unrolled: int) -> Callable[..., float]:
    """A sweep for rows of so many lanes, or of any number with 0.

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
                a, b = _zero(u_), _zero(u_)
                for g in range(n):
                    own = _load(u_, row + g * step)
                    a = _multiply_add(own, _load(v_, j + g * step), a)
                    b = _multiply_add(own, _load(v_, h + g * step), b)
                error, other = _totals(a, b)
                error -= values[k]
                other = other - values[k + 1] if pair else values.dtype.type(0)
                loss += np.float64(error) * np.float64(error) + np.float64(other) * np.float64(other)
                e, f = _fill(error), _fill(other)
                for g in range(n):
                    at = row + g * step
                    sums = _multiply_add(f, _load(v_, h + g * step), _load(rv, at))
                    _store(rv, at, _multiply_add(e, _load(v_, j + g * step), sums))
                for g in range(n):
                    own, to, then = _load(u_, row + g * step), j + g * step, h + g * step
                    _store(ru, to, _multiply_add(e, own, _load(ru, to)))
                    _store(ru, then, _multiply_add(f, own, _load(ru, then)))
        return loss

    compiled: Callable[..., float] = kernel
    return compiled


@cache
def complex_rows(unrolled: int) -> Callable[..., float]:
    """As :func:`real_rows` for complex factors in real lanes.

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
                a, b = _zero(u_), _zero(u_)
                for g in range(n):
                    other = _load(v_, j + g * step)
                    a = _multiply_add(_load(u_, row + g * step), other, a)
                    b = _multiply_add(_load(iu, row + g * step), other, b)
                real, imaginary = _totals(a, b)
                real -= values[k].real
                imaginary -= values[k].imag
                loss += np.float64(real) * np.float64(real) + np.float64(imaginary) * np.float64(imaginary)
                e, f = _fill(real), _fill(imaginary)
                for g in range(n):
                    at, other = row + g * step, _load(v_, j + g * step)
                    _store(rv, at, _multiply_add(e, other, _load(rv, at)))
                    _store(riv, at, _multiply_add(f, other, _load(riv, at)))
                for g in range(n):
                    at, to = row + g * step, j + g * step
                    sums = _multiply_add(f, _load(iu, at), _load(ru, to))
                    _store(ru, to, _multiply_add(e, _load(u_, at), sums))
        return loss

    compiled: Callable[..., float] = kernel
    return compiled
