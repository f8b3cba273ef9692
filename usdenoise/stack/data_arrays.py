"""Stacks and images as xarray.DataArray. This is the only file that imports xarray, when one of its functions is called."""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from usdenoise.errors import OptionError
from usdenoise.linalg.array_library import Numbers
from usdenoise.stack.arrays import NamedArray
from usdenoise.stack.geometry import ATTRIBUTES, Coordinate, GriddedStack, dropped_axes
from usdenoise.stack.labels import VOXELS, WORLD, Label, voxel_matrix

LONG_NAMES = {"t": "Time", "z": "Depth", "x": "Lateral", "y": "Elevation"}
"""Axis letter -> name of the axis in words."""

IMAGE_NAMES = {
    "power_doppler": "Power Doppler",
    "blood_power": "Blood power",
    "noise_power": "Noise power",
    "axial_velocity": "Axial velocity",
    "unobserved": "Unobserved entries",
}
"""Name of an image -> its name in words, as xarray shows it beside a plot."""

SLICE_TIME = "slice_time"
"""Name of the times of the planes of a volume in ConfUSIus."""

DIMENSIONS = {"t": "time", **{letter: name for name, letter in VOXELS.items()}}
"""Axis letter -> dimension in ConfUSIus."""


def positions(stack: GriddedStack, letter: str) -> Coordinate:
    """Return the positions along an axis of a stack with their unit: from the input, else from the scales, else counted.

    Parameters
    ----------
    stack : Acquisition or Geometry
        The stack; for an axis that it does not have, one position is returned.
    letter : str
        Letter of the axis.
    """
    n = stack.shape_in(letter)[0] if letter in stack.axes else 1
    unit = "s" if letter == "t" else "mm"
    given = stack.coordinates.get(letter)
    if given is not None and len(given.values) == n:
        return replace(given, unit=unit)
    counted = np.arange(n, dtype=np.float64)
    if letter == "t":
        rate = stack.frame_rate_hz
        return Coordinate(counted / (rate or 1.0), unit=unit if rate else "frame")
    step = stack.spacing_mm.get(letter)
    return Coordinate(counted * (step or 1.0), unit=unit if step or letter not in stack.axes else "pixel")


def with_slice(letters: str) -> str:
    """Return axis letters with y, the axis of a single slice, before the first spatial axis if they have no y."""
    spatial = [index for index, letter in enumerate(letters) if letter != "t"]
    if "y" in letters or not spatial:
        return letters
    return letters[: spatial[0]] + "y" + letters[spatial[0] :]


def grid_attributes(stack: GriddedStack) -> dict[str, Any]:
    """Return the matrix that places the voxels of a stack in the world of ConfUSIus, and its unit, as attributes.

    It comes from the input, if that has one. Otherwise it has the pixel pitches and the positions of the first
    voxels; if a pitch is not known, it counts pixels. The thickness of a single slice is 1 if it is not known.
    """
    if (matrix := voxel_matrix(stack.attributes)) is not None:
        unit = str(stack.attributes.get("voxel_to_world_units", "mm"))
        return {"voxel_to_world": matrix, "voxel_to_world_units": unit}
    positions_by_axis = {letter: positions(stack, letter) for letter in WORLD}
    in_mm = all(axis_positions.unit == "mm" for axis_positions in positions_by_axis.values())
    matrix = np.eye(4)
    for row, letter in enumerate(WORLD if in_mm else ()):
        matrix[row, row] = positions_by_axis[letter].step or slice_thickness_mm(stack, letter) or 1.0
        matrix[row, 3] = positions_by_axis[letter].values[0]
    return {"voxel_to_world": matrix, "voxel_to_world_units": "mm" if in_mm else "pixel"}


def slice_thickness_mm(stack: GriddedStack, letter: str = "y") -> float | None:
    """Return the size of the voxels of a stack along an axis in mm, also one that it has not; None if not known."""
    if letter in stack.spacing_mm:
        return stack.spacing_mm[letter]
    coordinate = stack.coordinates.get(letter)
    size = None if coordinate is None else coordinate.attributes.get("voxdim")
    return float(size) if isinstance(size, int | float) and size > 0 else None


def grid_labels(stack: GriddedStack, letters: str) -> dict[str, Label]:
    """Return the coordinates of the dimensions of an array, and of its voxels in the world, by their names.

    Parameters
    ----------
    stack : Acquisition or Geometry
        Stack with the axes and scales of the array.
    letters : str
        Axis letters of the array, from :func:`with_slice`.
    """
    labels: dict[str, Label] = {}
    has_grid = voxel_matrix(stack.attributes) is not None
    for letter in letters:
        name, axis_positions = DIMENSIONS[letter], positions(stack, letter)
        if letter == "t":
            attributes = {
                "units": axis_positions.unit,
                "long_name": LONG_NAMES["t"],
                "volume_acquisition_reference": "start",
                "volume_acquisition_duration": axis_positions.step or 1.0,
                **{key: value for key, value in axis_positions.attributes.items() if key in ATTRIBUTES},
            }
            labels[name] = Label((name,), axis_positions.values, attributes)
            continue
        numbers = axis_positions.numbers if has_grid else None
        counted = np.arange(len(axis_positions.values), dtype=np.int64) if numbers is None else numbers
        labels[name] = Label((name,), counted, {"long_name": f"{LONG_NAMES[letter]} voxel"})
        if axis_positions.unit == "mm":
            in_mm = {"units": "mm", "long_name": LONG_NAMES[letter]}
            labels[WORLD[letter]] = Label((name,), axis_positions.values, in_mm)
    return labels


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


def is_data_array(value: object) -> TypeGuard[Any]:
    """Return whether a value is an xarray.DataArray. Nothing is imported: who has one has imported xarray."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, xarray.DataArray)


def is_dataset(value: object) -> TypeGuard[Any]:
    """Return whether a value is an xarray.Dataset. Nothing is imported."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, xarray.Dataset)


def to_data_array(
    values: Numbers, stack: GriddedStack, letters: str, name: str, attributes: Mapping[str, object]
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
            dropped = dropped_axes(labels.shape)
            kept = [name for axis, name in enumerate(labels.dims) if axis not in dropped]
            labels = labels.isel({kept[stack.axes.index("t")]: 0}, drop=True)
        data_array = labels.copy(data=values.reshape(labels.shape))
        # An index of ConfUSIus is not stored.
        grid_metadata = {} if voxel_matrix(stack.attributes) is None else _place(stack)
        data_array.name, data_array.attrs = name, {**attributes, **grid_metadata}
        return data_array
    grid = with_slice(letters)
    if grid != letters:
        values = np.expand_dims(values, grid.index("y"))
    dims = [DIMENSIONS[letter] for letter in grid]
    attrs = {**attributes, **(_place(stack) if grid != "t" else {})}
    return import_xarray().DataArray(
        values, dims=dims, coords=_coordinates(stack, grid), name=name, attrs=attrs
    )


def confusius_scales(stack: GriddedStack) -> dict[str, float]:
    """Return the known scales of a stack by the names that ConfUSIus has for them."""
    scales = {
        "compound_sampling_frequency": stack.frame_rate_hz,
        "transmit_frequency": stack.center_frequency_hz,
        "beamforming_sound_velocity": stack.sound_speed_m_s,
    }
    return {name: value for name, value in scales.items() if value is not None}


def series_to_dataset(
    images: Iterable[NamedArray],
    times: NamedArray,
    stack: GriddedStack,
    plane_times: NamedArray | None = None,
) -> Any:
    """Return images at several times as an xarray.Dataset, with the dimensions and positions of ConfUSIus 0.8.

    Parameters
    ----------
    images : iterable of NamedArray
        Images, times first and then the spatial axes of `stack`.
    times : NamedArray
        Time of each image, with its unit.
    stack : Acquisition or Geometry
        Stack with the axes and scales of the images.
    plane_times : NamedArray, optional
        Time of each plane of each volume, (time, elevation); by default they have the time of the volume.
    """
    grid = with_slice(stack.spatial_axes)
    coordinates = _coordinates(stack, grid)
    time_attributes = {"units": times.attributes["unit"], "long_name": LONG_NAMES["t"], **times.attributes}
    if plane_times is not None:
        of_planes = {"units": plane_times.attributes["unit"], **plane_times.attributes}
        coordinates[SLICE_TIME] = (("time", DIMENSIONS["y"]), plane_times.values, of_planes)
    variables = {}
    dimensions = ("time", *(DIMENSIONS[letter] for letter in grid))
    added = [axis for axis, letter in enumerate(grid, 1) if letter not in stack.spatial_axes]
    for image in images:
        words = {"units": image.attributes["unit"], "long_name": IMAGE_NAMES[image.name]}
        shown = np.expand_dims(image.values, added)
        variables[image.name] = (dimensions, shown, {**words, **_place(stack)})
    coordinates["time"] = ("time", times.values, time_attributes)
    return import_xarray().Dataset(variables, coords=coordinates)


def _coordinates(stack: GriddedStack, letters: str) -> dict[str, tuple[object, ...]]:
    """Return the coordinates of an array as xarray takes them."""
    labels = grid_labels(stack, letters)
    return {name: (label.dimensions, label.values, dict(label.attributes)) for name, label in labels.items()}


class _FlatMatrix(np.ndarray[Any, Any]):
    """A matrix of four columns as an attribute: with one dimension, as NetCDF requires, and by rows in Zarr."""

    def tolist(self) -> Any:
        return np.asarray(self).reshape(-1, 4).tolist()


def _place(stack: GriddedStack) -> dict[str, Any]:
    """Return the positions of the voxels as attributes that NetCDF takes, and that ConfUSIus finds in Zarr."""
    grid = grid_attributes(stack)
    return {**grid, "voxel_to_world": grid["voxel_to_world"].reshape(-1).view(_FlatMatrix)}
