"""HDF5 chunks written directly."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

Place = tuple[tuple[int, ...], int]


def reserve_dataset(
    file: h5py.File, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], chunks: tuple[int, ...]
) -> tuple[h5py.Dataset, list[Place]]:
    """Make a dataset whose chunks have their places in the file, but no content yet.

    Returns
    -------
    dataset : h5py.Dataset
        For attributes.
    places : list of (index of the first entry, byte in the file)
        For :func:`write_chunks`, once the file is closed.
    """
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    settings.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    dataset = file.create_dataset(name, shape=shape, dtype=dtype, chunks=chunks, dcpl=settings)
    places: list[Place] = []
    dataset.id.chunk_iter(lambda chunk: places.append((chunk.chunk_offset, chunk.byte_offset)))
    return dataset, sorted(places, key=lambda place: place[1])


def write_chunks(
    path: Path, places: list[Place], chunks: tuple[int, ...], values: NDArray[Any], dtype: np.dtype[Any]
) -> None:
    """Fill the chunks that were reserved, beside the library, which would let only one thread write.

    Parameters
    ----------
    path : Path
        The file.
    places : list
        Of :func:`reserve_dataset`.
    chunks : tuple of int
        Shape of a chunk.
    values : array
        The whole content, in memory of any order.
    dtype : dtype
        Of the dataset.
    """
    # The system lets one thread write to a file as well, but has the other one wait with its processor busy.
    writing = Lock()

    def write(place: Place) -> None:
        first, byte = place
        part = values[tuple(slice(start, start + n) for start, n in zip(first, chunks, strict=True))]
        if part.shape == chunks:
            chunk = np.ascontiguousarray(part, dtype=dtype)
        else:
            chunk = np.zeros(chunks, dtype)
            chunk[tuple(slice(n) for n in part.shape)] = part
        data = chunk.reshape(-1).view(np.uint8).data
        written = 0
        with writing:
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], byte + written)

    descriptor = os.open(path, os.O_WRONLY)
    try:
        with ThreadPoolExecutor(2) as pool:
            try:
                for _ in pool.map(write, places):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        os.close(descriptor)
