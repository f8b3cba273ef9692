"""Zarr groups, as ConfUSIus and xarray write them. The package zarr is imported when a group is read or written."""

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError, UnreadableError
from usdenoise.files.contents import Contents, describe_array, known_first, stacks_of
from usdenoise.files.input_files import is_zarr
from usdenoise.files.stored import OWN_FILL, PACKING, StoredArray, grid_of, unpacked
from usdenoise.options import ReadOptions
from usdenoise.stack.labels import VOXELS, WORLD, Found, Label, labelled_metadata
from usdenoise.system.text import PROVENANCE

if TYPE_CHECKING:
    from types import ModuleType

    import zarr

    ZarrArray = zarr.Array[Any]
    Members = Mapping[str, ZarrArray]

_MOST_CHUNKS = 1 << 15
"""Most chunks of a coordinate: reading a few million, of one value each, takes minutes."""

_NO_OUTPUT = logging.NullHandler()

DAMAGED = "is damaged: it cannot be read as a Zarr group; copy or write it again"


def read_zarr(path: Path, read_options: ReadOptions) -> Contents | None:
    """Open a Zarr group or a single Zarr array and list its contents; return None for another folder, or a file.

    Parameters
    ----------
    path : Path
        Folder of the group.
    read_options : ReadOptions
        Reading options.

    Raises
    ------
    InputError
        If the group is damaged; an UnreadableError if the package zarr is not installed.
    """
    if not is_zarr(path):
        return None
    zarr = import_zarr(path)
    try:
        root = zarr.open(str(path), mode="r")
        group = None if isinstance(root, zarr.Array) else root
        members = {"iq": root} if group is None else dict(_arrays(group, path))
    except Exception as error:
        # Of zarr or of numcodecs
        if type(error).__name__ != "UnknownCodecError":
            raise
        raise UnreadableError(
            f"{path} is compressed by a codec that is not installed ({error})",
            remedy="install the package that has it, or write the group again with Zstd or Blosc",
        ) from error
    arrays = {name: _stored(path, item) for name, item in members.items()}
    every = {name: describe_array(array) for name, array in arrays.items()}

    metadata = partial(_nearby, group, members, arrays)
    return Contents("Zarr", stacks_of(arrays, read_options.n_axes, metadata), every, arrays)


def _arrays(group: "zarr.Group", folder: Path) -> "Iterator[tuple[str, ZarrArray]]":
    """Yield the names and the arrays of a group and its subgroups, each group once, whatever links lead to it."""
    visited = set[str]()
    waiting: list[tuple[str, Any]] = [("", group)]
    for place, owner in waiting:
        own = os.path.realpath(folder / place)
        for name, item in owner.members() if own not in visited else ():
            if isinstance(item, type(group)):
                waiting.append((f"{place}{name}/", item))
            else:
                yield place + name, item
        visited.add(own)


def import_zarr(path: Path | None = None) -> "ModuleType":
    """Import the package zarr, silently.

    Parameters
    ----------
    path : Path, optional
        Folder of the Zarr group that is read, for the message; by default one is written.

    Raises
    ------
    UnreadableError
        If the package is not installed, and a group is read.
    OptionError
        If it is not installed, and a group is written.
    """
    try:
        import zarr
    except ModuleNotFoundError as error:
        if path is None:
            raise OptionError(
                "Zarr requires the package zarr", remedy="run pip install zarr, or choose another format"
            ) from error
        raise UnreadableError(
            f"{path} is a Zarr group, and the package zarr is not installed; run pip install zarr"
        ) from error
    # Zarr opens the members of a group at the same time, and asyncio logs a traceback of each damaged one but the first.
    logging.getLogger("asyncio").addHandler(_NO_OUTPUT)
    return zarr


def _stored(path: Path, array: "ZarrArray") -> StoredArray:
    stored = StoredArray(
        array.shape,
        np.dtype(array.dtype),
        lambda index: np.asarray(array[index]),
        chunks=array.shards or array.chunks,
        written=partial(_written, path, array),
        check=partial(_check_stored, path, array),
    )
    packing = {name: array.attrs[name] for name in PACKING if name in array.attrs}
    return unpacked(stored, {OWN_FILL: array.fill_value, **packing})


def _chunk_numbers(path: Path, array: "ZarrArray") -> NDArray[np.intp]:
    """Return the number along each axis of every chunk that has a file."""
    folder, numbers = path / array.path, []
    # The files are listed, because the header may claim millions of chunks.
    for file in folder.rglob("*"):
        # Such as 0.1.2, or with the prefix and separator of version 3 c/0/1/2 or c.0.1.2
        name = re.sub("^c[/.]", "", file.relative_to(folder).as_posix())
        parts = re.split("[/.]", name)
        if len(parts) == len(array.shape) and all(part.isdecimal() for part in parts) and file.is_file():
            numbers.append([int(part) for part in parts])
    n_chunks = grid_of(array.shape, array.shards or array.chunks)
    every = np.array(numbers, np.intp).reshape(-1, len(n_chunks))
    return every[(every < n_chunks).all(axis=1)]


def _written(path: Path, array: "ZarrArray", axis: int) -> NDArray[np.bool_]:
    """Return the entries along an axis of an array that have all chunks which any entry along the axis has.

    Zarr does not write chunks of the fill value: those that no frame has are empty, such as the corners of a sector image.
    """
    numbers, n, chunk = _chunk_numbers(path, array), array.shape[axis], (array.shards or array.chunks)[axis]
    n_across = len(np.unique(np.delete(numbers, axis, axis=1), axis=0))
    along, counts = np.unique(numbers[:, axis], return_counts=True)
    is_whole = np.zeros(-(-n // chunk), bool)
    is_whole[along[counts == n_across]] = True
    return np.repeat(is_whole, chunk)[:n]


def _check_stored(path: Path, array: "ZarrArray") -> None:
    # Zarr fills missing chunks with a constant and gives no warning.
    if not len(_chunk_numbers(path, array)):
        raise InputError(
            f"all chunks of '{array.path or 'iq'}' in {path} are missing; copy it again, or write it again"
        )


def _dimensions(array: "ZarrArray") -> tuple[str, ...] | None:
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    if not isinstance(names, list | tuple) or len(names) != len(array.shape):
        return None
    return tuple(map(str, names)) if all(isinstance(name, str) for name in names) else None


def _nearby(
    root: "zarr.Group | None", members: "Members", arrays: Mapping[str, StoredArray], name: str, n_axes: int
) -> Found:
    """Return the metadata of an array, which will be a stack of `n_axes` axes; `root` is its group, if it is in one."""
    group, array = name.rpartition("/")[0], members[name]
    entries = {
        key: (value, f"attribute {key} of {name}")
        for key, value in _attributes(array).items()
        # Attributes with an underscore are from xarray, and describe how the values are stored.
        if not key.startswith("_") and key not in PACKING
    }
    if root is not None:
        for owner in (root[group], root) if group else (root,):
            for key, value in _attributes(owner).items():
                entries.setdefault(key, (value, f"attribute {key} of the group"))
    dimensions = _dimensions(array)
    if dimensions is None:
        return entries
    labels = _labels(members, arrays, group, dimensions)
    return {**entries, **labelled_metadata(dimensions, array.shape, n_axes, labels, entries)}


def _labels(
    members: "Members", arrays: Mapping[str, StoredArray], group: str, dimensions: tuple[str, ...]
) -> dict[str, Label]:
    """Return the coordinates next to an array: for its dimensions, and for a voxel grid in the world."""
    labels = {}
    for name in {*dimensions, *VOXELS, *WORLD}:
        full_name = f"{group}/{name}".lstrip("/")
        item = members.get(full_name)
        if item is not None and len(item.shape) < 2:
            is_read = item.dtype.kind in "fiu" and item.nchunks <= _MOST_CHUNKS
            values = arrays[full_name].everything() if is_read else None
            labels[name] = Label(_dimensions(item) or (), values, dict(item.attrs))
    return labels


def _attributes(owner: "ZarrArray | zarr.Group") -> dict[str, object]:
    """Return the attributes of an array or group, with lists as arrays, but those of lists of several lengths."""
    stored = owner.attrs.asdict()
    attributes: dict[str, object] = {name: stored[name] for name in known_first(stored)}
    for key, value in attributes.items():
        if isinstance(value, list):
            with suppress(ValueError):
                attributes[key] = np.asarray(value)
    return attributes


def is_our_group(folder: Path) -> bool:
    """Return whether a folder is a Zarr group that :mod:`usdenoise.files.results` finished, in version 2 or 3 of Zarr."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if (folder / "zarr.json").is_file():
            return PROVENANCE in json.loads((folder / "zarr.json").read_bytes())["attributes"]
        return PROVENANCE in json.loads((folder / ".zattrs").read_bytes())
    return False
