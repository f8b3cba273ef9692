"""Writing of results as a Zarr group that ConfUSIus and xarray open."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from usdenoise.formats.layout import SLAB_BYTES, chunk_shape
from usdenoise.formats.zarr.zarr_reading import import_zarr
from usdenoise.stack.acquisition import Acquisition

# ConfUSIus calls the slice axis z and the depth axis y.
_DIMENSIONS = {"t": "time", "z": "y", "x": "x", "y": "z"}
_LONG_NAMES = {"t": "Time", "z": "Depth", "x": "Lateral", "y": "Elevation"}
_PROVENANCE = "usdenoise_provenance"


class _Content(Protocol):
    @property
    def arrays(self) -> Mapping[str, Any]: ...
    @property
    def attributes(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def provenance(self) -> str: ...
    @property
    def with_stack(self) -> bool: ...
    @property
    def compression(self) -> str: ...


def write_zarr(
    path: Path, stack: Acquisition, dtype: np.dtype[Any], described: Mapping[str, Any], content: _Content
) -> None:
    """Write a stack and results as a Zarr group, with coordinates for the axes whose scale is known.

    Parameters
    ----------
    path : Path
        Folder of the group, which is created.
    stack : Acquisition
        The filtered stack.
    dtype : numpy.dtype
        Type in which the stack is stored.
    described : mapping
        Attributes of the stack.
    content : ResultFile
        Images, factors and provenance for the same group, and whether the stack itself is stored.
    """
    zarr = import_zarr(path)
    codec = {"compressors": zarr.codecs.GzipCodec(level=4) if content.compression == "gzip" else None}
    root = zarr.open_group(str(path), mode="w")
    # Zarr leaves out chunks of zeros unless it is set otherwise, and our reader refuses missing chunks.
    whole = {"write_empty_chunks": True}
    if content.with_stack:
        array = root.create_array(
            stack.name,
            shape=stack.iq.shape,
            dtype=dtype,
            chunks=chunk_shape(stack.iq.shape, stack.axes, dtype.itemsize),
            dimension_names=[_DIMENSIONS[letter] for letter in stack.axes],
            config=whole,
            **codec,
        )
        rows = -(-max(1, SLAB_BYTES // max(1, stack.iq[0].nbytes)) // array.chunks[0]) * array.chunks[0]
        for start in range(0, len(stack.iq), rows):
            array[start : start + rows] = stack.iq[start : start + rows].astype(dtype, copy=False)
        array.attrs.update({name: _json(value) for name, value in described.items()})
        _write_coordinates(root, stack)
    else:
        root.attrs.update({name: _json(value) for name, value in described.items()})
    for name, values in content.arrays.items():
        data = np.asarray(values)
        small = root.create_array(
            name, shape=data.shape, dtype=data.dtype, chunks=data.shape or (), config=whole, **codec
        )
        small[...] = data
        small.attrs.update({key: _json(value) for key, value in content.attributes.get(name, {}).items()})
    for name, attributes in content.attributes.items():
        if name not in content.arrays:
            root[name].attrs.update({key: _json(value) for key, value in {**described, **attributes}.items()})
    root.attrs[_PROVENANCE] = content.provenance


def is_our_group(folder: Path) -> bool:
    """Return whether a folder is a Zarr group that :func:`write_zarr` finished, in version 2 or 3 of the format."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if (folder / "zarr.json").is_file():
            return _PROVENANCE in json.loads((folder / "zarr.json").read_bytes())["attributes"]
        return _PROVENANCE in json.loads((folder / ".zattrs").read_bytes())
    return False


def _write_coordinates(root: Any, stack: Acquisition) -> None:
    group = stack.name.rpartition("/")[0]
    steps = {letter: (pitch, "mm") for letter, pitch in stack.spacing_mm.items()}
    if stack.frame_rate_hz:
        steps["t"] = (1 / stack.frame_rate_hz, "s")
    for letter, n in zip(stack.axes, stack.iq.shape, strict=True):
        if letter in steps:
            step, unit = steps[letter]
            dimension = _DIMENSIONS[letter]
            array = root.create_array(
                f"{group}/{dimension}".lstrip("/"), data=np.arange(n) * step, dimension_names=[dimension]
            )
            array.attrs.update({"units": unit, "long_name": _LONG_NAMES[letter]})


def _json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value
