"""Frames of a stored stack as rows of a matrix, in the order in which the file has their pixels."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.files.layout import SLAB_BYTES, slab_shape, slabs
from usdenoise.files.stored import StoredArray
from usdenoise.stack.precision import checked_conversion

CHUNK_ROW_BYTES = 64 << 20
"""Size up to which all chunks of the same frames are read together for a block of frames."""


def pixel_order(stored: StoredArray, time: int) -> list[int]:
    """Return the spatial axes of a stack from the slowest to the fastest one."""
    return [axis for axis in stored.order if axis != time]


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


def read_block(
    stored: StoredArray, time: int, frames: slice, dtype: np.dtype[Any], name: str
) -> NDArray[Any]:
    """Read consecutive frames, or every few.

    Parameters
    ----------
    stored : StoredArray
        The stack.
    time : int
        Its axis of time.
    frames : slice
        The frames, with start, stop and a positive step.
    dtype : numpy.dtype
        Type of the values that are returned.
    name : str
        Name of the stack, for error messages.

    Returns
    -------
    (n, n_pixels) array
        The frames; C-contiguous, or Fortran-contiguous if time is the fastest axis of the file.

    Raises
    ------
    InputError
        If a finite value is beyond the range of `dtype`.
    """
    pixels = pixel_order(stored, time)
    index = [slice(0, n, 1) for n in stored.shape]
    index[time] = frames
    values = stored.read(tuple(index))
    with checked_conversion(values, dtype, name):
        if stored.order[-1] == time:
            lines = values.transpose(*pixels, time)
            return lines.reshape(-1, lines.shape[-1]).astype(dtype, copy=False).T
        rows = values.transpose(time, *pixels)
        return rows.reshape(len(rows), -1).astype(dtype, copy=False)


def read_frames(
    stored: StoredArray, time: int, numbers: NDArray[np.intp], dtype: np.dtype[Any], name: str
) -> NDArray[Any]:
    """Read a few frames. Frames between them are read only if the file has them in the same chunks, or in pixel order.

    Parameters
    ----------
    stored, time, dtype, name
        As for :func:`read_block`.
    numbers : (n,) array of int
        Numbers of the frames, increasing.

    Returns
    -------
    (n, n_pixels) array
        The frames, C-contiguous.

    Raises
    ------
    InputError
        If a finite value is beyond the range of `dtype`.
    """
    pixels = pixel_order(stored, time)
    rows = np.empty((len(numbers), *(stored.shape[axis] for axis in pixels)), dtype)
    stack = rows.transpose(np.argsort([time, *pixels]))
    axes = "".join("t" if axis == time else "z" for axis in range(len(stored.shape)))
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
