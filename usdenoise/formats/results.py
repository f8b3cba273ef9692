"""Writing a filtered stack, with its power Doppler and where it came from, and writing phantoms."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.acquisition import Acquisition
from usdenoise.formats import matlab_writing
from usdenoise.formats.layout import SLAB_BYTES, storage_dtype


def write_stack(path: Path, stack: Acquisition, results: Mapping[str, NDArray[Any]], provenance: str) -> None:
    """Write a stack under its own name and axis order, with results beside it.

    Parameters
    ----------
    path : Path
        Written as HDF5.
    stack : Acquisition
        The filtered stack; it is stored in the precision of the input file.
    results : mapping
        Arrays that are stored under their names: power_doppler, singular_values, …
    provenance : str
        JSON text on what made this file.
    """
    with create_file(path) as file:
        dataset = file.create_dataset(stack.name, shape=stack.iq.shape, dtype=_output_dtype(stack))
        _write_slabs(dataset, stack.iq)
        describe_stack(dataset, stack)
        for name, values in results.items():
            dense = values.dtype.kind == "f" or values.ndim < 2
            file.create_dataset(
                name, data=values, **({} if dense else {"compression": "gzip", "shuffle": True})
            )
        file.attrs["usdenoise_provenance"] = provenance


def write_matlab(
    path: Path, stack: Acquisition, results: Mapping[str, NDArray[Any]], provenance: str
) -> None:
    """As :func:`write_stack`, to a file that MATLAB's load opens."""
    name = stack.name.rsplit("/", 1)[-1]
    values = stack.iq.astype(_output_dtype(stack), copy=False)
    scales = {key: np.atleast_1d(value) for key, value in _scales(stack).items()}
    matlab_writing.write(
        path,
        {name: values, **results, "axes": stack.axes, **scales, "usdenoise_provenance": provenance},
    )


@contextmanager
def create_file(path: Path) -> Iterator[h5py.File]:
    """Create an HDF5 file.

    The library writes through a file object of Python's: when the disk is full that raises an OSError,
    where the library's own driver fails on closing, and again when the process ends.
    """
    with path.open("w+b") as raw, h5py.File(raw, "w") as file:
        yield file


def write_phantom(
    path: Path,
    blocks: Iterable[Mapping[str, NDArray[Any]]],
    n_frames: int,
    truth: Mapping[str, NDArray[Any]],
    attributes: Mapping[str, Any],
    provenance: str,
) -> None:
    """Write a simulated stack block by block, time first, with its truth in the group truth.

    Parameters
    ----------
    path : Path
        Written as HDF5.
    blocks : iterable of mappings
        Consecutive frames: "iq", and any terms of it, which go to truth/. Each (n, n_z, n_x[, n_y]).
    n_frames : int
        Number of frames in all.
    truth : mapping
        Arrays of the spatial shape. They may be filled while the blocks are made.
    attributes : mapping
        Attributes of the stack.
    provenance : str
        JSON text on what made this file.
    """
    with create_file(path) as file:
        start = 0
        for block in blocks:
            for name, values in block.items():
                place = name if name == "iq" else f"truth/{name}"
                if place not in file:
                    file.create_dataset(place, shape=(n_frames, *values.shape[1:]), dtype=values.dtype)
                file[place][start : start + len(values)] = values
            start += len(block["iq"])
        for name, values in truth.items():
            file.create_dataset(f"truth/{name}", data=values)
        file["iq"].attrs.update(attributes)
        file.attrs["usdenoise_provenance"] = provenance


def describe_stack(dataset: h5py.Dataset, stack: Acquisition) -> None:
    """Attach the axes, scales and other attributes of a stack to its dataset."""
    for name, value in stack.attributes.items():
        if isinstance(value, str | bytes | int | float | np.generic | np.ndarray):
            dataset.attrs[name] = value
    dataset.attrs["axes"] = stack.axes
    for name, value in _scales(stack).items():
        dataset.attrs[name] = value


def _scales(stack: Acquisition) -> dict[str, Any]:
    names = ("frame_rate_hz", "center_frequency_hz", "sound_speed_m_s")
    scales = {name: getattr(stack, name) for name in names if getattr(stack, name) is not None}
    if all(letter in stack.spacing_mm for letter in stack.spatial_axes):
        scales["spacing_mm"] = [stack.spacing_mm[letter] for letter in stack.spatial_axes]
    return scales


def _output_dtype(stack: Acquisition) -> np.dtype[Any]:
    return stack.iq.dtype if stack.stored_dtype is None else storage_dtype(stack.stored_dtype)


def _write_slabs(dataset: h5py.Dataset, values: NDArray[Any]) -> None:
    rows = max(1, SLAB_BYTES // max(1, values[0].nbytes))
    for start in range(0, len(values), rows):
        dataset[start : start + rows] = np.ascontiguousarray(values[start : start + rows])
