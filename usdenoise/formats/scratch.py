"""Arrays that one process passes to another as files in a temporary folder."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
