"""Memory layout: a stored stack is read slab by slab into frames of pixels in the order z, x, y, without a second copy."""

import errno
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OutputError
from usdenoise.files.stored import Dtype, Index, StoredArray, n_selected
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.tall_matrices import slices_of
from usdenoise.pipeline.recording import chunk_edges
from usdenoise.stack.arrays import checked_conversion
from usdenoise.stack.geometry import canonical_axes

_ZEROS_BYTES = 1 << 22
"""Bytes that are written at a time where a file cannot be made long otherwise."""


def scratch_array(folder: Path, shape: Sequence[int], dtype: Dtype) -> Numbers:
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


FrameNumbers = slice | NDArray[np.intp]
"""Frames of a file: start, stop and a positive step, or increasing numbers."""

OnPart = Callable[[int, int], None]
"""Called with the number of bytes that are read, and of all to read."""


def storage_dtype(dtype: Dtype) -> Dtype:
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


@dataclass(frozen=True)
class Slab:
    """A part of the selected entries of a stored array, which is read at once.

    Attributes
    ----------
    index : Index
        Its entries in the file.
    target : Index
        Its entries in the selection.
    kept : (n,) array of int, or None
        Numbers of the selected frames among those that are read; None (the default) for all of them.
    """

    index: Index
    target: Index
    kept: NDArray[np.intp] | None = None


@dataclass(frozen=True)
class FrameReader:
    """Reads frames of a stored stack, slab by slab.

    Attributes
    ----------
    stored : StoredArray
        The stack in its file.
    axes : str
        Axis letters of the stack, in the file's order.
    dtype : numpy.dtype
        Type of the values that are returned.
    name : str
        Name of the stack, for error messages.
    """

    stored: StoredArray
    axes: str
    dtype: Dtype
    name: str = "iq"

    @property
    def time(self) -> int:
        """Number of the axis of frames."""
        return self.axes.index("t")

    @property
    def is_in_frame_order(self) -> bool:
        """Whether frames can be read one after the other: no part of the file is read often.

        They are stored one after the other, or a row of chunks, all pixels of their frames, has at most CHUNK_ROW_BYTES.
        """
        stored = self.stored
        if stored.chunks is None:
            return stored.slow == self.time
        entries = int(np.prod(stored.shape)) // stored.shape[self.time] * stored.chunks[self.time]
        return entries * stored.dtype.itemsize <= CHUNK_ROW_BYTES

    def read(self, frames: FrameNumbers, on_part: OnPart | None = None) -> Numbers:
        """Read frames into memory, with pixels in the order z, x, y.

        Parameters
        ----------
        frames : slice, or (n,) array of int
            The frames: start, stop and a positive step, or increasing numbers. Frames between the numbers are read only
            if the file has them in the same chunks, or in pixel order.
        on_part : callable, optional
            Called after each slab with the number of bytes of the result that are read, and of the whole result.

        Returns
        -------
        array of 3 or 4 axes in the order of `axes`
            The frames, a view of memory with frame after frame; or with pixel after pixel if `frames` is a slice, and time
            is the fastest axis of the file.

        Raises
        ------
        InputError
            If a finite value is beyond the range of `dtype`.
        """
        stored, time = self.stored, self.time
        order = [self.axes.index(letter) for letter in canonical_axes(self.axes)]
        if stored.order[-1] != time or not isinstance(frames, slice):
            order = [time, *order[:-1]]
        shape = [*stored.shape]
        shape[time] = n_selected(frames) if isinstance(frames, slice) else len(frames)
        stack = np.empty([shape[axis] for axis in order], self.dtype).transpose(np.argsort(order))

        def copy(slab: Slab, values: Numbers) -> None:
            to = stack[slab.target]
            if slab.kept is not None:
                values = values.take(slab.kept, axis=time)
            if order[0] == stored.slow or slab.kept is not None:
                to[...] = values
                return
            to, values = np.moveaxis(to, stored.slow, 0), np.moveaxis(values, stored.slow, 0)
            # Line by line along the second axis. If the slowest axes differ, this is several times faster than one
            # assignment, because a part of a line of each fits into the cache.
            for part in slices_of(len(to), _COPIED_TOGETHER):
                for line in range(to.shape[1]):
                    to[part, line] = values[part, line]

        def fill(slab: Slab) -> bool:
            return slab.kept is None and stored.read_into(slab.index, stack[slab.target])

        self._place_slabs(frames, copy, on_part, fill)
        return stack

    def read_lines(self, frames: slice, scratch: Path, on_part: OnPart | None = None) -> Numbers:
        """Read a stack into a temporary file, one chunk of frames after the other, each pixel after pixel.

        Parameters
        ----------
        frames, on_part
            As for :meth:`read`.
        scratch : Path
            Folder of the temporary file.

        Returns
        -------
        (n_frames, pixels along each axis...) array, C-contiguous
            The memory of the chunks, which :func:`chunks_of_lines` returns; pixels in the order z, x, y.

        Raises
        ------
        InputError
            As for :meth:`read`.
        OutputError
            If the disk has no room for the temporary file.
        """
        order = [self.axes.index(letter) for letter in "t" + canonical_axes(self.axes)[:-1]]
        shape = [n_selected(frames), *(self.stored.shape[axis] for axis in order[1:])]
        whole = scratch_array(scratch, shape, self.dtype)
        chunks = chunks_of_lines(whole)

        def copy(slab: Slab, values: Numbers) -> None:
            along, *pixels = (slab.target[axis] for axis in order)
            for start, chunk in chunks:
                first, last = max(start, along.start), min(start + chunk.shape[-1], along.stop)
                if first < last:
                    part = values.transpose(order)[first - along.start : last - along.start]
                    chunk[(*pixels, slice(first - start, last - start))] = np.moveaxis(part, 0, -1)

        self._place_slabs(frames, copy, on_part)
        return whole

    def _slabs(self, frames: FrameNumbers) -> list[Slab]:
        stored, time = self.stored, self.time
        whole, span = [slice(0, n, 1) for n in stored.shape], [*stored.shape]
        length = stored.chunk_length(time)
        ends = (frames.start, frames.stop) if isinstance(frames, slice) else (frames[0], frames[-1] + 1)
        span[time] = int(-(-ends[1] // length) - ends[0] // length) * length
        # As large as the slabs of a file with frames in order, of which a few are held at a time.
        shape = slab_shape(span, stored.chunks or stored.slow, self.axes, SLAB_BYTES // self.dtype.itemsize)
        if isinstance(frames, slice):
            whole[time] = frames
            return [Slab(*each) for each in slabs(whole, shape)]
        found = []
        gaps = np.diff(frames // length) > 1
        # In pixel order a frame is spread over the whole file, which is read once then.
        cuts = (np.flatnonzero(gaps) + 1).tolist() if self.is_in_frame_order else []
        for first, last in pairwise([0, *cuts, len(frames)]):
            whole[time] = slice(int(frames[first]), int(frames[last - 1]) + 1, 1)
            for index, target in slabs(whole, shape):
                start, stop = np.searchsorted(frames, [index[time].start, index[time].stop]).tolist()
                if start < stop:
                    in_target = (*target[:time], slice(start, stop), *target[time + 1 :])
                    found.append(Slab(index, in_target, frames[start:stop] - index[time].start))
        return found

    def _place_slabs(
        self,
        frames: FrameNumbers,
        copy: Callable[[Slab, Numbers], None],
        on_part: OnPart | None,
        fill: Callable[[Slab], bool] = lambda slab: False,
    ) -> None:
        """Read slabs and copy them to their targets; `fill` may read one into its target, and returns whether it did."""

        def place(slab: Slab, values: Numbers) -> None:
            with checked_conversion(values, self.dtype, self.name):
                copy(slab, values)

        parts, done = self._slabs(frames), 0
        sizes = [self.dtype.itemsize * math.prod(map(n_selected, slab.target)) for slab in parts]
        # A thread in the background copies one slab while the next one is read.
        with ThreadPoolExecutor(1) as background:
            placed: Future[None] | None = None
            for slab, size in zip(parts, sizes, strict=True):
                values = None if fill(slab) else self.stored.read(slab.index)
                done += size
                if on_part is not None:
                    on_part(done, sum(sizes))
                if values is None:
                    continue
                if placed is not None:
                    placed.result()
                if slab is not parts[-1] and slab.kept is None:
                    # np.errstate is part of the context: the thread ignores the same warnings as its caller.
                    placed = background.submit(copy_context().run, place, slab, values)
                else:
                    # Starting a thread takes longer than copying a few frames.
                    place(slab, values)


def chunks_of_lines(whole: Numbers) -> list[tuple[int, Numbers]]:
    """Return the first frame of each chunk, and its memory as (pixels along each axis..., frames).

    A slab of pixels in all frames is one long piece of each chunk, and a short piece of each frame: from a file in pixel
    order 1.83 GiB in 800 MiB of memory took 26 s in this way, and more than 100 s frame by frame.
    """
    edges = chunk_edges(len(whole), math.prod(whole.shape[1:]), most_entries=0).tolist()
    return [(start, whole[start:stop].reshape(*whole.shape[1:], -1)) for start, stop in pairwise(edges)]


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


def slabs(picked: Sequence[slice], slab: Sequence[int]) -> Iterator[tuple[Index, Index]]:
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
                index = slice(first, first + (count - 1) * along.step + 1, along.step)
                yield index, slice(done, done + count)
            done += count

    for slab_ranges in product(*(list(parts(*each)) for each in zip(picked, slab, strict=True))):
        yield tuple(index for index, _ in slab_ranges), tuple(target for _, target in slab_ranges)


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
