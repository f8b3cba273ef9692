"""The library call for a sequence of images: one for each window of frames."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.formats.open_input import open_input
from usdenoise.images.power_doppler import POWER_IMAGES
from usdenoise.jobs.series import BlockSource, Series
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import Output
from usdenoise.recipe.denoise import as_acquisition, chosen_options
from usdenoise.recipe.result import LONG_NAMES
from usdenoise.recipe.windows import (
    FilteredWindow,
    Window,
    cut_into_windows,
    filter_windows,
    shortest_window,
)
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.coordinates import Coordinate
from usdenoise.stack.data_arrays import series_to_dataset


@dataclass(frozen=True)
class Sequence:
    """Images of the windows of an acquisition.

    Attributes
    ----------
    power_doppler, blood_power, noise_power : (n_windows, ...) float32 arrays
        The images of each window, as in :class:`usdenoise.DenoiseResult`; the spatial axes in the order of the input.
    time : (n_windows,) float64 array
        Middle of each window from the first frame, in `time_unit`.
    time_unit : str
        "s", or "frames" if the frame rate is not known.
    windows : list of Window
        Start and stop of each window in frames.
    low_cutoffs : list of int
        Components that were removed from each window.
    first : Acquisition
        The first two frames, with the axes and scales.
    """

    power_doppler: NDArray[np.float32]
    blood_power: NDArray[np.float32]
    noise_power: NDArray[np.float32]
    time: NDArray[np.float64]
    time_unit: str
    windows: list[Window]
    low_cutoffs: list[int]
    first: Acquisition

    def to_xarray(self) -> Any:
        """Return the images as an xarray.Dataset with the times of the windows.

        Raises
        ------
        OptionError
            If xarray is not installed.
        """
        images = {
            name: (getattr(self, name), {"units": about["unit"], "long_name": LONG_NAMES[name]})
            for name, about in POWER_IMAGES.items()
        }
        rate = self.first.frame_rate_hz or 1.0
        about = {
            "volume_acquisition_reference": "center",
            "volume_acquisition_duration": self.windows[0].n_frames / rate,
        }
        return series_to_dataset(images, self.first, Coordinate(self.time, None, about), self.time_unit)


def sequence(
    source: str | Path | Acquisition | NDArray[Any],
    window: int,
    stride: int | None = None,
    *,
    axes: str | None = None,
    preset: str | None = None,
    options: DenoiseOptions | None = None,
    reading: Mapping[str, Any] | None = None,
    on_window: Callable[[int, int, FilteredWindow], None] | None = None,
    **given: Any,
) -> Sequence:
    """Filter an acquisition in windows of frames, and return one image for each.

    Each window has a clutter subspace of its own, and starts from that of the window before. Of a file only one window
    is in memory at a time, where its format allows that.

    Parameters
    ----------
    source : str, Path, Acquisition, array or xarray.DataArray
        File to read, or the stack; an array needs `axes`.
    window : int
        Frames of a window, at least 2.
    stride : int, optional
        Frames from one window to the next, at most `window`; by default `window`.
    axes : str, optional
        One letter for each axis of an array, or of the stack in a file, for example "tzx".
    preset : str, optional
        "paper" for the settings of Zhang, Chiu and Zhang (AISTATS 2024).
    options : DenoiseOptions, optional
        All options at once; then neither a preset nor single options may be given.
    reading : mapping, optional
        Options of :func:`usdenoise.load` for a file, such as ``{"frames": slice(0, 400)}``.
    on_window : callable, optional
        Called after each window with its number from 0, the number of windows and the filtered window, for a progress
        bar or for images of one's own.
    **given
        Fields of :class:`usdenoise.DenoiseOptions`; None means the default.

    Returns
    -------
    Sequence

    Raises
    ------
    InputError, OptionError
        As for :func:`usdenoise.load` and :func:`usdenoise.denoise`, and if the window or the stride is impossible.

    Examples
    --------
    Three windows of 50 frames, from the root of the repository:

    >>> import usdenoise
    >>> images = usdenoise.sequence("sample_data/phantom.h5", 50, low_cutoff=8)
    >>> images.power_doppler.shape, images.time.tolist(), images.time_unit
    ((3, 72, 56), [0.049, 0.149, 0.249], 's')
    """
    chosen = chosen_options(preset, options, given)
    # The checks of a window are those of a job's.
    Output(window=window, stride=stride)
    with _opened(source, axes, dict(reading or {}), chosen) as stack:
        windows = cut_into_windows(stack.n_frames, window, stride, shortest_window(chosen))
        series = Series(stack, first=stack.read(0, 2))
        for number, filtered in enumerate(filter_windows(stack.read, windows, chosen)):
            series.add(filtered)
            if on_window is not None:
                on_window(number, len(windows), filtered)
    return Sequence(
        **series.images,
        time=series.times,
        time_unit=series.time_unit,
        windows=windows,
        low_cutoffs=[int(record["low_cutoff"]) for record in series.records],
        first=series.stack,
    )


@dataclass(frozen=True)
class _StackInMemory:
    """A stack in memory, read as that of a file."""

    stack: Acquisition
    time_of_first_frame: float = 0.0

    @property
    def n_frames(self) -> int:
        return self.stack.n_frames

    @property
    def frames(self) -> slice:
        return slice(0, self.n_frames, 1)

    def read(self, start: int, stop: int) -> Acquisition:
        """Return a copy of some frames."""
        stack, time = self.stack, self.stack.axes.index("t")
        part = tuple(slice(start, stop) if axis == time else slice(None) for axis in range(stack.iq.ndim))
        given = stack.coordinates.get("t")
        times = {} if given is None else {"t": given[start:stop]}
        return replace(
            stack, iq=stack.iq[part].copy(), coordinates={**stack.coordinates, **times}, labels=None
        )


def _opened(
    source: Any, axes: str | None, reading: dict[str, Any], options: DenoiseOptions
) -> AbstractContextManager[BlockSource]:
    if isinstance(source, str | Path):
        if axes is not None:
            reading["axes"] = axes
        return open_input(source, reading, options.precision)
    if reading:
        raise OptionError("reading is for a file; leave it out, or give the path of one")
    return nullcontext(_StackInMemory(as_acquisition(source, axes)))
