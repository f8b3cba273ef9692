"""Reading of Zarr groups, such as ConfUSIus writes them. The package zarr is imported when one is read."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, UnreadableError
from usdenoise.files.contents import Contents, Found, Stack, arranged, describe_array, stacks_of
from usdenoise.files.stored import Index, StoredArray
from usdenoise.options.reading_options import ReadOptions
from usdenoise.stack.labels import VOXELS, WORLD, Label, labelled_metadata

_MOST_CHUNKS = 1 << 15
"""Most chunks of a coordinate: reading a few million, of one value each, takes minutes."""

_NO_OUTPUT = logging.NullHandler()

DAMAGED = "is damaged: it cannot be read as a Zarr group; copy or write it again"


@contextmanager
def open_contents(path: Path, read_options: ReadOptions) -> Iterator[Contents]:
    """Open a Zarr group or a single Zarr array and list its contents.

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
    zarr = import_zarr(path)
    root = zarr.open(str(path), mode="r")
    if isinstance(root, zarr.Array):
        members = {"iq": root}
    else:
        members = {name: item for name, item in root.members(max_depth=8) if isinstance(item, zarr.Array)}
    arrays = {name: _stored(item) for name, item in members.items()}
    every = {name: describe_array(array) for name, array in arrays.items()}

    def check(parts: tuple[str, ...]) -> None:
        for part in parts:
            _check_stored(path, part, members[part])

    def stack(name: str, array: StoredArray, parts: tuple[str, ...], layout: str) -> Stack | None:
        first = members[parts[0]]
        names = _dimensions(first)

        def metadata(shape: tuple[int, ...]) -> Callable[[], Found]:
            return lambda: _nearby(root, parts[0], first, members, names, shape)

        arranged_stack = arranged(
            name,
            array,
            read_options.n_axes,
            layout=layout,
            check=lambda: check(parts),
            metadata=metadata(array.shape),
        )
        if arranged_stack is None:
            return None
        return replace(arranged_stack, metadata=metadata(arranged_stack.array.shape))

    yield Contents("Zarr", stacks_of(arrays, stack), every)


def import_zarr(path: Path) -> Any:
    """Import the package zarr, silently.

    Parameters
    ----------
    path : Path
        Folder of the Zarr group, for the message.

    Raises
    ------
    InputError
        If the package is not installed.
    """
    try:
        import zarr
    except ModuleNotFoundError as error:
        raise UnreadableError(
            f"{path} is a Zarr group, and the package zarr is not installed; run pip install zarr"
        ) from error
    # Zarr opens the members of a group at the same time, and asyncio logs a traceback of each damaged one but the first.
    logging.getLogger("asyncio").addHandler(_NO_OUTPUT)
    return zarr


def _stored(array: Any) -> StoredArray:
    def read(index: Index) -> NDArray[Any]:
        return np.asarray(array[index])

    chunks = tuple(array.shards or array.chunks)
    return StoredArray(tuple(array.shape), np.dtype(array.dtype), read, chunks=chunks)


def _check_stored(path: Path, name: str, array: Any) -> None:
    # Zarr fills missing chunks with a constant and gives no warning. The files are counted first, because the header
    # may claim millions of chunks.
    n_files = sum(file.is_file() for file in (path / array.path).rglob("*"))
    sides = zip(array.shape, array.shards or array.chunks, strict=True)
    n_chunks = math.prod(-(-n // chunk) for n, chunk in sides)
    missing = max(n_chunks - n_files, 0) or array.nchunks - array.nchunks_initialized
    if missing > 0:
        raise InputError(
            f"at least {missing} of {array.nchunks} chunks of '{name}' in {path} are missing; copy it again, or "
            "write it again with its empty chunks"
        )


def _dimensions(array: Any) -> tuple[str, ...] | None:
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    known = (
        names is not None and len(names) == len(array.shape) and all(isinstance(name, str) for name in names)
    )
    return tuple(names) if known else None


def _nearby(
    root: Any,
    name: str,
    array: Any,
    members: Mapping[str, Any],
    dimensions: tuple[str, ...] | None,
    shape: tuple[int, ...],
) -> Found:
    group = name.rpartition("/")[0]
    entries = {
        key: (value, f"attribute {key} of {name}")
        for key, value in _attributes(array).items()
        # Attributes with an underscore are from xarray, and describe how the values are stored.
        if not key.startswith("_")
    }
    if not isinstance(root, type(array)):
        for owner in (root[group], root) if group else (root,):
            for key, value in _attributes(owner).items():
                entries.setdefault(key, (value, f"attribute {key} of the group"))
    if dimensions is None:
        return entries
    labels = _labels(members, group, dimensions)
    return {**entries, **labelled_metadata(dimensions, array.shape, len(shape), labels, entries)}


def _labels(members: Mapping[str, Any], group: str, dimensions: tuple[str, ...]) -> dict[str, Label]:
    """Return the coordinates next to an array: for its dimensions, and for a voxel grid in the world."""
    labels = {}
    for name in {*dimensions, *VOXELS, *WORLD}:
        item = members.get(f"{group}/{name}".lstrip("/"))
        if item is not None and len(item.shape) < 2:
            is_read = item.dtype.kind in "fiu" and item.nchunks <= _MOST_CHUNKS
            values = np.asarray(item[...]) if is_read else None
            labels[name] = Label(_dimensions(item) or (), values, dict(item.attrs))
    return labels


def _attributes(owner: Any) -> dict[str, Any]:
    """Return the attributes of an array or group, with lists as arrays."""
    return {
        key: np.asarray(value) if isinstance(value, list) else value
        for key, value in dict(owner.attrs).items()
    }
