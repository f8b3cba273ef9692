"""Which axis of a stack is time: by its shape, or by the data, where neighbours in time are alike and the rank is low."""

import numpy as np

from usdenoise.files.stored import StoredArray
from usdenoise.frames.time_axis import unlikeness_and_rank

SAMPLED = {3: 64, 4: 24}
"""Entries along each axis, in the middle, that are looked at, by the number of axes."""

CLEARLY = 2.0
"""Ratio of the unlikeness of neighbours along two axes from which they differ. On twelve phantoms with tissue or blood, a
carotid and a rotating disk it was 7 and more in favour of time; with noise, blood and no tissue it was 1.3."""

ALIKE = 0.1
"""Largest unlikeness along time: it was at most 0.044 on these, and 0.1 along depth for noise smoothed over 1.5 pixels."""


def guess_axes(shape: tuple[int, ...], time_last: bool | None) -> str:
    """Return axis letters for a stack of which only the shape is known.

    Time is the first or the last axis. The spatial axes are called z, x and y in their order.

    Parameters
    ----------
    shape : tuple of int
        Lengths of 3 or 4 axes.
    time_last : bool or None
        Whether time is the last axis, as MATLAB users usually have it. With None it is the longer one of the first
        and the last axis if that one is longer than all others. Otherwise time is the first axis if all other axes
        have one length, and the last axis if not, or if the first and the last axis have the same length.
    """
    spatial = "zxy"[: len(shape) - 1]
    if time_last is None:
        first, last = shape[0], shape[-1]
        longest = max(shape)
        if first == last:
            time_last = True
        elif longest in (first, last) and shape.count(longest) == 1:
            time_last = last == longest
        else:
            time_last = len(set(shape[1:])) != 1
    return spatial + "t" if time_last else "t" + spatial


def time_is_last(array: StoredArray) -> bool | None:
    """Return whether the last axis is time, and not the first one; None if the data are not clear.

    Neighbours along time are more alike, and the rank along it is lower; see
    :func:`usdenoise.frames.time_axis.unlikeness_and_rank`.

    Parameters
    ----------
    array : StoredArray
        The stack, of three or four axes. The middle of it is read.
    """
    most = SAMPLED[len(array.shape)]
    starts = [max(n - most, 0) // 2 for n in array.shape]
    values = array.read(
        tuple(slice(start, min(start + most, n), 1) for start, n in zip(starts, array.shape, strict=True))
    )
    wide = np.asarray(values, np.result_type(values.dtype, np.float64))
    scale = np.abs(wide[np.isfinite(wide)]).max(initial=0)
    if scale == 0 or min(wide.shape[0], wide.shape[-1]) < 2:
        return None
    wide = np.where(np.isfinite(wide), wide, 0) / scale
    (first, first_rank), (last, last_rank) = (unlikeness_and_rank(wide, axis) for axis in (0, -1))
    if min(first, last) > ALIKE:
        return None
    if CLEARLY * last < first and last_rank < first_rank:
        return True
    return False if CLEARLY * first < last and first_rank < last_rank else None
