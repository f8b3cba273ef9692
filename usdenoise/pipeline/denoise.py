"""The library call: a stack in, the filtered stack and a description of the estimate out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.picture_quality import judge_picture
from usdenoise.clutter.band import Band
from usdenoise.clutter.clutter_cutoff import CutoffChoice, choose_low_cutoff
from usdenoise.completion.problem import Factors
from usdenoise.completion.solve import Iteration
from usdenoise.errors import OptionError
from usdenoise.estimate.estimate import Estimate, estimate_components, fit_all_pixels
from usdenoise.estimate.rank import least_rank
from usdenoise.frames.displacement import displacements
from usdenoise.frames.frame_check import CheckedFrames, check_frames
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options.denoise_options import DenoiseOptions, make_options
from usdenoise.options.reading_options import ReadOptions
from usdenoise.pipeline.checked_rows import checked_rows
from usdenoise.pipeline.filter_rows import filter_rows
from usdenoise.pipeline.fit_quality import FitQuality, judge_fit, start_caution
from usdenoise.pipeline.live_pixels import live_pixels
from usdenoise.pipeline.result import DenoiseResult, LabelledResult
from usdenoise.stack.acquisition import Acquisition, canonical_axes
from usdenoise.stack.casorati import image_from_pixels
from usdenoise.stack.data_array_reading import array_of_dataset, from_data_array
from usdenoise.stack.data_arrays import is_data_array
from usdenoise.stack.geometry import check_axes
from usdenoise.stack.metadata import with_options
from usdenoise.stack.rows import Rows


def denoise(  # noqa: PLR0913
    acquisition: Acquisition | NDArray[Any],
    *,
    axes: str | None = None,
    frame_rate: float | None = None,
    spacing: float | Sequence[float] | None = None,
    preset: str | None = None,
    options: DenoiseOptions | None = None,
    start: Factors | None = None,
    in_place: bool = False,
    all_components: bool = False,
    on_iteration: Callable[[Iteration], None] | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
    **given: Any,
) -> DenoiseResult:
    """Estimate the leading components of a stack from a sample of its entries, and keep a band of them.

    NaN and infinite entries, and the masked ones of a masked array, are unobserved: they are never used, and the
    low-rank model fills them. Pixels without a signal, such as those outside a sector, count nowhere: the result is that
    of the other pixels alone, and 0 in these.

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
    preset : str, optional
        "paper" for the settings of Zhang, Chiu and Zhang (AISTATS 2024).
    options : DenoiseOptions, optional
        All options at once; then neither a preset nor single options may be given.
    start : pair of arrays, optional
        Warm start: factors U (n_pixels, r) and V (n_frames, r) of an earlier or a similar stack, for which U V^H is
        the estimate. r is at most the rank.
    in_place : bool
        Whether the result may take the memory of the input; by default False.
    all_components : bool
        Whether the model holds all components in all pixels, not only those that the filter needs; by default False.
    on_iteration : callable, optional
        Called with each line of the trace as it is made.
    on_progress : callable, optional
        Called with what is done next ("check", "solve", "filter", "done"), the steps that are done and their largest
        number, for a progress bar. An iteration is one step; the solver may stop before the last one.
    **given
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
    stack = as_acquisition(acquisition, axes, frame_rate, spacing)
    chosen = chosen_options(preset, options, given)
    n_steps = chosen.iterations + 2

    def tell(next_step: str, done: int) -> None:
        if on_progress is not None:
            on_progress(next_step, done, n_steps)

    def follow(line: Iteration) -> None:
        tell("solve", 1 + line.iteration)
        if on_iteration is not None:
            on_iteration(line)

    tell("check", 0)
    start = None if start is None else _as_factors(start)
    began = time.perf_counter()
    with ThreadExecutor(chosen.threads) as executor:
        all_rows, energy = checked_rows(stack, chosen, executor, in_place)
        live = live_pixels(all_rows, energy, least_rank(chosen))
        grid = Neighbourhood(stack.shape_in(canonical_axes(stack.spatial_axes)), live)
        moved = displacements(all_rows, grid.shape, None if live is None else grid.mask)
        if live is None:
            rows = all_rows
        else:
            rows, energy = all_rows.keep(live), energy[live]
            start = start if start is None or len(start[0]) != stack.n_pixels else (start[0][live], start[1])
        frames = check_frames(rows, energy, moved, chosen)
        rows = frames.rows
        tell("solve", 1)
        estimate = estimate_components(rows, frames.subset, chosen, start, all_components, follow)
        band, choice = _choose_band(rows, estimate, chosen, frames.search.movement.range_pixels)
        estimate = fit_all_pixels(rows, estimate, band.low)
        solved = time.perf_counter()
        tell("filter", n_steps - 1)
        frame_quality = frames.quality(estimate.model, band.low)
        filtered = filter_rows(rows, estimate.model, band, grid)
        quality = _judge(frames, estimate, band, filtered.residual_power, chosen)
        whole = filtered.kept if live is None else all_rows.put_back(filtered.kept, live)

    def image(values: NDArray[np.float64]) -> NDArray[np.float32]:
        return image_from_pixels(grid.everywhere(values), stack).astype(np.float32)

    blood, stack_power = filtered.blood, float(frames.energy.sum()) / (rows.n_pixels * rows.n_used_frames)
    result = DenoiseResult(
        acquisition=replace(stack, iq=whole.as_stack(stack)),
        power_doppler=image(filtered.power),
        blood_power=image(blood.blood_power),
        noise_power=image(blood.noise_power),
        model=replace(filtered.model, left=grid.everywhere(filtered.model.left)),
        singular_values=estimate.singular_values,
        options=replace(chosen, rank=len(estimate.singular_values), low_cutoff=band.low),
        solution=estimate.solution,
        cutoff=choice,
        picture_quality=judge_picture(blood, rows.n_used_frames, stack_power),
        frame_quality=frame_quality,
        fit_quality=quality,
        noise_floor=estimate.noise_rms,
        observed=whole.sampled_bits(),
        n_unobserved=whole.n_unused,
        n_silent=whole.n_pixels - rows.n_pixels,
        n_sampled=estimate.n_sampled,
        timings_s={"solve": solved - began, "filter": time.perf_counter() - solved},
    )
    tell("done", n_steps)
    return result if stack.labels is None else LabelledResult.from_result(result)


def as_acquisition(
    stack: Acquisition | NDArray[Any],
    axes: str | None,
    frame_rate: float | None = None,
    spacing: float | Sequence[float] | None = None,
) -> Acquisition:
    """Return a stack with its axes as an acquisition.

    Parameters
    ----------
    stack : Acquisition, array or xarray.DataArray
        An acquisition is returned as it is.
    axes : str or None
        Axis letters of an array.
    frame_rate : float, optional
        Frames per second of an array.
    spacing : float or sequence of float, optional
        Pixel pitch of an array in mm: one number, or one for each spatial axis.

    Raises
    ------
    OptionError
        If an array comes without axes, an acquisition with other ones or with scales, or a scale is not positive.
    InputError
        If the array cannot be a stack, or the pitches are not as many as its spatial axes.
    """
    if axes is not None and not isinstance(axes, str):
        raise OptionError(f"axes must be a string of letters, for example 'tzx', not {axes!r}")
    scales = _as_scales(frame_rate, spacing)
    stack = array_of_dataset(stack)
    if is_data_array(stack):
        return from_data_array(stack, axes, **scales)
    if not isinstance(stack, Acquisition):
        source: object = stack
        if isinstance(source, str | Path):
            raise OptionError(f"{source} is a path, not a stack; give usdenoise.load({str(source)!r})")
        if axes is None:
            raise OptionError("an array does not say what its axes are; give axes, for example axes='tzx'")
        return Acquisition(stack, **with_options({}, {}, {}, axes=axes, **scales).values)
    if (frame_rate, spacing) != (None, None):
        raise OptionError(
            "the acquisition has scales of its own; leave out frame_rate and spacing, or change it with dataclasses.replace"
        )
    if axes is not None and axes != stack.axes:
        check_axes(axes, stack.iq.shape)
        raise OptionError(f"the acquisition has the axes '{stack.axes}'; leave out axes='{axes}'")
    return stack


def chosen_options(
    preset: str | None, options: DenoiseOptions | None, given: dict[str, Any]
) -> DenoiseOptions:
    """Return all options at once, or those of a preset with single ones.

    Parameters
    ----------
    preset : str or None
        Name of a preset.
    options : DenoiseOptions or None
        All options; then neither a preset nor single options may be given.
    given : dict
        Fields of :class:`usdenoise.DenoiseOptions`; None means the default.

    Raises
    ------
    OptionError
        If both are given, or an option cannot be.
    """
    if options is None:
        return make_options(preset, **given)
    single = [*(["preset"] if preset is not None else []), *given]
    if single:
        raise OptionError(f"options holds all options; leave out {', '.join(single)}, or set them in options")
    if not isinstance(options, DenoiseOptions):
        raise OptionError(f"options must be a DenoiseOptions, not {type(options).__name__}")
    return options


def _as_scales(frame_rate: float | None, spacing: Any) -> dict[str, Any]:
    try:
        checked = ReadOptions(frame_rate_hz=frame_rate, spacing_mm=spacing)
    except OptionError as error:
        # They have no units in this call.
        option = "spacing" if error.option == "spacing_mm" else "frame_rate"
        raise OptionError(error.problem, option=option, remedy=error.remedy) from None
    return {"frame_rate_hz": checked.frame_rate_hz, "spacing_mm": checked.spacing_mm}


def _as_factors(start: Any) -> Factors:
    is_pair = isinstance(start, tuple | list) and len(start) == 2
    if not is_pair or not all(isinstance(factor, np.ndarray) and factor.ndim == 2 for factor in start):
        raise OptionError("start must be a pair of arrays, U of (n_pixels, r) and V of (n_frames, r)")
    return tuple(start)


def _choose_band(
    rows: Rows, estimate: Estimate, options: DenoiseOptions, moved: float
) -> tuple[Band, CutoffChoice | None]:
    """Return the band that is kept, and how its low cutoff was chosen; None where it was given.

    The image moves by up to `moved` pixels.
    """
    rank = estimate.model.rank
    high = rank if isinstance(options.high_cutoff, str) else options.high_cutoff
    keeps_residual = options.high_cutoff == "none"
    if not isinstance(options.low_cutoff, str):
        return Band(options.low_cutoff, high, keeps_residual), None
    # The band must not be empty. With the residual there is something left when all components are removed.
    highest = rank if keeps_residual else high - 1
    choice = choose_low_cutoff(estimate.model, estimate.pixels, estimate.noise_rms, highest, moved)
    return Band(choice.low, high, keeps_residual), choice


def _judge(
    frames: CheckedFrames,
    estimate: Estimate,
    band: Band,
    power: NDArray[np.float64],
    options: DenoiseOptions,
) -> FitQuality:
    """Judge the fit of all components, by the energy that they leave."""
    rows, energy, singular_values = frames.rows, float(frames.energy.sum()), estimate.singular_values
    shape = rows.used_shape
    if not rows.is_complete or (band.keeps_residual and estimate.gained_energy is not None):
        # From the filtered stack: next to tissue 60 dB above it the residual would be lost in rounding errors. The
        # singular values are those of the model in all entries, and tissue that it fills in would be counted, too.
        observed = rows.n_used / (shape[0] * shape[1])
        left_over = power.sum() * shape[1] - observed * np.sum(singular_values[band.low :] ** 2)
    else:
        left_over = energy - np.sum(singular_values**2)
    quality = judge_fit(
        held_out_rmse=estimate.held_out_rmse,
        residual_energy=float(left_over),
        energy=energy,
        shape=shape,
        rank=len(singular_values),
        samples_per_pixel=estimate.samples_per_pixel,
        gained_energy=estimate.gained_energy,
        advice=frames.search.advice,
    )
    if estimate.samples_per_pixel is None:
        return quality
    doubt = start_caution(options.init, estimate.samples_per_pixel / len(singular_values))
    return replace(quality, start_caution=doubt)
