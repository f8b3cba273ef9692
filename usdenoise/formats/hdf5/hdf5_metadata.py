"""What stands near a stack in an HDF5 file: attributes and small datasets.

Values of variable length live in heaps whose damage can make the HDF5 library loop without end. They are
read only where they are needed: under the names that we know, and on the stack itself when it is carried.
"""

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from usdenoise.formats.contents import Found
from usdenoise.formats.metadata import is_known

_MAX_METADATA_ITEMS, _MAX_TEXT = 4, 64
UNREADABLE = (KeyError, OSError, RuntimeError, TypeError, ValueError)
_OWN = ("MATLAB_", "H5PATH", "DIMENSION_", "REFERENCE_", "CLASS")
_STRUCTS = ("UF", "PData")


def items(group: h5py.Group) -> Iterator[Any]:
    """What a group holds by hard links; soft ones may lead in circles, external ones elsewhere."""
    for name in group:
        try:
            if isinstance(group.get(name, getlink=True), h5py.HardLink):
                yield group[name]
        except UNREADABLE:
            # What cannot be opened, or has a name that is no text, is not what we look for.
            continue


def nearby(file: h5py.File, dataset: h5py.Dataset, carried: bool) -> Found:
    """Attributes and small datasets that may describe a stack, the nearest first.

    Parameters
    ----------
    file, dataset
        The stack in its file.
    carried : bool
        Whether values that do not describe it are read as well, to be carried to the output.
    """
    found: dict[str, tuple[Any, str]] = {}

    def add(name: str, value: Any, place: str) -> None:
        if not name.startswith(_OWN):
            found.setdefault(name, (value, place))

    owners = {dataset.parent.name: dataset.parent, "/": file["/"]}.values()
    for name, value in _attributes(dataset, carried):
        add(name, value, f"attribute {name} of {dataset.name.strip('/')}")
    for owner in owners:
        for name, value in _attributes(owner, False):
            add(name, value, f"attribute {name} of {owner.name}")
        for item in items(owner):
            if isinstance(item, h5py.Dataset):
                _add_small(item, add)
    for struct in _STRUCTS:
        if struct in file and isinstance(file[struct], h5py.Group):
            for item in items(file[struct]):
                if isinstance(item, h5py.Dataset):
                    _add_small(item, add)
    return found


def small_number(item: Any) -> float | None:
    """The number that a dataset of one element holds."""
    try:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu" and item.size == 1:
            return float(np.asarray(item[()]).reshape(-1)[0])
    except UNREADABLE:
        return None
    return None


def numbers(item: Any, most: int = 1 << 16) -> Any:
    """The numbers of a dataset as a flat float64 array, None where it is none, or holds more than `most`."""
    try:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu" and 0 < (item.size or 0) <= most:
            return np.asarray(item[()], np.float64).reshape(-1)
    except UNREADABLE:
        return None
    return None


def text_attribute(item: Any, name: str) -> str:
    """An attribute as text without the zeros that end it in C; empty where there is none."""
    value = dict(_attributes(item, True, only=name)).get(name, "")
    value = value.reshape(-1)[0] if isinstance(value, np.ndarray) and value.size else value
    text = value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
    return text.replace("\0", "").strip()


def _attributes(item: Any, every: bool, only: str | None = None) -> Iterator[tuple[str, Any]]:
    for name in item.attrs:
        try:
            if not isinstance(name, str) or only not in (None, name):
                continue
            in_heap = item.attrs.get_id(name).dtype.hasobject
            if every or is_known(name) or not in_heap:
                yield name, item.attrs[name]
            elif item.attrs.get_id(name).shape is not None:
                yield name, None
        except UNREADABLE:
            continue


def _add_small(item: h5py.Dataset, add: Any) -> None:
    name = item.name.strip("/")
    try:
        text = item.attrs.get("MATLAB_class") == b"char"
        most = _MAX_TEXT if text else _MAX_METADATA_ITEMS
        small = item.dtype.kind in "fiu" and item.size is not None and 0 < item.size <= most
        value: Any = np.asarray(item[()]).reshape(-1) if small else None
        if small and text:
            value = value.astype("<u2").tobytes().decode("utf-16-le")
    except UNREADABLE:
        return
    if value is not None:
        add(name.rsplit("/", 1)[-1], value, f"dataset {name}")
