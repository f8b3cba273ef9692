"""What is MATLAB's own in a version 7.3 file: reversed axes, classes, cells that refer to their elements."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import h5py

from usdenoise.formats.hdf5.hdf5_metadata import items
from usdenoise.formats.matlab.matlab_cells import blocks
from usdenoise.formats.stored import StoredArray, reversed_axes

MOST_CELLS = 4096
_NUMERIC = ("double", "single", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True)
class Cell:
    """A cell array of blocks of frames.

    Attributes
    ----------
    array : StoredArray
        The blocks one after the other, in MATLAB's order of axes.
    parts : tuple of h5py.Dataset
        Where they are.
    layout : str
        The same in words.
    """

    array: StoredArray
    parts: tuple[h5py.Dataset, ...]
    layout: str


def is_matlab(file: h5py.File) -> bool:
    """Whether MATLAB wrote the file (or it is laid out so): axes are reversed, structs are groups."""
    return file.userblock_size >= 128 or any("MATLAB_class" in item.attrs for item in items(file))


def special_class(dataset: h5py.Dataset) -> str | None:
    """The class of a variable that is no array of numbers: cell, table, function_handle, …; None for one."""
    try:
        if "MATLAB_class" not in dataset.attrs:
            return None
        kind = bytes(dataset.attrs["MATLAB_class"]).decode("ascii", errors="replace")
        if "MATLAB_empty" in dataset.attrs:
            return f"{kind} without elements"
    except (KeyError, OSError, RuntimeError, TypeError, ValueError):
        return None
    plain = kind in _NUMERIC and "MATLAB_object_decode" not in dataset.attrs
    return None if plain else kind


def cells(
    file: h5py.File,
    found: Mapping[str, h5py.Dataset],
    stored_array: Callable[[h5py.Dataset], StoredArray],
) -> dict[str, Cell]:
    """The cells of a file whose elements are arrays that can follow one another."""
    made = {}
    for name, dataset in found.items():
        if special_class(dataset) != "cell" or not 0 < (dataset.size or 0) <= MOST_CELLS:
            continue
        if h5py.check_ref_dtype(dataset.dtype) is not h5py.Reference or name.startswith("#refs#"):
            continue
        elements = [
            file[reference] for reference in dataset[()].transpose().reshape(-1, order="F") if reference
        ]
        arrays = [
            reversed_axes(stored_array(element))
            for element in elements
            if isinstance(element, h5py.Dataset) and special_class(element) is None
        ]
        whole = blocks(arrays) if len(arrays) == dataset.size else None
        if whole is not None:
            made[name] = Cell(whole, tuple(elements), f"cell of {len(arrays)}")
    return made
