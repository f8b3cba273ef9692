"""The library call: a stack in, the filtered stack and a description of the estimate out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.picture_quality import judge_picture
from usdenoise.completion.problem import Factors
from usdenoise.completion.solve import Iteration
from usdenoise.errors import InputError, OptionError
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.options.denoise_options import DenoiseOptions, make_options, shows_options
from usdenoise.options.reading_options import SCALE_NAMES, ReadOptions
from usdenoise.pipeline.clutter_estimate import ClutterEstimate, estimate_clutter
from usdenoise.pipeline.dask_executor import DaskExecutor
from usdenoise.pipeline.fit_result import fit_result
from usdenoise.pipeline.frame_sources import LazyFrames, check_options_of_lazy, frames_of
from usdenoise.pipeline.passes import Passes
from usdenoise.pipeline.result import DenoiseResult, LabelledResult
from usdenoise.pipeline.stack_filter import FilteredStack, filter_stack
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.casorati import image_from_pixels
from usdenoise.stack.data_array_reading import array_of_dataset, from_data_array
from usdenoise.stack.data_arrays import is_data_array
from usdenoise.stack.geometry import check_axes
from usdenoise.stack.lazy_arrays import is_dask_array
from usdenoise.stack.metadata import with_options
from usdenoise.stack.power import is_power

STORAGE = {("single", False): np.float32, ("single", True): np.complex64}
STORAGE |= {("double", False): np.float64, ("double", True): np.complex128}
"""Type of the entries by precision, and by whether the stack is complex."""


@shows_options
def denoise(  # noqa: PLR0913
    acquisition: Acquisition | NDArray[Any],
    *,
    axes: str | None = None,
    frame_rate: float | None = None,
    spacing: float | Sequence[float] | None = None,
    center_frequency: float | None = None,
    preset: str | None = None,
    options: DenoiseOptions | None = None,
    start: Factors | None = None,
    in_place: bool = False,
    on_iteration: Callable[[Iteration], None] | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
    **requested_options: Any,
) -> DenoiseResult:
    """Estimate the leading components of a stack from a sample of its entries, and keep a band of them.

    NaN and infinite entries, and the masked ones of a masked array, are unobserved: they are never used, and the
    low-rank model fills them. Pixels without a signal, such as outside a sector, are excluded from every computation
    and set to 0 in the output.

    Parameters
    ----------
    acquisition : Acquisition, array, dask.array.Array or xarray.DataArray
        The stack; an array needs `axes`. A DataArray has its axes, frame rate and pixel pitches in its labels; an
        xarray.Dataset stands for its one array with the most dimensions. A Dask array,
        also one in a DataArray or an Acquisition, is worked through chunk by chunk on the scheduler that is active, and the
        filtered stack is a Dask array with the same chunks.
    axes : str, optional
        One letter for each axis of an array, for example "tzx"; z depth, x lateral, y elevation, t time.
    frame_rate : float, optional
        Frames per second of an array, or of a DataArray whose labels do not give them; not known by default.
    spacing : float or sequence of float, optional
        Pixel pitch in mm: one number, or one for each spatial axis in the order of the array; not known by default.
    center_frequency : float, optional
        Centre frequency of the received signal in Hz, for velocities in mm/s; not known by default.
    preset : str, optional
        "paper" for the settings of Zhang, Chiu and Zhang (AISTATS 2024).
    options : DenoiseOptions, optional
        All options at once; then neither a preset nor single options may be given.
    start : pair of arrays, optional
        Warm start: factors U (n_pixels, r) and V (n_frames, r) of an earlier or a similar stack, for which U V^H is
        the estimate. r is at most the rank.
    in_place : bool
        Whether the result may take the memory of the input; by default False.
    on_iteration : callable, optional
        Called with each line of the trace as it is made.
    on_progress : callable, optional
        Called with the next step ("check", "solve", "filter", "done"), the number of finished steps and its largest
        value, for a progress bar. An iteration is one step; the solver may stop before the last one.
    **requested_options
        Fields of :class:`usdenoise.DenoiseOptions`; None means the default.

    Returns
    -------
    DenoiseResult
        For a DataArray its images are DataArrays with the same labels, and it has `stack`, `axial_velocity` and
        `unobserved` besides. Its method `to_xarray` returns all of them as one Dataset.

    Raises
    ------
    InputError
        If the array cannot be a stack, or is zero or unobserved everywhere, if its magnitudes are outside SCALES, or
        if entries are unobserved and the method is "svd".
    OptionError
        If the options contradict each other or the stack, an argument has the wrong type, or the stack is a Dask array and
        an option needs all of it in memory.
    DivergedError
        If the solver leaves the finite numbers.

    Examples
    --------
    >>> import numpy as np, usdenoise
    >>> rng = np.random.default_rng(0)
    >>> tissue = 100 * np.outer(rng.standard_normal(2000), np.ones(60))
    >>> noise = rng.standard_normal((2000, 60))
    >>> result = usdenoise.denoise((tissue + noise).reshape(50, 40, 60), axes="zxt", low_cutoff=1)
    >>> result.acquisition.iq.shape, result.power_doppler.shape
    ((50, 40, 60), (50, 40))
    >>> bool(abs(result.power_doppler.mean() - 1) < 0.1)  # the power of the noise is left
    True
    """
    stack = as_acquisition(acquisition, axes, frame_rate, spacing, center_frequency)
    chosen = chosen_options(preset, options, requested_options)
    result = denoise_frames(
        stack, chosen, None if start is None else _as_factors(start), in_place, on_iteration, on_progress
    )
    return result if stack.labels is None else LabelledResult.from_result(result)


def denoise_frames(
    stack: Any,
    options: DenoiseOptions,
    start: Factors | None = None,
    in_place: bool = False,
    on_iteration: Callable[[Iteration], None] | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
    executor: Executor | None = None,
) -> DenoiseResult:
    """Filter a stack as :func:`denoise` does, from any source of blocks.

    Parameters
    ----------
    stack : Acquisition or FrameSource
        The stack.
    options : DenoiseOptions
        All options.
    start, in_place, on_iteration, on_progress
        As for :func:`denoise`.
    executor : Executor, optional
        Maps over the blocks; by default threads, or the Dask scheduler for a Dask array.
    """
    n_steps = options.iterations + 2

    def report_step(next_step: str, done: int) -> None:
        if on_progress is not None:
            on_progress(next_step, done, n_steps)

    def follow(line: Iteration) -> None:
        report_step("solve", 1 + line.iteration)
        if on_iteration is not None:
            on_iteration(line)

    report_step("check", 0)
    began = time.perf_counter()
    source = frames_of(stack, working_type(stack, options.precision), in_place)
    if isinstance(source, LazyFrames):
        check_options_of_lazy(options, source.stack.name)
    with ThreadExecutor(options.threads) as threads:
        mapper = DaskExecutor() if isinstance(source, LazyFrames) else executor or threads
        passes = Passes(source, mapper, threads)
        clutter_estimate = estimate_clutter(passes, options, start, follow, lambda: report_step("solve", 1))
        solved = time.perf_counter()
        report_step("filter", n_steps - 1)
        filtered = filter_stack(passes, clutter_estimate, options)
        timings = {"solve": solved - began, "filter": time.perf_counter() - solved}
        result = _result(source, clutter_estimate, filtered, options, timings)
    report_step("done", n_steps)
    return result


def working_type(stack: Any, precision: str) -> np.dtype[Any]:
    """Return the type in which a stack is filtered."""
    kind = stack.iq.dtype if isinstance(stack, Acquisition) else stack.dtype
    return np.dtype(STORAGE[precision, kind.kind == "c"])


def _result(
    source: Any,
    clutter_estimate: ClutterEstimate,
    filtered: FilteredStack,
    options: DenoiseOptions,
    timings: dict[str, float],
) -> DenoiseResult:
    stack, grid, fit = (
        source.stack,
        clutter_estimate.grid,
        fit_result(clutter_estimate, filtered.fit, options),
    )

    def image(values: NDArray[np.float64]) -> NDArray[np.float32]:
        return image_from_pixels(grid.everywhere(values), stack).astype(np.float32)

    blood, model = filtered.blood, filtered.fit.model
    power = clutter_estimate.energy / (grid.n_pixels * clutter_estimate.n_used_frames)
    return DenoiseResult(
        **vars(fit),
        acquisition=Acquisition.of(stack, filtered.iq),
        power_doppler=image(filtered.power),
        blood_power=image(blood.blood_power),
        noise_power=image(blood.noise_power),
        model=replace(model, left=grid.everywhere(model.left)),
        picture_quality=judge_picture(blood, clutter_estimate.n_used_frames, power, filtered.tissue_share),
        frame_quality=clutter_estimate.frames,
        observed=filtered.observed,
        n_unobserved=filtered.n_unused,
        timings_s=timings,
    )


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
    frames = [stack.iq.take(number, stack.axes.index("t")) for number in (0, stack.n_frames // 2)]
    if is_power(frames):
        raise InputError(
            "the stack is real and nowhere negative: it is power Doppler or an envelope, without a phase",
            remedy="give the beamformed IQ or RF, or an Acquisition to filter it anyway",
        )
    return stack


def chosen_options(
    preset: str | None, options: DenoiseOptions | None, requested_options: dict[str, Any]
) -> DenoiseOptions:
    """Return all options at once, or the options of a preset with single ones.

    Parameters
    ----------
    preset : str or None
        Name of a preset.
    options : DenoiseOptions or None
        All options; then neither a preset nor single options may be given.
    requested_options : dict
        Fields of :class:`usdenoise.DenoiseOptions`; None means the default.

    Raises
    ------
    OptionError
        If both are given, or an option cannot be.
    """
    if options is None:
        return make_options(preset, **requested_options)
    single = [*(["preset"] if preset is not None else []), *requested_options]
    if single:
        raise OptionError(f"options contains all options; omit {', '.join(single)}, or set them in options")
    if not isinstance(options, DenoiseOptions):
        raise OptionError(f"options must be a DenoiseOptions, not {type(options).__name__}")
    return options


def _as_scales(**scales: Any) -> dict[str, Any]:
    try:
        checked = ReadOptions(**{SCALE_NAMES[name]: value for name, value in scales.items()})
    except OptionError as error:
        # They have no units in this call.
        option = next((name for name in scales if SCALE_NAMES[name] == error.option), error.option)
        raise OptionError(error.problem, option=option, remedy=error.remedy) from None
    return {field: getattr(checked, field) for field in SCALE_NAMES.values()}


def _as_factors(start: Any) -> Factors:
    is_pair = isinstance(start, tuple | list) and len(start) == 2
    if not is_pair or not all(isinstance(factor, np.ndarray) and factor.ndim == 2 for factor in start):
        raise OptionError("start must be a pair of arrays, U of (n_pixels, r) and V of (n_frames, r)")
    return tuple(start)
