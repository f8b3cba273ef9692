"""Writing of HDF5 files, so that a full disk raises an error and memory holds no second stack."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray


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
    try:
        with (
            path.open("w+b") as raw,
            h5py.File(raw, "w", rdcc_nbytes=0, userblock_size=user_block_bytes) as file,
        ):
            yield file
    except SystemError as error:
        # Python 3.13 raises it for the second OSError, of closing the file: HDF5 calls `write` with the first one set.
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise


def write_values(dataset: h5py.Dataset, values: NDArray[Any]) -> None:
    """Write an array chunk by chunk, while a thread puts the next two into the order of the file.

    Without a chunk cache the library would write every contiguous run of an assignment by itself, some hundred bytes
    at a time; a chunk that needs no filter is therefore given to it whole.

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset.
    values : array
        Its values, in memory of any order. They are converted to the type of the dataset; in a dataset
        of pairs, the complex numbers become the pairs.
    """
    dtype = values.dtype if dataset.dtype.names else dataset.dtype
    chunks = dataset.chunks
    if chunks is None:
        dataset[...] = np.ascontiguousarray(values, dtype).view(dataset.dtype)
        return
    is_filtered = dataset.id.get_create_plist().get_nfilters() > 0

    def in_order(first: tuple[int, ...]) -> NDArray[Any]:
        part = values[tuple(slice(start, start + n) for start, n in zip(first, chunks, strict=True))]
        if is_filtered or part.shape == chunks:
            return np.ascontiguousarray(part, dtype).view(dataset.dtype)
        # A chunk at the edge of the dataset is stored whole.
        chunk = np.zeros(chunks, dtype)
        chunk[tuple(slice(n) for n in part.shape)] = part
        return chunk.view(dataset.dtype)

    def write(first: tuple[int, ...], part: NDArray[Any]) -> None:
        if is_filtered:
            dataset[tuple(slice(begin, begin + n) for begin, n in zip(first, part.shape, strict=True))] = part
        else:
            dataset.id.write_direct_chunk(first, part)

    # The axis that is slowest in memory comes first: values in a temporary file are read nearly in order.
    strides = getattr(values, "strides", (0,) * values.ndim)
    order = sorted(range(values.ndim), key=lambda axis: -abs(strides[axis]))
    corners = product(*(range(0, values.shape[axis], chunks[axis]) for axis in order))
    firsts = (tuple(corner[order.index(axis)] for axis in range(values.ndim)) for corner in corners)
    with ThreadPoolExecutor(1) as ahead:
        waiting: deque[tuple[tuple[int, ...], Future[NDArray[Any]]]] = deque()
        for first in firsts:
            waiting.append((first, ahead.submit(in_order, first)))
            if len(waiting) > 2:
                corner, part = waiting.popleft()
                write(corner, part.result())
        for corner, part in waiting:
            write(corner, part.result())
