"""Metadata of a stack in an HDF5 file: dimension scales, attributes and small datasets near it.

HDF5 stores values of variable length in heaps, and a damaged heap can make its library loop without end. Such
values are read only under the names of axes and scales, and on the stack itself, whose attributes are copied to the
output.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.files.contents import MAX_METADATA_ITEMS, MAX_TEXT, MOST_ITEMS, STRUCTS, known_first
from usdenoise.files.hdf5_arrays import (
    SCALES_OF_AXES,
    UNREADABLE,
    Item,
    check_readable,
    items,
    member,
    stored_array,
)
from usdenoise.files.stored import PACKING
from usdenoise.linalg.array_library import Numbers
from usdenoise.stack.geometry import Coordinate
from usdenoise.stack.labels import KNOWN_DIMENSIONS, TIMES, Found, Label, labelled_metadata
from usdenoise.stack.metadata import is_known
from usdenoise.system.text import PROVENANCE

# Attributes that describe the storage in the file, and nothing of the stack.
_SCALES = ("DIMENSION_", "REFERENCE_")
_OWN = ("MATLAB_", "H5PATH", *_SCALES, "CLASS", *PACKING)


TIME_ARRAYS = ("time", "times", "t", "timestamps")
"""Lower-case names of arrays beside a stack with the times of its frames."""

_MOST_POSITIONS = 1 << 22
"""Most positions of an axis that are read: 32 MB."""


def nearby(file: h5py.File, dataset: h5py.Dataset, every: Iterable[h5py.Dataset]) -> Found:
    """Return attributes and small datasets that may describe a stack.

    If several have the same name, the nearest to the stack is returned: attributes of the stack first, then attributes
    and small datasets of its group, then of the root group, then the structs of PALA.

    Parameters
    ----------
    file : h5py.File
        The open file.
    dataset : h5py.Dataset
        The stack in this file. Its attributes that do not describe axes or scales are read as well, to be copied to the
        output.
    every : iterable of h5py.Dataset
        All datasets of the file.
    """
    entries: dict[str, tuple[object, str]] = {}
    for name, value, source in _nearest_first(file, dataset):
        if not name.startswith(_OWN):
            entries.setdefault(name, (value, source))
    # Labels and scales of the dimensions, or an array of times near the stack
    scales = _written_scales(dataset, every)
    names = [_dimension_name(dataset, axis, scales.get(axis)) for axis in range(dataset.ndim)]
    labels = {names[axis]: _scale_label(names[axis], scale) for axis, scale in scales.items()}
    known = [axis for axis, name in enumerate(names) if name.lower() in TIMES]
    groups = [] if set(known) & set(scales) else [dataset.parent, file["/"]]
    names_of_times = [[name for name in group if name.lower() in TIME_ARRAYS] for group in groups]
    for item in chain.from_iterable(map(items, groups, names_of_times)):
        n_times = getattr(item, "size", 0)
        axes = [axis for axis in known or range(dataset.ndim) if dataset.shape[axis] == n_times]
        if axes:
            # If several axes are as long, the letters of the stack tell which is time.
            names[axes[0]] = names[axes[0]] if known else "time"
            labels[names[axes[0]]] = _scale_label(names[axes[0]], item)
            break
    own: dict[str, Coordinate] = {}
    if PROVENANCE in file.attrs:
        # The labels of a result name our axes, also where other files mean others by the same names.
        for letter, name in SCALES_OF_AXES.items():
            label, unit = labels.get(name), "s" if letter == "t" else "mm"
            if label and label.values is not None and label.attributes.get("units") == unit:
                own[letter] = Coordinate(np.asarray(label.values, np.float64))
        entries["coordinates"] = (own, "dimension scales")
    if len(set(names)) < len(names):
        return entries
    n_axes = max(3, sum(n > 1 for n in dataset.shape))
    of_grid = {"voxel_to_world_units": (text_attribute(dataset, "voxel_to_world_units") or "mm", "")}
    labelled = labelled_metadata(tuple(names), dataset.shape, n_axes, labels, {**entries, **of_grid})
    return {**entries, **labelled}


def _nearest_first(file: h5py.File, dataset: h5py.Dataset) -> Iterator[tuple[str, object, str]]:
    """Yield the name, the value and the source of each entry that may describe a stack."""
    for name, value in _stored_attributes(dataset, True):
        yield name, value, f"attribute {name} of {dataset.name.strip('/')}"
    groups = {dataset.parent.name: dataset.parent, "/": file["/"]}
    # The elements of all cells of MATLAB are together in one group, under names without meaning.
    groups.pop("/#refs#", None)
    for group in groups.values():
        for name, value in _stored_attributes(group, False):
            yield name, value, f"attribute {name} of {group.name}"
        yield from _small_datasets(group)
    for struct in STRUCTS:
        if isinstance(fields := member(file, struct), h5py.Group):
            yield from _small_datasets(fields)


def _small_datasets(group: h5py.Group) -> Iterator[tuple[str, object, str]]:
    # Of a large group, those with the name of axes or of a scale
    names = [name for name in group if is_known(name)] if len(group) > MOST_ITEMS else None
    for item in items(group, names):
        if isinstance(item, h5py.Dataset) and (value := _small_value(item)) is not None:
            name = item.name.strip("/")
            yield name.rpartition("/")[2], value, f"dataset {name}"


def _small_value(item: h5py.Dataset) -> Numbers | str | None:
    """Return a few numbers, or text of MATLAB; None if a dataset is a dimension scale or has other values."""
    try:
        if item.is_scale:
            return None
        if item.attrs.get("MATLAB_class") != b"char":
            return _values(item, MAX_METADATA_ITEMS)
        codes = _values(item, MAX_TEXT)
        return None if codes is None else codes.astype("<u2").tobytes().decode("utf-16-le")
    except UNREADABLE:
        return None


def _written_scales(dataset: h5py.Dataset, every: Iterable[h5py.Dataset]) -> dict[int, h5py.Dataset]:
    """Return the dimension scales that are attached to a dataset, by its axes."""
    attached: dict[int, h5py.Dataset] = {}
    for item in every:
        try:
            # The list of the scale is not in a heap, as the list of the dataset is.
            for reference, axis in item.attrs["REFERENCE_LIST"] if item.is_scale else ():
                if dataset.file[reference] == dataset:
                    attached.setdefault(int(axis), item)
        except UNREADABLE:
            continue
    return attached


def _dimension_name(dataset: h5py.Dataset, axis: int, scale: h5py.Dataset | None) -> str:
    """Return the name of an axis: a known one among its label and the names of its scale, if there is one."""
    try:
        names = [str(dataset.dims[axis].label)]
    except UNREADABLE:
        names = []
    if scale is not None:
        names += [text_attribute(scale, "NAME"), scale.name.rpartition("/")[2]]
    known = (name for name in names if name.lower() in KNOWN_DIMENSIONS)
    return next(known, (names or [""])[-1] or f"axis {axis}")


def _scale_label(name: str, item: h5py.Dataset) -> Label:
    """Return the positions along a dimension, with their unit if they have one."""
    unit = text_attribute(item, "units") or text_attribute(item, "unit")
    values = numbers(item, _MOST_POSITIONS)
    if values is not None and any(packed in item.attrs for packed in PACKING):
        values = stored_array(item).everything().reshape(-1).astype(np.float64)
    is_alone = text_attribute(item, "NAME").startswith("This is a netCDF dimension but not")
    # Without a unit, whole numbers count frames, and positions may be in pixels or in m.
    is_counted = not unit and (name.lower() not in TIMES or values is None or not np.any(values % 1))
    return Label((name,), None if is_alone or is_counted else values, {"units": unit} if unit else {})


def small_number(item: Item | None) -> float | None:
    """Return the number in a dataset of one element; None for any other item."""
    values = numbers(item, most=1)
    return None if values is None else float(values[0])


def numbers(item: Item | None, most: int = 1 << 16) -> NDArray[np.float64] | None:
    """Return the numbers of a dataset as a flat float64 array; None if it holds none, or more than `most`."""
    values = _values(item, most)
    return None if values is None else values.astype(np.float64)


def _values(item: Item | None, most: int) -> Numbers | None:
    """Return the numbers of a dataset in their own type, otherwise as :func:`numbers` does."""
    try:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu" and 0 < (item.size or 0) <= most:
            check_readable(item)
            return np.asarray(item[()]).reshape(-1)
    except (InputError, *UNREADABLE):
        pass
    return None


def text_attribute(item: Item, name: str) -> str:
    """Return an attribute as text without the zero bytes that end it in C; empty if it is missing."""
    value = dict(_stored_attributes(item, True, only=name)).get(name, "")
    value = value.reshape(-1)[0] if isinstance(value, np.ndarray) and value.size else value
    text = value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
    return text.replace("\0", "").strip()


def _stored_attributes(item: Item, every: bool, only: str | None = None) -> Iterator[tuple[str, object]]:
    for name in known_first(item.attrs) if only is None else [only]:
        try:
            # References between arrays and their dimension scales are in a heap, and do not describe the stack.
            if not isinstance(name, str) or name.startswith(_SCALES):
                continue
            in_heap = item.attrs.get_id(name).dtype.hasobject
            if every or is_known(name) or not in_heap:
                yield name, item.attrs[name]
            elif item.attrs.get_id(name).shape is not None:
                yield name, None
        except UNREADABLE:
            continue
