"""Memory layout: a stored stack is read slab by slab into a Casorati matrix, without a second whole copy."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.stored import StoredArray
from usdenoise.stack.acquisition import canonical_axes, check_axes, spatial_order
from usdenoise.stack.precision import checked_conversion

SLAB_BYTES = 16 << 20
"""Size of a slab, the part of a stack that is read or written at a time."""

CHUNK_BYTES = 1 << 20
"""Size of a chunk of a stored stack: the default size of the chunk cache of HDF5 1.x."""


def storage_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type for values of a stored type: float32 for integers and half floats, otherwise the same.

    The byte order becomes that of the machine.
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
    wanted = frames if frames is not None else slice(None)
    if wanted.step is not None and wanted.step < 1:
        raise InputError(
            f"the step {wanted.step} of --frames must be positive; give 1 or more, or leave it out"
        )
    start, stop, step = wanted.indices(n_frames)
    if len(range(start, stop, step)) < 2:
        raise InputError(
            f"--frames leaves {len(range(start, stop, step))} of {n_frames} frames, and a clutter filter needs "
            "at least two; widen --frames"
            if frames is not None
            else f"the stack holds {n_frames} frame, and a clutter filter needs at least two; check --axes"
        )
    return slice(start, stop, step)


@dataclass(frozen=True)
class Memory:
    """Where a stack is read to.

    Attributes
    ----------
    allocate : callable
        Takes a shape and a type, and returns an array to be filled; by default in the memory of this process.
    slab_bytes : int or None
        Bytes that are read at a time; None, the default, for SLAB_BYTES.
    """

    allocate: Callable[[Sequence[int], np.dtype[Any]], NDArray[Any]] = np.empty
    slab_bytes: int | None = None


IN_MEMORY = Memory()
"""The memory of this process."""


def read_stack(
    stored: StoredArray,
    axes: str,
    frames: slice | None,
    dtype: np.dtype[Any],
    name: str = "iq",
    memory: Memory = IN_MEMORY,
) -> NDArray[Any]:
    """Read a stack slab by slab into memory ordered as a Casorati matrix.

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
    memory : Memory
        Where the stack is read to; by default the memory of this process.

    Returns
    -------
    array of 3 or 4 axes in the order of `axes`
        The selected frames, a view of memory in the order z, x, y, t.

    Raises
    ------
    InputError
        If `axes` does not fit the stack, if fewer than two frames are selected, or if a finite value is beyond the
        range of `dtype`.
    """
    check_axes(axes, stored.shape)
    time = axes.index("t")
    picked = [slice(0, n, 1) for n in stored.shape]
    picked[time] = frame_slice(frames, stored.shape[time])
    counts = tuple(len(range(s.start, s.stop, s.step)) for s in picked)
    canonical = canonical_axes(axes)
    whole = memory.allocate([counts[axes.index(letter)] for letter in canonical], dtype)
    stack = np.moveaxis(spatial_order(whole, canonical, axes), stored.slow, 0)
    n_slabs = counts[stored.slow]
    rows = max(1, (memory.slab_bytes or SLAB_BYTES) // max(1, math.prod(counts) // n_slabs * dtype.itemsize))

    def place(target: NDArray[Any], slab: NDArray[Any]) -> None:
        with checked_conversion(slab, dtype, name):
            copy_by_lines(target, slab)

    # A thread in the background copies one slab into the matrix while the next one is read.
    with ThreadPoolExecutor(1) as background:
        placed: Future[None] | None = None
        for start in range(0, n_slabs, rows):
            stop = min(start + rows, n_slabs)
            along = picked[stored.slow]
            index = [*picked]
            index[stored.slow] = slice(
                along.start + start * along.step, along.start + (stop - 1) * along.step + 1, along.step
            )
            slab = np.moveaxis(stored.read(tuple(index)), stored.slow, 0)
            if placed is not None:
                placed.result()
            # np.errstate is part of the context: the thread ignores the same warnings as its caller.
            placed = background.submit(copy_context().run, place, stack[start:stop], slab)
        if placed is not None:
            placed.result()
    return np.moveaxis(stack, 0, stored.slow)


def copy_by_lines(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy an array line by line along its second axis.

    If the two arrays have different memory orders, this is several times faster than one assignment, because
    a line of each fits into the cache.

    Parameters
    ----------
    target, source : arrays of the same shape, with at least two axes
        Destination and origin of the values, which are converted to the type of `target`.
    """
    for line in range(target.shape[1]):
        target[:, line] = source[:, line]


def chunk_shape(shape: tuple[int, ...], axes: str, itemsize: int) -> tuple[int, ...]:
    """Return the shape of chunks that suit reading by frame as well as by pixel.

    A chunk has about CHUNK_BYTES bytes. Of n chunks, about sqrt(n) hold a frame, and about sqrt(n) hold all
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
