"""Stacks as xarray.DataArray, in and out. This is the only file that imports xarray, when one of its functions is called."""

import sys
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.coordinates import Coordinate
from usdenoise.stack.labels import Label
from usdenoise.stack.lazy_arrays import is_dask_array
from usdenoise.stack.metadata import Metadata, interpret, labelled_metadata, with_options
from usdenoise.stack.voxel_grid import DIMENSIONS, grid_attributes, grid_labels, with_slice

_NO_VALUE = np.float32(0)


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


def describe_data_array(data: Any, axes: str | None = None) -> Metadata:
    """Return the axes and scales that a DataArray has, each with its source.

    Parameters
    ----------
    data : xarray.DataArray
        The stack. Dimensions and coordinates are understood as in Zarr groups: those of ConfUSIus, or depth, lateral,
        elevation and time, or z, x and t.
    axes : str, optional
        One letter for each axis, in the order of `data`; by default from the names of its dimensions.

    Raises
    ------
    InputError
        If the dimensions do not say which one is depth, and `axes` is not given.
    OptionError
        If the names of the dimensions are not known, and `axes` is not given.
    """
    dimensions = tuple(str(name) for name in data.dims)
    labels = {
        str(name): Label(tuple(map(str, item.dims)), _numbers(item), dict(item.attrs))
        for name, item in data.coords.items()
        if item.ndim < 2
    }
    attributes = {**_grid_of(data), **{str(key): value for key, value in data.attrs.items()}}
    found = {name: (value, f"attribute {name}") for name, value in attributes.items()}
    n_axes = data.ndim - len(_dropped(data.shape))
    found |= labelled_metadata(dimensions, data.shape, n_axes, labels, found)
    values, sources, others = interpret(found)
    if axes is None and "axes" not in values:
        raise OptionError(
            f"the dimensions {', '.join(dimensions)} do not say what the axes are; give axes, for example axes='tzx', or "
            "call them time, z, x and y"
        )
    given = None if axes is None else "".join(axes[axis] for axis in _kept(data.shape, len(axes)))
    return with_options(
        values, sources, others, axes=given, guessed_axes="", frame_rate_hz=None, spacing_mm=None
    )


def from_data_array(data: Any, axes: str | None = None) -> Acquisition:
    """Return an xarray.DataArray as an acquisition, with its frame rate, pixel pitches and positions.

    Parameters
    ----------
    data, axes
        As for :func:`describe_data_array`. Values on disk are read.

    Raises
    ------
    InputError, OptionError
        As for :func:`describe_data_array`, and if the array cannot be a stack.

    Examples
    --------
    >>> import numpy as np, xarray
    >>> time = ("time", np.arange(30) / 500, {"units": "s"})
    >>> data = xarray.DataArray(np.zeros((30, 20, 10)), dims=("time", "z", "x"), coords={"time": time})
    >>> stack = from_data_array(data)
    >>> stack.axes, stack.frame_rate_hz
    ('tzx', 500.0)
    """
    about = describe_data_array(data, axes)
    values = about.values
    iq = data.data if is_dask_array(data.data) else np.asarray(data.values)
    return Acquisition(
        iq.reshape([iq.shape[axis] for axis in _kept(iq.shape, iq.ndim)]),
        values["axes"],
        frame_rate_hz=values.get("frame_rate_hz"),
        spacing_mm=values.get("spacing_mm", {}),
        center_frequency_hz=values.get("center_frequency_hz"),
        sound_speed_m_s=values.get("sound_speed_m_s"),
        name=str(data.name) if data.name is not None else "iq",
        attributes=about.attributes,
        coordinates=about.coordinates,
        # The labels alone: the values of the input may be released.
        labels=data.copy(data=np.broadcast_to(_NO_VALUE, data.shape)),
    )


def to_data_array(
    values: NDArray[Any], stack: Acquisition, letters: str, name: str, attributes: Mapping[str, Any]
) -> Any:
    """Return an array with the labels of a stack as an xarray.DataArray.

    If the stack came from a DataArray, the dimensions and coordinates are those of the input. Otherwise they are those
    of ConfUSIus 0.8: time, k (elevation), j (depth) and i (lateral), with the positions z, y and x in mm.

    Parameters
    ----------
    values : array
        The values.
    stack : Acquisition
        Stack with the axes and scales of the array.
    letters : str
        Axis letters of the array: those of the stack, or its spatial ones.
    name : str
        Name of the array.
    attributes : mapping
        Attributes of the array.
    """
    labels = stack.labels if letters in (stack.axes, stack.spatial_axes) else None
    if labels is not None and labels.size == stack.iq.size:
        if letters == stack.spatial_axes:
            kept = _kept(labels.shape, labels.ndim)
            labels = labels.isel({labels.dims[kept[stack.axes.index("t")]]: 0}, drop=True)
        made = labels.copy(data=values.reshape(labels.shape))
        made.name, made.attrs = name, dict(attributes)
        return made
    grid = with_slice(letters)
    if grid != letters:
        values = np.expand_dims(values, grid.index("y"))
    coordinates = {
        key: (label.dimensions, label.values, dict(label.attributes))
        for key, label in grid_labels(stack, grid).items()
    }
    place = grid_attributes(stack) if grid != "t" else {}
    return import_xarray().DataArray(
        values,
        dims=[DIMENSIONS[letter] for letter in grid],
        coords=coordinates,
        name=name,
        attrs={**attributes, **place},
    )


def stack_to_data_array(stack: Acquisition) -> Any:
    """Return an acquisition as an xarray.DataArray with its scales as attributes; see :func:`to_data_array`."""
    scales = {
        "compound_sampling_frequency": stack.frame_rate_hz,
        "transmit_frequency": stack.center_frequency_hz,
        "beamforming_sound_velocity": stack.sound_speed_m_s,
    }
    known = {name: value for name, value in scales.items() if value is not None}
    own = stack.attributes if stack.labels is None else stack.labels.attrs
    return to_data_array(stack.iq, stack, stack.axes, stack.name, {**own, **known})


def series_to_dataset(
    images: Mapping[str, tuple[NDArray[Any], Mapping[str, Any]]],
    stack: Acquisition,
    times: Coordinate,
    unit: str,
) -> Any:
    """Return images at several times as an xarray.Dataset, with the dimensions and positions of ConfUSIus 0.8.

    Parameters
    ----------
    images : mapping
        Name -> values, times first and then the spatial axes of `stack`, and attributes.
    stack : Acquisition
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
    about = {"units": unit, "long_name": "Time", **times.attributes}
    variables = {}
    for name, (values, attributes) in images.items():
        shown = values if grid == stack.spatial_axes else np.expand_dims(values, 1 + grid.index("y"))
        dimensions = ("time", *(DIMENSIONS[letter] for letter in grid))
        variables[name] = (dimensions, shown, {**attributes, **grid_attributes(stack)})
    return import_xarray().Dataset(variables, coords={"time": ("time", times.values, about), **coordinates})


def _numbers(item: Any) -> NDArray[Any] | None:
    return np.asarray(item.values) if item.dtype.kind in "fiu" else None


def _grid_of(data: Any) -> dict[str, Any]:
    """Return the place of the voxels that the index of ConfUSIus holds, as the attributes of its files."""
    index = data.xindexes.get("y")
    matrix = getattr(index, "voxel_to_world", None)
    if matrix is None:
        return {}
    return {"voxel_to_world": np.asarray(matrix), "voxel_to_world_units": str(getattr(index, "units", "mm"))}


def _dropped(shape: tuple[int, ...]) -> list[int]:
    """Return the axes that a stack loses: the first ones of length 1, until three axes are left."""
    single = [axis for axis, n in enumerate(shape) if n == 1]
    return single[: max(0, len(shape) - 3)]


def _kept(shape: tuple[int, ...], n_letters: int) -> list[int]:
    """Return the axes of an array that its stack keeps; all, if the user names fewer than the array has."""
    if n_letters != len(shape):
        return list(range(n_letters))
    return [axis for axis in range(len(shape)) if axis not in _dropped(shape)]
