"""HDF5 files that we write: safely on a full disk, slab by slab; and phantoms."""

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.formats.layout import SLAB_BYTES, copy_by_lines

Place = tuple[tuple[int, ...], int]


@contextmanager
def create_file(path: Path) -> Iterator[h5py.File]:
    """Create an HDF5 file.

    The library writes through a file object of Python's: when the disk is full that raises an OSError,
    where the library's own driver fails on closing, and again when the process ends. For the same reason
    there is no cache of chunks, which would be written when it is too late to say so.
    """
    with path.open("w+b") as raw, h5py.File(raw, "w", rdcc_nbytes=0) as file:
        yield file


def write_phantom(
    path: Path,
    blocks: Iterable[Mapping[str, NDArray[Any]]],
    n_frames: int,
    truth: Mapping[str, NDArray[Any]],
    attributes: Mapping[str, Any],
    provenance: str,
) -> None:
    """Write a simulated stack block by block, time first, with its truth in the group truth.

    Parameters
    ----------
    path : Path
        Written as HDF5.
    blocks : iterable of mappings
        Consecutive frames: "iq", and any terms of it, which go to truth/. Each (n, n_z, n_x[, n_y]).
    n_frames : int
        Number of frames in all.
    truth : mapping
        Arrays of the spatial shape. They may be filled while the blocks are made.
    attributes : mapping
        Attributes of the stack.
    provenance : str
        JSON text on what made this file.
    """
    with create_file(path) as file:
        start = 0
        for block in blocks:
            for name, values in block.items():
                place = name if name == "iq" else f"truth/{name}"
                if place not in file:
                    file.create_dataset(place, shape=(n_frames, *values.shape[1:]), dtype=values.dtype)
                file[place][start : start + len(values)] = values
            start += len(block["iq"])
        for name, values in truth.items():
            file.create_dataset(f"truth/{name}", data=values)
        file["iq"].attrs.update(attributes)
        file.attrs["usdenoise_provenance"] = provenance


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
