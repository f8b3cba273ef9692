"""Where a session reacts to events: a general linear model of its series."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError

FALSE_DISCOVERY_RATE = 0.05
"""Expected share of pixels without a response among the active pixels (Benjamini and Hochberg)."""

LEAST_FREE = 4
"""Degrees of freedom from which a running t is shown."""

LEAST_APART = 0.5
"""Energy of a response at another time outside the design, over the median of all such responses, from which it counts."""

LEAST_OWN = 1e-6
"""Energy of a response that no other column has, over its energy, from which it can be fitted."""

ROUNDING_S = 1e-6
"""Time in s by which two events may overlap: 0.1 + 0.2 is above 0.3."""

RESPONSE_STEP_S, TIMES_A_BLOCK = 0.1, 9
"""Step in s in which a response is computed if it is no boxcar, and times whose mean is the response of a block."""

SLOWEST_HZ, PERIODS = 0.01, 2.0
"""Cosines are drift below SLOWEST_HZ, or below 1 / (PERIODS x longest time between onsets of one type) if that is lower."""


@dataclass(frozen=True)
class Event:
    """An event.

    Attributes
    ----------
    onset, duration : float
        When it begins, from the first frame of the session, and how long it is, in s.
    trial_type : str
        Its condition.
    """

    onset: float
    duration: float
    trial_type: str


@dataclass(frozen=True, repr=False)
class ActivationMap:
    """How the pixels react to one type of event.

    Attributes
    ----------
    t : (spatial) float32 array
        t of the response; NaN in pixels without a series.
    change : (spatial) float32 array
        The response in per cent of the baseline; NaN outside the vessels.
    active : (spatial) boolean array
        Pixels in vessels whose response is significant at a false discovery rate of 0.05, in either direction.
    threshold : float or None
        Least absolute t of the active pixels; None without any.
    expected : (n_blocks,) array
        The response that the model expects, without the drift.
    course : (n_blocks,) array
        Mean blood power of the active pixels in per cent of their mean; NaN without any.
    columns : tuple of str
        Columns of the model.
    smoothing_mm : float or None
        Full width of a Gaussian with which far more pixels would be active; None (the default) for none.
    n_active_smoothed : int or None
        Number of these pixels; None (the default) without such a width.
    """

    t: NDArray[np.float32]
    change: NDArray[np.float32]
    active: NDArray[np.bool_]
    threshold: float | None
    expected: NDArray[np.float64]
    course: NDArray[np.float64]
    columns: tuple[str, ...] = ()
    smoothing_mm: float | None = None
    n_active_smoothed: int | None = None

    def __repr__(self) -> str:
        """Describe the content in one line."""
        least = "" if self.threshold is None else f", |t| of {self.threshold:.2f} or more"
        return f"<ActivationMap: {int(self.active.sum())} active pixels{least}>"


def is_within(event: Event, last: float) -> bool:
    """Return whether an event overlaps a session whose last block is at a time in s."""
    return event.onset <= last and event.onset + event.duration >= 0


def check_events(events: Sequence[Event], last: float) -> None:
    """Check that events are within a session, and that no two types overlap.

    Parameters
    ----------
    events : sequence of Event
        The events.
    last : float
        Time of the last block, in s.

    Raises
    ------
    InputError
        If they are not.
    """
    if not any(is_within(event, last) for event in events):
        raise InputError(
            f"no event is within the session, whose last block is at {last:.4g} s",
            remedy="give the onsets in s from the first frame",
        )
    for one, other in combinations(sorted(events, key=lambda event: event.onset), 2):
        if one.trial_type != other.trial_type and other.onset < one.onset + one.duration - ROUNDING_S:
            raise InputError(
                f"the events '{one.trial_type}' at {one.onset:g} s and '{other.trial_type}' at {other.onset:g} s overlap"
            )


def activation_maps(
    block_powers: NDArray[np.floating],
    in_vessels: NDArray[np.bool_],
    times: NDArray[np.float64],
    is_bad: NDArray[np.bool_],
    events: Sequence[Event],
    confounds: Mapping[str, NDArray[np.float64]] | None = None,
    hrf: str = "boxcar",
    durations: NDArray[np.float64] | None = None,
) -> dict[str, ActivationMap]:
    """Fit a general linear model to the series of a session, and return a map for each type of event.

    The model has a column for each type, cosines for slow drifts, the confounds, and a column for each bad block. Its noise
    is autoregressive of order 1, with one coefficient for the image: with one for each pixel, as nilearn estimates it, t has
    a standard deviation of 1.09 in white noise of 40 blocks, and 20 % of the maps have active pixels. t is divided by its
    root mean square for the same events at other times, if this is above 1: leaked tissue has slow changes that the model
    does not have.

    Parameters
    ----------
    block_powers : (n_blocks, spatial) array
        Blood power of each block; NaN in blocks without data.
    in_vessels : (spatial) boolean array
        Pixels that are tested.
    times : (n_blocks,) array
        Middle of each block, in s.
    is_bad : (n_blocks,) boolean array
        Bad blocks.
    events : sequence of Event
        The events.
    confounds : mapping, optional
        Name -> values of each block, (n_blocks,), that change the series besides the events, such as its motion; by default
        none. NaN counts as 0, and a constant one is not in the model.
    hrf : str
        "boxcar", "glover" or "spm"; by default "boxcar".
    durations : (n_blocks,) array, optional
        Duration of each block, in s, over which its response is averaged; by default it is the response at its middle.

    Raises
    ------
    InputError
        If there are too few blocks for the model.
    OptionError
        If nilearn is not installed.

    References
    ----------
    Friston et al., "Statistical parametric maps in functional imaging: a general linear approach", Human Brain Mapping 2,
    1995. Benjamini and Hochberg, "Controlling the false discovery rate", J. R. Stat. Soc. B 57, 1995.
    """
    from scipy.stats import t as student_t

    glm, durations = _import_nilearn(), np.zeros(len(times)) if durations is None else durations
    responses = {
        name: _response(of_type, times, durations, hrf) for name, of_type in joined_events(events).items()
    }
    # A type whose events no good block sees has no response to fit.
    seen = {name: course for name, course in responses.items() if np.ptp(course[~is_bad]) > 0}
    columns, matrix = _design(seen, times, is_bad, events, confounds or {})
    powers = block_powers.reshape(len(block_powers), -1)
    values = _filled(powers, is_bad)
    known = np.ptp(values[~is_bad], axis=0) > 0
    if len(times) <= matrix.shape[1] or not known.any():
        raise InputError(
            f"{len(times)} blocks are too few for an activation model of {matrix.shape[1]} columns",
            remedy="take more or shorter blocks, or fewer trial types",
        )
    # The scale of the data is not the one that numerical tolerances expect.
    scaled = values / float(np.abs(values[:, known]).max())
    groups = _groups(powers, is_bad, np.flatnonzero(known), matrix, len(seen))
    tested, rho, inflation = np.zeros(len(known), bool), 0.0, dict[str, float]()
    t, change = ({name: np.full(len(known), np.nan) for name in responses} for _ in range(2))
    p = {name: np.ones(len(known)) for name in responses}
    for pixels, design in groups:
        if not inflation:
            rho = _autocorrelation(scaled[:, pixels], design)
        white, whitened = _whitened(scaled[:, pixels], rho), _whitened(design, rho)
        labels, fitted = glm.first_level.run_glm(white, whitened, noise_model="ols")
        effects = [
            glm.compute_contrast(labels, fitted, one, stat_type="t")
            for one in np.eye(design.shape[1])[[*range(len(seen)), matrix.shape[1] - 1]]
        ]
        baseline = effects[-1].effect_size().ravel()
        n_free = len(design) - np.linalg.matrix_rank(design)
        tested[pixels] = in_vessels.ravel()[pixels]
        for name, effect in zip(seen, effects, strict=False):
            if name not in inflation:
                elsewhere = _whitened(_at_other_times(seen[name]), rho)
                inflation[name] = _inflation(white[:, tested[pixels]], whitened, elsewhere)
            t[name][pixels] = effect.stat() / inflation[name]
            p[name][pixels] = 2 * student_t.sf(np.abs(t[name][pixels]), n_free)
            part = effect.effect_size().ravel() / np.where(baseline > 0, baseline, np.nan)
            change[name][pixels] = np.where(tested[pixels], 100 * part, np.nan)
    maps, shape = {}, block_powers.shape[1:]
    for name, expected in responses.items():
        active = _significant(p[name], tested)
        course = values[:, active].mean(axis=1) if active.any() else np.full(len(powers), np.nan)
        maps[name] = ActivationMap(
            t=t[name].reshape(shape).astype(np.float32),
            change=change[name].reshape(shape).astype(np.float32),
            active=active.reshape(shape),
            threshold=float(np.abs(t[name][active]).min()) if active.any() else None,
            expected=expected,
            course=100 * course / course[~is_bad].mean() if active.any() else course,
            columns=columns,
        )
    return maps


def running_t(
    block_powers: NDArray[np.floating],
    times: NDArray[np.float64],
    is_bad: NDArray[np.bool_],
    events: Sequence[Event],
    motion: NDArray[np.float64] | None = None,
    durations: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[np.float32]]:
    """Return t of the response to each type of event so far, by least squares on boxcars, a line and the motion.

    Parameters
    ----------
    block_powers : (n_blocks, spatial) array
        Blood power of the blocks so far.
    times, is_bad, events
        As for :func:`activation_maps`.
    motion : (n_blocks,) array, optional
        Motion of the image within each block; by default it is not in the model.
    durations : (n_blocks,) array, optional
        As for :func:`activation_maps`.

    Returns
    -------
    dict
        Type -> t, NaN where too few blocks have data; without the types that have not changed yet, and empty while there are
        too few blocks.
    """
    good = np.flatnonzero(~is_bad)
    at, lengths = times[good], np.zeros(len(good)) if durations is None else durations[good]
    courses = {
        name: _response(of_type, at, lengths, "boxcar") for name, of_type in joined_events(events).items()
    }
    courses = {name: course for name, course in courses.items() if len(at) and np.ptp(course) > 0}
    moved = [motion[good]] if motion is not None and len(at) and np.ptp(motion[good]) > 0 else []
    design = np.stack([*courses.values(), *moved, at, np.ones(len(at))], axis=1)
    if not courses or len(at) - design.shape[1] < LEAST_FREE:
        return {}
    powers, none_bad = block_powers[good].reshape(len(good), -1), np.zeros(len(good), bool)
    values = _filled(powers, none_bad)
    t = np.full((len(courses), values.shape[1]), np.nan)
    for pixels, fit in _groups(powers, none_bad, np.arange(values.shape[1]), design, len(courses)):
        effects = np.linalg.lstsq(fit, values[:, pixels])[0]
        residual = values[:, pixels] - fit @ effects
        variance = np.sum(residual**2, axis=0) / (len(fit) - np.linalg.matrix_rank(fit))
        spread = np.sqrt(np.outer(np.diag(np.linalg.pinv(fit.T @ fit)), variance))[: len(courses)]
        t[:, pixels] = np.divide(
            effects[: len(courses)], spread, out=np.zeros(spread.shape), where=spread > 0
        )
    return {
        name: t[row].reshape(block_powers.shape[1:]).astype(np.float32) for row, name in enumerate(courses)
    }


def smoothed_series(block_powers: NDArray[np.floating], sigmas: Sequence[float]) -> NDArray[np.float64]:
    """Return a series, (n_blocks, spatial), smoothed over its pixels by a Gaussian; pixels that are always 0 stay so.

    The mean of each pixel and the changes from it are smoothed apart, each over the pixels that have them: a vessel
    without data in some blocks changes nothing in its neighbours. A pixel without data in a block is NaN in it.

    Parameters
    ----------
    block_powers : (n_blocks, spatial) array
        The series.
    sigmas : sequence of float
        Standard deviation along each spatial axis, in pixels.
    """
    from scipy.ndimage import gaussian_filter

    values = block_powers.astype(np.float64)
    is_known = np.isfinite(values)
    has_values = np.any(np.where(is_known, values, 0) != 0, axis=0)
    counts = np.maximum(np.count_nonzero(is_known, axis=0), 1)
    mean = np.sum(values, axis=0, where=is_known) / counts
    counted = is_known & has_values
    weights = gaussian_filter(counted.astype(float), (0, *sigmas))
    changes = gaussian_filter(np.where(counted, values - mean, 0), (0, *sigmas)) / np.maximum(weights, 1e-12)
    of_mean = gaussian_filter(mean, sigmas) / np.maximum(
        gaussian_filter(has_values.astype(float), sigmas), 1e-12
    )
    smooth: NDArray[np.float64] = np.where(has_values, of_mean + changes, 0)
    smooth[~is_known] = np.nan
    return smooth


def _import_nilearn() -> Any:
    try:
        import nilearn.glm
        import nilearn.glm.first_level
    except ImportError as error:
        raise OptionError(
            "activation maps require the package nilearn", remedy="run pip install nilearn"
        ) from error
    return nilearn.glm


def joined_events(events: Sequence[Event]) -> dict[str, list[Event]]:
    """Return the events of each type in the order of time; those that overlap are one."""
    types: dict[str, list[Event]] = {event.trial_type: [] for event in events}
    for event in sorted(events, key=lambda one: one.onset):
        joined = types[event.trial_type]
        if joined and event.onset <= joined[-1].onset + joined[-1].duration:
            stop = max(event.onset + event.duration, joined[-1].onset + joined[-1].duration)
            joined[-1] = replace(joined[-1], duration=stop - joined[-1].onset)
        else:
            joined.append(event)
    return types


def _response(
    events: Sequence[Event], times: NDArray[np.float64], durations: NDArray[np.float64], hrf: str
) -> NDArray[np.float64]:
    """Return the mean response of each block to events that do not overlap: for a boxcar, its share within events."""
    durations = np.maximum(durations, ROUNDING_S)
    begins, ends = times - durations / 2, times + durations / 2
    if hrf == "boxcar":
        within = np.zeros(len(times))
        for event in events:
            inside = np.minimum(ends, event.onset + event.duration) - np.maximum(begins, event.onset)
            within += np.maximum(inside, 0) / durations
        return np.round(within, 9)
    from nilearn.glm.first_level import compute_regressor

    onsets, lengths = ([getattr(event, name) for event in events] for name in ("onset", "duration"))
    at = np.arange(begins.min(), ends.max() + 2 * RESPONSE_STEP_S, RESPONSE_STEP_S)
    course = compute_regressor((onsets, lengths, np.ones(len(events))), hrf, at)[0][:, 0]
    mean: NDArray[np.float64] = np.interp(np.linspace(begins, ends, TIMES_A_BLOCK), at, course).mean(axis=0)
    return mean


def _design(
    responses: Mapping[str, NDArray[np.float64]],
    times: NDArray[np.float64],
    is_bad: NDArray[np.bool_],
    events: Sequence[Event],
    confounds: Mapping[str, NDArray[np.float64]],
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the names of the columns of the design, and the design: first the responses, last the constant."""
    from nilearn.glm.first_level import make_first_level_design_matrix

    # Around their mean, so that the constant, the baseline of the change, is not extrapolated to an image at rest.
    known = {name: np.nan_to_num(values) for name, values in confounds.items()}
    own = {
        name: values - values[~is_bad].mean() for name, values in known.items() if np.ptp(values[~is_bad]) > 0
    }
    for block in np.flatnonzero(is_bad):
        own[f"bad_block_{block}"] = (np.arange(len(times)) == block).astype(float)
    drift = make_first_level_design_matrix(times, None, drift_model="cosine", high_pass=_high_pass(events))
    columns = {**own, **{str(name): drift[name].to_numpy() for name in drift.columns}}
    # A type of event may have any name.
    names = (*responses, *(f"{name}{'_' * (name in responses)}" for name in columns))
    return names, np.stack([*responses.values(), *columns.values()], axis=1)


def _groups(
    powers: NDArray[np.floating],
    is_bad: NDArray[np.bool_],
    pixels: NDArray[np.intp],
    design: NDArray[np.float64],
    n_responses: int,
) -> list[tuple[NDArray[np.intp], NDArray[np.float64]]]:
    """Return the pixels without data in the same blocks, and their design, in which these blocks have a column each.

    The group with most pixels is the first. Pixels with too few blocks for the responses, the first columns, are in none.
    """
    missing = ~np.isfinite(powers[:, pixels]) & ~is_bad[:, None]
    patterns, which, counts = np.unique(missing.T, axis=0, return_inverse=True, return_counts=True)
    groups, energies = [], np.sum(design[:, :n_responses] ** 2, axis=0)
    for number in np.argsort(-counts, kind="stable").tolist():
        columns = np.hstack([design, np.eye(len(design))[:, patterns[number]]])
        if patterns[number].any():
            others = np.linalg.qr(columns[:, n_responses:])[0]
            own = columns[:, :n_responses] - others @ (others.T @ columns[:, :n_responses])
            is_seen = np.sum(own**2, axis=0) > LEAST_OWN * energies
            if len(columns) - columns.shape[1] < LEAST_FREE or not is_seen.all():
                continue
        groups.append((pixels[which.ravel() == number], columns))
    return groups


def _filled(values: NDArray[np.floating], is_bad: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return a series, (n_blocks, n_pixels), with the mean of the good blocks where a pixel has no value, 0 without any."""
    is_known = np.isfinite(values)
    filled = np.where(is_known, values, 0).astype(np.float64)
    n_known = is_known[~is_bad].sum(axis=0)
    return np.where(is_known, filled, filled[~is_bad].sum(axis=0) / np.maximum(n_known, 1))


def _high_pass(events: Sequence[Event]) -> float:
    """Return the frequency in Hz below which cosines are drift."""
    in_order = sorted(events, key=lambda event: (event.trial_type, event.onset))
    pauses = [
        later.onset - earlier.onset
        for earlier, later in pairwise(in_order)
        if later.trial_type == earlier.trial_type
    ]
    period = max(pauses, default=math.inf)
    return min(SLOWEST_HZ, 1 / (PERIODS * period))


def _autocorrelation(values: NDArray[np.float64], design: NDArray[np.float64]) -> float:
    """Return the mean correlation of the noise of neighbouring blocks, without what the fit of the design adds to it."""
    left = np.linalg.qr(design)[0]
    noise = values - left @ (left.T @ values)
    energies = np.sum(noise**2, axis=0)
    is_known = energies > 1e-12 * np.sum(values**2, axis=0)
    if not is_known.any():
        return 0.0
    coefficients = np.sum(noise[1:] * noise[:-1], axis=0)[is_known] / energies[is_known]
    residual = np.eye(len(left)) - left @ left.T
    of_fit = np.trace(residual, offset=1) / np.trace(residual)
    return float(np.clip(np.mean(coefficients) - of_fit, 0.0, 0.9))


def _whitened(values: NDArray[np.float64], rho: float) -> NDArray[np.float64]:
    """Return columns whose noise is autoregressive of order 1 as columns of white noise."""
    return np.concatenate([np.sqrt(1 - rho**2) * values[:1], values[1:] - rho * values[:-1]])


def _at_other_times(response: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a response at all other times, shifted in a circle, (n_blocks, n_blocks - 1)."""
    return np.stack([np.roll(response, shift) for shift in range(1, len(response))], axis=1)


def _inflation(
    values: NDArray[np.float64], design: NDArray[np.float64], elsewhere: NDArray[np.float64]
) -> float:
    """Return the root mean square t of responses at other times in the residual of a design, at least 1.

    Parameters
    ----------
    values : (n_blocks, n_pixels) array
        Whitened series.
    design, elsewhere : (n_blocks, k) arrays
        Whitened design, and responses at other times. Those that are nearly a part of the design do not count.
    """
    basis = np.linalg.qr(design)[0]
    residual, elsewhere_residual = (columns - basis @ (basis.T @ columns) for columns in (values, elsewhere))
    energies, powers = np.sum(elsewhere_residual**2, axis=0), np.sum(residual**2, axis=0)
    counts, has_noise = energies > LEAST_APART * np.median(energies), powers > 0
    if not (counts.any() and has_noise.any()):
        return 1.0
    unit = elsewhere_residual[:, counts] / np.sqrt(energies[counts])
    squares = (unit.T @ residual[:, has_noise]) ** 2 / powers[has_noise]
    return max(1.0, math.sqrt((len(values) - basis.shape[1]) * float(squares.mean())))


def _significant(p: NDArray[np.float64], tested: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the tested pixels that are significant at the false discovery rate."""
    from scipy.stats import false_discovery_control

    significant = np.zeros(len(p), bool)
    if tested.any():
        significant[tested] = false_discovery_control(p[tested]) <= FALSE_DISCOVERY_RATE
    return significant
