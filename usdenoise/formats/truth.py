"""The ground truth of a simulated acquisition, and masks that users draw."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.damage import guard
from usdenoise.formats.hdf5 import hdf5_reading as hdf5
from usdenoise.formats.hdf5.hdf5_items import member
from usdenoise.formats.input_files import check_kind
from usdenoise.stack.acquisition import Acquisition


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
    with hdf5.open_file(Path(path)) as file:
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


def read_mask(path: str | Path, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Read a mask from an image file (depth downwards, lateral to the right) or a .npy array.

    Parameters
    ----------
    path : str or Path
        PNG, TIFF or other image file, or .npy file. Pixels that are not 0 belong to the mask.
    shape : tuple of int
        Shape that the mask must have.

    Returns
    -------
    boolean array of shape `shape`
        True at the pixels of the mask.

    Raises
    ------
    InputError
        If the file cannot be read, or its array has another shape.
    """
    import imageio.v3 as iio

    check_kind(Path(path))
    numpy = Path(path).suffix.lower() == ".npy"
    # Libraries raise errors of many types on a damaged image.
    with guard(Path(path), "cannot be read as a mask; give an image or a .npy file of numbers"):
        image = np.load(path, allow_pickle=False) if numpy else iio.imread(path, plugin="pillow")
        if image.dtype.kind not in "biufc":
            raise TypeError(image.dtype)
    if image.ndim == len(shape) + 1 and image.shape[-1] in (2, 4):
        # The last channel is opacity, which says nothing about the mask.
        image = image[..., :-1]
    if image.ndim == len(shape) + 1:
        image = image.any(axis=-1)
    if image.shape != shape:
        raise InputError(
            f"the mask {path} has shape {image.shape} and the images {shape}; "
            "draw it over an image of that shape"
        )
    return np.asarray(image != 0)
