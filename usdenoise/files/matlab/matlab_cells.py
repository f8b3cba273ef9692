"""Classes of MATLAB, and cells and arrays of structs that hold an acquisition in blocks of frames, one in each element."""

from collections.abc import Sequence

from usdenoise.files.stored import StoredArray, concatenated, with_last_axis, without_axes

NUMERIC_CLASSES = {"double": "f8", "single": "f4", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8"}
NUMERIC_CLASSES |= {"uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8"}
"""Class of an array of numbers in MATLAB -> type of its values."""

MOST_CELLS = 4096
"""Most elements of a cell or struct that is searched for a stack."""


def blocks(arrays: Sequence[StoredArray]) -> StoredArray | None:
    """Concatenate blocks of frames along their last axis, which is time.

    Of several elements, one with two axes is a single frame, and the inner axes of length 1 behind the first two
    are dropped. Numbers and vectors, such as the time of each block, are not frames.

    Parameters
    ----------
    arrays : sequence of StoredArray
        Elements of the cell, or of one field of an array of structs, with their axes in MATLAB's order.

    Returns
    -------
    StoredArray or None
        None if there is no element, if one is not numeric or a vector, if they differ in more than their numbers of
        frames, or if fewer than 3 axes are left.
    """
    if not arrays or any(array.dtype.kind not in "fciu" for array in arrays):
        return None
    if len(arrays) == 1:
        return arrays[0]
    plain = [_without_single(array) for array in arrays]
    if any(len(array.shape) == 2 and min(array.shape) == 1 for array in plain):
        return None
    frames_of = [with_last_axis(array) if len(array.shape) == 2 else array for array in plain]
    if len({array.shape[:-1] for array in frames_of}) != 1 or len(frames_of[0].shape) < 3:
        return None
    return concatenated(frames_of, -1)


def _without_single(array: StoredArray) -> StoredArray:
    # MATLAB drops axes of length 1 at the end itself. An inner one belongs to another loop of the acquisition.
    single = [axis for axis, n in enumerate(array.shape) if n == 1 and 2 <= axis < len(array.shape) - 1]
    return without_axes(array, single) if single else array
