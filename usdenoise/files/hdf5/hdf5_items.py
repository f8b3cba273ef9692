"""Items of an HDF5 file."""

from collections.abc import Iterator
from typing import Any

import h5py

UNREADABLE = (KeyError, OSError, RuntimeError, TypeError, ValueError)
"""Errors that h5py raises on an item that it cannot open or convert."""


def items(group: h5py.Group) -> Iterator[Any]:
    """Yield the items of a group that are hard links.

    Soft links are skipped because they may be circular, external links because they lead to other files.
    """
    for name in group:
        try:
            if isinstance(group.get(name, getlink=True), h5py.HardLink):
                yield group[name]
        except UNREADABLE:
            # An item that cannot be opened, or whose name is not text, is neither a stack nor metadata.
            continue


def datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Return all datasets by their full names, each once."""
    by_path: dict[str, h5py.Dataset] = {}
    visited = set()
    waiting = [file["/"]]
    while waiting:
        for item in items(waiting.pop(0)):
            address = h5py.h5o.get_info(item.id).addr
            if address in visited:
                continue
            visited.add(address)
            if isinstance(item, h5py.Group):
                waiting.append(item)
            elif isinstance(item, h5py.Dataset):
                by_path[item.name.strip("/")] = item
    return by_path


def member(group: h5py.Group, name: str) -> Any:
    """Return an item of a group by its path; None if it is missing or cannot be opened."""
    try:
        return group.get(name)
    except UNREADABLE:
        return None
