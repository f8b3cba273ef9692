"""The series of a job: its images with time first, and a record of each block. A stack that is filtered at once has one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import FlowImage, flow_images
from usdenoise.blood.picture_quality import PictureQuality, blood_pixels
from usdenoise.errors import OptionError
from usdenoise.frames.bad_frames import FrameSearch
from usdenoise.linalg.array_library import on_host
from usdenoise.options.job_options import SessionOptions
from usdenoise.pipeline.doubts import Doubt, find_doubts
from usdenoise.pipeline.fit_result import FitResult
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.report.record import ANY_TYPE, BadFrameRecord, BlockRecord, FramesRecord
from usdenoise.report.sentences import many_bad, uncorrected
from usdenoise.sessions.activation import ActivationMap, activation_maps, smoothed_series
from usdenoise.sessions.blocks import NO_STARTS, time_unit
from usdenoise.sessions.design import BASELINES, Design, check_design, design_of, locked_correlation
from usdenoise.sessions.filter_session import FilteredSession
from usdenoise.sessions.regions import RegionSeries, region_series
from usdenoise.sessions.responses import Event, is_within, joined_events
from usdenoise.stack.arrays import NamedArray
from usdenoise.stack.geometry import Geometry
from usdenoise.system.text import distinct_names, plain_name

FWHM = 2.3548
"""Full width at half maximum of a Gaussian of standard deviation 1."""

PROPOSED_PIXELS, MORE_ACTIVE, LEAST_ACTIVE = 2, 2, 20
"""Width of the Gaussian that is tried for the activation, in pixels, and how many times more active pixels, and how many at
least, it must give to be proposed."""

MOST_LOCKED, LOCKED_ERRORS = 0.5, 2.6
"""Correlation of the motion of the image with the events above which an activation is doubtful, and the same in standard
errors of a correlation by chance, 1 / sqrt(n_blocks)."""

MATERIAL = {"motion": 0.05, "framewise_displacement": 0.05, "displacement": 0.05, "tissue_power": 0.3}
"""Measure of the motion of the tissue -> standard deviation of the part that follows the events, in pixels or dB, from
which it matters."""

MOST_CHANGE, MOST_DOUBTFUL = 100.0, 0.5
"""Change of the blood power in per cent, and share of the active pixels with a larger one, or outside the vessels at rest,
above which an activation is doubtful."""


POWER_NAMES = ("power_doppler", "blood_power")
"""Images whose means over the blocks of a session are stored."""

ACTIVATION: Mapping[str, Mapping[str, str]] = {
    "t": {"unit": "1", "meaning": "t of the response to the events in a general linear model"},
    "f": {"unit": "1", "meaning": "F of the responses to the events in a general linear model"},
    "change": {"unit": "%", "meaning": "response in per cent of the baseline; NaN outside the vessels"},
}
"""Images of an activation map that are stored, and their attributes. A response with free delays has a change for each."""


@dataclass(frozen=True, repr=False)
class ResultSeries:
    """The images of a filtered stack, or of the blocks of a session.

    Attributes
    ----------
    fit : FitResult
        How the components were found.
    picture_quality : PictureQuality
        Quality of the mean blood map.
    stack : DenoiseResult or None
        The filtered stack; None for a session.
    flow : mapping
        Name -> flow image of the filtered stack; empty for a session.
    geometry : Geometry
        Axes and scales of the images.
    images : mapping
        Name -> images, (n_blocks, spatial) float32; NaN in blocks without data.
    means : mapping
        Name -> mean image of the good blocks; for the blood, the blood map of their mean. A session also has "tsnr",
        the mean over the standard deviation of the blood power of the good blocks.
    attributes : mapping
        Name -> unit and formula.
    time_unit : str
        Unit of the times of the records: "s", or "frames" where the frame rate is not known.
    blocks : tuple of BlockRecord
        The record of each block.
    activation : mapping
        Type of event -> its activation map; empty (the default) without events.
    any_activation : ActivationMap or None
        F of the responses to all types; None (the default) with fewer than two.
    event_doubts : tuple of Doubt
        Reasons to doubt the order and the times of blocks, and the events; empty by default.
    regions : mapping
        Name of a region -> its time series, the whole image first; empty (the default) without regions.
    """

    fit: FitResult
    picture_quality: PictureQuality
    stack: DenoiseResult | None
    flow: Mapping[str, FlowImage]
    geometry: Geometry
    images: Mapping[str, NDArray[np.float32]]
    means: Mapping[str, NDArray[np.float32]]
    attributes: Mapping[str, Mapping[str, Any]]
    time_unit: str
    blocks: tuple[BlockRecord, ...]
    activation: Mapping[str, ActivationMap] = field(default_factory=dict)
    any_activation: ActivationMap | None = None
    event_doubts: tuple[Doubt, ...] = ()
    events: tuple[Event, ...] = ()
    regions: Mapping[str, RegionSeries] = field(default_factory=dict)

    @property
    def times(self) -> NDArray[np.float64]:
        """Middle of each block, from the first frame of the file or of the session."""
        return np.array([block.time for block in self.blocks])

    def contents(self, window: int | None = None) -> list[NamedArray]:
        """Return the arrays of the result besides a filtered stack, as files and xarray have them.

        Parameters
        ----------
        window : int, optional
            Frames of a block of a session; by default as for :meth:`frames_a_block`.
        """
        if self.stack is not None:
            return self.stack.contents(self.flow)
        spatial, blocks, length = self.geometry.spatial_axes, self.blocks, self.frames_a_block(window)
        time = {
            "unit": self.time_unit,
            "volume_acquisition_reference": "center",
            "volume_acquisition_duration": length / (self.geometry.frame_rate_hz or 1.0),
            "meaning": "middle of each block, from the first frame of the first file",
        }
        shorter = {"meaning": "0 if the block is shorter than the window"}
        excluded = {"meaning": "1 if the block is excluded from means and weights"}
        images = [
            NamedArray(name, values, f"t{spatial}", self.attributes[name])
            for name, values in self.images.items()
        ]
        means = [
            NamedArray(
                f"mean_{name}",
                self.means[name],
                spatial,
                {**self.attributes[name], "meaning": "over the good blocks"},
            )
            for name in POWER_NAMES
        ]
        return [
            *images,
            *means,
            NamedArray("tsnr", self.means["tsnr"], spatial, self.attributes.get("tsnr", {})),
            NamedArray("time", self.times, "t", time),
            NamedArray("first_frame", np.array([block.first_frame for block in blocks], np.int64), "t"),
            NamedArray("n_frames", np.array([block.n_frames for block in blocks], np.int64), "t"),
            NamedArray("complete", np.array([block.complete for block in blocks], bool), "t", shorter),
            NamedArray("bad", self.is_bad, "t", excluded),
            *activation_contents(self.events, spatial, self.activation_images),
        ]

    @property
    def activations(self) -> dict[str, ActivationMap]:
        """The activation by each type of event, and ("") by any of several."""
        overall = {} if self.any_activation is None else {"": self.any_activation}
        return {**self.activation, **overall}

    @property
    def activation_images(self) -> dict[str, dict[str, NDArray[np.float32]]]:
        """The stored images of the activation by each type of event, and ("") by any of several."""
        found: dict[str, dict[str, NDArray[np.float32]]] = {}
        for name, one in self.activations.items():
            found[name] = {one.letter.lower(): one.statistic}
            if one.change is not None and one.t is not None:
                found[name]["change"] = one.change
            elif one.change is not None:
                found[name] |= {f"change_{delay}": image for delay, image in enumerate(one.change)}
        return found

    def frames_a_block(self, window: int | None) -> int:
        """Return the frames of a usual block: the frames of a window, or the median of the files that could be read."""
        return window or int(np.median([block.n_frames for block in self.blocks if block.n_frames]))

    @property
    def is_bad(self) -> NDArray[np.bool_]:
        """Which blocks are bad."""
        return np.array([block.is_bad for block in self.blocks], bool)

    @property
    def shifts(self) -> NDArray[np.float64] | None:
        """Displacement of each block along z, x and y, in pixels, NaN without data; None if blocks were not aligned."""
        known = [block.shift_pixels for block in self.blocks]
        if not any(known):
            return None
        none = (np.nan,) * len(self.geometry.spatial_axes)
        return np.array([shift or none for shift in known])

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Reasons not to trust the pictures; empty if there are none."""
        doubts = find_doubts(self.fit, self.picture_quality, self.geometry.axes)
        return (*doubts, *uncorrected(self.blocks), *many_bad(self.blocks), *self.event_doubts)

    @property
    def is_session(self) -> bool:
        """Whether the images belong to a session."""
        return self.stack is None

    @property
    def high_cutoff(self) -> int | str:
        """End of the components that were kept; "none" where the residual was kept as well."""
        options = self.fit.options
        return int(options.rank) if options.high_cutoff == "rank" else options.high_cutoff


def activation_names(events: Iterable[Event], space: str = "-") -> dict[str, str]:
    """Return a plain name for each type of event and, of several types, for "" (any), no two of which are the same.

    Parameters
    ----------
    events : iterable of Event
        The events.
    space : str
        What stands for a run of white space, by default a hyphen.
    """
    types = list(dict.fromkeys(event.trial_type for event in events))
    names = [*types, ""] if len(types) > 1 else types
    found = distinct_names(names, lambda name: plain_name(name or ANY_TYPE, space))
    return {name: found[name] for name in names}


def activation_contents(
    events: Iterable[Event], spatial_axes: str, maps: Mapping[str, Mapping[str, NDArray[Any]]]
) -> list[NamedArray]:
    """Return the images of activation maps as arrays of a result.

    Parameters
    ----------
    events : iterable of Event
        The events, whose types have a group each.
    spatial_axes : str
        Axis letters of the maps.
    maps : mapping
        Type of event, or "" for any -> kind of image, of ACTIVATION -> its values.
    """
    groups = activation_names(events, space=" ")
    types, arrays = ", ".join(filter(None, groups)), []
    for name, images in maps.items():
        for kind, values in images.items():
            kind_name, _, delay = kind.partition("_")
            more: dict[str, Any] = {"trial_type": name} if name else {"trial_types": types}
            if delay:
                more["delay_blocks"] = int(delay)
            attributes = {**ACTIVATION[kind_name], **more}
            arrays.append(NamedArray(f"activation/{groups[name]}/{kind}", values, spatial_axes, attributes))
    return arrays


def series_of_stack(
    result: DenoiseResult, products: tuple[str, ...], first_frame: float = 0.0
) -> ResultSeries:
    """Return the images of a filtered stack, with the flow images of the products.

    Parameters
    ----------
    result : DenoiseResult
        The filtered stack.
    products : tuple of str
        Products of the output.
    first_frame : float
        Time of its first frame after the first one of the file, in units of the frame step; 0 by default.
    """
    stack, excluded = result.acquisition, result.frame_quality.excluded
    flow = flow_images(on_host(stack.iq), stack, products, excluded) if products else {}
    images = result.images(flow)
    means = {array.name: array.values for array in images}
    frames = result.frame_quality
    rate, n_frames = stack.frame_rate_hz, stack.n_frames
    block = BlockRecord(
        time=(first_frame + (n_frames - 1) / 2) / (rate or 1.0),
        n_frames=n_frames,
        complete=True,
        low_cutoff=int(result.options.low_cutoff),
        is_bad=False,
        bad_frames=bad_frame_records(frames, 0, rate),
        frames=frames_record(frames, stack.n_pixels),
        n_unobserved=result.n_unobserved,
        kept_share=1 - result.n_unobserved / (n_frames * stack.n_pixels),
    )
    return ResultSeries(
        fit=result,
        picture_quality=result.picture_quality,
        stack=result,
        flow=flow,
        geometry=stack.geometry,
        images={name: values[None] for name, values in means.items()},
        means=means,
        attributes={array.name: array.attributes for array in images},
        time_unit=time_unit(stack.geometry),
        blocks=(block,),
    )


def series_of_session(filtered_session: FilteredSession) -> ResultSeries:
    """Return the images of a session."""
    return ResultSeries(
        fit=filtered_session.fit,
        picture_quality=filtered_session.picture_quality,
        stack=None,
        flow={},
        geometry=filtered_session.geometry,
        images=filtered_session.images,
        means=filtered_session.means,
        attributes=filtered_session.attributes,
        time_unit=time_unit(filtered_session.geometry),
        blocks=tuple(
            _block_record(filtered_session, number) for number in range(len(filtered_session.blocks))
        ),
    )


def with_regions(series: ResultSeries, masks: Mapping[str, NDArray[np.bool_]]) -> ResultSeries:
    """Return a series with the time series of regions.

    Parameters
    ----------
    series : ResultSeries
        The series of a session.
    masks : mapping
        Name of each region -> its mask; none leave the series as it is.
    """
    return replace(series, regions=region_series(series.images["blood_power"], masks))


def check_activation(
    events: Sequence[Event],
    times: NDArray[np.float64],
    durations: NDArray[np.float64],
    geometry: Geometry,
    options: SessionOptions,
    is_planned: bool = False,
) -> None:
    """Check that the activation by some events can be mapped, before anything is filtered.

    Parameters
    ----------
    events : sequence of Event
        The events.
    times, durations : (n_blocks,) arrays
        Middle and duration of each block.
    geometry : Geometry
        Axes and scales of the blocks.
    options : SessionOptions
        The response, the confounds and the smoothing.
    is_planned : bool
        As for :func:`usdenoise.sessions.design.check_design`.

    Raises
    ------
    InputError
        As for :func:`usdenoise.sessions.design.check_design`.
    OptionError
        If the times of the blocks or, for smoothing, the pixel pitch are not known.
    """
    if time_unit(geometry) != "s":
        raise OptionError(
            "events have times in s, and the frame rate is not known", remedy="give {frame_rate_hz}"
        )
    if options.smoothing_mm and None in _pitches(geometry):
        raise OptionError("smoothing is in mm, and the pixel pitch is not known", remedy="give {spacing_mm}")
    n_confounds = 0 if options.confounds == "none" else 2
    check_design(events, times, durations, options.hrf, n_confounds, is_planned)


def with_activation(series: ResultSeries, events: Sequence[Event], options: SessionOptions) -> ResultSeries:
    """Return a series with the activation map of each type of event.

    Parameters
    ----------
    series : ResultSeries
        The series of a session.
    events : sequence of Event
        The events, which :func:`check_activation` accepts; none leave the series as it is.
    options : SessionOptions
        The response, the confounds, the threshold and the smoothing.
    """
    if not events:
        return series
    blood, geometry, is_bad = series.images["blood_power"], series.geometry, series.is_bad
    pitches = _pitches(geometry)
    in_vessels = blood_pixels(series.means["blood_power"], series.means["noise_power"])
    durations = np.array([block.n_frames for block in series.blocks]) / (geometry.frame_rate_hz or 1.0)
    motions = motion_measures(
        np.array([block.frames.moves_pixels for block in series.blocks]),
        series.shifts,
        np.array([np.nan if block.gain_db is None else block.gain_db for block in series.blocks]),
        ~is_bad,
    )
    confounds = {}
    if options.confounds != "none":
        confounds["motion"] = motions["motion"]
        if series.shifts is not None:
            moved = displacement_columns(series.shifts, geometry)[1]
            confounds["framewise_displacement"] = moved["framewise_displacement"]
    design = design_of(events, series.times, durations, is_bad, confounds, options.hrf)
    images: NDArray[np.floating] = blood
    if options.smoothing_mm:
        images = smoothed_series(blood, [options.smoothing_mm / (FWHM * pitch) for pitch in pitches if pitch])
    maps, overall = activation_maps(images, in_vessels, design, options.threshold)
    if not options.smoothing_mm and None not in pitches:
        width = float(f"{PROPOSED_PIXELS * max(pitch for pitch in pitches if pitch):.2g}")
        images = smoothed_series(blood, [width / (FWHM * pitch) for pitch in pitches if pitch])
        for name, smoothed in activation_maps(images, in_vessels, design, options.threshold)[0].items():
            found, n_smoothed = maps[name], int(smoothed.active.sum())
            if n_smoothed >= max(MORE_ACTIVE * int(found.active.sum()), LEAST_ACTIVE):
                maps[name] = replace(found, smoothing_mm=width, n_active_smoothed=n_smoothed)
    # How the tissue moves with the events
    types, locked = joined_events(events), list[Doubt]()
    for name, found in maps.items():
        correlations, strongest = dict[str, float](), (0.0, "")
        for measure, values in motions.items():
            at = np.where(is_bad, np.nan, values)
            correlation, size = locked_correlation(at, series.times, durations, types[name])
            correlations[measure] = correlation
            n_known = max(int(np.isfinite(at).sum()), 1)
            bound = max(MOST_LOCKED, LOCKED_ERRORS / np.sqrt(n_known))
            if correlation > bound and size > MATERIAL[measure]:
                unit = "dB" if measure == "tissue_power" else "pixels"
                how = f"(correlation {correlation:.2f}, {size:.2g} {unit} rms)"
                words = f"{measure.replace('_', ' ')} follows the events '{name}' {how}"
                strongest = max(strongest, (correlation, words))
        if strongest[1]:
            sentence = f"the {strongest[1]}: the stimulus moves the tissue, which cannot be distinguished from activation"
            locked.append(Doubt("locked-motion", sentence))
        maps[name] = replace(found, correlations=correlations)
    return replace(
        series,
        activation=maps,
        any_activation=overall,
        events=tuple(event for of_type in types.values() for event in of_type),
        event_doubts=(
            *_event_doubts(series, events, float((series.times + durations / 2).max()), design),
            *locked,
            *_activation_doubts(series, maps, design),
        ),
    )


def _pitches(geometry: Geometry) -> list[float | None]:
    return [geometry.spacing_mm.get(letter) for letter in geometry.spatial_axes]


def motion_measures(
    moves: NDArray[np.float64],
    shifts: NDArray[np.float64] | None,
    gains_db: NDArray[np.float64],
    is_good: NDArray[np.bool_],
) -> dict[str, NDArray[np.float64]]:
    """Return how the tissue moves in each block of a session: name -> values, in pixels or dB, NaN where not known.

    Parameters
    ----------
    moves, gains_db : (n_blocks,) arrays
        Largest displacement within each block in pixels, and gain of its tissue in dB.
    shifts : (n_blocks, n_axes) array or None
        Displacement of each block in pixels; None if blocks are not aligned.
    is_good : (n_blocks,) boolean array
        Good blocks.

    Returns
    -------
    dict
        "motion" within a block; "framewise_displacement" (the sum over the axes); "displacement" along the direction in
        which the blocks are displaced most, without a parabola over the session; "tissue_power".
    """
    measures = {"motion": moves, "tissue_power": gains_db}
    if shifts is not None:
        measures["framewise_displacement"] = framewise_displacement(shifts)
        known = np.isfinite(shifts).all(axis=1) & is_good
        trend = np.polynomial.polynomial.polyvander(np.linspace(-1, 1, len(shifts)), 2)
        if known.sum() > trend.shape[1]:
            steady = shifts - trend @ np.linalg.lstsq(trend[known], shifts[known])[0]
            measures["displacement"] = steady @ np.linalg.svd(steady[known], full_matrices=False)[2][0]
    return measures


def _event_doubts(series: ResultSeries, events: Sequence[Event], end: float, design: Design) -> list[Doubt]:
    """Return the doubts about the times of blocks and events, and about the design."""
    n_outside = sum(not is_within(event, end) for event in events)
    doubts = []
    if NO_STARTS in series.geometry.assumptions:
        doubts.append(Doubt("block-times", NO_STARTS))
    if n_outside:
        doubts.append(Doubt("events-outside", f"{n_outside} of {len(events)} events are outside the session"))
    # The design was right for all blocks, and may not be for the good ones and their motion.
    if problem := design.problem[0]:
        doubts.append(Doubt("design", f"in the good blocks, {problem}"))
    for name in design.expected:
        if name.strip().lower() in BASELINES:
            sentence = (
                f"'{name}' is a condition of the model, so other types are compared with the blocks outside all events; "
                "omit it from the events if it is the baseline"
            )
            doubts.append(Doubt("baseline-type", sentence))
    return doubts


def _activation_doubts(
    series: ResultSeries, activation: Mapping[str, ActivationMap], design: Design
) -> list[Doubt]:
    """Return the doubts about activations: types that no block sees, and active pixels that are no vessels."""
    good, noise = ~series.is_bad, series.means["noise_power"]
    responses = [found.expected for found in activation.values()]
    is_rest = good & ~np.any([np.abs(one) > np.abs(one).max() / 2 for one in responses], axis=0)
    doubts = []
    for name, found in activation.items():
        if name in design.problems:
            doubts.append(Doubt("events-outside", f"{design.problems[name]}: it has no activation map"))
            continue
        n_active = int(found.active.sum())
        if n_active and is_rest.any():
            rest = np.nanmean(series.images["blood_power"][is_rest], axis=0)
            n_outside = int((found.active & ~blood_pixels(rest, noise)).sum())
            if n_outside > MOST_DOUBTFUL * n_active:
                sentence = f"{n_outside} of {n_active} active pixels of '{name}' are outside the vessels in blocks at rest"
                doubts.append(Doubt("active-outside", sentence))
        assert found.change is not None
        # The change is the one of a long event. A short one does not reach it.
        peak = 1.0 if design.is_free else float(np.abs(found.expected[good]).max())
        changes = peak * np.abs(found.change).reshape(-1, *found.active.shape).max(axis=0)[found.active]
        n_large = n_active - int((changes <= MOST_CHANGE).sum())
        if n_large > MOST_DOUBTFUL * n_active:
            sentence = (
                f"{n_large} of {n_active} active pixels of '{name}' change by more than {MOST_CHANGE:.0f} %"
            )
            doubts.append(Doubt("large-changes", sentence))
    return doubts


def framewise_displacement(shifts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum over the axes of the absolute changes of shifts, (n_blocks, n_axes); 0 for the first block."""
    changes: NDArray[np.float64] = np.abs(np.diff(shifts, axis=0, prepend=shifts[:1])).sum(axis=1)
    return changes


def displacement_columns(
    shifts: NDArray[np.float64], geometry: Geometry
) -> tuple[str, dict[str, NDArray[np.float64]]]:
    """Return the columns of the displacements of blocks, and the unit of the framewise displacement.

    Parameters
    ----------
    shifts : (n_blocks, n_axes) array
        Displacement of each block along z, x and y, in pixels.
    geometry : Geometry
        Axes and scales. The framewise displacement (Power and others, NeuroImage 59, 2012, without rotations) is in mm if
        the pixel pitch is known along all axes, otherwise in pixels. It is 0 for the first block.
    """
    letters = geometry.pixel_axes
    columns = {f"shift_{letter}": shifts[:, axis] for axis, letter in enumerate(letters)}
    pitches = [geometry.spacing_mm.get(letter) for letter in letters]
    columns |= {
        f"shift_{letter}_mm": shifts[:, axis] * pitch
        for axis, (letter, pitch) in enumerate(zip(letters, pitches, strict=True))
        if pitch is not None
    }
    is_known = None not in pitches
    scaled = shifts * np.array([pitch or 1.0 for pitch in pitches]) if is_known else shifts
    columns["framewise_displacement"] = framewise_displacement(scaled)
    return "mm" if is_known else "pixels", columns


def _block_record(filtered_session: FilteredSession, number: int) -> BlockRecord:
    block, findings, leftover = (
        filtered_session.blocks[number],
        filtered_session.findings[number],
        filtered_session.leftover[number],
    )
    window, search, rate = block.window, findings.frames, filtered_session.geometry.frame_rate_hz
    aligned = findings.alignment
    return BlockRecord(
        time=block.start_s + (window.n_frames - 1) / 2 * filtered_session.frame_time,
        n_frames=window.n_frames,
        complete=window.complete,
        low_cutoff=int(filtered_session.fit.options.low_cutoff),
        is_bad=bool(filtered_session.is_bad[number]),
        why=filtered_session.why[number],
        file=block.name,
        first_frame=window.start,
        leftover=None if np.isnan(leftover) else float(leftover),
        bad_frames=() if search is None else bad_frame_records(search, window.start, rate),
        frames=FramesRecord()
        if search is None
        else frames_record(search, filtered_session.geometry.n_pixels),
        n_unobserved=findings.n_unobserved,
        kept_share=filtered_session.kept_share(number),
        shift_pixels=None if aligned is None else aligned.shift,
        gain_db=None if aligned is None else aligned.gain_db,
        is_shifted=aligned is not None and aligned.is_shifted,
        is_scaled=aligned is not None and aligned.is_scaled,
        is_gain_uneven=aligned is not None and aligned.is_uneven,
    )


def bad_frame_records(search: FrameSearch, first: int, rate: float | None) -> tuple[BadFrameRecord, ...]:
    """Return the records of bad frames.

    Parameters
    ----------
    search : FrameSearch
        The frames.
    first : int
        Number of their first frame in the file, from which numbers and times are counted.
    rate : float or None
        Frames per second.
    """
    return tuple(
        BadFrameRecord(
            frame=first + bad.frame,
            time_s=None if rate is None else (first + bad.frame) / rate,
            reason=bad.reason.value,
            score=bad.score,
        )
        for bad in search.bad
    )


def frames_record(search: FrameSearch, n_pixels: int) -> FramesRecord:
    """Return the record of the frames of a stack."""
    n_left_out = int(search.excluded.sum())
    return FramesRecord(
        n_bad=len(search.bad),
        n_left_out=n_left_out,
        n_entries_left_out=n_left_out * n_pixels,
        moves_pixels=search.movement.range_pixels,
        steps=search.movement.steps,
        sentence=search.sentence,
    )
