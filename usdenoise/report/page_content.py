"""What the page of a scan shows besides its report: pictures in words, noise over depth, curves over the frames."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.picture_quality import blood_pixels
from usdenoise.frames.frame_quality import CARPET_BANDS, FrameQuality
from usdenoise.report.charts import BLOCKS_DB, CARPET_DB, Carpet, Chart, template
from usdenoise.report.panels import AXIS_NAMES, axis_label
from usdenoise.report.pictures import PICTURES, REGIONS
from usdenoise.report.record import ActivationRecord, ModelReport
from usdenoise.report.scan_page import ActivationSection, Picture, scan_page
from usdenoise.report.sentences import displacement_text
from usdenoise.sessions.design import Event
from usdenoise.sessions.live_state import SessionUpdate
from usdenoise.sessions.regions import mean_course, relative_change
from usdenoise.sessions.result_series import ResultSeries
from usdenoise.stack.geometry import GriddedStack
from usdenoise.system.text import rate_text

NOISE_SPAN_DB = 6.0
"""Smallest range of the chart of the noise in dB: a receiver's noise that is even looks even."""

LEAST_MOTION = 0.02
"""Smallest range of curves of the displacement of the tissue, in wavelengths."""

_SIGNED_IMAGES = ("axial_velocity", "signed_power")

BLOOD_COURSE, BLOCK_MOTION = "Blood power over the vessels", "Motion in each block"
"""Titles of two of the curves over the blocks, which a page of several positions shows of each."""

_Curve = tuple[str, Sequence[float | None], float]
"""Unit, values and smallest range of a curve."""


def page_of(
    stem: str,
    series: ResultSeries,
    report: ModelReport,
    pictures: Mapping[str, bytes],
    activations: Mapping[str, bytes],
) -> str:
    """Return the page of a job: its pictures, curves and report; for several blocks, the pictures are means.

    Parameters
    ----------
    stem : str
        Name of the scan.
    series : ResultSeries
        The filtered blocks.
    report : ModelReport
        The report.
    pictures : mapping
        Name of each picture in the order of the page -> PNG.
    activations : mapping
        Type of event -> PNG of its activation map.
    """
    stack = series.geometry
    # Power Doppler comes first if the blood map lacks what it shows.
    is_incomplete = any(doubt.code == "map-incomplete" for doubt in report.doubts)
    names = sorted(pictures, key=lambda name: is_incomplete and name != "power_doppler")
    over_blocks = {"Blocks": block_charts(series)} if series.is_session and not series.by_pose else {}
    for plane, of_pose in zip(series.planes, series.by_pose.values(), strict=True):
        shown = [chart for chart in block_charts(of_pose) if chart.title in (BLOOD_COURSE, BLOCK_MOTION)]
        over_blocks[f"Blocks of {plane}"] = shown
    return scan_page(
        stem,
        report,
        [picture_of(name, pictures[name], series) for name in names if name != REGIONS],
        noise_over_depth(series.means["noise_power"], stack) if series.fit is not None else [],
        [] if series.stack is None else frame_charts(series.stack.frame_quality, stack),
        over_blocks,
        [_activation_section(series, trial_type, png) for trial_type, png in activations.items()],
        _regions(report, pictures[REGIONS]) if REGIONS in pictures else None,
    )


def picture_of(name: str, png: bytes, series: ResultSeries) -> Picture:
    """Return a picture of a result with its title, its description in words, and its caption."""
    text = PICTURES[name]
    unit = series.attributes[text.image]["unit"]
    words = described_image(text.image, series.means[text.image], series.geometry, unit)
    caption = text.caption
    # Each of several planes has a quality of its own.
    quality = series.picture_quality
    if name == "blood_power" and quality is not None and quality.lost_share is None and not series.planes:
        caption = "No blood was found: the picture shows noise, on its own scale."
    elif series.is_session and name != "tsnr":
        caption = f"Mean of the good blocks. {caption}"
    return Picture(text.title, png, f"{text.title}: {words}", caption)


def _regions(report: ModelReport, png: bytes) -> Picture:
    """Return the picture of the regions, with the range of each in words."""
    regions = () if report.sequence is None else report.sequence.regions
    words = f"Blood power of regions in the good blocks: {', '.join(f'{each.title} {each.range}' for each in regions)}"
    return Picture("Regions", png, words, f"{words}, against the mean of each.")


def _activation_section(series: ResultSeries, trial_type: str, png: bytes) -> ActivationSection:
    """Return the section of a type of event: its picture, and the course of the active pixels beside the design."""
    activation = series.activations[trial_type]
    record = ActivationRecord.of(trial_type, activation)
    events = [event for event in series.events if trial_type in ("", event.trial_type)]
    lines: dict[str, _Curve] = {"Expected response": ("", activation.expected.tolist(), 1.0)}
    if activation.threshold is not None:
        lines["Mean of the active pixels"] = "% from the mean", _known(activation.course - 100), 5.0
    bad = series.time[series.bad].tolist()
    charts = _curves(lines, f"time ({series.time_unit})", series.time.tolist(), bad, events)
    if activation.t is None and activation.change is not None and activation.threshold is not None:
        response = _known(np.nanmean(activation.change[:, activation.active], axis=1).astype(np.float64))
        label = "Mean response of the active pixels", "blocks after the onset", "% of the baseline"
        charts.append(Chart(*label, range(len(response)), response, least_span=5.0))
    caption = f"{activation.letter} of the active pixels over the blood map."
    if series.planes:
        caption += (
            " Planes with most active pixels first. The significance is among the pixels of all positions."
        )
    picture = Picture(record.title, png, record.title, caption)
    words = [f"{record.proposal.capitalize()}."] if record.proposal else []
    if record.correlations:
        known = ", ".join(
            f"{name.replace('_', ' ')} {value:.2f}" for name, value in record.correlations.items()
        )
        words.append(f"Correlation of the motion of the tissue with the events: {known}.")
    return ActivationSection(record.name, picture, charts, " ".join(words))


def block_charts(series: ResultSeries) -> Sequence[Chart | Carpet]:
    """Return the curves over the blocks of a session, in which bad blocks are marked, and the carpet of their blood.

    Parameters
    ----------
    series : ResultSeries
        The session.
    """
    blocks, mean = series.block_records, series.means["blood_power"]
    blood = series.images["blood_power"].astype(np.float64)
    noise = series.means.get("noise_power")
    is_blood = series.vessels if noise is None else blood_pixels(mean, noise)
    lines: dict[str, _Curve] = {}
    if is_blood.any():
        change = 100 * (mean_course(blood[:, is_blood]) / mean[is_blood].mean(dtype=np.float64) - 1)
        lines[BLOOD_COURSE] = "% from the mean", _known(change), 5.0
    left = [block.leftover for block in blocks]
    lines["Remaining power, against the other blocks"] = "robust standard deviations", left, 8.0
    scale, unit = series.geometry.displacement_unit
    moves = [block.frames.displacement for block in blocks]
    lines[BLOCK_MOTION] = unit, moves, LEAST_MOTION * scale
    if series.shifts is not None and any(block.is_shifted for block in blocks):
        for letter, shift in zip(series.geometry.pixel_axes, series.shifts.T, strict=False):
            lines[f"Displacement in {letter}, before registration"] = "pixels", _known(shift), 0.2
    if series.shifts is not None:
        likeness = [block.likeness for block in blocks]
        lines["Likeness to the image of the session"] = "correlation", likeness, 0.2
    if any(block.deformation_pixels for block in blocks):
        for name, rotation in series.rotations.items():
            title = f"{name.replace('_', ' ').capitalize()}, before correction"
            lines[title] = "degrees", _known(rotation), 0.5
    if any(block.is_scaled for block in blocks):
        lines["Gain, before correction"] = "dB", [block.gain_db for block in blocks], 0.5
    along, bad = f"time ({series.time_unit})", series.time[series.bad].tolist()
    charts = _curves(lines, along, series.time.tolist(), bad, series.events)
    if not is_blood.any():
        return charts
    ratios = blood[:, is_blood] / mean[is_blood]
    n_blocks, n_pixels = ratios.shape
    bands = np.array_split(ratios, min(CARPET_BANDS, n_pixels), axis=1)
    carpet = np.stack([np.maximum(np.nan_to_num(band.mean(axis=1)), 0) for band in bands], dtype=np.float32)
    interval = float(np.median(np.diff(series.time))) if n_blocks > 1 else 1.0
    reference = f"the mean of each of {len(bands)} bands of pixels; {n_blocks} blocks"
    return [*charts, Carpet("Blood by depth", reference, along, carpet, BLOCKS_DB, interval)]


def _curves(
    lines: Mapping[str, _Curve],
    along: str,
    places: Sequence[float],
    flagged: Sequence[float],
    events: Sequence[Event] = (),
) -> list[Chart]:
    """Return curves over one axis, on which some places are marked."""
    return [
        Chart(title, along, unit, places, values, flagged=flagged, least_span=span, events=events)
        for title, (unit, values, span) in lines.items()
    ]


def live_page_of(
    stem: str,
    update: SessionUpdate,
    pictures: Sequence[Picture],
    activations: Mapping[str, bytes],
    n_waiting: int,
    delay_s: float,
    frames_a_second: float,
) -> Callable[..., str]:
    """Return the page of a live session: the page of a session with the sections that it has before there is a report.

    The page loads itself again until the session is finished. What is returned takes the rest: `remarks` in sentences,
    `final_page`, the name of the page of the finished session, or None while blocks come, and `is_finished`, whether the
    final series was written, or None while that is not known.

    Parameters
    ----------
    stem : str
        Name of the session.
    update : SessionUpdate
        The state after the last block.
    pictures : sequence of Picture
        The last block, and the mean.
    activations : mapping
        Type of event -> PNG of its activation so far.
    n_waiting : int
        Number of files that wait for the filter.
    delay_s : float
        Seconds from the file of the last block to its picture.
    frames_a_second : float
        Frames that are filtered in a second.
    """
    lines: dict[str, _Curve] = {
        f"Blood power: {name}": ("% from the mean", relative_change(values, update.bad).tolist(), 5.0)
        for name, values in update.series.items()
    }
    scale, unit = update.geometry.displacement_unit
    lines[BLOCK_MOTION] = unit, _known(update.motion), LEAST_MOTION * scale
    sections = []
    for name, png in activations.items():
        title = f"t of {name} so far"
        picture = Picture(title, png, title, "t above the bound, over the blood map.")
        sections.append(ActivationSection(name, picture, ()))
    along, bad = f"time ({update.time_unit})", update.times[update.bad].tolist()
    curves = _curves(lines, along, update.times.tolist(), bad, update.events)
    return partial(
        template("scan.html").render,
        name=stem,
        report=None,
        update=update,
        n_waiting=n_waiting,
        delay_s=delay_s,
        speed=rate_text(frames_a_second),
        motion=displacement_text(update.motion[-1], update.geometry),
        pictures=pictures,
        block_charts={"Blocks": curves},
        activations=sections,
    )


def _known(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]


def described_image(name: str, values: NDArray[np.floating], stack: GriddedStack, unit: str) -> str:
    """Return the description of an image in words: its size, and where it is brightest or what its values are.

    Parameters
    ----------
    name : str
        Name of the image.
    values : array
        Its values, with the spatial axes of the stack.
    stack : Geometry or Acquisition
        Where axes and spacing come from.
    unit : str
        Unit of the values.
    """
    axes, spacing = stack.spatial_axes, stack.spacing_mm
    names = [AXIS_NAMES[letter] for letter in axes]
    size = f"{' × '.join(map(str, values.shape))} pixels ({' × '.join(names)})"
    if all(letter in spacing for letter in axes):
        lengths = (f"{n * spacing[letter]:.3g}" for letter, n in zip(axes, values.shape, strict=True))
        size += f", {' × '.join(lengths)} mm"
    if not values.size or not np.isfinite(values).all():
        return size
    if name in _SIGNED_IMAGES:
        low, high = (float(value) for value in np.percentile(values, (1, 99)))
        towards = 100 * float((values > 0).mean())
        return (
            f"{size}; 98 % of the values from {low:.3g} to {high:.3g} {unit}; {towards:.0f} % of the pixels towards the "
            "probe"
        )
    strongest, middle = float(values.max()), float(np.median(values))
    if not strongest > 0:
        return f"{size}; no power anywhere"
    peak = np.unravel_index(int(np.argmax(values)), values.shape)
    where = ", ".join(
        f"{name} {index * spacing[letter]:.3g} mm" if letter in spacing else f"{name} {index} pixels"
        for name, letter, index in zip(names, axes, peak, strict=True)
    )
    above = f", {10 * math.log10(strongest / middle):.0f} dB above the median" if middle > 0 else ""
    return f"{size}; brightest at {where}{above}"


def noise_over_depth(noise: NDArray[np.floating], stack: GriddedStack) -> list[Chart]:
    """Return the chart of the mean noise power over the depth; none without noise, or in a plane across the depth.

    Parameters
    ----------
    noise : array
        Linear noise power, with the spatial axes of `stack`.
    stack : Geometry or Acquisition
        Where axes and spacing come from.
    """
    depth = stack.spatial_axes.find("z")
    others = tuple(axis for axis in range(noise.ndim) if axis != depth)
    mean = noise.mean(axis=others, dtype=np.float64)
    if depth < 0 or not (mean > 0).any():
        return []
    labels = "Noise over depth", axis_label("z", stack.spacing_mm), "noise power (dB)"
    depths = [number * stack.spacing_mm.get("z", 1.0) for number in range(len(mean))]
    return [Chart(*labels, depths, _levels(mean), least_span=NOISE_SPAN_DB)]


def frame_charts(quality: FrameQuality, stack: GriddedStack) -> list[Chart | Carpet]:
    """Return the curves over the frames, in which bad frames are marked, and the carpet: bands of pixels over the frames.

    Parameters
    ----------
    quality : FrameQuality
        Bad frames and curves of the result.
    stack : GriddedStack
        Axes and scales. Without a frame rate the curves are over the numbers of the frames.
    """
    curves, (scale, unit) = quality.curves, stack.displacement_unit
    lines: dict[str, _Curve] = {
        "Power of each frame": ("mean power (dB)", _levels(curves.intensity), 1.0),
        "Change from the previous frame (DVARS)": ("rms, units of the file", _known(curves.dvars), 0.0),
        "Power outside the clutter": ("mean power (dB)", _levels(curves.outside), 1.0),
    }
    if np.isfinite(curves.displacement).any():
        middle, farthest = scale * curves.displacement.T
        lines["Displacement of the tissue along depth, median"] = unit, _known(middle), LEAST_MOTION * scale
        lines["The same, 95th percentile of the image"] = unit, _known(farthest), LEAST_MOTION * scale
    along, step = ("frame", 1.0) if stack.frame_rate_hz is None else ("time (s)", 1.0 / stack.frame_rate_hz)
    times = [number * step for number in range(len(curves.dvars))]
    charts = _curves(lines, along, times, [times[frame.frame] for frame in quality.bad])
    n_bands, n_frames = curves.carpet.shape
    band, frame = np.unravel_index(int(np.argmax(curves.carpet)), curves.carpet.shape)
    reference = (
        f"the median of each of {n_bands} bands of pixels; {n_frames} frames; largest at frame {frame} in band {band}, "
        "counted from 0 at the top"
    )
    title = "Power outside the clutter by depth"
    return [*charts, Carpet(title, reference, along, curves.carpet, CARPET_DB, step)]


def _levels(power: NDArray[np.floating]) -> list[float | None]:
    return [10 * math.log10(value) if value > 0 else None for value in power.tolist()]
