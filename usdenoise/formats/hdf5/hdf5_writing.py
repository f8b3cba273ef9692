"""Writing of HDF5 files, so that a full disk raises an error and memory holds no second stack."""

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
def create_file(path: Path, user_block_bytes: int = 0) -> Iterator[h5py.File]:
    """Create an HDF5 file in which a full disk raises an OSError.

    The library writes through a Python file object, whose write raises an OSError when the disk is full. The
    library's own driver would fail only on closing the file, and again when the process ends. The file has no chunk
    cache for the same reason: a cache would be written on closing.

    Parameters
    ----------
    path : Path
        The file to create. An existing one is replaced.
    user_block_bytes : int, default 0
        Bytes before the HDF5 content that the library leaves to the caller: 0, or a power of two from 512 on.
    """
    with path.open("w+b") as raw, h5py.File(raw, "w", rdcc_nbytes=0, userblock_size=user_block_bytes) as file:
        yield file


def write_slabs(dataset: h5py.Dataset, values: NDArray[Any], seen_as: np.dtype[Any] | None = None) -> None:
    """Write an array in slabs along its first axis, each of whole chunks.

    Parameters
    ----------
    dataset : h5py.Dataset
        Dataset of the same shape.
    values : array
        Content of the dataset, in memory of any order.
    seen_as : numpy.dtype or None
        Type of the same size as that of `values`, as which their bytes are written; None (the default) writes
        them in their own type.
    """
    rows = max(1, SLAB_BYTES // max(1, values[0].nbytes))
    if dataset.chunks is not None:
        rows = -(-rows // dataset.chunks[0]) * dataset.chunks[0]
    starts = range(0, len(values), rows)

    def in_order(start: int) -> NDArray[Any]:
        part = values[start : start + rows]
        if part.flags.c_contiguous or part.ndim < 3:
            return np.ascontiguousarray(part)
        slab = np.empty(part.shape, part.dtype)
        copy_by_lines(slab, part)
        return slab

    # A second thread copies the next slab into the order of the file while this one is written.
    with ThreadPoolExecutor(1) as ahead:
        slabs = (ahead.submit(in_order, start) for start in starts)
        coming = next(slabs)
        for start in starts:
            slab, coming = coming.result(), next(slabs, coming)
            dataset[start : start + rows] = slab if seen_as is None else slab.view(seen_as)
