"""Memory layout: a stored stack is read slab by slab into frames of pixels in the order z, x, y, without a second copy."""

import errno
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import pairwise, product
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OutputError
from usdenoise.files.stored import Index, StoredArray, n_selected
from usdenoise.linalg.tall_matrices import slices_of
from usdenoise.pipeline.recording import chunk_edges
from usdenoise.stack.arrays import checked_conversion
from usdenoise.stack.geometry import canonical_axes, check_axes

_ZEROS_BYTES = 1 << 22
"""Bytes that are written at a time where a file cannot be made long otherwise."""


def scratch_array(folder: Path, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array in a temporary file, which is gone when the array is, however the process ends.

    Its whole size is taken on the disk at once: a write into a mapped file on a full disk would end the process.

    Parameters
    ----------
    folder : Path
        Folder of the file.
    shape : sequence of int
        Shape of the array.
    dtype : numpy.dtype
        Type of the values, which may be anything.

    Raises
    ------
    OutputError
        If the disk has no room.
    """
    size = math.prod(shape) * dtype.itemsize
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        try:
            _take_room(file, size)
        except OSError as error:
            raise OutputError(
                f"the stack requires {size / 2**30:.3g} GiB, more than the memory, and {folder} has no "
                f"space for it ({error.strerror})",
                remedy="choose an output folder on another disk, or raise {memory}",
            ) from error
        return np.asarray(np.memmap(file, dtype, "r+", shape=tuple(shape)))


def _take_room(file: IO[bytes], size: int) -> None:
    """Make an empty file this long, with all of its bytes on the disk."""
    try:
        os.posix_fallocate(file.fileno(), 0, size)
        return
    except AttributeError:
        # macOS does not have it.
        pass
    except OSError as error:
        # Nor have some file systems.
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
    zeros, done = bytes(_ZEROS_BYTES), 0
    while done < size:
        done += file.write(zeros[: size - done])


SLAB_BYTES = 16 << 20
"""Size of a slab, the part of a stack that is read or written at a time."""

CHUNK_ROW_BYTES = 64 << 20
"""Size up to which all chunks of the same frames are read together for a block of frames."""

_COPIED_TOGETHER = 16
"""Steps of the first axis that are copied together into another memory order: 128 frames of 128 x 128 pixels took 0.6 of
the time of a copy of all steps."""

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
        if frames in (None, slice(None)):
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
    """Read a stack into memory slab by slab, with pixels in the order z, x, y.

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
        The selected frames, a view of memory with frame after frame, or pixel after pixel if time is the fastest axis of
        the file.

    Raises
    ------
    InputError
        If `axes` does not fit the stack, if fewer than two frames are selected, or if a finite value is beyond the
        range of `dtype`.
    """
    picked = _picked(stored, axes, frames)
    order = [axes.index(letter) for letter in canonical_axes(axes)]
    if stored.order[-1] != order[-1]:
        order = [order[-1], *order[:-1]]
    whole = np.empty([n_selected(picked[axis]) for axis in order], dtype)
    stack = whole.transpose(np.argsort(order))

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
    """Read a stack into a temporary file, one chunk of frames after the other, each pixel after pixel.

    Parameters
    ----------
    stored, axes, frames, dtype, name, on_part
        As for :func:`read_stack`.
    scratch : Path
        Folder of the temporary file.

    Returns
    -------
    (n_frames, pixels along each axis...) array, C-contiguous
        The memory of the chunks, which :func:`chunks_of_lines` returns; pixels in the order z, x, y.

    Raises
    ------
    InputError
        As for :func:`read_stack`.
    OutputError
        If the disk has no room for the temporary file.
    """
    picked = _picked(stored, axes, frames)
    order = [axes.index(letter) for letter in "t" + canonical_axes(axes)[:-1]]
    whole = scratch_array(scratch, [n_selected(picked[axis]) for axis in order], dtype)
    chunks = chunks_of_lines(whole)

    def copy_slab(target: tuple[slice, ...], slab: NDArray[Any]) -> None:
        with checked_conversion(slab, dtype, name):
            _place_lines(chunks, [target[axis] for axis in order], slab.transpose(order))

    _place_slabs(stored, _slabs_of(stored, axes, picked, dtype), copy_slab, dtype.itemsize, on_part)
    return whole


def chunk_frames(stored: StoredArray, time: int) -> int:
    """Return the length of the chunks along time; 1 if there are no chunks."""
    return 1 if stored.chunks is None else stored.chunks[time]


def is_in_frame_order(stored: StoredArray, time: int) -> bool:
    """Return whether blocks of frames can be read one after the other without reading anything twice.

    The frames are stored one after the other, or all pixels of the frames of one chunk can be read together.
    """
    if stored.chunks is None:
        return stored.slow == time
    entries = int(np.prod(stored.shape)) // stored.shape[time] * stored.chunks[time]
    return entries * stored.dtype.itemsize <= CHUNK_ROW_BYTES


def read_frames(
    stored: StoredArray, axes: str, numbers: NDArray[np.intp], dtype: np.dtype[Any], name: str
) -> NDArray[Any]:
    """Read a few frames. Frames between them are read only if the file has them in the same chunks, or in pixel order.

    Parameters
    ----------
    stored, axes, dtype, name
        As for :func:`read_stack`.
    numbers : (n,) array of int
        Numbers of the frames, increasing.

    Returns
    -------
    (n, n_pixels) array, C-contiguous
        The frames, pixels in the order z, x, y.

    Raises
    ------
    InputError
        If a finite value is beyond the range of `dtype`.
    """
    order = [axes.index(letter) for letter in "t" + canonical_axes(axes)[:-1]]
    rows = np.empty((len(numbers), *(stored.shape[axis] for axis in order[1:])), dtype)
    stack, time = rows.transpose(np.argsort(order)), order[0]
    slab = slab_shape(stored.shape, stored.chunks or stored.slow, axes, SLAB_BYTES // dtype.itemsize)
    gaps = np.diff(numbers // chunk_frames(stored, time)) > 1
    # In pixel order a frame is spread over the whole file, which is read once then.
    cuts = (np.flatnonzero(gaps) + 1).tolist() if is_in_frame_order(stored, time) else []
    for first, last in pairwise([0, *cuts, len(numbers)]):
        picked = [slice(0, n, 1) for n in stored.shape]
        picked[time] = slice(int(numbers[first]), int(numbers[last - 1]) + 1, 1)
        for index, target in slabs(picked, slab):
            in_target = slice(*np.searchsorted(numbers, [index[time].start, index[time].stop]).tolist())
            if in_target.start == in_target.stop:
                continue
            target_slices = (*target[:time], in_target, *target[time + 1 :])
            values = stored.read(index)
            with checked_conversion(values, dtype, name):
                stack[target_slices] = values.take(numbers[in_target] - index[time].start, axis=time)
    return rows.reshape(len(numbers), -1)


def _picked(stored: StoredArray, axes: str, frames: slice | None) -> list[slice]:
    """Return the selected entries along each axis."""
    check_axes(axes, stored.shape)
    time = axes.index("t")
    picked = [slice(0, n, 1) for n in stored.shape]
    picked[time] = frame_slice(frames, stored.shape[time])
    return picked


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
        done, sizes = 0, [itemsize * math.prod(map(n_selected, target)) for _, target in parts]
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


def chunks_of_lines(whole: NDArray[Any]) -> list[tuple[int, NDArray[Any]]]:
    """Return the first frame of each chunk, and its memory as (pixels along each axis..., frames).

    A slab of pixels in all frames is one long piece of each chunk, and a short piece of each frame: from a file in pixel
    order 1.83 GiB in 800 MiB of memory took 26 s in this way, and more than 100 s frame by frame.
    """
    edges = chunk_edges(len(whole), math.prod(whole.shape[1:])).tolist()
    return [(start, whole[start:stop].reshape(*whole.shape[1:], -1)) for start, stop in pairwise(edges)]


def _place_lines(chunks: list[tuple[int, NDArray[Any]]], target: list[slice], slab: NDArray[Any]) -> None:
    """Copy a slab, frames first, to its position in the chunks."""
    frames, *pixels = target
    for start, chunk in chunks:
        first, last = max(start, frames.start), min(start + chunk.shape[-1], frames.stop)
        if first < last:
            part = np.moveaxis(slab[first - frames.start : last - frames.start], 0, -1)
            chunk[(*pixels, slice(first - start, last - start))] = part


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
    for part in slices_of(len(target), _COPIED_TOGETHER):
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
