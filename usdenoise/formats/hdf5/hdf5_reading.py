"""HDF5 files of h5py users, of MATLAB 7.3, and our own: what they hold, and reading it in slabs."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, UsdenoiseError
from usdenoise.formats import uff, zea
from usdenoise.formats.contents import Contents, Found, Stack, arranged, describe_array, pair_parts
from usdenoise.formats.description import shape_text
from usdenoise.formats.hdf5.hdf5_metadata import UNREADABLE, items, nearby, small_number
from usdenoise.formats.matlab import matlab_v73
from usdenoise.formats.output_folder import MAX_EXPANSION
from usdenoise.formats.stored import Index, StoredArray, complex_dtype, reversed_axes

COMPLEX_MEMBERS = (("r", "i"), ("re", "im"), ("real", "imag"), ("i", "q"))


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


@contextmanager
def open_contents(path: Path, n_axes: int | None) -> Iterator[Contents]:
    """What an HDF5 file offers.

    Parameters
    ----------
    path : Path
        The file.
    n_axes : int or None
        Number of axes that the user named.

    Raises
    ------
    InputError
        As :func:`open_file`.
    """
    with open_file(path) as file:
        yield _contents(file, path, n_axes)


def _contents(file: h5py.File, path: Path, n_axes: int | None) -> Contents:
    turned = matlab_v73.is_matlab(file)
    found = datasets(file)
    every: dict[str, str] = {}
    arrays: dict[str, StoredArray] = {}
    for name, dataset in found.items():
        try:
            array = stored_array(dataset)
        except (TypeError, ValueError):
            every[name] = f"{len(dataset.shape or ())}-D of a type that NumPy does not know"
            continue
        array = reversed_axes(array) if turned else array
        kind = matlab_v73.special_class(dataset)
        every[name] = f"a MATLAB {kind}" if kind else _word(dataset, array)
        if not kind:
            arrays[name] = array

    def stack(name: str, array: StoredArray, parts: tuple[h5py.Dataset, ...], **more: Any) -> Stack | None:
        def check() -> None:
            for part in parts:
                check_stored(part, path)

        return arranged(
            name,
            array,
            n_axes,
            time_last=True if turned else None,
            metadata=lambda carried: nearby(file, parts[0], carried),
            check=check,
            **more,
        )

    container = "MATLAB 7.3 (HDF5)" if turned else "HDF5"
    stacks: list[Stack | None] = []
    for name, cell in matlab_v73.cells(file, found, stored_array).items():
        every[name] = describe_array(cell.array)
        arrays[name] = cell.array
        stacks.append(stack(name, cell.array, cell.parts, layout=cell.layout))
    special, names = uff.stacks(file, stack, stored_array)
    container = uff.CONTAINER if special else container
    if not special:
        special, names = zea.stacks(file, found, stack, stored_array)
        container = zea.CONTAINER if special else container
    stacks += special
    joined_names = {made.name for made in stacks if made is not None} | names
    for made, array, layout, parts in pair_parts(
        {name: array for name, array in arrays.items() if name not in names},
        lambda lower: _number(found, lower),
    ):
        joined_names |= {*parts}
        sources = tuple(found[part] for part in parts if part in found)
        stacks.append(stack(made, array, sources, layout=layout))
    stacks += [
        stack(name, array, (found[name],), assumptions=_member_note(found[name]))
        for name, array in arrays.items()
        if name not in joined_names
    ]

    def look_up(name: str) -> Stack | None:
        # A link that the survey does not follow; the library gives up on one that leads in a circle.
        try:
            item = file.get(name)
        except UNREADABLE:
            return None
        if not isinstance(item, h5py.Dataset) or name in every:
            return None
        array = stored_array(item)
        return stack(name, reversed_axes(array) if turned else array, (item,))

    def find(name: str) -> tuple[StoredArray, Found] | None:
        if name not in arrays:
            return None
        check_stored(found[name], path)
        return arrays[name], nearby(file, found[name], True)

    return Contents(container, tuple(s for s in stacks if s is not None), every, look_up, find)


def datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """All datasets by their full names, each once."""
    found: dict[str, h5py.Dataset] = {}
    seen = set()
    waiting = [file["/"]]
    while waiting:
        for item in items(waiting.pop(0)):
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                continue
            seen.add(address)
            if isinstance(item, h5py.Group):
                waiting.append(item)
            elif isinstance(item, h5py.Dataset):
                found[item.name.strip("/")] = item
    return found


def stored_array(dataset: h5py.Dataset) -> StoredArray:
    """A dataset, with the two members of a compound taken as a complex number."""
    dtype = np.dtype(dataset.dtype)
    order = _member_order(dtype)
    if order is None:
        return StoredArray(dataset.shape or (), dtype, lambda index: np.asarray(dataset[index]))
    value_dtype = complex_dtype(dtype[order[0]])

    def read(index: Index) -> NDArray[Any]:
        pairs = dataset[index]
        values = np.empty(pairs.shape, value_dtype)
        values.real, values.imag = pairs[order[0]], pairs[order[1]]
        return values

    return StoredArray(dataset.shape or (), value_dtype, read)


def check_stored(dataset: h5py.Dataset, path: Path) -> None:
    """Check that the file holds what its header claims, before memory is asked for.

    Raises
    ------
    InputError
        If chunks, or bytes of an uncompressed dataset, are missing, or compressed ones are far too few.
    """
    claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
    if dataset.is_virtual:
        return
    held = dataset.id.get_storage_size()
    if dataset.chunks is not None:
        expected = math.prod(-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True))
        complete = dataset.id.get_num_chunks() >= expected and held * MAX_EXPANSION >= claimed
    else:
        complete = held >= claimed
    if not complete:
        raise InputError(
            f"'{dataset.name.strip('/')}' in {path} claims {claimed} bytes {shape_text(dataset.shape)}, but the "
            f"file holds {held} of them; it was not written to its end: write it anew"
        )


def _member_order(dtype: np.dtype[Any]) -> tuple[str, str] | None:
    """Names of the real and the imaginary member of a compound that is a complex number."""
    if not dtype.names or len(dtype.names) != 2:
        return None
    first, second = dtype.names
    if dtype[first] != dtype[second] or dtype[first].kind not in "fiu" or dtype[first].shape:
        return None
    swapped = (second.lower(), first.lower()) in COMPLEX_MEMBERS
    return (second, first) if swapped else (first, second)


def _member_note(dataset: h5py.Dataset) -> tuple[str, ...]:
    names = dataset.dtype.names
    order = _member_order(dataset.dtype) if names else None
    if order is None or tuple(name.lower() for name in order) in COMPLEX_MEMBERS:
        return ()
    return (
        f"the members {order[0]} and {order[1]} of '{dataset.name.strip('/')}' are taken as the real and the "
        "imaginary part; if they are not, pick another dataset with --dataset",
    )


def _word(dataset: h5py.Dataset, array: StoredArray) -> str:
    if array.dtype.names:
        return f"{len(array.shape)}-D compound" + (f" ({shape_text(array.shape)})" if array.shape else "")
    return describe_array(array)


def _number(found: dict[str, h5py.Dataset], lower: str) -> float | None:
    return next((small_number(item) for name, item in found.items() if name.lower() == lower), None)
