"""HDF5 files of h5py users, of MATLAB 7.3, and our own."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, UsdenoiseError
from usdenoise.formats.description import Candidate, is_stack, shape_text

COMPLEX_MEMBERS = (("r", "i"), ("re", "im"), ("real", "imag"), ("i", "q"))
_MAX_METADATA_ITEMS = 4


@contextmanager
def open_file(path: Path) -> Iterator[h5py.File]:
    """Open an HDF5 file for reading.

    Raises
    ------
    InputError
        If it is truncated or corrupt, on opening or while it is read.
    """
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (UsdenoiseError, MemoryError):
        raise
    except Exception as error:
        # h5py turns damage into errors of every kind: of the file, of keys, of types, of text.
        reason = "truncated" if "truncated" in str(error) else "corrupt"
        raise InputError(
            f"{path} is {reason}: the HDF5 library could not read it; copy or write it anew"
        ) from error


def is_matlab(file: h5py.File) -> bool:
    """Whether MATLAB wrote the file (or it is laid out so): axes are reversed, structs are groups."""
    return file.userblock_size >= 128 or any("MATLAB_class" in item.attrs for item in _items(file))


def _items(group: h5py.Group) -> Iterator[Any]:
    for name in group:
        try:
            if isinstance(group.get(name, getlink=True), h5py.HardLink):
                yield group[name]
        except (KeyError, OSError, RuntimeError, TypeError, ValueError):
            # What cannot be opened, or has a name that is no text, is not what we look for.
            continue


def _attributes(item: Any) -> Iterator[tuple[str, Any]]:
    for name in item.attrs:
        try:
            if isinstance(name, str):
                yield name, item.attrs[name]
        except (KeyError, OSError, RuntimeError, TypeError, ValueError):
            continue


def value_dtype(dataset: h5py.Dataset) -> np.dtype[Any]:
    """Type of a dataset's values, with a pair of floats in a compound taken as a complex number."""
    dtype = dataset.dtype
    if dtype.names and tuple(name.lower() for name in dtype.names) in COMPLEX_MEMBERS:
        members = {dtype[name] for name in dtype.names}
        if len(members) == 1 and (member := members.pop()).kind == "f":
            return np.result_type(member, np.complex64)
    plain: np.dtype[Any] = np.dtype(dtype)
    return plain


def datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """All datasets by their full names, each once."""
    found: dict[str, h5py.Dataset] = {}
    seen = set()
    waiting = [file["/"]]
    while waiting:
        for item in _items(waiting.pop(0)):
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                continue
            seen.add(address)
            if isinstance(item, h5py.Group):
                waiting.append(item)
            elif isinstance(item, h5py.Dataset):
                found[item.name.strip("/")] = item
    return found


def survey(file: h5py.File) -> tuple[list[Candidate], dict[str, str]]:
    """The candidates of a file, and a word on every dataset. MATLAB's files are shown in MATLAB's order."""
    matlab = is_matlab(file)
    candidates, every = [], {}
    for name, dataset in datasets(file).items():
        shape = (dataset.shape or ())[:: -1 if matlab else 1]
        try:
            dtype = value_dtype(dataset)
        except (TypeError, ValueError):
            every[name] = f"{len(shape)}-D of a type that NumPy does not know"
            continue
        kind = f"{dtype}" if not dtype.names else "compound"
        every[name] = f"{len(shape)}-D {kind}" + (f" ({shape_text(shape)})" if shape else "")
        if is_stack(shape, dtype):
            candidates.append(Candidate(name, shape, str(dtype)))
    return candidates, every


def read_values(dataset: h5py.Dataset, index: tuple[slice, ...]) -> NDArray[Any]:
    """Values of a dataset, complex compounds as complex numbers."""
    values = dataset[index]
    if values.dtype.names:
        real, imaginary = (values[name] for name in values.dtype.names)
        joined = np.empty(values.shape, np.result_type(real.dtype, np.complex64))
        joined.real, joined.imag = real, imaginary
        return joined
    return np.asarray(values)


def check_stored(dataset: h5py.Dataset, path: Path) -> None:
    """Check that the file holds what its header claims, before memory is asked for.

    Raises
    ------
    InputError
        If chunks, or bytes of an uncompressed dataset, are missing.
    """
    claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
    if dataset.is_virtual:
        return
    if dataset.chunks is not None:
        expected = math.prod(-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True))
        complete = dataset.id.get_num_chunks() >= expected
    else:
        complete = dataset.id.get_storage_size() >= claimed
    if not complete:
        held = dataset.id.get_storage_size()
        raise InputError(
            f"'{dataset.name.strip('/')}' in {path} claims {claimed} bytes {shape_text(dataset.shape)}, but the "
            f"file holds {held} of them; it was not written to its end: write it anew"
        )


def nearby_metadata(file: h5py.File, dataset: h5py.Dataset) -> Mapping[str, tuple[Any, str]]:
    """Attributes and small datasets that may describe a stack, the nearest first."""
    found: dict[str, tuple[Any, str]] = {}

    def add(name: str, value: Any, place: str) -> None:
        if not name.startswith(("MATLAB_", "H5PATH", "DIMENSION_", "REFERENCE_", "CLASS")):
            found.setdefault(name, (value, place))

    for name, value in _attributes(dataset):
        add(name, value, f"attribute {name} of {dataset.name.strip('/')}")
    for owner in {dataset.parent.name: dataset.parent, "/": file["/"]}.values():
        for name, value in _attributes(owner):
            add(name, value, f"attribute {name} of {owner.name}")
        for item in _items(owner):
            if isinstance(item, h5py.Dataset):
                _add_small(item, add)
    if "UF" in file and isinstance(file["UF"], h5py.Group):
        for item in _items(file["UF"]):
            if isinstance(item, h5py.Dataset):
                _add_small(item, add)
    return found


def _add_small(item: h5py.Dataset, add: Any) -> None:
    name = item.name.strip("/")
    try:
        small = item.dtype.kind in "fiu" and item.size is not None and 0 < item.size <= _MAX_METADATA_ITEMS
        value: Any = np.asarray(item[()]).reshape(-1) if small else None
        if small and item.attrs.get("MATLAB_class") == b"char":
            value = value.astype("<u2").tobytes().decode("utf-16-le")
    except (KeyError, OSError, RuntimeError, TypeError, ValueError):
        return
    if value is not None:
        add(name.rsplit("/", 1)[-1], value, f"dataset {name}")
