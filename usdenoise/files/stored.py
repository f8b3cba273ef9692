"""Arrays that are still on disk, and views of them in another layout, which read nothing until values are needed.

A layout (reversed axes, I and Q apart, a cell of blocks, …) is a function from stored arrays to a stored array. When
a slab of the result is read, only the slabs of the parts that it needs are read.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.array_library import Numbers

Dtype = np.dtype[np.inexact]

Written = Callable[[int], NDArray[np.bool_]]
"""Takes an axis, and returns which of its entries a file holds in full."""

Index = tuple[slice, ...]
"""One slice for each axis, with bounds within the shape and a positive step."""


@dataclass(frozen=True)
class StoredArray:
    """An array in a file.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array.
    dtype : numpy.dtype
        Type of the values that `read` returns.
    read : callable
        Takes an :data:`Index` and returns the values in it.
    slow : int, default 0
        Axis across which to read slab by slab: a slab of it is consecutive bytes of the file, or nearly so.
    chunks : tuple of int or None, default None
        Shape of the chunks that the file reads as a whole; None if it has none, or they are not known.
    fill : callable or None, default None
        Takes an :data:`Index` and an array of `dtype` with the memory order of the file, and reads the values straight
        into it; None if the file has another type or layout.
    written : callable or None, default None
        Takes an axis, and returns which of its entries the file holds in full; None if it holds all of them.
    check : callable
        Raises an InputError if the file holds less than its header claims; by default nothing is checked.
    notes : tuple of str, default none
        Sentences on what was guessed about the values, each with the option that overrides the guess.
    """

    shape: tuple[int, ...]
    dtype: Dtype
    read: Callable[[Index], Numbers]
    slow: int = 0
    chunks: tuple[int, ...] | None = None
    fill: Callable[[Index, Numbers], None] | None = None
    written: Written | None = None
    check: Callable[[], None] = lambda: None
    notes: tuple[str, ...] = ()

    def everything(self) -> Numbers:
        """Read all values."""
        return self.read(tuple(slice(0, n, 1) for n in self.shape))

    def at(self, axis: int, number: int) -> Numbers:
        """Read the values of one entry along an axis, which stays as an axis of length 1."""
        index = [slice(0, n, 1) for n in self.shape]
        index[axis] = slice(number, number + 1, 1)
        return self.read(tuple(index))

    def written_along(self, axis: int) -> NDArray[np.bool_]:
        """Return which entries along an axis the file holds in full."""
        return np.ones(self.shape[axis], bool) if self.written is None else self.written(axis)

    def chunk_length(self, axis: int) -> int:
        """Return the length of the chunks along an axis; 1 if there are no chunks."""
        return 1 if self.chunks is None else self.chunks[axis]

    @property
    def order(self) -> tuple[int, ...]:
        """The axes from the slowest to the fastest one: in C order, or in reverse for Fortran order."""
        others = [axis for axis in range(len(self.shape)) if axis != self.slow]
        return (self.slow, *(reversed(others) if self.slow == len(self.shape) - 1 else others))

    def read_into(self, index: Index, out: Numbers) -> bool:
        """Read values straight into an array if it has the type and the memory order of the file; return whether it has."""
        if self.fill is None or out.dtype != self.dtype or not out.transpose(self.order).flags.c_contiguous:
            return False
        self.fill(index, out)
        return True


def complex_dtype(dtype: Dtype) -> np.dtype[np.complexfloating]:
    """Return the type of complex numbers whose parts are of `dtype`; for integers and half floats complex64."""
    narrow = dtype.kind in "iu" or dtype == np.float16
    return np.dtype(np.complex64 if narrow else np.result_type(dtype, np.complex64))


COMPLEX_MEMBERS = (("r", "i"), ("re", "im"), ("real", "imag"), ("i", "q"))
"""Lower-case names of the two members of a compound that are known as real and imaginary part."""


def member_order(dtype: Any) -> tuple[str, str] | None:
    """Return the names of the real and the imaginary member of a compound; None if it is not a complex number."""
    if not dtype.names or len(dtype.names) != 2:
        return None
    first, second = dtype.names
    if dtype[first] != dtype[second] or dtype[first].kind not in "fiu" or dtype[first].shape:
        return None
    swapped = (second.lower(), first.lower()) in COMPLEX_MEMBERS
    return (second, first) if swapped else (first, second)


def of_pairs(pairs: NDArray[Any]) -> Numbers:
    """Return an array of pairs, a compound of :func:`member_order`, as complex numbers; any other array as it is."""
    order = member_order(pairs.dtype)
    if order is None:
        return pairs
    dtype = complex_dtype(pairs.dtype[order[0]])
    if _is_complex(pairs.dtype):
        return pairs.view(dtype)
    values = np.empty(pairs.shape, dtype)
    values.real, values.imag = pairs[order[0]], pairs[order[1]]
    return values


def _is_complex(pair: Any) -> bool:
    """Return whether the pairs of a compound of :func:`member_order` are complex numbers as they are."""
    names = member_order(pair) or ()
    return bool(pair == np.dtype([(name, complex_dtype(pair[name]).type().real.dtype) for name in names]))


def with_pairs(array: StoredArray, name: str) -> StoredArray:
    """Return an array of the pairs of :func:`of_pairs` as complex numbers; any other array as it is.

    Parameters
    ----------
    array : StoredArray
        The array.
    name : str
        Its name in the file, for a note if the names of the members do not identify the real part.
    """
    pair: Any = array.dtype
    order, fill = member_order(pair), array.fill
    if order is None:
        return array
    notes: tuple[str, ...] = ()
    if tuple(member.lower() for member in order) not in COMPLEX_MEMBERS:
        notes = (
            f"the members {order[0]} and {order[1]} of '{name}' are read as the real and the imaginary part; if they are "
            "not, pick another dataset",
        )
    return replace(
        array,
        dtype=complex_dtype(pair[order[0]]),
        read=lambda index: of_pairs(array.read(index)),
        fill=(lambda index, out: fill(index, out.view(pair))) if fill and _is_complex(pair) else None,
        notes=notes,
    )


def loaded_when_read(shape: tuple[int, ...], dtype: Dtype, load: Callable[[], Numbers]) -> StoredArray:
    """Return an array of a container that cannot be read in slabs: it is loaded once, when first needed.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array.
    dtype : numpy.dtype
        Type of the slabs.
    load : callable
        Returns the whole array. Its type may be a smaller one, which is converted slab by slab.
    """
    whole = cache(load)
    return StoredArray(shape, dtype, lambda index: whole()[index].astype(dtype), len(shape) - 1)


def from_array(values: Numbers) -> StoredArray:
    """Return an array in memory as a stored array."""
    return loaded_when_read(values.shape, values.dtype, lambda: values)


def rearranged(array: StoredArray, axes: Sequence[int | None]) -> StoredArray:
    """Return the array with its axes in another order, without some of length 1, or with more of them.

    Parameters
    ----------
    array : StoredArray
        The array.
    axes : sequence of int or None
        The axis of `array` that each axis of the result is; None for a new axis of length 1. Axes of `array` that are not
        among them have length 1.
    """
    kept = [axis for axis in axes if axis is not None]
    added = tuple(position for position, axis in enumerate(axes) if axis is None)
    dropped = tuple(axis for axis in range(len(array.shape)) if axis not in kept)
    order = np.argsort(np.argsort(kept))

    def inner(index: Index) -> Index:
        parts = dict(zip(axes, index, strict=True))
        return tuple(parts.get(axis, slice(0, 1, 1)) for axis in range(len(array.shape)))

    def read(index: Index) -> Numbers:
        return np.expand_dims(array.read(inner(index)).squeeze(dropped).transpose(order), added)

    def fill(index: Index, out: Numbers) -> None:
        assert array.fill is not None
        array.fill(inner(index), np.expand_dims(out.squeeze(added).transpose(np.argsort(order)), dropped))

    def written(position: int) -> NDArray[np.bool_]:
        axis = axes[position]
        return np.ones(1, bool) if axis is None else array.written_along(axis)

    # Without its slowest axis, the array is read along its first or its last one.
    slow = array.slow if array.slow in kept else min(kept) if array.slow < min(kept) else max(kept)
    chunks = array.chunks
    return replace(
        array,
        shape=tuple(1 if axis is None else array.shape[axis] for axis in axes),
        read=read,
        slow=axes.index(slow),
        chunks=None if chunks is None else tuple(1 if axis is None else chunks[axis] for axis in axes),
        fill=None if array.fill is None else fill,
        written=written,
    )


def reversed_axes(array: StoredArray) -> StoredArray:
    """Return the array with its axes in reverse, as software of the other memory order (C or Fortran) shows it."""
    return rearranged(array, range(len(array.shape))[::-1])


def without_axes(array: StoredArray, axes: Sequence[int]) -> StoredArray:
    """Return the array without the axes `axes`, each of length 1."""
    return rearranged(array, [axis for axis in range(len(array.shape)) if axis not in axes])


def joined(real: StoredArray, imaginary: StoredArray, scale: float = 1.0) -> StoredArray:
    """Return the complex array with two arrays of one shape as its parts, multiplied by `scale`."""
    dtype = complex_dtype(np.result_type(real.dtype, imaginary.dtype))

    def read(index: Index) -> Numbers:
        values = np.empty([n_selected(part) for part in index], dtype)
        values.real, values.imag = real.read(index), imaginary.read(index)
        if scale != 1.0:
            values *= scale
        return values

    def check() -> None:
        real.check()
        imaginary.check()

    def written(axis: int) -> NDArray[np.bool_]:
        return real.written_along(axis) & imaginary.written_along(axis)

    return replace(real, dtype=dtype, read=read, fill=None, written=written, check=check, notes=())


def paired(array: StoredArray, axis: int) -> StoredArray:
    """Return the complex array whose real and imaginary parts are the two slabs of an axis of length 2."""
    dtype = complex_dtype(array.dtype)
    axis %= len(array.shape)

    def read(index: Index) -> Numbers:
        parts = array.read((*index[:axis], slice(0, 2, 1), *index[axis:]))
        values = np.empty([n_selected(part) for part in index], dtype)
        values.real, values.imag = np.moveaxis(parts, axis, 0)
        return values

    shape = array.shape[:axis] + array.shape[axis + 1 :]
    slow = array.slow - 1 if array.slow > axis else min(array.slow, len(shape) - 1)
    chunks = None if array.chunks is None else array.chunks[:axis] + array.chunks[axis + 1 :]

    def written(other: int) -> NDArray[np.bool_]:
        return array.written_along(other + (other >= axis))

    return replace(
        array, shape=shape, dtype=dtype, read=read, slow=slow, chunks=chunks, fill=None, written=written
    )


def concatenated(parts: Sequence[StoredArray], axis: int) -> StoredArray:
    """Concatenate arrays along an axis. Their other axes have the same lengths."""
    axis %= len(parts[0].shape)
    starts = np.concatenate([[0], np.cumsum([part.shape[axis] for part in parts])])
    dtype = np.result_type(*(part.dtype for part in parts))
    shape = (*parts[0].shape[:axis], int(starts[-1]), *parts[0].shape[axis + 1 :])

    def read(index: Index) -> Numbers:
        numbers = np.arange(index[axis].start, index[axis].stop, index[axis].step)
        values = np.empty([n_selected(part) for part in index], dtype)
        index_slices: list[slice] = [slice(None)] * len(shape)
        for part, start, stop in zip(parts, starts[:-1], starts[1:], strict=True):
            first, last = (int(edge) for edge in np.searchsorted(numbers, [start, stop]))
            if first == last:
                continue
            local = slice(int(numbers[first] - start), int(numbers[last - 1] - start) + 1, index[axis].step)
            index_slices[axis] = slice(first, last)
            values[tuple(index_slices)] = part.read((*index[:axis], local, *index[axis + 1 :]))
        return values

    chunks = parts[0].chunks
    if chunks is not None and any(part.chunks != chunks or part.shape[axis] % chunks[axis] for part in parts):
        chunks = None

    def written(along: int) -> NDArray[np.bool_]:
        of_parts = [part.written_along(along) for part in parts]
        return np.concatenate(of_parts) if along == axis else np.logical_and.reduce(of_parts)

    def check() -> None:
        for part in parts:
            part.check()

    return StoredArray(shape, dtype, read, axis, chunks, written=written, check=check)


def in_a_row(array: StoredArray, outer: int, inner: int) -> StoredArray:
    """Return the array without its axis `outer`: its entries follow each other along the axis `inner`."""
    written = array.written_along(outer)

    def entry(number: int) -> StoredArray:
        # An entry that is not written in full is missing.
        one = replace(
            array,
            shape=(*array.shape[:outer], 1, *array.shape[outer + 1 :]),
            read=lambda index: array.read(
                (*index[:outer], slice(number, number + 1, 1), *index[outer + 1 :])
            ),
            fill=None,
            written=lambda axis: np.full(array.shape[axis], written[number]),
            check=lambda: None,
        )
        return without_axes(one, [outer])

    return concatenated([entry(number) for number in range(array.shape[outer])], inner - (inner > outer))


def split_axis(array: StoredArray, lengths: tuple[int, int]) -> StoredArray:
    """Return the array with its second axis split into two of the given lengths, the second of them the faster one."""
    fast = lengths[1]

    def read(index: Index) -> Numbers:
        outer, inner = index[1:3]
        last = range(outer.start, outer.stop, outer.step)[-1]
        band = slice(outer.start * fast, (last + 1) * fast, 1)
        values = array.read((index[0], band, *index[3:]))
        return values.reshape(len(values), -1, fast, *values.shape[2:])[:, :: outer.step, inner]

    chunks = array.chunks
    if chunks is not None:
        # If chunks end within a line of the fast axis, all of its lines are read together.
        outer = lengths[0] if chunks[1] % fast else chunks[1] // fast
        chunks = (chunks[0], outer, fast, *chunks[2:])

    def written(along: int) -> NDArray[np.bool_]:
        # The frames are along another axis.
        is_split = along in (1, 2)
        return np.ones(shape[along], bool) if is_split else array.written_along(along - (along > 1))

    shape = (array.shape[0], *lengths, *array.shape[2:])
    slow = array.slow + (array.slow > 1)
    return replace(array, shape=shape, read=read, slow=slow, chunks=chunks, fill=None, written=written)


PACKING = ("_FillValue", "missing_value", "scale_factor", "add_offset")
"""Attributes by which NetCDF packs numbers: the entries that are missing, a factor, and an offset."""

OWN_FILL = "own"
"""Name of the value with which a format fills what was never written, among the numbers of a packing."""


def unpacked(array: StoredArray, packing: Mapping[str, object]) -> StoredArray:
    """Return an array of packed numbers as floating-point numbers: scale * number + offset, and NaN for missing ones.

    Parameters
    ----------
    array : StoredArray
        The numbers as the file holds them. Real and imaginary parts are packed alike.
    packing : mapping
        Names of PACKING and OWN_FILL -> number; other values are ignored. An array without packing is returned as it is.
    """
    if array.dtype.kind not in "fciu":
        return array
    numbers: dict[str, NDArray[Any]] = {}
    for name, value in packing.items():
        # Some programs write text, lists of one number, or lists of several for another purpose.
        with suppress(ValueError):
            number: Any
            (number,) = of_pairs(np.asarray(value)).flat
            numbers[name] = np.asarray(float(number) if isinstance(number, str | bytes) else number)

    def factor(name: str, default: float) -> float:
        value = numbers.pop(name, np.asarray(default))
        return float(value) if value.dtype.kind in "fiu" and np.isfinite(value) else default

    scale, offset = factor("scale_factor", 1.0) or 1.0, factor("add_offset", 0.0)
    kinds, missing = "fiuc" if array.dtype.kind == "c" else "fiu", list[Any]()
    for name, value in numbers.items():
        if array.dtype.kind == "c" and value.dtype.kind in "fiu":
            value = value * (1 + 1j)
        # A fill value of 0 may also be the usual one.
        if value.dtype.kind in kinds and not np.isnan(value) and (name != OWN_FILL or value != 0):
            missing.append(array.dtype.type(value) if array.dtype.kind in "fc" else value)
    if not missing and (scale, offset) == (1, 0):
        return array
    dtype = np.result_type(array.dtype, np.float32)

    def read(index: Index) -> Numbers:
        stored = array.read(index)
        values = stored.astype(dtype)
        values *= scale
        values += offset * (1 + 1j) if dtype.kind == "c" else offset
        values[np.isin(stored, missing)] = np.nan
        return values

    return replace(array, dtype=dtype, read=read, fill=None)


def grid_of(shape: Sequence[int], chunks: Sequence[int]) -> list[int]:
    """Return the number of chunks along each axis."""
    return [-(-n // chunk) for n, chunk in zip(shape, chunks, strict=True)]


def n_selected(part: slice) -> int:
    """Return the number of elements of a slice that has a start and a stop."""
    return len(range(part.start, part.stop, part.step or 1))
