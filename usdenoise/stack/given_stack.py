"""The stack that a caller gives, as an acquisition: an array with axes, a DataArray, or one with more scales."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_dask_array

from usdenoise.errors import OptionError
from usdenoise.linalg.array_library import Numbers, on_host, to_host
from usdenoise.options import ReadOptions
from usdenoise.options.denoise_options import SCALE_NAMES, reading_options
from usdenoise.stack.acquisition import Acquisition, without_mask
from usdenoise.stack.arrays import check_not_power
from usdenoise.stack.data_arrays import is_data_array, is_dataset
from usdenoise.stack.geometry import check_axes, check_order, dropped_axes, shape_text
from usdenoise.stack.labels import Label, labelled_metadata
from usdenoise.stack.metadata import Metadata, interpret, is_known, with_options, without_implausible


def describe_data_array(data: Any, axes: str | None = None, **scales: Any) -> Metadata:
    """Return the axes and scales that a DataArray has, each with its source.

    Parameters
    ----------
    data : xarray.DataArray
        The stack. Dimensions and coordinates are understood as in Zarr groups: as in ConfUSIus, or depth, lateral,
        elevation and time, or z, x and t.
    axes : str, optional
        One letter for each axis, in the order of `data`; by default from the names of its dimensions.
    **scales
        Fields of :class:`usdenoise.options.ReadOptions` instead of the scales of the labels, such as `frame_rate_hz`.

    Raises
    ------
    InputError
        If the dimensions do not identify depth, and `axes` is not given, or if the times of the frames go back.
    OptionError
        If the names of the dimensions are not known, and `axes` is not given.
    """
    dimensions = tuple(str(name) for name in data.dims)
    labels = {str(name): _label(item) for name, item in data.coords.items() if item.ndim < 2}
    attributes = {str(key): value for key, value in data.attrs.items()}
    index = data.xindexes.get("y")
    if (matrix := getattr(index, "voxel_to_world", None)) is not None:
        # The index of ConfUSIus has the positions of the voxels that its files have as attributes.
        unit = str(getattr(index, "units", "mm"))
        attributes = {"voxel_to_world": np.asarray(matrix), "voxel_to_world_units": unit, **attributes}
    entries = {name: (value, f"attribute {name}") for name, value in attributes.items()}
    dropped = dropped_axes(data.shape)
    kept_dimensions = [name for axis, name in enumerate(dimensions) if axis not in dropped]
    entries |= labelled_metadata(dimensions, data.shape, len(kept_dimensions), labels, entries)
    metadata = interpret(entries)
    if axes is None and "axes" not in metadata.values:
        raise OptionError(
            f"the dimensions {', '.join(dimensions)} do not identify the axes; give axes, for example axes='tzx', or "
            "call them time, z, x and y"
        )
    if axes is not None and len(axes) == data.ndim:
        axes = "".join(letter for axis, letter in enumerate(axes) if axis not in dropped)
    metadata = with_options(metadata, ReadOptions(axes=axes, **scales))
    if metadata.contradiction:
        warnings.warn(metadata.contradiction, stacklevel=2)
    time = dict(zip(metadata.values["axes"], kept_dimensions, strict=False)).get("t", "")
    # The order counts whatever the unit is.
    if (times := labels.get(time)) is not None and times.values is not None:
        check_order(
            times.values,
            "sort the array by its times, or drop them with drop_vars if the frames are in order and their times wrong",
        )
    return without_implausible(metadata)


def from_data_array(data: Any, axes: str | None = None, **scales: Any) -> Acquisition:
    """Return an xarray.DataArray as an acquisition, with its frame rate, pixel pitches and positions.

    Parameters
    ----------
    data, axes, **scales
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
    metadata = describe_data_array(data, axes, **scales)
    iq = data.data if is_dask_array(data.data) else np.asarray(data.values)
    return Acquisition(
        iq.squeeze(dropped_axes(iq.shape)),
        **metadata.values,
        name=str(data.name) if data.name is not None else "iq",
        assumptions=metadata.notes,
        attributes=metadata.attributes,
        coordinates=metadata.coordinates,
        # The labels alone: the values of the input may be released.
        labels=data.copy(data=np.broadcast_to(np.float32(0), data.shape)),
    )


def array_of_dataset(value: object) -> Any:
    """Return the array of an xarray.Dataset that can be a stack, with the scales of the Dataset; other values as they are.

    It is the one array of numbers with the most dimensions; its images have fewer.

    Parameters
    ----------
    value : xarray.Dataset or anything else
        What a user gave as a stack.

    Raises
    ------
    OptionError
        If no array of a Dataset can be a stack, or several can.
    """
    if not is_dataset(value):
        return value
    possible = {name: data for name, data in value.data_vars.items() if data.dtype.kind in "fciu"}
    most = max([3, *(data.ndim for data in possible.values())])
    names = [name for name, data in possible.items() if data.ndim == most]
    if len(names) != 1:
        listed = ", ".join(map(str, names or value.data_vars)) or "nothing"
        raise OptionError(
            f"which array of the Dataset is the stack is ambiguous ({listed}); pass that array, for example "
            "dataset['iq']"
        )
    data = value[names[0]]
    scales = {key: number for key, number in value.attrs.items() if is_known(str(key))}
    return data.assign_attrs({**scales, **data.attrs})


def time_axis_of(stack: Acquisition | Numbers, axis: int | None, axes: str | None) -> tuple[Numbers, int]:
    """Return the values of a stack and the number of its time axis.

    Parameters
    ----------
    stack : Acquisition, array or xarray.DataArray
        An acquisition and a DataArray specify their time axis; an array requires `axis` or `axes`.
    axis : int or None
        Number of the time axis.
    axes : str or None
        Axis letters, t among them.

    Raises
    ------
    OptionError
        If the time axis of an array is not given, or is not an axis of it.
    InputError
        If `axes` does not fit the array.
    """
    stack = array_of_dataset(stack)
    if is_data_array(stack) and axis is None:
        stack = from_data_array(stack, axes)
    if isinstance(stack, Acquisition):
        return on_host(stack.iq), stack.axes.index("t")
    values = on_host(without_mask(stack))
    if axes is not None:
        check_axes(axes, values.shape)
        return values, axes.index("t")
    if axis is None:
        raise OptionError(
            "an array has no axis labels, so time is unknown; give axes, for example axes='tzx', or axis"
        )
    if not -values.ndim <= axis < values.ndim:
        raise OptionError(f"an array of shape ({shape_text(values.shape)}) has no axis {axis}; change axis")
    return values, axis


def _label(item: Any) -> Label:
    """Return a coordinate with its values if they are numbers, or dates or durations, which become seconds."""
    values, attributes = np.asarray(item.values), dict(item.attrs)
    if values.dtype.kind == "M":
        # Counted from 1970 in double precision a date would lose the microseconds, so the first one is 0.
        values = values - values.reshape(-1)[:1]
    if values.dtype.kind == "m":
        values, attributes["units"] = values / np.timedelta64(1, "s"), "s"
    known = values if values.dtype.kind in "fiu" else None
    return Label(tuple(map(str, item.dims)), known, attributes)


def as_acquisition(
    stack: Acquisition | Numbers,
    axes: str | None = None,
    frame_rate: float | None = None,
    spacing: float | Sequence[float] | None = None,
    center_frequency: float | None = None,
) -> Acquisition:
    """Return a stack with its axes as an acquisition.

    Parameters
    ----------
    stack : Acquisition, array or xarray.DataArray
        An acquisition gets the scales that it does not have.
    axes : str, optional
        Axis letters of an array.
    frame_rate : float, optional
        Frames per second of an array.
    spacing : float or sequence of float, optional
        Pixel pitch of an array in mm: one number, or one for each spatial axis.
    center_frequency : float, optional
        Centre frequency of the received signal in Hz.

    Raises
    ------
    OptionError
        If an array comes without axes, an acquisition with other axes or other scales, or a scale is not positive.
    InputError
        If the array cannot be a stack, is power Doppler or an envelope, or the pitches are not as many as its spatial axes.
    """
    if axes is not None and not isinstance(axes, str):
        raise OptionError(f"axes must be a string of letters, for example 'tzx', not {axes!r}")
    given = {"frame_rate": frame_rate, "spacing": spacing, "center_frequency": center_frequency}
    try:
        options = reading_options({"axes": axes, **given})
    except OptionError as error:
        # The scales have no units in this call.
        option = next((name for name in given if SCALE_NAMES[name] == error.option), error.option)
        raise OptionError(error.problem, option=option, remedy=error.remedy) from None
    stack = array_of_dataset(stack)
    if is_data_array(stack):
        return _checked(from_data_array(stack, **vars(options)))
    if not isinstance(stack, Acquisition):
        source: object = stack
        if isinstance(source, str | Path):
            raise OptionError(f"{source} is a path, not a stack; give usdenoise.load({str(source)!r})")
        if axes is None:
            raise OptionError("an array has no axis labels; give axes, for example axes='tzx'")
        return _checked(Acquisition(stack, **with_options(Metadata(), options).values))
    if axes is not None and axes != stack.axes:
        check_axes(axes, stack.iq.shape)
        raise OptionError(f"the acquisition has the axes '{stack.axes}'; omit axes='{axes}'")
    # The scales that are given and that the acquisition does not have.
    scale_values = with_options(Metadata(), replace(options, axes=stack.axes)).values
    for name, value in scale_values.items():
        known = getattr(stack, name)
        if known not in (None, {}, value):
            short = next(short for short, field in SCALE_NAMES.items() if field == name)
            raise OptionError(
                f"the acquisition has the {name} {known}; omit {short}, or change it with dataclasses.replace"
            )
    return replace(stack, **scale_values)


def _checked(stack: Acquisition) -> Acquisition:
    """Check that a stack in memory is not power Doppler or an envelope, by its first and its middle frame."""
    if not (stack.is_complex or is_dask_array(stack.iq)):
        at: tuple[Any, ...] = (slice(None),) * stack.axes.index("t")
        frames = (to_host(stack.iq[(*at, number, ...)]) for number in (0, stack.n_frames // 2))
        check_not_power(frames, "the stack", "give an Acquisition")
    return stack
