"""HDF5 files that we write: safely on a full disk, slab by slab; and phantoms."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.formats.layout import SLAB_BYTES, copy_by_lines


@contextmanager
def create_file(path: Path) -> Iterator[h5py.File]:
    """Create an HDF5 file.

    The library writes through a file object of Python's: when the disk is full that raises an OSError,
    where the library's own driver fails on closing, and again when the process ends. For the same reason
    there is no cache of chunks, which would be written when it is too late to say so.
    """
    with path.open("w+b") as raw, h5py.File(raw, "w", rdcc_nbytes=0) as file:
        yield file


def write_slabs(dataset: h5py.Dataset, values: NDArray[Any]) -> None:
    """Write an array in slabs along its first axis, of whole chunks each."""
    rows = max(1, SLAB_BYTES // max(1, values[0].nbytes))
    if dataset.chunks is not None:
        rows = -(-rows // dataset.chunks[0]) * dataset.chunks[0]
    starts = range(0, len(values), rows)

    def in_order(start: int) -> NDArray[Any]:
        part = values[start : start + rows]
        if part.flags.c_contiguous or part.ndim < 2:
            return part
        slab = np.empty(part.shape, part.dtype)
        copy_by_lines(slab, part)
        return slab

    # The next slab is put in order while this one is written.
    with ThreadPoolExecutor(1) as ahead:
        slabs = (ahead.submit(in_order, start) for start in starts)
        coming = next(slabs)
        for start in starts:
            slab, coming = coming.result(), next(slabs, coming)
            dataset[start : start + rows] = slab
