"""The stack that a caller gives, as an acquisition: an array with axes, a DataArray, or an acquisition with more scales."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.linalg.array_library import to_host
from usdenoise.options.reading_options import SCALE_NAMES, ReadOptions
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.arrays import is_dask_array, is_power, offset_of
from usdenoise.stack.data_array_reading import array_of_dataset, from_data_array
from usdenoise.stack.data_arrays import is_data_array
from usdenoise.stack.geometry import check_axes
from usdenoise.stack.metadata import with_options


def as_acquisition(
    stack: Acquisition | NDArray[Any],
    axes: str | None,
    frame_rate: float | None = None,
    spacing: float | Sequence[float] | None = None,
    center_frequency: float | None = None,
) -> Acquisition:
    """Return a stack with its axes as an acquisition.

    Parameters
    ----------
    stack : Acquisition, array or xarray.DataArray
        An acquisition gets the scales that it does not have.
    axes : str or None
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
    scales = _as_scales(frame_rate=frame_rate, spacing=spacing, center_frequency=center_frequency)
    stack = array_of_dataset(stack)
    if is_data_array(stack):
        return _checked(from_data_array(stack, axes, **scales))
    if not isinstance(stack, Acquisition):
        source: object = stack
        if isinstance(source, str | Path):
            raise OptionError(f"{source} is a path, not a stack; give usdenoise.load({str(source)!r})")
        if axes is None:
            raise OptionError("an array has no axis labels; give axes, for example axes='tzx'")
        return _checked(Acquisition(stack, **with_options({}, {}, {}, axes=axes, **scales).values))
    if axes is not None and axes != stack.axes:
        check_axes(axes, stack.iq.shape)
        raise OptionError(f"the acquisition has the axes '{stack.axes}'; omit axes='{axes}'")
    return _with_scales(stack, scales)


def _with_scales(stack: Acquisition, scales: dict[str, Any]) -> Acquisition:
    """Return an acquisition with the scales that are given and that it does not have."""
    if all(value is None for value in scales.values()):
        return stack
    scale_values = with_options({}, {}, {}, axes=stack.axes, **scales).values
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
    if is_dask_array(stack.iq):
        return stack
    at: tuple[Any, ...] = (slice(None),) * stack.axes.index("t")
    frames = [to_host(stack.iq[(*at, number, ...)]) for number in (0, stack.n_frames // 2)]
    if is_power(frames):
        if offset := offset_of(frames[1]):
            raise InputError(
                f"the stack is real, and symmetric about {offset:g}",
                remedy=f"subtract the offset {offset:g} if it is RF, or give an Acquisition to filter it as it is",
            )
        raise InputError(
            "the stack is real and nowhere negative: it is power Doppler or an envelope, without a phase",
            remedy="give the beamformed IQ or RF, or an Acquisition to filter it anyway",
        )
    return stack


def _as_scales(**scales: Any) -> dict[str, Any]:
    try:
        checked = ReadOptions(**{SCALE_NAMES[name]: value for name, value in scales.items()})
    except OptionError as error:
        # They have no units in this call.
        option = next((name for name in scales if SCALE_NAMES[name] == error.option), error.option)
        raise OptionError(error.problem, option=option, remedy=error.remedy) from None
    return {field: getattr(checked, field) for field in SCALE_NAMES.values()}
