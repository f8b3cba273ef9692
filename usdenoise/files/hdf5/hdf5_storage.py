"""Whether the values of an HDF5 dataset are there, in its own file or in others.

The library fills missing chunks, and missing sources of a virtual dataset, with a constant and gives no warning.
"""

import math
import os
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.stack.geometry import shape_text

_SAME_FILE = "."
"""File name of a virtual source that is in the file of the virtual dataset."""


def check_stored(dataset: h5py.Dataset) -> None:
    """Check that the values that the header of a dataset claims are stored, before memory of that size is taken.

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset.

    Raises
    ------
    InputError
        If all chunks are missing, if a dataset without chunks has fewer bytes than its shape needs, or if another file that
        holds values is missing.
    """
    where = f"'{dataset.name.strip('/')}' in {dataset.file.filename}"
    if dataset.is_virtual:
        _check_sources(dataset, where)
        return
    if dataset.external:
        for name, _, _ in dataset.external:
            if not _is_file(name, "HDF5_EXTFILE_PREFIX", "."):
                raise _missing(where, name)
        return
    claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
    held = dataset.id.get_storage_size()
    is_there = held >= claimed if dataset.chunks is None else dataset.id.get_num_chunks() > 0
    if not is_there:
        raise InputError(
            f"{where} has {claimed} bytes {shape_text(dataset.shape)} by its header, but the file contains {held} of them: "
            "it is truncated; write it again"
        )


def written_entries(dataset: h5py.Dataset) -> tuple[NDArray[np.bool_], ...]:
    """Return for each axis of a dataset of chunks the entries of which all chunks are stored.

    A recording that stopped before its dataset was full has never written the last chunks.
    """
    sides = list(zip(dataset.shape, dataset.chunks, strict=True))
    grid = [-(-n // chunk) for n, chunk in sides]
    if dataset.id.get_num_chunks() >= math.prod(grid):
        return tuple(np.ones(n, bool) for n in dataset.shape)
    first: list[tuple[int, ...]] = []
    dataset.id.chunk_iter(lambda chunk: first.append(chunk.chunk_offset))
    counts = [
        np.bincount(along // chunk, minlength=n)
        for along, (_, chunk), n in zip(np.array(first).T, sides, grid, strict=True)
    ]
    return tuple(
        np.repeat(count == math.prod(grid) // side, chunk)[:n]
        for count, side, (n, chunk) in zip(counts, grid, sides, strict=True)
    )


def check_links(file: h5py.File, name: str) -> None:
    """Check the external links on the way to an item that cannot be opened.

    Raises
    ------
    InputError
        If there is such a link.
    """
    parts = name.split("/")
    for n_parts in range(1, len(parts) + 1):
        link = file.get("/".join(parts[:n_parts]), getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise InputError(
                f"'{name}' in {file.filename} is a link to '{link.path}' in {link.filename}, which cannot be opened; put "
                "that file next to it"
            )


def _check_sources(dataset: h5py.Dataset, where: str) -> None:
    main_file = dataset.file
    folders = (os.path.dirname(main_file.filename), os.path.dirname(os.path.realpath(main_file.filename)))
    for source in dataset.virtual_sources():
        file_name, inner = (name.replace("%%", "%") for name in (source.file_name, source.dset_name))
        if "%b" in source.file_name + source.dset_name:
            # The library counts numbered sources, and the last one that it finds ends the dataset.
            continue
        if file_name == _SAME_FILE:
            is_there = inner in main_file
        else:
            source_path = _is_file(file_name, "HDF5_VDS_PREFIX", *folders)
            if source_path is None:
                raise _missing(where, file_name)
            with h5py.File(source_path, "r") as file:
                is_there = inner in file
        if not is_there:
            raise _missing(where, f"'{inner.strip('/')}' in {file_name}")


def _is_file(name: str, prefix: str, *folders: str) -> Path | None:
    """Return the path at which the library finds another file; None if it finds none."""
    names = [name, os.path.basename(name)] if os.path.isabs(name) else [name]
    candidates = (
        Path(folder, name) for name in names for folder in (*os.environ.get(prefix, "").split(":"), *folders)
    )
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _missing(where: str, problem: str) -> InputError:
    return InputError(f"{where} is read from {problem}, which is missing; put it back")
