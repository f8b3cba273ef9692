"""Arrays in files that live no longer than a job: passed from one process to another."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.formats.partial_files import PartialFiles, remove_leftovers


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
