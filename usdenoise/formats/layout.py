"""From slabs of a file to a stack whose memory is a Casorati matrix, with one copy at most in memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.acquisition import canonical_axes, check_axes, spatial_order
from usdenoise.errors import InputError

SLAB_BYTES = 32 << 20


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


def read_stack(
    read: Callable[[tuple[slice, ...]], NDArray[Any]],
    shape: tuple[int, ...],
    axes: str,
    frames: slice | None,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Read a stack slab by slab into memory ordered as a Casorati matrix.

    Parameters
    ----------
    read : callable
        Gives the values for one slice an axis.
    shape, axes
        Of the stack in the file.
    frames : slice or None
        The frames to read.
    dtype : numpy.dtype
        Of the result.

    Returns
    -------
    array in the order of `axes`
        A view of memory in the order z, x, y, t.
    """
    check_axes(axes, shape)
    time = axes.index("t")
    picked = [slice(0, n, 1) for n in shape]
    picked[time] = frame_slice(frames, shape[time])
    counts = tuple(len(range(s.start, s.stop, s.step)) for s in picked)
    canonical = canonical_axes(axes)
    memory = np.empty([counts[axes.index(letter)] for letter in canonical], dtype)
    stack = spatial_order(memory, canonical, axes)
    # Slabs along the file's slowest axis: consecutive bytes.
    rows = max(1, SLAB_BYTES // max(1, int(np.prod(counts[1:])) * dtype.itemsize))
    for start in range(0, counts[0], rows):
        stop = min(start + rows, counts[0])
        first = picked[0]
        source = slice(
            first.start + start * first.step, first.start + (stop - 1) * first.step + 1, first.step
        )
        stack[start:stop] = read((source, *picked[1:]))
    return stack
