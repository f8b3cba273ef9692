"""Whether the values of an HDF5 dataset are there, in its own file or in others.

The library fills what it does not find with a constant and gives no warning: missing chunks, missing sources of a
virtual dataset, and the end of a file of plain numbers.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py

from usdenoise.errors import InputError
from usdenoise.formats.hdf5.hdf5_other_files import (
    SAME_FILE,
    first_file,
    has_unknown_place,
    is_numbered,
    places,
    raw_place,
    sources,
    unescaped,
)
from usdenoise.formats.stored import shape_text

_NESTED = 16
"""Most virtual datasets in a row, of which each is the source of the one before."""


def check_stored(dataset: h5py.Dataset, depth: int = 0) -> None:
    """Check that the values that the header of a dataset claims are stored, before memory of that size is taken.

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset.
    depth : int
        Number of virtual datasets of which this one is a source; 0 by default.

    Raises
    ------
    InputError
        If chunks are missing, if a dataset without chunks has fewer bytes than its shape needs, or if another file that
        holds values is missing, or does not hold them.
    """
    claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
    if dataset.is_virtual:
        if depth > _NESTED:
            raise InputError(
                f"{_where(dataset)} is a virtual dataset whose sources lead in a circle; write it again"
            )
        _check_sources(dataset, depth)
        return
    if dataset.external:
        _check_external(dataset, claimed)
        return
    held = dataset.id.get_storage_size()
    if dataset.chunks is not None:
        expected = math.prod(-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True))
        complete = dataset.id.get_num_chunks() >= expected
    else:
        complete = held >= claimed
    if not complete:
        raise InputError(
            f"{_where(dataset)} claims {claimed} bytes {shape_text(dataset.shape)}, but the "
            f"file holds {held} of them, so it was not written to its end; write it again"
        )


def _check_sources(dataset: h5py.Dataset, depth: int) -> None:
    for (file_name, dataset_name), maps in sources(dataset).items():
        source, name = unescaped(file_name), unescaped(dataset_name)
        if file_name == SAME_FILE and not is_numbered(dataset_name):
            _check_source(dataset, dataset.file, name, maps, depth)
            continue
        if has_unknown_place(file_name, dataset_name):
            continue
        candidates = places(source, dataset.file)
        place = first_file(candidates)
        if place is None:
            raise _missing(dataset, source, candidates[0])
        try:
            with h5py.File(place, "r") as file:
                _check_source(dataset, file, name, maps, depth)
        except OSError as error:
            raise InputError(
                f"{_where(dataset)} is read from {place}, which cannot be read as an HDF5 file; copy or write "
                "it again"
            ) from error


def _needed(part: Any, shape: tuple[int, ...]) -> str:
    """Return what a part of a virtual dataset needs of its source, in words; empty if the shape of that one has it."""
    try:
        if part.src_space.get_select_type() == h5py.h5s.SEL_ALL:
            # The shape of a source that is used whole is not stored.
            n_values = part.vspace.get_select_npoints()
            return str(n_values) if math.prod(shape) < n_values else ""
        ends = tuple(last + 1 for last in part.src_space.get_select_bounds()[1])
    except (RuntimeError, ValueError):
        # The selection has no end, so the source may have any length.
        return ""
    has_all = len(shape) == len(ends) and all(n >= end for n, end in zip(shape, ends, strict=True))
    return "" if has_all else shape_text(ends)


def _check_source(dataset: h5py.Dataset, file: h5py.File, name: str, maps: Sequence[Any], depth: int) -> None:
    try:
        source: Any = file.get(name)
    except (KeyError, OSError, RuntimeError, ValueError):
        source = None
    if not isinstance(source, h5py.Dataset):
        raise InputError(
            f"{_where(dataset)} is read from the dataset '{name.strip('/')}' of {file.filename}, which is "
            "missing there; copy or write that file again"
        )
    for needed in filter(None, (_needed(part, source.shape or ()) for part in maps)):
        raise InputError(
            f"{_where(dataset)} needs {needed} values of '{name.strip('/')}' in {file.filename}, which "
            f"holds {shape_text(source.shape or ())}; copy or write that file again"
        )
    check_stored(source, depth + 1)


def _check_external(dataset: h5py.Dataset, claimed: int) -> None:
    left = claimed
    for name, offset, size in dataset.external:
        part = min(size, left)
        left -= part
        if has_unknown_place():
            continue
        place = raw_place(name)
        if not os.path.isfile(place):
            raise _missing(dataset, name, place)
        if (held := place.stat().st_size) < offset + part:
            raise InputError(
                f"{_where(dataset)} needs {offset + part} bytes of {place}, which holds {held}; copy "
                "or write that file again"
            )


def _missing(dataset: h5py.Dataset, name: str, place: Path) -> InputError:
    return InputError(f"{_where(dataset)} is read from {name}, which is missing; put that file to {place}")


def _where(dataset: h5py.Dataset) -> str:
    return f"'{dataset.name.strip('/')}' in {dataset.file.filename}"
