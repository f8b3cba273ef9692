"""Writing of results as a Zarr group that ConfUSIus and xarray open."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.formats.layout import SLAB_BYTES, chunk_shape, slab_shape, slabs
from usdenoise.formats.result_content import ResultFile
from usdenoise.formats.zarr.zarr_reading import import_zarr
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.labels import WORLD
from usdenoise.stack.voxel_grid import DIMENSIONS, grid_attributes, grid_labels, with_slice

_PROVENANCE = "usdenoise_provenance"


def write_zarr(path: Path, content: ResultFile) -> None:
    """Write a stack and results as a Zarr group in the layout of ConfUSIus 0.8.

    Every image is a grid of voxels, with an axis of length 1 for the elevation of a single slice. The stack comes
    first among the arrays, and the power Doppler where there is no stack: ConfUSIus opens the first one.

    Parameters
    ----------
    path : Path
        Folder of the group, which is created.
    content : ResultFile
        The stack, and images, factors and provenance for the same group.
    """
    zarr = import_zarr(path)
    root = zarr.open_group(str(path), mode="w")
    writer = _Writer(zarr, root, content)
    stack, described = content.stack, content.stack_attributes
    if content.with_stack:
        writer.stack()
    else:
        root.attrs.update(_json(described))
    for name, values in content.arrays.items():
        writer.array(name, np.asarray(values))
    for name, attributes in content.attributes.items():
        if name not in content.arrays:
            root[name].attrs.update(_json({**described, **attributes}))
    writer.coordinates({*([stack.axes] if content.with_stack else []), *content.axes.values()})
    root.attrs[_PROVENANCE] = content.provenance
    _consolidate(path, [*([stack.name] if content.with_stack else []), *content.arrays])


class _Writer:
    """Writer of the arrays of one group.

    Parameters
    ----------
    zarr : module
        The package.
    root : zarr.Group
        The group, open for writing.
    content : ResultFile
        What is written.
    """

    def __init__(self, zarr: Any, root: Any, content: ResultFile) -> None:
        self._root, self._content = root, content
        packed = content.compression == "gzip"
        self._options = {
            "compressors": zarr.codecs.GzipCodec(level=4) if packed else None,
            # Zarr leaves out chunks of zeros unless it is set otherwise, and our reader refuses missing chunks.
            "config": {"write_empty_chunks": True},
        }
        self._grid = _json(grid_attributes(content.stack))

    def stack(self) -> None:
        """Write the filtered stack slab by slab."""
        stack, dtype = self._content.stack, self._content.dtype
        values, letters = _as_grid(stack.iq, stack.axes)
        array = self._root.create_array(
            stack.name,
            shape=values.shape,
            dtype=dtype,
            chunks=chunk_shape(values.shape, letters, dtype.itemsize),
            dimension_names=[DIMENSIONS[letter] for letter in letters],
            **self._options,
        )
        slab = slab_shape(values.shape, array.chunks, letters, SLAB_BYTES // dtype.itemsize)
        for index, _ in slabs([slice(0, n, 1) for n in values.shape], slab):
            array[index] = np.asarray(values[index], dtype)
        attributes = _json({**self._content.stack_attributes, **_scales(stack)})
        array.attrs.update({**attributes, **self._grid, **self._coordinate_names(letters)})

    def array(self, name: str, values: NDArray[Any]) -> None:
        """Write an image, or another array."""
        content, letters = self._content, self._content.axes.get(name)
        attributes = _json(content.described(name))
        dimensions = content.dimensions(name)
        if letters is not None:
            values, letters = _as_grid(values, letters)
            dimensions = tuple(DIMENSIONS[letter] for letter in letters)
            if letters != "t":
                attributes |= {**self._grid, **self._coordinate_names(letters)}
        made = self._root.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=values.shape or (),
            dimension_names=dimensions,
            **self._options,
        )
        made[...] = values
        made.attrs.update(attributes)

    def coordinates(self, every: set[str]) -> None:
        """Write the coordinates of all axes that arrays of the group and of that of the stack have."""
        content = self._content
        letters = with_slice("".join(letter for letter in "tyzx" if letter in "".join(every)))
        labels = grid_labels(content.stack, letters)
        for group in {"", content.stack.name.rpartition("/")[0] if content.with_stack else ""}:
            for name, label in labels.items():
                place = f"{group}/{name}".lstrip("/")
                if place in self._root:
                    continue
                array = self._root.create_array(place, data=label.values, dimension_names=label.dimensions)
                array.attrs.update(_json(label.attributes))

    def _coordinate_names(self, letters: str) -> dict[str, str]:
        """Return the attribute by which xarray takes the positions in the world as coordinates."""
        labels = grid_labels(self._content.stack, letters)
        return {"coordinates": " ".join(name for name in WORLD.values() if name in labels)}


def _scales(stack: Acquisition) -> dict[str, float]:
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
    every = sorted(place.parent.relative_to(path).as_posix() for place in path.rglob("zarr.json"))
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
