"""From slabs of a file to a stack whose memory is a Casorati matrix, with one copy at most in memory."""

import math
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.stored import StoredArray
from usdenoise.stack.acquisition import canonical_axes, check_axes, spatial_order

SLAB_BYTES = 16 << 20
CHUNK_BYTES = 1 << 20


def storage_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type in which values of `dtype` are kept: theirs, or float32 for integers and half floats."""
    if dtype.kind in "iu" or dtype == np.float16:
        return np.dtype(np.float32)
    return dtype.newbyteorder("=")


def frame_slice(frames: slice | None, n_frames: int) -> slice:
    """The frames that are asked for as a slice with bounds, step positive.

    Raises
    ------
    InputError
        If the step is not positive or fewer than two frames are left.
    """
    wanted = frames if frames is not None else slice(None)
    if wanted.step is not None and wanted.step < 1:
        raise InputError(f"the step {wanted.step} of --frames must be positive")
    start, stop, step = wanted.indices(n_frames)
    if len(range(start, stop, step)) < 2:
        raise InputError(
            f"--frames leaves {len(range(start, stop, step))} of {n_frames} frames, and a clutter filter needs "
            "at least two; widen --frames"
            if frames is not None
            else f"the stack holds {n_frames} frame, and a clutter filter needs at least two; check --axes"
        )
    return slice(start, stop, step)


def read_stack(stored: StoredArray, axes: str, frames: slice | None, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Read a stack slab by slab into memory ordered as a Casorati matrix.

    Parameters
    ----------
    stored : StoredArray
        The stack in its file.
    axes : str
        Its axis letters.
    frames : slice or None
        The frames to read.
    dtype : numpy.dtype
        Of the result.

    Returns
    -------
    array in the order of `axes`
        A view of memory in the order z, x, y, t.
    """
    check_axes(axes, stored.shape)
    time = axes.index("t")
    picked = [slice(0, n, 1) for n in stored.shape]
    picked[time] = frame_slice(frames, stored.shape[time])
    counts = tuple(len(range(s.start, s.stop, s.step)) for s in picked)
    canonical = canonical_axes(axes)
    memory = np.empty([counts[axes.index(letter)] for letter in canonical], dtype)
    stack = np.moveaxis(spatial_order(memory, canonical, axes), stored.slow, 0)
    n_slabs = counts[stored.slow]
    rows = max(1, SLAB_BYTES // max(1, math.prod(counts) // n_slabs * dtype.itemsize))
    # One slab is put in order while the next one is read.
    with ThreadPoolExecutor(1) as behind:
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
            # What the reader ignores, the thread that puts it in order ignores as well.
            placed = behind.submit(copy_context().run, copy_by_lines, stack[start:stop], slab)
        if placed is not None:
            placed.result()
    return np.moveaxis(stack, 0, stored.slow)


def copy_by_lines(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy an array line by line along its second axis.

    Where the memory of the two is in another order, a line of each stays in the cache meanwhile: several
    times faster than all at once.

    Parameters
    ----------
    target, source : arrays of the same shape, of two axes or more
        Values are converted to the type of `target`.
    """
    for line in range(target.shape[1]):
        target[:, line] = source[:, line]


def chunk_shape(shape: tuple[int, ...], axes: str, itemsize: int) -> tuple[int, ...]:
    """Chunks of about a mebibyte of which a whole frame touches about as many as all frames of a pixel.

    Parameters
    ----------
    shape, axes
        Of the stack.
    itemsize : int
        Bytes of an entry.
    """
    across = max(1.0, math.prod(shape) * itemsize / CHUNK_BYTES) ** 0.5
    parts = {letter: across ** (1 / (len(axes) - 1)) for letter in axes} | {"t": across}
    # Whole numbers of chunks, so that the last ones are hardly padded.
    counts = {letter: max(1, round(part)) for letter, part in parts.items()}
    return tuple(-(-n // min(n, counts[letter])) for n, letter in zip(shape, axes, strict=True))
