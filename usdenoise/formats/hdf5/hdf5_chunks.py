"""HDF5 chunks written straight into the file, outside the HDF5 library.

:func:`reserve_dataset` has the library give every chunk its place in the file. After the file is closed,
:func:`write_chunks` writes the chunks there with ``os.pwrite``. One thread writes a chunk, while a second thread
copies the next one from the memory order of the stack to that of the file.

:func:`write_chunks_plainly` is the reference: the same content through h5py, byte by byte. It is slower for two
reasons. The library lets only one thread in at a time, and that thread also copies every chunk. And in a file of
:func:`usdenoise.formats.hdf5.hdf5_writing.create_file`, which has no chunk cache, the library writes each
contiguous run of a chunk by itself: 264 bytes at a time in the benchmark.

The benchmark is ``tests/benchmarks/chunk_writing.py``. With 1200 x 200 x 130 entries of complex64 (238 MiB) on two
processors, this way took 0.16 s. The reference took 2.5 times as long in a file with h5py's own settings, and 46
times as long in a file of ``create_file``. The library's call for whole chunks, ``write_direct_chunk``, took 1.07
times as long, also with a second thread that copies the next chunk.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

Place = tuple[tuple[int, ...], int]
"""Index of the first entry of a chunk in its dataset, and the byte of the file at which the chunk begins."""


def reserve_dataset(
    file: h5py.File, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], chunks: tuple[int, ...]
) -> tuple[h5py.Dataset, list[Place]]:
    """Create a dataset whose chunks have their places in the file, but no content yet.

    Parameters
    ----------
    file : h5py.File
        File open for writing.
    name : str
        Name of the new dataset.
    shape : tuple of int
        Shape of the dataset.
    dtype : numpy.dtype
        Type of its values.
    chunks : tuple of int
        Shape of a chunk.

    Returns
    -------
    dataset : h5py.Dataset
        The new dataset, to which attributes can be added.
    places : list of Place
        Places of all chunks in the order of the file, for :func:`write_chunks`.
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
    """Write the content of the chunks that :func:`reserve_dataset` reserved, by two threads.

    Parameters
    ----------
    path : Path
        The file. It must be closed, so that the HDF5 library has written all that it knows.
    places : list of Place
        Places of the chunks in the file.
    chunks : tuple of int
        Shape of a chunk.
    values : array
        Content of the whole dataset. Its memory may be in any order, and its type is converted to `dtype`.
    dtype : numpy.dtype
        Type of the dataset.
    """
    # The operating system lets one thread at a time write to a file, and keeps the processor of the other one
    # busy until then. With this lock the other thread sleeps.
    writing = Lock()

    def write(place: Place) -> None:
        first, byte = place
        data = whole_chunk(values, first, chunks, dtype).reshape(-1).view(np.uint8).data
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


def whole_chunk(
    values: NDArray[Any], first: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Return one chunk in C order, padded with zeros where it reaches beyond the dataset.

    Parameters
    ----------
    values : array
        Content of the whole dataset.
    first : tuple of int
        Index of the first entry of the chunk.
    chunks : tuple of int
        Shape of a chunk.
    dtype : numpy.dtype
        Type of the result.
    """
    part = values[tuple(slice(start, start + n) for start, n in zip(first, chunks, strict=True))]
    if part.shape == chunks:
        return np.ascontiguousarray(part, dtype=dtype)
    chunk = np.zeros(chunks, dtype)
    chunk[tuple(slice(n) for n in part.shape)] = part
    return chunk


def write_chunks_plainly(dataset: h5py.Dataset, values: NDArray[Any]) -> None:
    """Write the same content through h5py: the reference for :func:`write_chunks`.

    Parameters
    ----------
    dataset : h5py.Dataset
        Dataset of a file that is open for writing.
    values : array
        Content of the whole dataset, in memory of any order.
    """
    dataset[...] = values
