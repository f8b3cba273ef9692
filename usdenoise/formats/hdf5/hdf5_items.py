"""Items of an HDF5 file, and which links are followed to reach them."""

from collections.abc import Callable, Iterator
from typing import Any

import h5py

UNREADABLE = (KeyError, OSError, RuntimeError, TypeError, ValueError)
"""Errors that h5py raises on an item that it cannot open or convert."""

MOST_LINKS = 16
"""Most soft and external links in a row; the HDF5 library has the same limit."""

Across = Callable[[h5py.Group, h5py.ExternalLink, int], Any]
"""Takes a group, an external link in it, and the number of links before it; returns the item that it leads to."""


def items(group: h5py.Group) -> Iterator[Any]:
    """Yield the items of a group that are hard links.

    Soft links are left out because they may lead in circles, external ones because they lead to other files.
    """
    for name in group:
        try:
            if isinstance(group.get(name, getlink=True), h5py.HardLink):
                yield group[name]
        except UNREADABLE:
            # An item that cannot be opened, or whose name is no text, is neither a stack nor metadata.
            continue


def datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Return all datasets by their full names, each once."""
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


def member(group: h5py.Group, name: str) -> Any:
    """Return an item of a group by its path; None if it is missing, or if the path leads to another file."""
    return follow(group, name, lambda *link: None)


def follow(group: h5py.Group, name: str, across: Across, n_links: int = 0) -> Any:
    """Return an item of a group by its path, or None if it is missing.

    Parameters
    ----------
    group : h5py.Group
        The group at which the path begins, unless it begins with a slash.
    name : str
        The path.
    across : callable
        Follows an external link (see :data:`Across`).
    n_links : int
        Number of links that were followed before; 0 by default.
    """
    here: Any = group.file["/"] if name.startswith("/") else group
    for part in name.split("/"):
        if part in ("", "."):
            continue
        try:
            if not isinstance(here, h5py.Group) or n_links > MOST_LINKS:
                return None
            link = here.get(part, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                here = across(here, link, n_links + 1)
            elif isinstance(link, h5py.SoftLink):
                here = follow(here, link.path, across, n_links + 1)
            else:
                here = here[part]
        except UNREADABLE:
            return None
    return here
