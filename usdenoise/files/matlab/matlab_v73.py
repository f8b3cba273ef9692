"""Features of a version 7.3 file that are specific to MATLAB: reversed axes, classes, cells and arrays of structs."""

from collections.abc import Mapping, Sequence
from typing import Any

import h5py

from usdenoise.files.hdf5.hdf5_arrays import stored_array
from usdenoise.files.hdf5.hdf5_items import UNREADABLE, items, member
from usdenoise.files.matlab.matlab_cells import MOST_CELLS, NUMERIC_CLASSES, blocks
from usdenoise.files.stored import StoredArray, reversed_axes

MOST_NESTED = 8
"""Most structs within each other in the elements of a cell that are searched for a stack."""


def is_matlab(file: h5py.File) -> bool:
    """Check whether a file is laid out as MATLAB writes it: axes are reversed, and structs are groups."""
    return file.userblock_size >= 128 or any("MATLAB_class" in item.attrs for item in items(file))


def special_class(dataset: h5py.Dataset) -> str | None:
    """Return the MATLAB class (cell, table, function_handle, …) of a variable; None if it is an array of numbers."""
    try:
        if "MATLAB_class" not in dataset.attrs:
            return None
        kind = bytes(dataset.attrs["MATLAB_class"]).decode("ascii", errors="replace")
        if "MATLAB_empty" in dataset.attrs:
            return f"{kind} without elements"
    except UNREADABLE:
        return None
    plain = kind in NUMERIC_CLASSES and "MATLAB_object_decode" not in dataset.attrs
    return None if plain else kind


def cells(
    file: h5py.File, datasets: Mapping[str, h5py.Dataset]
) -> dict[str, tuple[StoredArray, tuple[h5py.Dataset, ...]]]:
    """Return the cells and arrays of structs of a file whose elements can be concatenated.

    Returns
    -------
    dict
        Full name, such as IQ or block/IQ -> the whole array with its axes in MATLAB's order, and its parts in the order of
        time.
    """
    cell_arrays: dict[str, tuple[StoredArray, tuple[h5py.Dataset, ...]]] = {}

    def add(name: str, elements: Sequence[Any]) -> None:
        if all(isinstance(element, h5py.Group) for element in elements):
            # A damaged file may have a group within itself.
            for key in elements[0] if name.count("/") < MOST_NESTED else ():
                add(f"{name}/{key}", [member(element, key) for element in elements])
            return
        arrays = [
            reversed_axes(stored_array(element))
            for element in elements
            # An element without a name is in no group, so its storage has not been checked.
            if isinstance(element, h5py.Dataset) and element.name and special_class(element) is None
        ]
        whole = blocks(arrays) if len(arrays) == len(elements) else None
        if whole is not None:
            cell_arrays[name] = (whole, tuple(elements))

    for name, dataset in datasets.items() if is_matlab(file) else ():
        if name.startswith("#refs#") or not 0 < (dataset.size or 0) <= MOST_CELLS:
            continue
        if elements := referenced(file, dataset):
            add(name, elements)
    return cell_arrays


def referenced(file: h5py.File, item: Any) -> list[Any]:
    """Return the elements of a cell, or of a field of an array of structs, in MATLAB's order; none for any other item.

    An element that the file does not have is None.
    """
    if not isinstance(item, h5py.Dataset) or h5py.check_ref_dtype(item.dtype) is not h5py.Reference:
        return []
    # MATLAB gives no class to the fields of an array of structs.
    if special_class(item) not in ("cell", None):
        return []
    references = item[()].transpose().reshape(-1, order="F")
    return [file[reference] if reference else None for reference in references]


def elements_of(file: h5py.File, name: str) -> list[Any]:
    """Return the elements that are joined to the array of a name of :func:`cells`; none for a plain variable."""
    found: list[Any] = [file["/"]]
    is_joined = False
    for key in name.split("/"):
        found = [member(item, key) for item in found if isinstance(item, h5py.Group)]
        inner = [element for item in found for element in referenced(file, item)]
        found, is_joined = (inner, True) if inner else (found, is_joined)
    return [item for item in found if item is not None] if is_joined else []
