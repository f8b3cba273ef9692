"""Vectors as long as a cache line, as values in compiled functions: a machine trick.

A row of a factor is a few lanes of LANE_BYTES. In loops over a few dozen numbers the compiler does not find all of
the vector instructions; here each operation on a lane is an LLVM instruction. :mod:`usdenoise.completion.sparse_sweep`
uses them, and names the benchmark.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

LANE_BYTES = 64
"""Bytes of a cache line, and of the widest vector registers."""


class LaneType(types.Type):
    """A vector of LANE_BYTES as a type that numba knows."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        super().__init__(name=f"lane({dtype})")


@register_model(LaneType)
class _LaneModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, lane: LaneType) -> None:
        super().__init__(manager, lane, _vector(lane))


def _vector(lane: LaneType) -> ir.VectorType:
    kind = ir.FloatType() if lane.dtype.bitwidth == 32 else ir.DoubleType()
    return ir.VectorType(kind, 8 * LANE_BYTES // lane.dtype.bitwidth)


def _llvm_name(operation: str, vector: ir.VectorType) -> str:
    return f"llvm.{operation}.v{vector.count}f{32 if vector.element == ir.FloatType() else 64}"


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _vector(LaneType(array_type.dtype)).as_pointer())


@intrinsic
def load(context: Any, array: Any, index: Any) -> Any:
    """Return the lane that begins at an index of a flat array."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lane = builder.load(_pointer(context, builder, array, *arguments))
        lane.align = array.dtype.bitwidth // 8
        return lane

    return LaneType(array.dtype)(array, types.intp), make


@intrinsic
def store(context: Any, array: Any, index: Any, lane: Any) -> Any:
    """Write a lane to a flat array, from an index on."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = builder.store(arguments[2], _pointer(context, builder, array, *arguments[:2]))
        stored.align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, lane), make


@intrinsic
def zero(context: Any, array: Any) -> Any:
    """Return a lane of zeros, of the type of an array."""
    lane = LaneType(array.dtype)

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(_vector(lane), [0.0] * _vector(lane).count)

    return lane(array), make


@intrinsic
def fill(context: Any, value: Any) -> Any:
    """Return a lane in which every number is `value`."""
    lane = LaneType(value)

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
def multiply_add(context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return the product of lanes `a` and `b` plus lane `c`, entry by entry."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = _vector(a)
        function = ir.FunctionType(vector, [vector] * 3)
        name = _llvm_name("fmuladd", vector)
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name), arguments)

    return a(a, a, a), make


@intrinsic
def totals(context: Any, a: Any, b: Any) -> Any:
    """Return the sums of the numbers of two lanes.

    Both are added up in the two halves of one lane, which is half the work of adding them one after the other.
    """

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
