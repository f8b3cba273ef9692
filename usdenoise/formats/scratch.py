"""Arrays that one process leaves for another in a temporary folder."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array for :func:`read_array`."""
    np.save(path, array, allow_pickle=False)


def read_array(path: Path, mapped: bool = False) -> NDArray[Any]:
    """Read an array; mapped, it stays on the disk and is read where it is looked at."""
    array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    return array
