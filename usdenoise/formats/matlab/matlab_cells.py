"""Cells of MATLAB: an acquisition in blocks, one in each element."""

from collections.abc import Sequence

from usdenoise.formats.stored import StoredArray, concatenated, with_last_axis, without_axes


def blocks(arrays: Sequence[StoredArray]) -> StoredArray | None:
    """Blocks of frames one after the other along their last axis, which is time.

    Elements with two axes are single frames. Axes of length 1 are dropped beforehand.

    Parameters
    ----------
    arrays : sequence of StoredArray
        In MATLAB's order of axes.

    Returns
    -------
    StoredArray or None
        None where the elements are no numbers, or differ in more than their numbers of frames.
    """
    if not arrays or any(array.dtype.kind not in "fciu" for array in arrays):
        return None
    if len(arrays) == 1:
        return arrays[0]
    plain = [_without_single(array) for array in arrays]
    frames_of = [with_last_axis(array) if len(array.shape) == 2 else array for array in plain]
    if len({array.shape[:-1] for array in frames_of}) != 1 or len(frames_of[0].shape) < 3:
        return None
    return concatenated(frames_of, -1)


def _without_single(array: StoredArray) -> StoredArray:
    # MATLAB drops single axes at the end by itself; those within are of other loops.
    single = [axis for axis, n in enumerate(array.shape) if n == 1 and 2 <= axis < len(array.shape) - 1]
    return without_axes(array, single) if single else array
