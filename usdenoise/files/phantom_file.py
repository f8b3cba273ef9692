"""Files of simulated acquisitions: they are written with their ground truth, which is read again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.files.hdf5_arrays import create_file, member
from usdenoise.files.hdf5_reading import open_file
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.provenance import PROVENANCE


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

    blood_power: NDArray[Any]
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
    with open_file(Path(path)) as file:
        stored = [member(file, f"truth/{name}") for name in ("blood_power", "vessel_mask")]
        if not all(isinstance(item, h5py.Dataset) for item in stored):
            return None
        truth = Truth(stored[0][()], stored[1][()].astype(bool))
    shape = acquisition.shape_in(acquisition.spatial_axes)
    if truth.blood_power.shape != shape or truth.vessel_mask.shape != shape:
        raise InputError(
            f"the truth in {path} has shape {truth.blood_power.shape} and the images {shape}; "
            "simulate the file again"
        )
    return truth


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
