"""Zarr groups, as ConfUSIus and xarray write and open them. The package zarr is imported when one is read or written."""

import json
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, UnreadableError
from usdenoise.files.contents import Contents, Found, Stack, arranged, describe_array, stacks_of
from usdenoise.files.known_formats import is_zarr
from usdenoise.files.layout import SLAB_BYTES, chunk_shape, slab_shape, slabs
from usdenoise.files.result_content import ResultFile, dimensions_of, stored_attributes, stored_values
from usdenoise.files.stored import Index, StoredArray
from usdenoise.options.job_options import ReadOptions
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.arrays import NamedArray
from usdenoise.stack.data_arrays import DIMENSIONS, confusius_scales, grid_attributes, grid_labels, with_slice
from usdenoise.stack.geometry import GriddedStack
from usdenoise.stack.labels import VOXELS, WORLD, Label, labelled_metadata
from usdenoise.system.provenance import PROVENANCE

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

    return Contents("Zarr", stacks_of(arrays, stack), every)


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


def write_zarr(path: Path, content: ResultFile) -> None:
    """Write a stack and results as a Zarr group in the layout of ConfUSIus 0.8.

    Every image is a grid of voxels, with an axis of length 1 for the elevation of a single slice. The stack comes
    first among the arrays, and the power Doppler without a stack: ConfUSIus opens the first one.

    Parameters
    ----------
    path : Path
        Folder of the group, which is created.
    content : ResultFile
        The stack, and images, factors and provenance for the same group.
    """
    zarr = import_zarr(path)
    root = zarr.open_group(str(path), mode="w")
    create = partial(
        root.create_array,
        compressors=None,
        # By default Zarr does not write chunks of zeros, and our reader refuses missing chunks.
        config={"write_empty_chunks": True},
    )
    stack = content.stack
    if isinstance(stack, Acquisition):
        _write_stack(create, content, stack)
    else:
        root.attrs.update(_json(content.stack_attributes))
    for array in content.arrays:
        _write_array(create, stack, array)
    every = {*([stack.axes] if content.with_stack else []), *(array.axes for array in content.arrays)}
    _write_coordinates(root, content, every)
    root.attrs[PROVENANCE] = content.provenance
    _consolidate(
        path, [*([stack.name] if content.with_stack else []), *(array.name for array in content.arrays)]
    )


def _write_stack(create: Callable[..., Any], content: ResultFile, stack: Acquisition) -> None:
    """Write the filtered stack slab by slab."""
    dtype = content.dtype
    values, letters = _as_grid(stack.iq, stack.axes)
    array = create(
        stack.name,
        shape=values.shape,
        dtype=dtype,
        chunks=chunk_shape(values.shape, letters, dtype.itemsize),
        dimension_names=[DIMENSIONS[letter] for letter in letters],
    )
    slab = slab_shape(values.shape, array.chunks, letters, SLAB_BYTES // dtype.itemsize)
    for index, _ in slabs([slice(0, n, 1) for n in values.shape], slab):
        array[index] = np.asarray(values[index], dtype)
    attributes = _json({**content.stack_attributes, **confusius_scales(stack)})
    array.attrs.update(attributes | _grid_attributes(stack, letters))


def _write_array(create: Callable[..., Any], stack: GriddedStack, array: NamedArray) -> None:
    """Write an image, or another array."""
    attributes, dimensions = _json(stored_attributes(array)), dimensions_of(array)
    values = stored_values(array)
    if array.axes:
        values, letters = _as_grid(values, array.axes)
        dimensions = tuple(DIMENSIONS[letter] for letter in letters)
        if letters != "t":
            attributes |= _grid_attributes(stack, letters)
    stored = create(
        array.name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=values.shape or (),
        dimension_names=dimensions,
    )
    stored[...] = values
    stored.attrs.update(attributes)


def _write_coordinates(root: Any, content: ResultFile, every: set[str]) -> None:
    """Write the coordinates of all axes of the arrays in the group, and in the group of the stack."""
    letters = with_slice("".join(letter for letter in "tyzx" if letter in "".join(every)))
    labels = grid_labels(content.stack, letters)
    for group in {"", content.stack.name.rpartition("/")[0] if content.with_stack else ""}:
        for name, label in labels.items():
            array_path = f"{group}/{name}".lstrip("/")
            if array_path in root:
                continue
            array = root.create_array(array_path, data=label.values, dimension_names=label.dimensions)
            array.attrs.update(_json(label.attributes))


def _grid_attributes(stack: GriddedStack, letters: str) -> dict[str, Any]:
    """Return the attributes of a voxel grid; by "coordinates" xarray takes the positions in the world as such."""
    labels = grid_labels(stack, letters)
    coordinates = " ".join(name for name in WORLD.values() if name in labels)
    return {**_json(grid_attributes(stack)), "coordinates": coordinates}


def is_our_group(folder: Path) -> bool:
    """Return whether a folder is a Zarr group that :func:`write_zarr` finished, in version 2 or 3 of the format."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if (folder / "zarr.json").is_file():
            return PROVENANCE in json.loads((folder / "zarr.json").read_bytes())["attributes"]
        return PROVENANCE in json.loads((folder / ".zattrs").read_bytes())
    return False


def _consolidate(path: Path, order: list[str]) -> None:
    """Copy the metadata of all arrays to the group, where xarray looks for them first.

    The function of zarr for this warns that version 3 of the format does not define it, and sorts by name.

    Parameters
    ----------
    path : Path
        Folder of the group.
    order : list of str
        Names of the arrays that come first.
    """
    file = path / "zarr.json"
    group = json.loads(file.read_bytes())
    every = sorted(
        metadata_file.parent.relative_to(path).as_posix() for metadata_file in path.rglob("zarr.json")
    )
    names = dict.fromkeys([*order, *every])
    metadata = {name: json.loads((path / name / "zarr.json").read_bytes()) for name in names if name != "."}
    group["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": metadata}
    file.write_text(json.dumps(group))


def _as_grid(values: NDArray[Any], letters: str) -> tuple[NDArray[Any], str]:
    """Return an array with an axis for the elevation, and its axis letters."""
    grid = with_slice(letters)
    return (values if grid == letters else values[(*map(slice, values.shape[: grid.index("y")]), None)]), grid


def _json(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in attributes.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value
