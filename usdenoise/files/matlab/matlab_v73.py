"""Features of a version 7.3 file that are specific to MATLAB: reversed axes, classes, cells of references."""

from collections.abc import Mapping

import h5py

from usdenoise.files.hdf5.hdf5_arrays import stored_array
from usdenoise.files.hdf5.hdf5_items import UNREADABLE, items
from usdenoise.files.matlab.matlab_cells import MOST_CELLS, NUMERIC_CLASSES, blocks
from usdenoise.files.stored import StoredArray, reversed_axes


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
    """Return the cells of a file whose elements can be concatenated: full name -> the whole array, and its parts.

    The array has its axes in MATLAB's order, and the parts are in the order of time.
    """
    cell_arrays = {}
    for name, dataset in datasets.items():
        if special_class(dataset) != "cell" or not 0 < (dataset.size or 0) <= MOST_CELLS:
            continue
        if h5py.check_ref_dtype(dataset.dtype) is not h5py.Reference or name.startswith("#refs#"):
            continue
        references = dataset[()].transpose().reshape(-1, order="F")
        elements = [file[reference] for reference in references if reference]
        arrays = [
            reversed_axes(stored_array(element))
            for element in elements
            # An element without a name is in no group, so its storage has not been checked.
            if isinstance(element, h5py.Dataset) and element.name and special_class(element) is None
        ]
        whole = blocks(arrays) if len(arrays) == dataset.size else None
        if whole is not None:
            cell_arrays[name] = (whole, tuple(elements))
    return cell_arrays
