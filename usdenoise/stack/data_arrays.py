"""Stacks and images as xarray.DataArray. This is the only file that imports xarray, when one of its functions is called."""

import math
import sys
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.stack.coordinates import Coordinate
from usdenoise.stack.geometry import GriddedStack
from usdenoise.stack.labels import voxel_matrix
from usdenoise.stack.voxel_grid import DIMENSIONS, grid_attributes, grid_labels, with_slice


def import_xarray() -> Any:
    """Import and return the package xarray.

    Raises
    ------
    OptionError
        If it is not installed.
    """
    try:
        import xarray
    except ImportError as error:
        raise OptionError("labelled arrays need the package xarray; run pip install xarray") from error
    return xarray


def is_data_array(value: Any) -> TypeGuard[Any]:
    """Return whether a value is an xarray.DataArray. Nothing is imported: who has one has imported xarray."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, xarray.DataArray)


def is_dataset(value: Any) -> TypeGuard[Any]:
    """Return whether a value is an xarray.Dataset. Nothing is imported."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, xarray.Dataset)


def to_data_array(
    values: NDArray[Any], stack: GriddedStack, letters: str, name: str, attributes: Mapping[str, Any]
) -> Any:
    """Return an array with the labels of a stack as an xarray.DataArray.

    If the stack came from a DataArray, it has the dimensions and coordinates of the input. Otherwise they follow
    ConfUSIus 0.8: time, k (elevation), j (depth) and i (lateral), with the positions z, y and x in mm.

    Parameters
    ----------
    values : array
        The values.
    stack : Acquisition or Geometry
        Stack with the axes and scales of the array.
    letters : str
        Axis letters of the array: all axes of the stack, or its spatial ones.
    name : str
        Name of the array.
    attributes : mapping
        Attributes of the array.
    """
    labels = stack.labels if letters in (stack.axes, stack.spatial_axes) else None
    if labels is not None and labels.size == math.prod(stack.shape):
        if letters == stack.spatial_axes:
            kept = kept_axes(labels.shape, labels.ndim)
            labels = labels.isel({labels.dims[kept[stack.axes.index("t")]]: 0}, drop=True)
        data_array = labels.copy(data=values.reshape(labels.shape))
        # An index of ConfUSIus is not stored.
        grid_metadata = {} if voxel_matrix(stack.attributes) is None else _place(stack)
        data_array.name, data_array.attrs = name, {**attributes, **grid_metadata}
        return data_array
    grid = with_slice(letters)
    if grid != letters:
        values = np.expand_dims(values, grid.index("y"))
    coordinates = {
        key: (label.dimensions, label.values, dict(label.attributes))
        for key, label in grid_labels(stack, grid).items()
    }
    grid_metadata = _place(stack) if grid != "t" else {}
    return import_xarray().DataArray(
        values,
        dims=[DIMENSIONS[letter] for letter in grid],
        coords=coordinates,
        name=name,
        attrs={**attributes, **grid_metadata},
    )


def stack_to_data_array(values: NDArray[Any], stack: GriddedStack) -> Any:
    """Return a stack as an xarray.DataArray with its scales as attributes; see :func:`to_data_array`."""
    scales = {
        "compound_sampling_frequency": stack.frame_rate_hz,
        "transmit_frequency": stack.center_frequency_hz,
        "beamforming_sound_velocity": stack.sound_speed_m_s,
    }
    known = {name: value for name, value in scales.items() if value is not None}
    attributes = stack.attributes if stack.labels is None else stack.labels.attrs
    return to_data_array(values, stack, stack.axes, stack.name, {**attributes, **known})


def series_to_dataset(
    images: Mapping[str, tuple[NDArray[Any], Mapping[str, Any]]],
    stack: GriddedStack,
    times: Coordinate,
    unit: str,
) -> Any:
    """Return images at several times as an xarray.Dataset, with the dimensions and positions of ConfUSIus 0.8.

    Parameters
    ----------
    images : mapping
        Name -> values, times first and then the spatial axes of `stack`, and attributes.
    stack : Acquisition or Geometry
        Stack with the axes and scales of the images.
    times : Coordinate
        Time of each image.
    unit : str
        Unit of the times.
    """
    grid = with_slice(stack.spatial_axes)
    labels = grid_labels(stack, grid)
    coordinates = {
        name: (label.dimensions, label.values, dict(label.attributes)) for name, label in labels.items()
    }
    time_attributes = {"units": unit, "long_name": "Time", **times.attributes}
    variables = {}
    for name, (values, attributes) in images.items():
        shown = values if grid == stack.spatial_axes else np.expand_dims(values, 1 + grid.index("y"))
        dimensions = ("time", *(DIMENSIONS[letter] for letter in grid))
        variables[name] = (dimensions, shown, {**attributes, **_place(stack)})
    return import_xarray().Dataset(
        variables, coords={"time": ("time", times.values, time_attributes), **coordinates}
    )


class _FlatMatrix(np.ndarray[Any, Any]):
    """A matrix of four columns as an attribute: with one dimension, as NetCDF requires, and by rows in Zarr."""

    def tolist(self) -> Any:
        return np.asarray(self).reshape(-1, 4).tolist()


def _place(stack: GriddedStack) -> dict[str, Any]:
    """Return the positions of the voxels as attributes that NetCDF takes, and that ConfUSIus finds in Zarr."""
    grid = grid_attributes(stack)
    return {**grid, "voxel_to_world": grid["voxel_to_world"].reshape(-1).view(_FlatMatrix)}


def dropped_axes(shape: tuple[int, ...]) -> list[int]:
    """Return the axes that a stack loses: the first ones of length 1, until three axes are left."""
    single = [axis for axis, n in enumerate(shape) if n == 1]
    return single[: max(0, len(shape) - 3)]


def kept_axes(shape: tuple[int, ...], n_letters: int) -> list[int]:
    """Return the axes of an array that its stack keeps; all, if the user names fewer than the array has."""
    if n_letters != len(shape):
        return list(range(n_letters))
    return [axis for axis in range(len(shape)) if axis not in dropped_axes(shape)]
