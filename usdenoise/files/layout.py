"""Memory layout: a stored stack is read slab by slab into a Casorati matrix, without a second whole copy."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.files.scratch import scratch_array
from usdenoise.files.stored import Index, StoredArray
from usdenoise.linalg.row_blocks import row_blocks
from usdenoise.stack.frame_blocks import block_edges
from usdenoise.stack.geometry import check_axes
from usdenoise.stack.precision import checked_conversion

SLAB_BYTES = 16 << 20
"""Size of a slab, the part of a stack that is read or written at a time."""

_LEAST_SLAB_BYTES, _SLABS = 1 << 20, 12
"""Least size of a slab of a stack on the disk, and the share of the memory that it is of: three or four take memory at a
time, as they are read, converted and put into the order of the file."""

_COPIED_TOGETHER = 16
"""Steps of the first axis that are copied together into another memory order: 128 frames of 128 x 128 pixels took 0.6 of
the time of a copy of all steps."""

_HELD = 6
"""Share of the memory that some rows of a stack on the disk may take before they are read block by block instead."""

CHUNK_BYTES = 1 << 20
"""Size of a chunk of a stored stack: the default size of the chunk cache of HDF5 1.x."""


def storage_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type for values of a stored type: float32 for integers and half floats, otherwise the same.

    The byte order becomes the native one.
    """
    if dtype.kind in "iu" or dtype == np.float16:
        return np.dtype(np.float32)
    return dtype.newbyteorder("=")


def frame_slice(frames: slice | None, n_frames: int) -> slice:
    """Return the selected frames as a slice with start, stop and a positive step.

    Parameters
    ----------
    frames : slice or None
        Selected frames, counted from 0; None selects all.
    n_frames : int
        Number of frames in the file.

    Raises
    ------
    InputError
        If the step is not positive, or fewer than two frames are selected.
    """
    selection = frames if frames is not None else slice(None)
    if selection.step is not None and selection.step < 1:
        raise InputError(
            f"has the step {selection.step}, which must be positive",
            option="frames",
            remedy="give a step of 1 or more, or omit it",
        )
    start, stop, step = selection.indices(n_frames)
    if len(range(start, stop, step)) < 2:
        if frames is None:
            raise InputError(
                f"the stack holds {n_frames} frame, and a clutter filter needs at least two",
                remedy="check {axes}",
            )
        raise InputError(
            f"leaves {len(range(start, stop, step))} of {n_frames} frames, and a clutter filter needs at least two",
            option="frames",
            remedy="widen {frames}",
        )
    return slice(start, stop, step)


def read_stack(
    stored: StoredArray,
    axes: str,
    frames: slice | None,
    dtype: np.dtype[Any],
    name: str = "iq",
    on_part: Callable[[int, int], None] | None = None,
) -> NDArray[Any]:
    """Read a stack into memory slab by slab, in the order in which the file has it.

    Parameters
    ----------
    stored : StoredArray
        The stack in its file.
    axes : str
        Axis letters of the stack, in the file's order.
    frames : slice or None
        Frames to read, counted from 0; None reads all.
    dtype : numpy.dtype
        Type of the values that are returned.
    name : str
        Name of the stack, for error messages.
    on_part : callable, optional
        Called after each slab with the number of bytes of the result that are read, and of the whole result.

    Returns
    -------
    array of 3 or 4 axes in the order of `axes`
        The selected frames, a view of memory in the order of the file.

    Raises
    ------
    InputError
        If `axes` does not fit the stack, if fewer than two frames are selected, or if a finite value is beyond the
        range of `dtype`.
    """
    picked = _picked(stored, axes, frames)
    whole = np.empty([_count(picked[axis]) for axis in stored.order], dtype)
    stack = whole.transpose(np.argsort(stored.order))

    def copy_slab(target: tuple[slice, ...], slab: NDArray[Any]) -> None:
        with checked_conversion(slab, dtype, name):
            copy_by_lines(np.moveaxis(stack[target], stored.slow, 0), np.moveaxis(slab, stored.slow, 0))

    def fill(index: Index, target: tuple[slice, ...]) -> bool:
        return stored.read_into(index, stack[target])

    _place_slabs(stored, _slabs_of(stored, axes, picked, dtype), copy_slab, dtype.itemsize, on_part, fill)
    return stack


def read_lines(
    stored: StoredArray,
    axes: str,
    frames: slice | None,
    dtype: np.dtype[Any],
    name: str,
    scratch: Path,
    on_part: Callable[[int, int], None] | None = None,
) -> NDArray[Any]:
    """Read a stack into a temporary file, one block of frames after the other, each pixel after pixel.

    Parameters
    ----------
    stored, axes, frames, dtype, name, on_part
        As for :func:`read_stack`.
    scratch : Path
        Folder of the temporary file.

    Returns
    -------
    (n_frames, pixels along each axis...) array, C-contiguous
        The memory of the blocks, which :func:`blocks_of_lines` returns; the pixels are in the order of the file.

    Raises
    ------
    InputError
        As for :func:`read_stack`.
    OutputError
        If the disk has no room for the temporary file.
    """
    picked, time = _picked(stored, axes, frames), axes.index("t")
    order = (time, *(axis for axis in stored.order if axis != time))
    whole = scratch_array(scratch, [_count(picked[axis]) for axis in order], dtype)
    blocks = blocks_of_lines(whole)

    def copy_slab(target: tuple[slice, ...], slab: NDArray[Any]) -> None:
        with checked_conversion(slab, dtype, name):
            _place_lines(blocks, [target[axis] for axis in order], slab.transpose(order))

    _place_slabs(stored, _slabs_of(stored, axes, picked, dtype), copy_slab, dtype.itemsize, on_part)
    return whole


def _picked(stored: StoredArray, axes: str, frames: slice | None) -> list[slice]:
    """Return the selected entries along each axis."""
    check_axes(axes, stored.shape)
    time = axes.index("t")
    picked = [slice(0, n, 1) for n in stored.shape]
    picked[time] = frame_slice(frames, stored.shape[time])
    return picked


def _count(selected: slice) -> int:
    return len(range(selected.start, selected.stop, selected.step or 1))


def _slabs_of(
    stored: StoredArray, axes: str, picked: list[slice], dtype: np.dtype[Any]
) -> list[tuple[Index, tuple[slice, ...]]]:
    """Return the slabs of a selection: the index in the file, and the index in the selection."""
    # As large as the slabs of a file with frames in order, of which a few are held at a time.
    slab = slab_shape(stored.shape, stored.chunks or stored.slow, axes, SLAB_BYTES // dtype.itemsize)
    return list(slabs(picked, slab))


def _place_slabs(
    stored: StoredArray,
    parts: list[tuple[Index, tuple[slice, ...]]],
    copy_slab: Callable[[tuple[slice, ...], NDArray[Any]], None],
    itemsize: int,
    on_part: Callable[[int, int], None] | None,
    fill: Callable[[Index, tuple[slice, ...]], bool] = lambda index, target: False,
) -> None:
    """Read slabs and copy them to their targets; `fill` may read a slab into its target, and returns whether it did."""
    # A thread in the background copies one slab while the next one is read.
    with ThreadPoolExecutor(1) as background:
        placed: Future[None] | None = None
        done, sizes = 0, [itemsize * math.prod(map(_count, target)) for _, target in parts]
        for number, (index, target) in enumerate(parts, 1):
            values = None if fill(index, target) else stored.read(index)
            done += sizes[number - 1]
            if on_part is not None:
                on_part(done, sum(sizes))
            if values is None:
                continue
            if placed is not None:
                placed.result()
            if number < len(parts):
                # np.errstate is part of the context: the thread ignores the same warnings as its caller.
                placed = background.submit(copy_context().run, copy_slab, target, values)
            else:
                # Starting a thread takes longer than copying a few frames.
                copy_slab(target, values)


def blocks_of_lines(whole: NDArray[Any]) -> list[tuple[int, NDArray[Any]]]:
    """Return the first frame of each block of frames, and its memory as (pixels along each axis..., frames).

    A slab of pixels in all frames is one long piece of each block, and a short piece of each frame: from a file in pixel
    order 1.83 GiB in 800 MiB of memory took 26 s in this way, and more than 100 s frame by frame.
    """
    edges = block_edges(len(whole), math.prod(whole.shape[1:])).tolist()
    return [(start, whole[start:stop].reshape(*whole.shape[1:], -1)) for start, stop in pairwise(edges)]


def _place_lines(blocks: list[tuple[int, NDArray[Any]]], target: list[slice], slab: NDArray[Any]) -> None:
    """Copy a slab, frames first, to its position in the blocks."""
    frames, *pixels = target
    for start, block in blocks:
        first, last = max(start, frames.start), min(start + block.shape[-1], frames.stop)
        if first < last:
            part = np.moveaxis(slab[first - frames.start : last - frames.start], 0, -1)
            block[(*pixels, slice(first - start, last - start))] = part


def slab_shape(shape: Sequence[int], chunks: Sequence[int] | int, axes: str, most: int) -> tuple[int, ...]:
    """Return the shape of the slabs in which an array is read: whole chunks, or consecutive parts of a file without.

    Parameters
    ----------
    shape : sequence of int
        Shape of the array.
    chunks : sequence of int, or int
        Shape of its chunks; for an array without chunks, its slowest axis.
    axes : str
        Axis letters of the array.
    most : int
        Entries of a slab, about. A slab has one chunk at least, or one step along the slowest axis.
    """
    if isinstance(chunks, int):
        slab = [*shape]
        other_size = math.prod(shape) // max(1, shape[chunks])
        slab[chunks] = min(max(1, most // max(1, other_size)), shape[chunks])
        return tuple(slab)
    slab = [min(chunk, n) for chunk, n in zip(chunks, shape, strict=True)]
    # Frames first: in memory, the frames of a pixel lie side by side.
    for axis in sorted(range(len(slab)), key=lambda axis: (axes[axis] != "t", -axis)):
        times = min(max(1, most // max(1, math.prod(slab))), -(-shape[axis] // slab[axis]))
        slab[axis] = min(slab[axis] * times, shape[axis])
    return tuple(slab)


def slabs(picked: Sequence[slice], slab: Sequence[int]) -> Iterator[tuple[Index, tuple[slice, ...]]]:
    """Yield the parts of a selection slab by slab: the index in the file, and the index in the selection.

    Parameters
    ----------
    picked : sequence of slice
        Selected entries along each axis: start, stop and a positive step.
    slab : sequence of int
        Shape of a slab; slabs start at multiples of it in the file.
    """

    def parts(along: slice, length: int) -> Iterator[tuple[slice, slice]]:
        done = 0
        for start in range(along.start // length * length, along.stop, length):
            first = along.start + done * along.step
            count = len(range(first, min(start + length, along.stop), along.step))
            if count:
                yield (
                    slice(first, first + (count - 1) * along.step + 1, along.step),
                    slice(done, done + count),
                )
            done += count

    for slab_ranges in product(*(list(parts(*each)) for each in zip(picked, slab, strict=True))):
        yield tuple(index for index, _ in slab_ranges), tuple(target for _, target in slab_ranges)


def copy_by_lines(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy an array line by line along its second axis, a part of the first axis at a time.

    If the two arrays have different memory orders, this is several times faster than one assignment, because
    a part of a line of each fits into the cache.

    Parameters
    ----------
    target, source : arrays of the same shape, with at least two axes
        Destination and origin of the values, which are converted to the type of `target`.
    """
    for part in row_blocks(len(target), _COPIED_TOGETHER):
        for line in range(target.shape[1]):
            target[part, line] = source[part, line]


def chunk_shape(shape: tuple[int, ...], axes: str, itemsize: int) -> tuple[int, ...]:
    """Return the shape of chunks that suit reading by frame as well as by pixel.

    A chunk has about CHUNK_BYTES bytes. About sqrt(n) of n chunks hold a frame, and about sqrt(n) hold all
    frames of a pixel.

    Parameters
    ----------
    shape : tuple of int
        Shape of the stack.
    axes : str
        Axis letters of the stack.
    itemsize : int
        Bytes of an entry.

    Returns
    -------
    tuple of int
        Shape of a chunk, axes in the order of the stack.
    """
    across = max(1.0, math.prod(shape) * itemsize / CHUNK_BYTES) ** 0.5
    parts = {letter: across ** (1 / (len(axes) - 1)) for letter in axes} | {"t": across}
    # A whole number of chunks along each axis leaves little padding in the last ones.
    counts = {letter: max(1, round(part)) for letter, part in parts.items()}
    return tuple(-(-n // min(n, counts[letter])) for n, letter in zip(shape, axes, strict=True))
