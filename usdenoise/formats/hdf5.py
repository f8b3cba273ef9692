"""HDF5 files of h5py users, of MATLAB 7.3, and our own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.description import Candidate, is_stack, shape_text

COMPLEX_MEMBERS = (("r", "i"), ("re", "im"), ("real", "imag"), ("i", "q"))
# Groups and datasets of our own files that are results or truth, never the stack.
_NOT_STACKS = ("truth/", "usdenoise/", "#refs#/", "power_doppler", "unobserved")
_MAX_METADATA_ITEMS = 3


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
    except (OSError, RuntimeError, KeyError) as error:
        reason = "truncated" if "truncated" in str(error) else "corrupt"
        raise InputError(
            f"{path} is {reason}: the HDF5 library could not read it; copy or write it anew"
        ) from error


def is_matlab(file: h5py.File) -> bool:
    """Whether MATLAB wrote the file (or it is laid out so): axes are reversed, structs are groups."""
    return file.userblock_size >= 128 or any("MATLAB_class" in item.attrs for item in _items(file))


def _items(group: h5py.Group) -> Iterator[Any]:
    for name in group:
        if isinstance(group.get(name, getlink=True), h5py.HardLink):
            yield group[name]


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

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item

    file.visititems(visit)
    return found


def survey(file: h5py.File) -> tuple[list[Candidate], dict[str, str]]:
    """The candidates of a file, and a word on every dataset. MATLAB's files are shown in MATLAB's order."""
    matlab = is_matlab(file)
    candidates, every = [], {}
    for name, dataset in datasets(file).items():
        shape = (dataset.shape or ())[:: -1 if matlab else 1]
        dtype = value_dtype(dataset)
        kind = f"{dtype}" if not dtype.names else "compound"
        every[name] = f"{len(shape)}-D {kind}" + (f" ({shape_text(shape)})" if shape else "")
        if is_stack(shape, dtype) and not any(name.startswith(prefix) for prefix in _NOT_STACKS):
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
    claimed = dataset.size * dataset.dtype.itemsize
    if dataset.chunks is not None:
        expected = int(np.prod([-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True)]))
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

    for name, value in dataset.attrs.items():
        add(name, value, f"attribute {name} of {dataset.name.strip('/')}")
    for owner in {dataset.parent.name: dataset.parent, "/": file["/"]}.values():
        for name, value in owner.attrs.items():
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
    if item.dtype.kind in "fiu" and item.size is not None and 0 < item.size <= _MAX_METADATA_ITEMS:
        name = item.name.strip("/")
        add(name.rsplit("/", 1)[-1], np.asarray(item[()]).reshape(-1), f"dataset {name}")
