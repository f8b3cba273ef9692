"""HDF5 files that usdenoise writes: values chunk by chunk, dimension scales, and simulated acquisitions with their truth."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.files.contents import guard
from usdenoise.files.hdf5_arrays import SCALES_OF_AXES, member
from usdenoise.files.hdf5_reading import DAMAGED, opened
from usdenoise.linalg.array_library import Numbers
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.data_arrays import LONG_NAMES, positions
from usdenoise.stack.geometry import GriddedStack
from usdenoise.system.text import PROVENANCE


@contextmanager
def create_file(path: Path, user_block: int = 0) -> Iterator[h5py.File]:
    """Create an HDF5 file in which a full disk raises an OSError.

    The library writes through a Python file object, whose write raises an OSError when the disk is full. The
    library's own driver would fail only on closing the file, and again when the process ends. The file has no chunk
    cache for the same reason: a cache would be written on closing.

    Parameters
    ----------
    path : Path
        The file to create. An existing one is replaced.
    user_block : int, default 0
        Bytes before the HDF5 content that the library leaves to the caller: 0, or a power of two from 512 on.
    """
    try:
        with path.open("w+b") as raw, h5py.File(raw, "w", rdcc_nbytes=0, userblock_size=user_block) as file:
            yield file
    except SystemError as error:
        # Python 3.13 raises it for the second OSError, of closing the file: HDF5 calls `write` with the first one set.
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise


def write_values(dataset: h5py.Dataset, values: Numbers) -> None:
    """Write an array chunk by chunk, while a thread puts the next two into the order of the file.

    Without a chunk cache the library would write every contiguous run of an assignment by itself, some hundred bytes
    at a time; a chunk is therefore given to it whole.

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset, without filters.
    values : array
        Its values, in memory of any order. They are converted to the type of the dataset; in a dataset
        of pairs, the complex numbers become the pairs.
    """
    dtype = values.dtype if dataset.dtype.names else dataset.dtype
    chunks = dataset.chunks
    if chunks is None:
        dataset[...] = np.ascontiguousarray(values, dtype).view(dataset.dtype)
        return

    def in_order(first: tuple[int, ...]) -> Numbers:
        part = values[tuple(slice(start, start + n) for start, n in zip(first, chunks, strict=True))]
        if part.shape != chunks:
            # A chunk at the edge of the dataset is stored whole.
            part = np.pad(part, [(0, n - held) for n, held in zip(chunks, part.shape, strict=True)])
        return np.ascontiguousarray(part, dtype).view(dataset.dtype)

    # The axis that is slowest in memory comes first: values in a temporary file are read nearly in order.
    strides = getattr(values, "strides", (0,) * values.ndim)
    order = sorted(range(values.ndim), key=lambda axis: -abs(strides[axis]))
    corners = product(*(range(0, values.shape[axis], chunks[axis]) for axis in order))
    firsts = (tuple(corner[order.index(axis)] for axis in range(values.ndim)) for corner in corners)
    with ThreadPoolExecutor(1) as ahead:
        waiting: deque[tuple[tuple[int, ...], Future[Numbers]]] = deque()
        for first in firsts:
            waiting.append((first, ahead.submit(in_order, first)))
            if len(waiting) > 2:
                corner, part = waiting.popleft()
                dataset.id.write_direct_chunk(corner, part.result())
        for corner, part in waiting:
            dataset.id.write_direct_chunk(corner, part.result())


def attach_scales(
    file: h5py.File, stack: GriddedStack, axes: Mapping[str, str], dimensions: Mapping[str, tuple[str, ...]]
) -> None:
    """Give each axis of the arrays in a file a dimension scale in the root group, and its name as a label.

    The scale of an axis has the positions in mm, or the times in s. Where the scale of the stack is not known it
    counts pixels or frames.

    Parameters
    ----------
    file : h5py.File
        File open for writing, which holds the arrays.
    stack : Geometry or Acquisition
        The stack with these axes.
    axes : mapping from str to str
        Axis letters of each image, sequence or stack by its name.
    dimensions : mapping from str to tuple of str
        Names of the axes of each other array by its name.
    """
    scales: dict[str, h5py.Dataset] = {}
    if axes.get("time") == "t":
        # In a sequence the array with the times of the windows is the scale of the other arrays.
        scales["time"] = file["time"]
        scales["time"].make_scale("time")
    axes = {name: letters for name, letters in axes.items() if name not in scales}
    named = {name: [(SCALES_OF_AXES[letter], letter) for letter in letters] for name, letters in axes.items()}
    named |= {array: [(word, "") for word in words] for array, words in dimensions.items()}
    for array, names in named.items():
        for axis, (name, letter) in enumerate(names):
            along = file[array].dims[axis]
            along.label = name
            if name not in scales:
                scales[name] = _new_scale(file, name, file[array].shape[axis], stack, letter)
            along.attach_scale(scales[name])


def _new_scale(file: h5py.File, name: str, n: int, stack: GriddedStack, letter: str) -> h5py.Dataset:
    """Return a new scale of `n` entries: the positions along the axis of a letter, otherwise their numbers."""
    along = positions(stack, letter) if letter else None
    values = np.arange(n) if along is None or len(along.values) != n else along.values
    scale = file.create_dataset(name if name not in file else f"{name}_axis", data=values)
    if along is not None:
        # Text of fixed length is not in a heap of the file, so it can be read again.
        scale.attrs.update({"units": np.bytes_(along.unit), "long_name": LONG_NAMES[letter]})
    scale.make_scale(name)
    return scale


@dataclass(frozen=True)
class Truth:
    """The ground truth of a simulated acquisition, spatial axes in the order of the stack.

    Attributes
    ----------
    blood_power : float array of the spatial shape
        Mean power of the blood over frames, in the squared unit of the stack.
    vessel_mask : boolean array of the spatial shape
        True at the pixels of vessels.
    """

    blood_power: Numbers
    vessel_mask: NDArray[np.bool_]


def read_truth(path: str | Path, acquisition: Acquisition) -> Truth | None:
    """Read the ground truth from a file of ``usdenoise simulate``; return None for any other file.

    Parameters
    ----------
    path : str or Path
        File from which the acquisition was read.
    acquisition : Acquisition
        The acquisition, which gives the spatial shape.

    Raises
    ------
    InputError
        If the truth has another spatial shape than the acquisition.
    """
    if Path(path).is_dir() or not h5py.is_hdf5(path):
        return None
    with guard(Path(path), DAMAGED), opened(Path(path)) as file:
        power, mask = (member(file, f"truth/{name}") for name in ("blood_power", "vessel_mask"))
        if not isinstance(power, h5py.Dataset) or not isinstance(mask, h5py.Dataset):
            return None
        truth = Truth(power[()], mask[()].astype(bool))
    shape = acquisition.shape_in(acquisition.spatial_axes)
    if truth.blood_power.shape != shape or truth.vessel_mask.shape != shape:
        raise InputError(
            f"the truth in {path} has shape {truth.blood_power.shape} and the images {shape}; "
            "simulate the file again"
        )
    return truth


def write_phantom(
    path: Path,
    blocks: Iterable[Mapping[str, Numbers]],
    n_frames: int,
    truth: Mapping[str, Numbers],
    attributes: Mapping[str, object],
    provenance: str,
) -> None:
    """Write a simulated stack block by block, time first, with its truth in the group truth.

    Parameters
    ----------
    path : Path
        The HDF5 file to write.
    blocks : iterable of mappings
        Consecutive frames: name -> (n, n_z, n_x[, n_y]) array. "iq" is the stack; the terms that it is the sum of
        may have any other name, and are written to truth/.
    n_frames : int
        Number of frames of all blocks together.
    truth : mapping
        Name -> array of the spatial shape, written after the last block. The arrays may be filled while the blocks
        are made.
    attributes : mapping
        Attributes of the stack.
    provenance : str
        JSON text on the software and the options that made the file.
    """
    with create_file(path) as file:
        start = 0
        for block in blocks:
            for name, values in block.items():
                dataset_path = name if name == "iq" else f"truth/{name}"
                if dataset_path not in file:
                    file.create_dataset(dataset_path, shape=(n_frames, *values.shape[1:]), dtype=values.dtype)
                file[dataset_path][start : start + len(values)] = values
            start += len(block["iq"])
        for name, values in truth.items():
            file.create_dataset(f"truth/{name}", data=values)
        file["iq"].attrs.update(attributes)
        file.attrs[PROVENANCE] = provenance
