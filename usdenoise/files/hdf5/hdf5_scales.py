"""Dimension scales of HDF5: the positions along the axes of arrays, as h5netcdf, xarray and MATLAB's h5disp show them."""

from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from usdenoise.stack.geometry import GriddedStack
from usdenoise.stack.voxel_grid import LONG_NAMES, positions

SCALE_NAMES = {"t": "time", "z": "z", "x": "x", "y": "y"}
"""Axis letter -> name of its scale in the file."""


def attach_scales(
    file: h5py.File,
    stack: GriddedStack,
    axes: Mapping[str, str],
    dimensions: Mapping[str, tuple[str, ...]],
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

    def scale(name: str, n: int, letter: str | None) -> h5py.Dataset:
        if name not in scales:
            axis_positions = None if letter is None else positions(stack, letter)
            values = (
                np.arange(n)
                if axis_positions is None or len(axis_positions.values) != n
                else axis_positions.values
            )
            scales[name] = dataset = file.create_dataset(
                name if name not in file else f"{name}_axis", data=values
            )
            if axis_positions is not None and letter is not None:
                # Text of fixed length is not in a heap of the file, so it can be read again.
                dataset.attrs.update(
                    {"units": np.bytes_(axis_positions.unit), "long_name": LONG_NAMES[letter]}
                )
            dataset.make_scale(name)
        return scales[name]

    for array, letters in axes.items():
        if array not in scales:
            names: list[tuple[str, Any]] = [(SCALE_NAMES[letter], letter) for letter in letters]
            _attach(file[array], names, scale)
    for array, words in dimensions.items():
        _attach(file[array], [(word, None) for word in words], scale)


def _attach(dataset: h5py.Dataset, names: list[tuple[str, Any]], scale: Any) -> None:
    for axis, (name, letter) in enumerate(names):
        dataset.dims[axis].label = name
        dataset.dims[axis].attach_scale(scale(name, dataset.shape[axis], letter))
