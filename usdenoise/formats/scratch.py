"""Arrays in files that live no longer than a job: passed from one process to another, or in place of memory."""

import errno
import math
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OutputError
from usdenoise.formats.layout import Memory
from usdenoise.formats.partial_files import PartialFiles, remove_leftovers

_ZEROS_BYTES = 1 << 22
"""Bytes that are written at a time where a file cannot be made long otherwise."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder in the system's folder of temporary files, and remove it when the context ends.

    If the process is killed, the next one that needs such a folder removes it.
    """
    place = Path(tempfile.gettempdir())
    remove_leftovers(place)
    files = PartialFiles.begin(place)
    try:
        folder = files.place("usdenoise")
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        files.end()


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array to a file for :func:`read_array`."""
    np.save(path, array, allow_pickle=False)


def read_array(path: Path, mapped: bool = False) -> NDArray[Any]:
    """Read an array from a file of :func:`write_array`.

    Parameters
    ----------
    path : Path
        The file.
    mapped : bool
        Whether to map the file into memory, read-only, so that only the entries in use are read; False by
        default.
    """
    array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    return array


def memory_on_disk(folder: Path, slab_bytes: int) -> Memory:
    """Return memory whose pages are those of a file, which the system can write out and take back.

    The file has no name, so that nothing is left of it when the process ends, however it ends. Its whole size is taken
    on the disk at once: a disk that gets full later would kill the process.

    Parameters
    ----------
    folder : Path
        Folder of the file.
    slab_bytes : int
        Bytes of a stack that are read at a time.

    Returns
    -------
    Memory
        Its `allocate` raises an OutputError if the disk has no room.
    """

    def allocate(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        size = math.prod(shape) * dtype.itemsize
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            try:
                _take_room(file, size)
            except OSError as error:
                raise OutputError(
                    f"the stack takes {size / 2**30:.3g} GiB, more than the memory, and {folder} has no room for it "
                    f"({error.strerror}); choose a folder on another disk with -o, or raise --memory"
                ) from error
            return np.frombuffer(mmap.mmap(file.fileno(), size), dtype).reshape(shape)

    return Memory(allocate, slab_bytes)


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
