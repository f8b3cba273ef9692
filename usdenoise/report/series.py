"""The series of a job: its images with time first, and a record of each block. A stack that is filtered at once has one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
from usdenoise.report.record import BadFrameRecord, BlockRecord, FramesRecord
from usdenoise.report.sentences import many_bad, uncorrected
from usdenoise.sessions.activation import (
    ActivationMap,
    Event,
    activation_maps,
    check_events,
    is_within,
    joined_events,
    smoothed_series,
)
from usdenoise.sessions.blocks import NO_STARTS, time_unit
from usdenoise.sessions.filter_session import FilteredSession
from usdenoise.sessions.regions import RegionSeries, region_series
from usdenoise.stack.arrays import NamedArray
from usdenoise.stack.geometry import Geometry
from usdenoise.system.text import distinct_names, plain_name

FWHM = 2.3548
"""Full width at half maximum of a Gaussian of standard deviation 1."""

PROPOSED_PIXELS, MORE_ACTIVE, LEAST_ACTIVE = 2, 2, 20
"""Width of the Gaussian that is tried for the activation, in pixels, and how many times more active pixels, and how many at
least, it must give to be proposed."""

MOST_LOCKED, LOCKED_ERRORS = 0.5, 2.6
"""Correlation of the response with the motion of the image above which an activation is doubtful, and the same in standard
errors of a correlation by chance, 1 / sqrt(n_blocks): 1 % of short sessions without such motion have a higher one."""

MOST_CHANGE, MOST_DOUBTFUL = 100.0, 0.5
"""Change of the blood power in per cent, and share of the active pixels with a larger one, or outside the vessels at rest,
above which an activation is doubtful."""


POWER_NAMES = ("power_doppler", "blood_power")
"""Images whose means over the blocks of a session are stored."""

ACTIVATION: Mapping[str, Mapping[str, str]] = {
    "t": {"unit": "1", "meaning": "t of the response to the events in a general linear model"},
    "change": {"unit": "%", "meaning": "response in per cent of the baseline; NaN outside the vessels"},
}
"""Images of an activation map that are stored, and their attributes."""


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
            *activation_contents(
                self.events,
                spatial,
                {
                    name: {kind: getattr(found, kind) for kind in ACTIVATION}
                    for name, found in self.activation.items()
                },
            ),
        ]

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
        Type of event -> kind of image, of ACTIVATION -> its values.
    """
    groups = distinct_names((event.trial_type for event in events), partial(plain_name, space=" "))
    return [
        NamedArray(
            f"activation/{groups[name]}/{kind}",
            values,
            spatial_axes,
            {**ACTIVATION[kind], "trial_type": name},
        )
        for name, images in maps.items()
        for kind, values in images.items()
    ]


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


def with_activation(series: ResultSeries, events: Sequence[Event], options: SessionOptions) -> ResultSeries:
    """Return a series with the activation map of each type of event.

    Parameters
    ----------
    series : ResultSeries
        The series of a session.
    events : sequence of Event
        The events; none leave the series as it is.
    options : SessionOptions
        The shape of the response, and the smoothing.

    Raises
    ------
    InputError, OptionError
        As for :func:`usdenoise.sessions.activation.activation_maps`; if the times of the blocks or the pixel pitch are not
        known.
    """
    if not events:
        return series
    if series.time_unit != "s":
        raise OptionError(
            "events have times in s, and the frame rate is not known", remedy="give {frame_rate_hz}"
        )
    check_events(events, float(series.times[-1]))
    blood, spacing = series.images["blood_power"], series.geometry.spacing_mm
    pitches = [spacing.get(letter) for letter in series.geometry.spatial_axes]
    if options.smoothing_mm and None in pitches:
        raise OptionError("smoothing is in mm, and the pixel pitch is not known", remedy="give {spacing_mm}")
    in_vessels = blood_pixels(series.means["blood_power"], series.means["noise_power"])
    durations = np.array([block.n_frames for block in series.blocks]) / (series.geometry.frame_rate_hz or 1.0)
    confounds = {"motion": np.array([block.frames.moves_pixels for block in series.blocks])}
    if series.shifts is not None:
        moved = displacement_columns(series.shifts, series.geometry)[1]
        confounds["framewise_displacement"] = moved["framewise_displacement"]

    def maps(smoothing_mm: float) -> dict[str, ActivationMap]:
        values: NDArray[np.floating] = blood
        if smoothing_mm:
            values = smoothed_series(blood, [smoothing_mm / (FWHM * pitch) for pitch in pitches if pitch])
        return activation_maps(
            values, in_vessels, series.times, series.is_bad, events, confounds, options.hrf, durations
        )

    activation = maps(options.smoothing_mm)
    if not options.smoothing_mm and None not in pitches:
        width = float(f"{PROPOSED_PIXELS * max(pitch for pitch in pitches if pitch):.2g}")
        for name, smoothed in maps(width).items():
            found, n_smoothed = activation[name], int(smoothed.active.sum())
            if n_smoothed >= max(MORE_ACTIVE * int(found.active.sum()), LEAST_ACTIVE):
                activation[name] = replace(found, smoothing_mm=width, n_active_smoothed=n_smoothed)
    return replace(
        series,
        activation=activation,
        events=tuple(event for of_type in joined_events(events).values() for event in of_type),
        event_doubts=(*_event_doubts(series, events), *_activation_doubts(series, activation, confounds)),
    )


def _event_doubts(series: ResultSeries, events: Sequence[Event]) -> list[Doubt]:
    """Return the doubts about the times of blocks and events."""
    n_outside = sum(not is_within(event, float(series.times[-1])) for event in events)
    doubts = []
    if NO_STARTS in series.geometry.assumptions:
        doubts.append(Doubt("block-times", NO_STARTS))
    if n_outside:
        doubts.append(Doubt("events-outside", f"{n_outside} of {len(events)} events are outside the session"))
    return doubts


def _activation_doubts(
    series: ResultSeries,
    activation: Mapping[str, ActivationMap],
    confounds: Mapping[str, NDArray[np.float64]],
) -> list[Doubt]:
    """Return the doubts about activations: motion of the image with the events, and active pixels that are no vessels."""
    good, noise = ~series.is_bad, series.means["noise_power"]
    responses = {name: found.expected for name, found in activation.items()}
    is_rest = good & ~np.any([np.abs(one) > np.abs(one).max() / 2 for one in responses.values()], axis=0)
    bound = max(MOST_LOCKED, LOCKED_ERRORS / np.sqrt(np.count_nonzero(good)))
    doubts = []
    for name, found in activation.items():
        if not np.ptp(found.expected[good]):
            sentence = f"no good block is within an event of '{name}', or all are: it has no activation map"
            doubts.append(Doubt("events-outside", sentence))
            continue
        for confound, values in confounds.items():
            known = good & np.isfinite(values)
            if not (np.ptp(values[known]) and np.ptp(found.expected[known])):
                continue
            correlation = float(np.corrcoef(values[known], found.expected[known])[0, 1])
            if abs(correlation) > bound:
                sentence = (
                    f"the {confound.replace('_', ' ')} of the image correlates with the response to '{name}' by "
                    f"{correlation:.2f}: moving tissue and activation cannot be distinguished"
                )
                doubts.append(Doubt("locked-motion", sentence))
        n_active, change = int(found.active.sum()), found.change[found.active]
        if n_active and is_rest.any():
            rest = np.nanmean(series.images["blood_power"][is_rest], axis=0)
            n_outside = int((found.active & ~blood_pixels(rest, noise)).sum())
            if n_outside > MOST_DOUBTFUL * n_active:
                sentence = f"{n_outside} of {n_active} active pixels of '{name}' are outside the vessels in blocks at rest"
                doubts.append(Doubt("active-outside", sentence))
        n_large = n_active - int((np.abs(change) <= MOST_CHANGE).sum())
        if n_large > MOST_DOUBTFUL * n_active:
            sentence = (
                f"{n_large} of {n_active} active pixels of '{name}' change by more than {MOST_CHANGE:.0f} %"
            )
            doubts.append(Doubt("large-changes", sentence))
    return doubts


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
    columns["framewise_displacement"] = np.abs(np.diff(scaled, axis=0, prepend=scaled[:1])).sum(axis=1)
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
