"""Arrays in a file without a name, for stacks that do not fit into memory."""

import errno
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OutputError

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
