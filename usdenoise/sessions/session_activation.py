"""The activation by the events of a session: its maps, how the tissue moves with the events, and the doubts about both."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.picture_quality import NOISE_ERROR, blood_pixels
from usdenoise.errors import OptionError
from usdenoise.options.job_options import SessionOptions
from usdenoise.pipeline.result import Doubt
from usdenoise.sessions.activation import (
    SIGNIFICANT,
    ActivationMap,
    ActivationMaps,
    BlockSeries,
    FoundDelay,
    activation_maps,
    common_delay,
    fit_series,
    noise_correlation,
    smoothed_series,
)
from usdenoise.sessions.blocks import NO_STARTS, time_unit
from usdenoise.sessions.design import (
    BASELINES,
    FIR,
    Design,
    Event,
    check_design,
    contrast_weights,
    delayed,
    design_of,
    is_within,
    joined_events,
    locked_correlation,
)
from usdenoise.sessions.regions import WHOLE_IMAGE, RegionResponse
from usdenoise.sessions.result_series import ResultSeries
from usdenoise.stack.geometry import Geometry

MOST_SMOOTHED = 0.25
"""Largest width of the smoothing over the shortest side of the image: more leaves nothing but its mean."""

FWHM = 2.3548
"""Full width at half maximum of a Gaussian of standard deviation 1."""

PROPOSED_PIXELS, MORE_ACTIVE, LEAST_ACTIVE = 2, 2, 20
"""Width of the Gaussian that is tried for the activation, in pixels, and how many times more active pixels, and how many at
least, it must give to be proposed."""

MORE_SHIFTED = 1.3
"""Active pixels, or gain of the likelihood, with another delay over those with the delay as it is, from which the delay is
doubtful."""

MOST_LOCKED = 0.5
"""Correlation of the motion of the image with the events above which an activation is doubtful, if it is significant."""

MATERIAL = {"motion": 0.05, "framewise_displacement": 0.05, "displacement": 0.05, "tissue_power": 0.3}
"""Measure of the motion of the tissue -> standard deviation of the part that follows the events, in wavelengths within a
block, in pixels from block to block, or in dB, from which it matters."""

MOST_CHANGE, MOST_DOUBTFUL = 100.0, 0.5
"""Change of the blood power in per cent, and share of the active pixels with a larger one, or outside the vessels at rest,
above which an activation is doubtful. Their number must be above what this share gives by chance: 5 of 5, or 9 of 10."""

MOST_PLANNED = 10_000
"""Blocks of a live session that are still to come within the events, at most."""


def check_activation(
    geometry: Geometry,
    block_times: tuple[NDArray[np.float64], NDArray[np.float64]],
    events: Sequence[Event],
    session: SessionOptions,
    is_planned: bool = False,
) -> None:
    """Check that the activation by some events can be mapped, before anything is filtered.

    Parameters
    ----------
    geometry : Geometry
        Axes and scales of the blocks.
    block_times : two (n_blocks,) arrays
        Middle and duration of each block, in s, in the order of time.
    events : sequence of Event
        The events; none for no activation maps.
    session : SessionOptions
        The response, the confounds and the smoothing.
    is_planned : bool
        As for :func:`usdenoise.sessions.design.check_design`; by default False.

    Raises
    ------
    InputError
        As for :func:`usdenoise.sessions.design.check_design`.
    OptionError
        If the times of the blocks or, for smoothing, the pixel pitch are not known.
    """
    if not events:
        session.refuse(["contrasts"], "requires events", "give {events} too")
        return
    if time_unit(geometry) != "s":
        problem = "events have times in s, and the frame rate is not known"
        raise OptionError(problem, remedy="give {frame_rate_hz}")
    if session.smoothing_mm and not set(geometry.spatial_axes) <= set(geometry.spacing_mm):
        raise OptionError("smoothing is in mm, and the pixel pitch is not known", remedy="give {spacing_mm}")
    # A volume may have a few planes
    in_plane = [letter for letter in geometry.spatial_axes if letter != "y"]
    sides = [geometry.shape_in(letter)[0] * geometry.spacing_mm.get(letter, math.inf) for letter in in_plane]
    if session.smoothing_mm > MOST_SMOOTHED * min(sides):
        raise OptionError(
            f"{session.smoothing_mm:g} mm is wider than a quarter of the image, whose shorter side is {min(sides):.3g} mm",
            option="smoothing_mm",
            remedy="lower it, or mend {spacing_mm}",
        )
    (times, durations), n_confounds = block_times, 0 if session.confounds == "none" else 2
    check_design(events, times, durations, session.hrf, n_confounds, is_planned)
    for contrast in session.contrasts:
        contrast_weights(contrast, joined_events(events))
    if not isinstance(session.delay, str) and session.delay and not is_planned:
        none_is_bad = np.zeros(len(times), bool)
        late = design_of(delayed(events, session.delay), times, durations, none_is_bad, hrf=session.hrf)
        problems = [*late.problems.values(), late.problem[0]]
        if problem := next(filter(None, problems), ""):
            problem = f"{session.delay:g} s does not fit the events: {problem}"
            raise OptionError(problem, option="delay", remedy="give another {delay}")


@dataclass(frozen=True)
class _Modelled:
    """The series of a session with its model, for any delay of the response.

    Attributes
    ----------
    series : ResultSeries
        The series.
    events : sequence of Event
        The events.
    motions : mapping
        How the tissue moves, from :func:`motion_measures`.
    confounds : mapping
        The columns of the motion.
    in_vessels : (spatial) boolean array
        Pixels that are tested.
    images : (n_blocks, spatial) array
        Blood power of the blocks, smoothed as the options say.
    """

    series: ResultSeries
    events: Sequence[Event]
    motions: Mapping[str, NDArray[np.float64]]
    confounds: Mapping[str, NDArray[np.float64]]
    in_vessels: NDArray[np.bool_]
    images: NDArray[np.floating]

    @classmethod
    def of(cls, series: ResultSeries, events: Sequence[Event]) -> Self:
        """Return the series with the confounds that its options ask for."""
        moves, gains = (series.movement[name].values for name in ("motion", "gain"))
        shifts = series.shifts
        motions = motion_measures(moves / series.geometry.displacement_unit[0], shifts, gains, ~series.bad)
        confounds = {}
        if series.options.confounds != "none":
            confounds["motion"] = moves
            if shifts is not None:
                moved = displacement_columns(shifts, series.geometry)[1]
                confounds["framewise_displacement"] = moved["framewise_displacement"]
        images = _smoothed(series, series.options.smoothing_mm)
        return cls(series, events, motions, confounds, series.vessels, images)

    def design(self, delay: float) -> Design:
        """Return the design for a delay of the response."""
        series, late = self.series, delayed(self.events, delay)
        about = series.time, series.durations, series.bad, self.confounds
        return design_of(late, *about, series.options.hrf, series.options.contrasts)

    def at(self, delay: float, smoothing_mm: float | None = None) -> BlockSeries:
        """Return the series and its design for a delay of the response, and another smoothing than that of the options."""
        images = self.images if smoothing_mm is None else _smoothed(self.series, smoothing_mm)
        return BlockSeries(
            images, self.in_vessels, self.design(delay), self.series.time, self.series.durations
        )


def with_activation(all_series: Sequence[ResultSeries], events: Sequence[Event]) -> list[ResultSeries]:
    """Return the series of a session with the activation map, and the responses of the regions, of each type of event.

    Parameters
    ----------
    all_series : sequence of ResultSeries
        The series, of one or several positions of the probe, and in their options the response, the confounds, the threshold
        and the smoothing. The delay and the significance are common to all positions.
    events : sequence of Event
        The events, which :func:`check_activation` accepts; none leave the series as they are.
    """
    if not events:
        return [*all_series]
    types, options = joined_events(events), all_series[0].options
    modelled = [_Modelled.of(series, events) for series in all_series]
    # The linear models: responses with one delay for all pixels, confounds and drift
    delay = 0.0 if isinstance(options.delay, str) else options.delay
    common = common_delay([each.at(delay) for each in modelled], events)
    if common is not None and isinstance(options.delay, str):
        delay = common.delay_s
    # Their maps, and whether another delay explains far more
    found = _maps_at(modelled, delay)
    timing = [*_delay_doubts(modelled, common, delay, found)]
    # The smoothing that would show far more, if there is none and the pitches are known
    geometry, proposed = all_series[0].geometry, [dict(maps) for maps in found]
    if not options.smoothing_mm and set(geometry.spatial_axes) <= set(geometry.spacing_mm):
        largest = max(geometry.spacing_mm[letter] for letter in geometry.spatial_axes)
        width = float(f"{PROPOSED_PIXELS * largest:.2g}")
        smoothed = _maps_at(modelled, delay, width)
        for name in types:
            if _n_active(smoothed, [name]) < max(MORE_ACTIVE * _n_active(found, [name]), LEAST_ACTIVE):
                continue
            for maps, with_width in zip(proposed, smoothed, strict=True):
                n_smoothed = int(with_width[name].active.sum())
                maps[name] = replace(maps[name], smoothing_mm=width, n_active_smoothed=n_smoothed)
    n_tests = sum(len(each.motions) * len(types) for each in modelled)
    pairs = zip(modelled, proposed, strict=True)
    return [_with_maps(each, delay, maps, timing, n_tests) for each, maps in pairs]


def _maps_at(modelled: Sequence[_Modelled], delay: float, fwhm: float | None = None) -> list[ActivationMaps]:
    """Return the maps of each series for a delay of the response, and a smoothing in mm, by default that of the options."""
    series = modelled[0].series
    seed = 0 if series.fit is None else series.fit.options.seed
    return activation_maps([each.at(delay, fwhm) for each in modelled], series.options.threshold, seed)


def _n_active(found: Sequence[ActivationMaps], names: Iterable[str]) -> int:
    """Return how many pixels are active in the maps of some types of events."""
    return sum(int(maps[name].active.sum()) for maps in found for name in names)


def _delay_doubts(
    modelled: Sequence[_Modelled], common: FoundDelay | None, delay: float, found: Sequence[ActivationMaps]
) -> Iterator[Doubt]:
    """Yield the doubts about the delay of the maps: of all types of events, and of a type that has another one."""
    series, given, types = modelled[0].series, delay, joined_events(modelled[0].events)
    least = float(np.median(np.diff(series.time))) / 2
    if isinstance(series.options.delay, str) and (common is None or np.isfinite(common.fall_s)):
        none = "no delay has a response in both halves of the vessels: the response has none"
        yield Doubt("delay", f"the blocks show {common.words}: the maps assume the rise" if common else none)

    def own_delay(name: str) -> FoundDelay | None:
        return common_delay([each.at(given) for each in modelled], types[name])

    # A type that is misplaced misleads the others: first the one that gains most
    gains = {name: own.gain if (own := own_delay(name)) else 0.0 for name in types if len(types) > 1}
    for name in ["", *sorted(gains, key=gains.__getitem__, reverse=True)]:
        names, of_type, later = ([name], f" to '{name}'", own_delay(name)) if name else ([*types], "", common)
        if later is None or abs(late := later.delay_s - delay) <= least:
            continue
        events = [delayed([each], late * (each.trial_type in names))[0] for each in modelled[0].events]
        moved = [replace(each, events=events) for each in modelled]
        shifted = _maps_at(moved, given)
        n_found, n_shifted = _n_active(found, names), _n_active(shifted, names)
        # All types may explain more without more active pixels, or be a fall that is a rise with another delay
        is_better = not name and (later.gain >= MORE_SHIFTED or abs(later.fall_s - delay) < abs(late))
        if is_better or n_shifted >= max(MORE_SHIFTED * n_found, LEAST_ACTIVE):
            side = "late" if late > 0 else "early"
            about = f"the response{of_type} is {abs(late):.2g} s {side}: {later.words}"
            shown = f"{n_shifted} pixels are active, {n_found} with {delay:.2g} s"
            yield Doubt("delay", f"{about} explains {later.gain:.2g} times as much of the vessels: {shown}")
            modelled, found, delay = moved, shifted, delay if name else later.delay_s


def _with_maps(
    modelled: _Modelled, delay: float, maps: ActivationMaps, timing: Sequence[Doubt], n_tests: int
) -> ResultSeries:
    """Return a series with its maps, the responses of its regions, and the doubts, after some tests of motion in all."""
    series, design, types = modelled.series, modelled.design(delay), joined_events(modelled.events)
    of_types, locked = dict[str, ActivationMap](), list[Doubt]()
    for name, events in types.items():
        correlations, doubts = _motion_with_events(name, events, modelled, n_tests)
        of_types[name] = replace(maps[name], correlations=correlations)
        locked += doubts
    return replace(
        series,
        delay_s=delay,
        activations={**maps, **of_types},
        region_series={
            name: replace(region, responses=region_responses(region.blood_power, design))
            for name, region in series.region_series.items()
        },
        events=tuple(event for events in types.values() for event in events),
        event_doubts=(
            *series.event_doubts,
            *_event_doubts(modelled, design),
            *locked,
            *timing,
            *_activation_doubts(series, of_types, design),
        ),
    )


def _smoothed(series: ResultSeries, width_mm: float) -> NDArray[np.floating]:
    """Return the blood power of the blocks, smoothed by a Gaussian of a full width at half maximum in mm; 0 for none."""
    blood, spacing = series.images["blood_power"], series.geometry.spacing_mm
    if not width_mm:
        return blood
    sigmas = [width_mm / (FWHM * spacing[letter]) for letter in series.geometry.spatial_axes]
    return smoothed_series(blood, sigmas)


def region_responses(blood_power: NDArray[np.float64], design: Design) -> dict[str, RegionResponse]:
    """Return the response of a region to each type of event, and each contrast, by the linear model of the maps.

    Parameters
    ----------
    blood_power : (n_blocks,) array
        Mean blood power of the region in each block; NaN without data.
    design : Design
        The columns. The autocorrelation of the noise is the one of the region alone.
    """
    from scipy.special import stdtrit

    fitted, responses, baseline = fit_series(blood_power[:, None], design), {}, math.nan
    if fitted.baseline[0] > 0:
        # A change needs significant blood to refer to
        known = blood_power[np.isfinite(blood_power) & ~design.is_bad]
        least = stdtrit(len(known) - 1, 1 - SIGNIFICANT) * np.std(known, ddof=1) / math.sqrt(len(known))
        baseline = float(fitted.baseline[0]) if known.mean() > least else math.nan
    for name in design.expected:
        change = 100 * design.tested[name] @ fitted.effects[:, 0] / baseline
        statistic, letter = float(fitted.statistics[name][0]), "t" if design.has_t(name) else "F"
        p = float(fitted.p[name][0]) if math.isfinite(statistic) else math.nan
        error = float(change[0] / statistic) if design.has_t(name) and statistic != 0 else math.nan
        responses[name] = RegionResponse(name, tuple(change.tolist()), error, letter, statistic, p)
    return responses


def region_correlations(series: ResultSeries) -> dict[tuple[str, str], tuple[float, int]]:
    """Return the correlation of each pair of regions besides drift, motion and responses, and its degrees of freedom.

    It is NaN if the times of the blocks are not known in s, and as for
    :func:`usdenoise.sessions.activation.noise_correlation`. Regions of several positions have no motion in common.
    """
    # Regions are means of the series that are not smoothed.
    unsmoothed = replace(series, options=replace(series.options, smoothing_mm=0.0))
    design = _Modelled.of(unsmoothed, series.events).design(series.delay_s)
    unit = 1.0 if series.time_unit == "s" else math.nan
    courses = {name: unit * region.blood_power for name, region in series.region_series.items()}
    pairs = combinations([name for name in courses if name != WHOLE_IMAGE], 2)
    return {pair: noise_correlation(np.stack([courses[name] for name in pair], 1), design) for pair in pairs}


def _motion_with_events(
    name: str, events: Sequence[Event], modelled: _Modelled, n_tests: int
) -> tuple[dict[str, float], list[Doubt]]:
    """Return how each measure of motion correlates with the events of a type, and the doubt about the strongest."""
    correlations, strongest, series = dict[str, float](), (0.0, ""), modelled.series
    for measure, values in modelled.motions.items():
        at = np.where(series.bad, np.nan, values)
        correlation, size, p = locked_correlation(at, series.time, series.durations, events)
        correlations[measure] = correlation
        if correlation > MOST_LOCKED and p * n_tests < SIGNIFICANT and size > MATERIAL[measure]:
            unit = {"tissue_power": "dB", "motion": "wavelengths"}.get(measure, "pixels")
            sentence = (
                f"the {measure.replace('_', ' ')} follows the events '{name}' (correlation {correlation:.2f}, {size:.2g} "
                f"{unit} rms): the stimulus moves the tissue, which cannot be distinguished from activation"
            )
            strongest = max(strongest, (correlation, sentence))
    return correlations, [Doubt("activation", strongest[1])] if strongest[1] else []


def motion_measures(
    moves: NDArray[np.float64],
    shifts: NDArray[np.float64] | None,
    gains_db: NDArray[np.float64],
    is_good: NDArray[np.bool_],
) -> dict[str, NDArray[np.float64]]:
    """Return how the tissue moves in each block of a session: name -> values, NaN where not known.

    Parameters
    ----------
    moves, gains_db : (n_blocks,) arrays
        Largest displacement within each block in wavelengths, and gain of its tissue in dB.
    shifts : (n_blocks, n_axes) array or None
        Displacement of each block in pixels; None if blocks are not aligned.
    is_good : (n_blocks,) boolean array
        Good blocks.

    Returns
    -------
    dict
        "motion" within a block and "tissue_power", if known of any; "framewise_displacement" (the sum over the axes);
        "displacement" along the direction in which the blocks are displaced most, without a parabola over the session.
    """
    known_of_blocks = {"tissue_power": gains_db, "motion": moves}
    measures = {name: values for name, values in known_of_blocks.items() if np.isfinite(values).any()}
    if shifts is not None:
        measures["framewise_displacement"] = framewise_displacement(shifts)
        known = np.isfinite(shifts).all(axis=1) & is_good
        trend = np.polynomial.polynomial.polyvander(np.linspace(-1, 1, len(shifts)), 2)
        if known.sum() > trend.shape[1]:
            steady = shifts - trend @ np.linalg.lstsq(trend[known], shifts[known])[0]
            measures["displacement"] = steady @ np.linalg.svd(steady[known], full_matrices=False)[2][0]
    return measures


def _event_doubts(modelled: _Modelled, design: Design) -> Iterator[Doubt]:
    """Yield the doubts about the times of blocks and events, and about the design."""
    series, events = modelled.series, modelled.events
    if NO_STARTS in series.geometry.assumptions:
        yield Doubt("block-times", NO_STARTS)
    end = float((series.time + series.durations / 2).max())
    if n_outside := sum(not is_within(event, end) for event in events):
        yield Doubt("design", f"{n_outside} of {len(events)} events are outside the session")
    # The design was right for all blocks, and may not be for the good ones and their motion.
    if problem := design.problem[0]:
        yield Doubt("design", f"in the good blocks, {problem}")
    for name in design.expected:
        if name.strip().lower() in BASELINES:
            sentence = (
                f"'{name}' is a condition of the model, so other types are compared with the blocks outside all events; "
                "omit it from the events if it is the baseline"
            )
            yield Doubt("design", sentence)


def _activation_doubts(
    series: ResultSeries, activation: Mapping[str, ActivationMap], design: Design
) -> Iterator[Doubt]:
    """Yield the doubts about activations: types that no block sees, and active pixels that are no vessels."""
    good, noise = ~series.bad, series.means.get("noise_power")
    responses = [found.expected for found in activation.values()]
    is_rest = good & ~np.any([np.abs(one) > np.abs(one).max() / 2 for one in responses], axis=0)
    from scipy.special import bdtrc

    for name, found in activation.items():
        if name in design.problems:
            yield Doubt("design", f"{design.problems[name]}: it has no activation map")
            continue
        n_active = int(found.active.sum())
        of_type = f"of {n_active} active pixels of '{name}'"
        if n_active and is_rest.any() and noise is not None:
            rest = np.nanmean(series.images["blood_power"][is_rest], axis=0)
            n_outside = int((found.active & ~blood_pixels(rest, noise, NOISE_ERROR)).sum())
            if bdtrc(n_outside - 1, n_active, MOST_DOUBTFUL) < SIGNIFICANT:
                yield Doubt("activation", f"{n_outside} {of_type} are outside the vessels in blocks at rest")
        assert found.change is not None
        # The change is the one of a long event. A short one does not reach it.
        peak = 1.0 if design.is_free else float(np.abs(found.expected[good]).max())
        changes = peak * np.abs(found.change).reshape(-1, *found.active.shape).max(axis=0)[found.active]
        n_large = n_active - int((changes <= MOST_CHANGE).sum())
        if bdtrc(n_large - 1, n_active, MOST_DOUBTFUL) < SIGNIFICANT:
            yield Doubt("activation", f"{n_large} {of_type} change by more than {MOST_CHANGE:.0f} %")


def framewise_displacement(shifts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum over the axes of the absolute changes of shifts, (n_blocks, n_axes); 0 for the first block."""
    return np.asarray(np.abs(np.diff(shifts, axis=0, prepend=shifts[:1])).sum(axis=1))


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
    letters, spacing = geometry.pixel_axes, geometry.spacing_mm
    columns = {f"shift_{letter}": shifts[:, axis] for axis, letter in enumerate(letters)}
    for axis, letter in enumerate(letters):
        if letter in spacing:
            columns[f"shift_{letter}_mm"] = shifts[:, axis] * spacing[letter]
    is_known = set(letters) <= set(spacing)
    scaled = shifts * np.array([spacing[letter] for letter in letters]) if is_known else shifts
    columns["framewise_displacement"] = framewise_displacement(scaled)
    return "mm" if is_known else "pixels", columns


def running_activation(
    images: Sequence[NDArray[np.float32]],
    events: Sequence[Event],
    times: NDArray[np.float64],
    durations: NDArray[np.float64],
    bad: NDArray[np.bool_],
    motion: NDArray[np.float64],
    hrf: str,
) -> tuple[dict[str, NDArray[np.float32]], str]:
    """Return the activation of a live session so far.

    Parameters
    ----------
    images : sequence of arrays
        Blood power of each block so far; NaN without data.
    events : sequence of Event
        The events so far, one at least.
    times, durations, bad, motion : (n_blocks,) arrays
        Middle of each block and its duration in s, whether it is bad, and the largest displacement in it (NaN: unknown).
    hrf : str
        As for :func:`usdenoise.sessions.design.design_of`; free responses are boxcars while there are few blocks.

    Returns
    -------
    activation : dict
        Type of event -> t of the response; empty while it cannot be estimated.
    problem : str
        Which responses depend on each other, in words, when the last of the events is over; empty if none do.
    """
    hrf = "boxcar" if hrf.startswith(FIR) else hrf
    # Before the first pause of a right design, responses depend on each other in the blocks so far.
    interval = float(np.median(np.diff(times))) if len(times) > 1 else float(durations[0])
    last = max(event.onset + event.duration for event in events)
    n_more = math.ceil(min(max(0.0, last - times[-1]) / max(interval, 1e-6), MOST_PLANNED))
    planned = np.concatenate([times, times[-1] + interval * np.arange(1, n_more + 1)])
    lengths = np.concatenate([durations, np.full(n_more, np.median(durations))])
    problem = design_of(events, planned, lengths, np.zeros(len(planned), bool), hrf=hrf).dependence[0]
    # The blocks settle while there are few: the line of the drift stands for that, too. The first event is shown at once.
    design = design_of(events, times, durations, bad, {"motion": motion}, hrf, least_events=1)
    if problem or not design.responses:
        return {}, problem
    fitted = fit_series(images, design).statistics
    known = [name for name in design.responses if np.isfinite(fitted[name]).any()]
    return {name: fitted[name].astype(np.float32) for name in known}, ""
