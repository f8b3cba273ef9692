"""Writing of results as a Zarr group that ConfUSIus and xarray open."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.files.layout import SLAB_BYTES, chunk_shape, slab_shape, slabs
from usdenoise.files.result_content import ResultFile
from usdenoise.files.zarr.zarr_reading import import_zarr
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.geometry import GriddedStack
from usdenoise.stack.labels import WORLD
from usdenoise.stack.voxel_grid import DIMENSIONS, grid_attributes, grid_labels, with_slice

_PROVENANCE = "usdenoise_provenance"


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
    stack, described = content.stack, content.stack_attributes
    if isinstance(stack, Acquisition):
        _write_stack(create, content, stack)
    else:
        root.attrs.update(_json(described))
    for name, values in content.arrays.items():
        _write_array(create, content, name, np.asarray(values))
    for name, attributes in content.attributes.items():
        if name not in content.arrays:
            root[name].attrs.update(_json({**described, **attributes}))
    _write_coordinates(root, content, {*([stack.axes] if content.with_stack else []), *content.axes.values()})
    root.attrs[_PROVENANCE] = content.provenance
    _consolidate(path, [*([stack.name] if content.with_stack else []), *content.arrays])


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
    attributes = _json({**content.stack_attributes, **_scales(stack)})
    array.attrs.update(attributes | _grid_attributes(stack, letters))


def _write_array(create: Callable[..., Any], content: ResultFile, name: str, values: NDArray[Any]) -> None:
    """Write an image, or another array."""
    attributes, dimensions = _json(content.described(name)), content.dimensions(name)
    letters = content.axes.get(name)
    if letters is not None:
        values, letters = _as_grid(values, letters)
        dimensions = tuple(DIMENSIONS[letter] for letter in letters)
        if letters != "t":
            attributes |= _grid_attributes(content.stack, letters)
    array = create(
        name, shape=values.shape, dtype=values.dtype, chunks=values.shape or (), dimension_names=dimensions
    )
    array[...] = values
    array.attrs.update(attributes)


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


def _scales(stack: GriddedStack) -> dict[str, float]:
    """Return the scales of a stack by the names that ConfUSIus has for them."""
    scales = {
        "compound_sampling_frequency": stack.frame_rate_hz,
        "transmit_frequency": stack.center_frequency_hz,
        "beamforming_sound_velocity": stack.sound_speed_m_s,
    }
    return {name: value for name, value in scales.items() if value is not None}


def is_our_group(folder: Path) -> bool:
    """Return whether a folder is a Zarr group that :func:`write_zarr` finished, in version 2 or 3 of the format."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if (folder / "zarr.json").is_file():
            return _PROVENANCE in json.loads((folder / "zarr.json").read_bytes())["attributes"]
        return _PROVENANCE in json.loads((folder / ".zattrs").read_bytes())
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
