"""The library call: a stack in, the filtered stack and a description of the estimate out."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np
from array_api_compat import is_dask_array

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.completion.problem import Factors
from usdenoise.completion.solve import Iteration
from usdenoise.errors import OptionError
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor, ThreadExecutor
from usdenoise.linalg.low_rank import interpolated
from usdenoise.options import DenoiseOptions
from usdenoise.options.denoise_options import DenoiseKeywords, FilterKeywords, StackKeywords, make_options
from usdenoise.options.job_options import parted, shows_options
from usdenoise.pipeline.dask_executor import (
    DaskExecutor,
    LazyExecutor,
    check_options_of_lazy,
    lazy_recording,
    lazy_stack,
)
from usdenoise.pipeline.devices import device_memory, on_device
from usdenoise.pipeline.estimate_clutter import ClutterEstimate, checked_noise, estimate_clutter
from usdenoise.pipeline.filter_chunk import filter_chunks, filtered_frames
from usdenoise.pipeline.fit_result import fit_result, scan_clutter
from usdenoise.pipeline.measures import Clutter, Measures
from usdenoise.pipeline.recording import Recording, StillFrames, array_recording, map_chunks
from usdenoise.pipeline.result import DenoiseResult, LabelledResult
from usdenoise.pipeline.series import BlockLags, Series, SeriesMaps, signal_image
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.arrays import pack
from usdenoise.stack.given_stack import as_acquisition

logger = logging.getLogger(__name__)


@shows_options
def denoise(
    acquisition: Acquisition | Numbers,
    *,
    preset: str | None = None,
    options: DenoiseOptions | None = None,
    start: Factors | None = None,
    in_place: bool = False,
    on_iteration: Callable[[Iteration], None] | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
    **keywords: Unpack[FilterKeywords],
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
        filtered stack is a Dask array with the same chunks. An array of CuPy, PyTorch, JAX or another library of the Python
        array API standard is filtered on its device, where the filtered stack is; the images are arrays of NumPy.
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
    **keywords
        Axes and scales, and the fields of :class:`usdenoise.DenoiseOptions`; None means the default.

    Returns
    -------
    DenoiseResult
        For a DataArray its images are DataArrays with the same labels, and it has `stack`, `axial_velocity` and
        `unobserved` besides. Its method `to_xarray` returns all of them as one Dataset.

    Raises
    ------
    InputError
        If the array cannot be a stack, or is zero or unobserved everywhere, if its magnitudes are outside 1e-12 to 1e14, or
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
    of_stack, requested_options = parted(keywords, StackKeywords, DenoiseKeywords)
    stack = as_acquisition(acquisition, **of_stack)
    chosen = chosen_options(preset, options, requested_options)
    if start is not None:
        is_pair = isinstance(start, tuple | list) and len(start) == 2
        if not is_pair or not all(isinstance(factor, np.ndarray) and factor.ndim == 2 for factor in start):
            raise OptionError("start must be a pair of arrays, U of (n_pixels, r) and V of (n_frames, r)")
        start = start[0], start[1]
    if is_dask_array(stack.iq):
        check_options_of_lazy(chosen, stack.name)
        recording, target = lazy_recording(stack, chosen.precision), None
        executor = DaskExecutor(chosen.threads)
    else:
        recording, target = array_recording(stack, chosen.precision, in_place)
        executor = None
    own = stack if target is None else None
    result = denoise_frames(recording, chosen, start, target, on_iteration, on_progress, executor, own)
    if stack.labels is not None:
        result = LabelledResult.from_result(result)
    logger.info("%r: cutoff %s; %s", stack.name, result.options.low_cutoff, result.verdict)
    for doubt in result.doubts:
        logger.warning("%r: %s", stack.name, doubt.sentence)
    return result


def denoise_frames(
    recording: Recording,
    options: DenoiseOptions,
    start: Factors | None = None,
    target: Numbers | None = None,
    on_iteration: Callable[[Iteration], None] | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
    executor: Executor | None = None,
    stack: Acquisition | None = None,
) -> DenoiseResult:
    """Filter a scan, a recording of one block, as :func:`denoise` does.

    Parameters
    ----------
    recording : Recording
        The chunks of the scan.
    options : DenoiseOptions
        All options.
    start : pair of arrays, optional
        A warm start.
    target : (n_frames, n_pixels) array, optional
        Gets the filtered frames.
    on_iteration, on_progress : callable, optional
        As for :func:`denoise`.
    executor : Executor, optional
        Maps over the chunks; by default threads.
    stack : Acquisition, optional
        The stack if it is an array of Dask or of another library. The filtered frames are such an array, without a target.
    """
    n_steps, geometry = options.iterations + 2, recording.geometry
    is_lazy = stack is not None and is_dask_array(stack.iq)

    def report_step(next_step: str, done: int) -> None:
        if on_progress is not None:
            on_progress(next_step, done, n_steps)

    def follow(line: Iteration) -> None:
        report_step("solve", 1 + line.iteration)
        if on_iteration is not None:
            on_iteration(line)

    report_step("check", 0)
    began = time.perf_counter()
    with ThreadExecutor(options.threads) as threads, device_memory(options.device):
        if not is_lazy:
            recording = on_device(recording, options.device, threads.threads if executor is None else None)
        mapper = executor or threads
        if executor is not None and executor.local is not executor:
            # Workers read the chunks themselves
            recording = replace(recording, in_memory=None)
        # The spatial subspace, the noise level and the bad frames; and the recording without the flicker of its lines,
        # and its tissue held still
        report_checked = partial(report_step, "solve", 1)
        found = estimate_clutter(recording, options, mapper, start, follow, report_checked, target=target)
        recording = found.recording
        clutter = scan_clutter(found, options)
        solved = time.perf_counter()
        report_step("filter", n_steps - 1)
        # Frames of another library have no target
        measures, maps = _filtered(found, clutter, mapper, target, stack is not None and not is_lazy)
        # Where much of the blood is uncorrelated from frame to frame, the correlation of neighbouring pixels in the middle
        # chunk tells fast flow from noise
        middle = recording.chunks[found.inspection.middle_chunk(~found.excluded)]
        if isinstance(middle.frames, StillFrames):
            # If the still frames were in the target, filtered ones are there now, as recorded: they are turned when read
            middle = replace(middle, frames=replace(middle.frames, is_held=False))
        quality = checked_noise(maps.quality, middle, clutter, found.excluded, mapper)
        fit = fit_result(found, measures, options)
    kept = measures.filtered if target is None else target
    frames: Any = None if kept is None else geometry.as_stack(kept)
    if is_lazy and stack is not None:
        # The frames are filtered a second time when they are asked for, and their lags are not measured
        without_lags = replace(clutter, projection=None)
        filtered = map_chunks(filtered_frames, recording.chunks, LazyExecutor(), without_lags, found.excluded)
        frames = lazy_stack(filtered, stack, recording.dtype)
    timings = {"solve": solved - began, "filter": time.perf_counter() - solved}
    report_step("done", n_steps)
    image = partial(signal_image, geometry, found.grid)
    return DenoiseResult(
        **vars(fit),
        acquisition=Acquisition.of(geometry, frames),
        # With the entries that the model fills, and without the residual if that is not kept
        power_doppler=image(found.grid.at_signal(measures.kept_power) / measures.n_used_frames),
        blood_power=image(maps.blood_power),
        noise_power=image(maps.noise_power),
        # U in all pixels of the image, and V in excluded frames, too
        model=replace(interpolated(found.model, found.excluded), left=clutter.left),
        picture_quality=quality,
        frame_quality=found.frames,
        observed=None if measures.n_unused == 0 else pack(measures.finite.T),
        n_unobserved=measures.n_unused,
        timings_s=timings,
    )


def _filtered(
    found: ClutterEstimate,
    clutter: Clutter,
    executor: Executor,
    target: Numbers | None = None,
    is_kept: bool = False,
) -> tuple[Measures, SeriesMaps]:
    """Return the measures of all frames without the clutter, and the maps of blood and noise without the leaked tissue."""
    measures = filter_chunks(found.chunks, clutter, found.excluded, executor, target, is_kept)
    return measures, Series().added(BlockLags.of(measures, clutter), clutter).maps(clutter, executor.local)


def map_scan(
    recording: Recording, options: DenoiseOptions, executor: Executor, grid: Neighbourhood
) -> SeriesMaps:
    """Return the maps of a scan, a recording of one block, in the signal pixels of a grid; no frames are kept."""
    found = estimate_clutter(recording, options, executor)
    _, maps = _filtered(found, scan_clutter(found, options), executor)
    return replace(
        maps,
        blood_power=grid.at_signal(found.grid.everywhere(maps.blood_power)),
        noise_power=grid.at_signal(found.grid.everywhere(maps.noise_power)),
    )


def chosen_options(
    preset: str | None, options: DenoiseOptions | None, requested_options: Mapping[str, Any]
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
        raise OptionError(
            "contains all options",
            option="options",
            remedy=f"omit {', '.join(single)}, or set them in options",
        )
    if not isinstance(options, DenoiseOptions):
        raise OptionError(f"must be a DenoiseOptions, not {type(options).__name__}", option="options")
    return options
