"""Items of HDF5 files, their datasets as arrays, with compounds of two numbers as complex numbers.

The library fills missing chunks, and missing sources of a virtual dataset, with a constant and gives no warning.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, UnreadableError
from usdenoise.files.contents import MOST_ITEMS, check_kind
from usdenoise.files.stored import OWN_FILL, PACKING, StoredArray, grid_of, unpacked, with_pairs
from usdenoise.stack.geometry import shape_text

SCALES_OF_AXES = {"t": "time", "z": "z", "x": "x", "y": "y"}
"""Axis letter -> name of its scale in the file."""

Item: TypeAlias = h5py.Group | h5py.Dataset
"""A group or a dataset of a file."""

UNREADABLE = (KeyError, OSError, RuntimeError, TypeError, ValueError)
"""Errors that h5py raises on an item that it cannot open or convert."""


def items(group: h5py.Group, names: Iterable[str] | None = None) -> Iterator[Item]:
    """Yield the hard links of a group with some names; by default among its first MOST_ITEMS names.

    Soft links are skipped because they may be circular, external links because they lead to other files.
    """
    for name in islice(group, MOST_ITEMS) if names is None else names:
        try:
            if isinstance(group.get(name, getlink=True), h5py.HardLink):
                yield group[name]
        except UNREADABLE:
            # An item that cannot be opened, or whose name is not text, is neither a stack nor metadata.
            continue


def datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Return the datasets by their full names, each once: the first MOST_ITEMS, and all that may be part of a stack."""
    by_path: dict[str, h5py.Dataset] = {}
    visited = set()
    waiting = [file["/"]]
    while waiting:
        group = waiting.pop(0)
        names = (name for name in group if len(by_path) < MOST_ITEMS or _may_matter(group, name))
        for item in items(group, names):
            address = h5py.h5o.get_info(item.id).addr
            if address in visited:
                continue
            visited.add(address)
            if isinstance(item, h5py.Group):
                waiting.append(item)
            elif isinstance(item, h5py.Dataset):
                by_path[item.name.strip("/")] = item
    return by_path


def _may_matter(group: h5py.Group, name: str) -> bool:
    """Return whether an item is a group, or a dataset that may be part of a stack: axes, a scale, a cell, or a factor."""
    key = name.encode("utf-8", "surrogateescape")
    # What cannot be opened, and links, are left to `items`.
    with suppress(*UNREADABLE):
        if group.id.links.get_info(key).type == h5py.h5l.TYPE_HARD:
            # The library opens it in a third of the time that h5py needs for its own object.
            item = h5py.h5o.open(group.id, key)
            if isinstance(item, h5py.h5d.DatasetID) and item.rank < 3 and not name.startswith("normValue"):
                return bool(item.get_type().get_class() == h5py.h5t.REFERENCE or h5py.h5ds.is_scale(item))
    return True


def item_at(group: h5py.Group, name: str) -> Item | None:
    """Return an item of a group by its path; None if it is missing or cannot be opened.

    Raises
    ------
    InputError
        As for :func:`check_links`.
    """
    check_links(group, name)
    try:
        return group.get(name)
    except UNREADABLE:
        return None


def member(group: h5py.Group, name: str) -> Item | None:
    """Return an item of a group by its path; None if it is missing, or cannot be opened, or a link leads nowhere."""
    try:
        return item_at(group, name)
    except (InputError, *UNREADABLE):
        return None


def check_stored(dataset: h5py.Dataset) -> None:
    """Check that the values that the header of a dataset claims are stored, before memory of that size is taken.

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset.

    Raises
    ------
    InputError
        If all chunks are missing, if a dataset without chunks has fewer bytes than its shape needs, if another file that
        holds values is missing or is a pipe, or if a virtual dataset is among its own sources.
    UnreadableError
        If the values are compressed by a filter that is not installed.
    """
    check_readable(dataset)
    if dataset.is_virtual:
        return
    if dataset.external:
        for name, _, _ in dataset.external:
            if _other_file(name, "HDF5_EXTFILE_PREFIX", ".") is None:
                raise _missing(dataset, name)
        return
    claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
    held = dataset.id.get_storage_size()
    is_there = held >= claimed if dataset.chunks is None else dataset.id.get_num_chunks() > 0
    if not is_there:
        raise InputError(
            f"{_where(dataset)} has {claimed} bytes {shape_text(dataset.shape)} by its header, but the file contains {held} "
            "of them: it is truncated; write it again"
        )


def check_readable(dataset: h5py.Dataset, above: tuple[tuple[str, int], ...] = ()) -> None:
    """Check that the library has the filters of a dataset, and that virtual sources are there and lead to no circle.

    The library does not look for circles: it fills the stack of the process, and ends it.

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset.
    above : tuple of (str, int)
        File and address of each virtual dataset of which it is a source; none by default.

    Raises
    ------
    InputError, UnreadableError
        As for :func:`check_stored`.
    """
    if not dataset.is_virtual:
        _check_filters(dataset)
        return
    sources = dict.fromkeys((each.file_name, each.dset_name) for each in dataset.virtual_sources())
    _forget_properties(dataset)
    own = (os.path.realpath(dataset.file.filename), h5py.h5o.get_info(dataset.id).addr)
    if own in above:
        raise InputError(
            f"{_where(dataset)} is read from itself; write it again with the datasets that hold its values"
        )
    for source in sources:
        # The library counts numbered sources, and the last one that it finds ends the dataset.
        is_numbered = any("%b" in name.replace("%%", "") for name in source)
        for number in count():
            parts = [name.split("%%") for name in source]
            file_name, inner = ("%".join(part.replace("%b", str(number)) for part in each) for each in parts)
            problem = _missing_source(dataset.file, file_name, inner, (*above, own))
            if problem and not (is_numbered and number):
                raise _missing(dataset, problem)
            if problem or not is_numbered:
                break


def _forget_properties(dataset: h5py.Dataset) -> None:
    """Drop the property list that h5py caches for a dataset.

    HDF5 2.0 crashes at exit if the list of a virtual dataset is still there, as where an exception keeps it.
    """
    vars(dataset).pop("_dcpl", None)


def _check_filters(dataset: h5py.Dataset) -> None:
    properties = dataset.id.get_create_plist()
    for number in range(properties.get_nfilters()):
        code, _, _, name = properties.get_filter(number)
        if not h5py.h5z.filter_avail(code):
            # Its import registers its filters.
            with suppress(ImportError, OSError):
                import_module("hdf5plugin")
        if not h5py.h5z.filter_avail(code):
            called = re.split("[;:]", name.decode("utf-8", "replace"))[0].strip()
            raise UnreadableError(
                f"{_where(dataset)} is compressed by the filter {code} of HDF5 ({called or 'without a name'}), which is not "
                "installed",
                remedy="run pip install hdf5plugin, or write it again with gzip",
            )


def _missing_source(main: h5py.File, file_name: str, inner: str, above: tuple[tuple[str, int], ...]) -> str:
    """Return what is missing of a virtual source, in words; empty if nothing is."""
    # A point stands for the file itself.
    source_path = None
    if file_name != ".":
        folders = (os.path.dirname(path) for path in (main.filename, os.path.realpath(main.filename)))
        source_path = _other_file(file_name, "HDF5_VDS_PREFIX", *folders)
        if source_path is None:
            return file_name
    with nullcontext(main) if source_path is None else h5py.File(source_path, "r") as file:
        source = item_at(file, inner)
        if not isinstance(source, h5py.Dataset):
            return f"'{inner.strip('/')}' in {file_name}"
        check_readable(source, above)
    return ""


def written_along(dataset: h5py.Dataset, axis: int) -> NDArray[np.bool_]:
    """Return the entries along an axis of a dataset of chunks of which all chunks are stored.

    A recording that stopped before its dataset was full has never written the last chunks.
    """
    n_chunks, chunk = grid_of(dataset.shape, dataset.chunks), dataset.chunks[axis]
    if dataset.id.get_num_chunks() >= math.prod(n_chunks):
        return np.ones(dataset.shape[axis], bool)
    first: list[int] = []
    dataset.id.chunk_iter(lambda stored: first.append(stored.chunk_offset[axis]))
    counts = np.bincount(np.array(first, np.intp) // chunk, minlength=n_chunks[axis])
    is_whole = counts == math.prod(n_chunks) // n_chunks[axis]
    return np.repeat(is_whole, chunk)[: dataset.shape[axis]]


_MOST_LINKS = 16
"""Most links on the way to an item. The library follows as many."""


def check_links(group: h5py.Group, name: str, n_links: int = 0) -> None:
    """Check the external links on the way to an item. On a pipe the library would wait forever.

    Parameters
    ----------
    group : h5py.Group
        The group, or the file, in which the way begins.
    name : str
        The way to the item.
    n_links : int
        Links that were followed before; 0 by default.

    Raises
    ------
    InputError
        If the file of such a link is missing, cannot be opened, or is a pipe, a socket or a device.
    """
    item: Item | None = group.file["/"] if name.startswith("/") else group
    for part in filter(None, name.split("/")):
        if not isinstance(item, h5py.Group) or n_links > _MOST_LINKS:
            return
        link = item.get(part, getlink=True)
        if isinstance(link, h5py.SoftLink):
            check_links(item, link.path, n_links + 1)
        elif isinstance(link, h5py.ExternalLink):
            main = group.file.filename
            path = _other_file(link.filename, "HDF5_EXT_PREFIX", os.path.dirname(main), ".")
            try:
                with h5py.File(path or link.filename, "r") as file:
                    check_links(file, link.path, n_links + 1)
            except OSError as error:
                raise InputError(
                    f"'{name}' in {main} is a link to '{link.path}' in {link.filename}, which cannot be opened; put that "
                    "file next to it"
                ) from error
        try:
            item = item.get(part)
        except UNREADABLE:
            return


def _other_file(name: str, prefix: str, *folders: str) -> Path | None:
    """Return the path at which the library finds another file; None if it finds none.

    Raises
    ------
    InputError
        If it is a pipe, a socket or a device.
    """
    names = [name, os.path.basename(name)] if os.path.isabs(name) else [name]
    folders = (*os.environ.get(prefix, "").split(":"), *folders)
    candidates = (Path(folder, name) for name in names for folder in folders)
    found = next((path for path in candidates if path.exists() and not path.is_dir()), None)
    if found is not None:
        check_kind(found)
    return found


def _where(dataset: h5py.Dataset) -> str:
    return f"'{(dataset.name or '').strip('/')}' in {dataset.file.filename}"


def _missing(dataset: h5py.Dataset, problem: str) -> InputError:
    return InputError(f"{_where(dataset)} is read from {problem}, which is missing; put it back")


def stored_array(dataset: h5py.Dataset) -> StoredArray:
    """Return a dataset as an array of unpacked numbers; a compound of two equal numbers becomes a complex number."""
    array = StoredArray(
        dataset.shape or (),
        np.dtype(dataset.dtype),
        lambda index: np.asarray(dataset[index]),
        chunks=dataset.chunks,
        fill=lambda index, out: dataset.read_direct(out, index),
        written=partial(written_along, dataset) if dataset.chunks is not None else None,
        check=partial(check_stored, dataset),
    )
    array = unpacked(with_pairs(array, (dataset.name or "").strip("/")), _packing(dataset))
    _forget_properties(dataset)
    return array


def _packing(dataset: h5py.Dataset) -> dict[str, object]:
    """Return the packing of a dataset for :func:`usdenoise.files.stored.unpacked`: its attributes and its own fill value."""
    packing: dict[str, Any] = {}
    try:
        if dataset.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED:
            # The library returns it for chunks that were never written.
            packing[OWN_FILL] = np.asarray(dataset.fillvalue)
        for name in PACKING:
            # Values of variable length are not numbers.
            if name in dataset.attrs and not dataset.attrs.get_id(name).dtype.hasobject:
                packing[name] = np.asarray(dataset.attrs[name])
    except UNREADABLE:
        return {}
    return packing
