"""Events, and the design of the linear model of a session: responses, drift, confounds, and whether it can be fitted."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.linalg.tall_matrices import TINY
from usdenoise.system.text import counted

LEAST_FREE = 4
"""Least degrees of freedom of the noise."""

LEAST_OWN, LEAST_FITTED = 0.05, 0.01
"""Energy of a response that no other column explains, over its energy around its mean, below which it is doubtful, and from
which it is fitted."""

LEAST_APART = 0.2
"""The same for the other types and the constant alone: 0.18 with 5 % of the blocks outside two types. Its inverse is the
variance inflation factor."""

LEAST_DEPTH = 0.2
"""Part of its largest share within the events by which the share of a block is lower in some blocks, at least."""

LEAST_EVENTS, LEAST_SEEN = 2, 0.05
"""Least events of a type: the response to a single one cannot be distinguished from another change at that time. A block
shows an event if its response is more than this part of the largest one of its type that a block can have."""

BASELINES = ("rest", "baseline")
"""Types that are the baseline by their name, in lower case."""

SLOWEST_HZ, PERIODS = 0.01, 2.0
"""Cosines are drift below SLOWEST_HZ, or below 1 / (PERIODS x longest time between onsets of one type) if that is lower."""

LONG_STEPS = 5.0
"""Usual steps from block to block from which a pause is long, if it is longer than half a period of SLOWEST_HZ, too: drift
may change the level by any amount in it."""

LOCKED_BLOCKS = 5
"""Blocks after an onset in which motion may follow the event. In 24 simulated sessions, the correlation of the displacement
was 0.63 to 0.97 with jerks of 2 s or pressure of 5 s at the onsets, 0.69 with breathing at the period of the design, and at
most 0.47 with neither (`python -m benchmarks.activation`)."""

ROUNDING_S = 1e-6
"""Time in s by which two events may overlap: 0.1 + 0.2 is above 0.3."""

TIMES_A_BLOCK = 9
"""Times in a block at which a convolved response is evaluated and averaged."""

KERNEL_S = 32.0
"""Duration of a haemodynamic response, as in nilearn and confusius."""

GAMMAS = {
    "glover": ((6 / 0.9, 0.9, 1.0), (12 / 0.9, 0.9, -0.48)),
    "spm": ((6.0, 1.0, 1.0), (16.0, 1.0, -0.167)),
    "verhoef2025": ((6.0, 1.0, 1.0),),
}
"""Haemodynamic responses as sums of gamma densities: shape, scale in s, and weight of each."""

INVERSE_GAMMA = 2.5, 12.7
"""Shape, and scale in s, of the inverse gamma density of the response "claron2021"."""

FIR = "fir:"
"""Beginning of the name of a response that is free in each of N blocks after the onset."""


@dataclass(frozen=True)
class Event:
    """An event.

    Attributes
    ----------
    onset, duration : float
        When it begins, from the first frame of the session, and how long it is, in s.
    trial_type : str
        Its condition.
    modulation : float
        Its height, by which its response is multiplied, as in nilearn; 1 by default.
    """

    onset: float
    duration: float
    trial_type: str
    modulation: float = 1.0


def delayed(events: Iterable[Event], delay_s: float) -> list[Event]:
    """Return events that begin later by a delay in s."""
    return [replace(event, onset=event.onset + delay_s) for event in events]


def is_within(event: Event, end: float) -> bool:
    """Return whether an event overlaps a session that ends at a time in s."""
    return event.onset <= end and event.onset + event.duration >= 0


def joined_events(events: Sequence[Event]) -> dict[str, list[Event]]:
    """Return the events of each type in the order of time; those that overlap are one."""
    types: dict[str, list[Event]] = {event.trial_type: [] for event in events}
    for event in sorted(events, key=lambda one: one.onset):
        joined = types[event.trial_type]
        if joined and event.onset < joined[-1].onset + joined[-1].duration - ROUNDING_S:
            stop = max(event.onset + event.duration, joined[-1].onset + joined[-1].duration)
            joined[-1] = replace(joined[-1], duration=stop - joined[-1].onset)
        else:
            joined.append(event)
    return types


MODULATED = " x modulation"
"""End of the name of a type that is the modulation of another one around its mean."""


def with_main_effects(events: Sequence[Event]) -> list[Event]:
    """Return events of which a type with several modulations is two: its events, and their modulation around its mean.

    The response to the first is that at the mean modulation, and to the second the one per unit of modulation. Events of the
    modulation 0 are none.

    Raises
    ------
    InputError
        If events overlap that have different types or modulations.
    """
    heights, parts = dict[str, list[float]](), list[Event]()
    moving = [event for event in events if event.modulation]
    for event in moving:
        heights.setdefault(event.trial_type, []).append(event.modulation)
    means = {name: math.fsum(each) / len(each) for name, each in heights.items() if len({*each}) > 1}
    if means:
        check_events(moving)
    for event in events:
        name = event.trial_type
        if name not in means:
            parts.append(event)
        elif event.modulation:
            around = replace(event, trial_type=name + MODULATED, modulation=event.modulation - means[name])
            parts += [replace(event, modulation=1.0), around]
    return parts


def unit_of(trial_type: str) -> str:
    """Return the unit of the response to a type."""
    return "% per unit of modulation" if trial_type.endswith(MODULATED) else "%"


def check_events(events: Sequence[Event]) -> None:
    """Check that no two types of events overlap, nor events of a type with different modulations.

    Raises
    ------
    InputError
        If they do.
    """
    one: Event | None = None  # the event so far that ends last
    # A modulation around its mean has the times of its events
    own = [event for event in events if not event.trial_type.endswith(MODULATED)]
    for other in sorted(own, key=lambda event: event.onset):
        if one is None or other.onset >= one.onset + one.duration - ROUNDING_S:
            one = other
            continue
        names = (
            f"the events '{one.trial_type}' at {one.onset:g} s and '{other.trial_type}' at {other.onset:g} s"
        )
        if one.trial_type != other.trial_type:
            raise InputError(f"{names} overlap")
        if one.modulation != other.modulation:
            problem = f"{names} overlap, and have the modulations {one.modulation:g} and {other.modulation:g}"
            raise InputError(problem, remedy="give one row with one modulation for each time")
        one = max(one, other, key=lambda event: event.onset + event.duration)


def contrast_weights(contrast: str, types: Iterable[str]) -> dict[str, float]:
    """Return the weight of each type of event in a contrast.

    Parameters
    ----------
    contrast : str
        A sum of types with weights, such as "on - off" or "2*a - b". The longest name that fits counts; quotes are optional.
    types : iterable of str
        All types.

    Raises
    ------
    OptionError
        If it is not such a sum of known types, is 0, or is the name of a type.
    """
    weights, at = dict.fromkeys(types, 0.0), 0
    names = "|".join(re.escape(name) for name in sorted(weights, key=len, reverse=True))
    term = re.compile(rf"\s*([+-]?)\s*(?:(\d*\.?\d+)\s*\*)?\s*(['\"]?)({names})\3\s*(?=[+-]|$)")
    while (found := term.match(contrast, at)) and (found[1] or not at):
        weights[found[4]] += float(f"{found[1]}{found[2] or 1}")
        at = found.end()
    if at < len(contrast) or not any(weights.values()) or contrast in weights:
        problem = f"'{contrast}' is not a contrast of the types {str([*weights])[1:-1]}"
        remedy = "add or subtract these types, with weights such as 2*"
        raise OptionError(problem, option="contrasts", remedy=remedy)
    return weights


def response_of(
    events: Sequence[Event], times: NDArray[np.float64], durations: NDArray[np.float64], hrf: str
) -> NDArray[np.float64]:
    """Return the mean response of each block to events of one type.

    Parameters
    ----------
    events : sequence of Event
        The events, of which no two overlap.
    times, durations : (n_blocks,) arrays
        Middle and duration of each block, in s.
    hrf : str
        As for :func:`design_of`.

    Returns
    -------
    (n_blocks, k) float64 array
        The share of the block within the events, or the mean of their response over the block, and for "fir:N" 1 in the
        block of each delay, each times the modulation of the event.
    """
    durations = np.maximum(durations, ROUNDING_S)
    begins, ends = times - durations / 2, times + durations / 2
    if hrf.startswith(FIR):
        columns = np.zeros((len(times), int(hrf.removeprefix(FIR))))
        for event in events:
            first = int(np.searchsorted(ends, event.onset + ROUNDING_S))
            if event.onset > begins[0] - ROUNDING_S:
                delays = np.arange(min(columns.shape[1], len(times) - first))
                columns[first + delays, delays] += event.modulation
        return columns
    course = np.zeros(len(times))
    if hrf == "boxcar":
        for event in events:
            inside = np.minimum(ends, event.onset + event.duration) - np.maximum(begins, event.onset)
            course += event.modulation * np.maximum(inside, 0) / durations
        return np.round(course, 9)[:, None]
    at = begins[:, None] + durations[:, None] * (np.arange(TIMES_A_BLOCK) + 0.5) / TIMES_A_BLOCK
    for event in events:
        # Blocks that the response has reached and that it has not left
        shown = (ends > event.onset) & (begins < event.onset + event.duration + KERNEL_S)
        since = at[shown] - event.onset
        rise = _integral(hrf, since) - _integral(hrf, since - event.duration)
        course[shown] += event.modulation * rise.mean(axis=1)
    return course[:, None]


def _integral(hrf: str, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the integral of a haemodynamic response from 0 up to each time; it is 1 from its end on."""
    # Loading it takes longer than a small scan, and only a design needs it
    from scipy.special import gammainc, gammaincc

    within = np.append(np.clip(seconds, 0, KERNEL_S), KERNEL_S)
    if hrf in GAMMAS:
        terms = [weight * gammainc(shape, within / scale) for shape, scale, weight in GAMMAS[hrf]]
        total = np.stack(terms).sum(axis=0)
    else:
        shape, scale = INVERSE_GAMMA
        total = gammaincc(shape, scale / np.maximum(within, 1e-9))
    return np.asarray((total[:-1] / total[-1]).reshape(seconds.shape))


@dataclass(frozen=True)
class Design:
    """The columns of a linear model of the blocks of a session: first the responses, last the constant.

    Attributes
    ----------
    names : tuple of str
        Names of the columns.
    matrix : (n_blocks, n_columns) array
        The columns.
    responses : mapping
        Type of event -> its columns, one or (for "fir:N") N; without types that have a problem.
    expected : mapping
        Type of event, for all types, and contrast -> the response that the model expects, (n_blocks,).
    shares : mapping
        Type of event -> share of each block within its events, times their modulation, (n_blocks,), for all types.
    problems : mapping
        Type of event -> why good blocks cannot show the response to it, in words; without types that have a response.
    is_bad : (n_blocks,) boolean array
        Bad blocks, which have a column each.
    hrf : str
        The response to an event, as for :func:`design_of`.
    contrasts : mapping
        Contrast -> weight of each type of event.
    """

    names: tuple[str, ...]
    matrix: NDArray[np.float64]
    responses: Mapping[str, slice]
    expected: Mapping[str, NDArray[np.float64]]
    shares: Mapping[str, NDArray[np.float64]]
    problems: Mapping[str, str]
    is_bad: NDArray[np.bool_]
    hrf: str
    contrasts: Mapping[str, Mapping[str, float]]

    @property
    def n_responses(self) -> int:
        """Number of the columns of all responses."""
        return sum(columns.stop - columns.start for columns in self.responses.values())

    @property
    def tested(self) -> dict[str, NDArray[np.float64]]:
        """Type of event, contrast, and "" for any of several types -> weights of the responses that are tested at once.

        They are (k, n_responses) arrays, NaN for a type without a response and for its contrasts.
        """
        rows, unknown = np.eye(self.n_responses), np.full((self.columns_a_type, self.n_responses), np.nan)
        tested = dict.fromkeys(self.shares, unknown)
        tested |= {name: rows[columns] for name, columns in self.responses.items()}
        for contrast, weights in self.contrasts.items():
            of_types = [weight * tested[name] for name, weight in weights.items() if weight]
            tested[contrast] = np.sum(of_types, axis=0)
        return tested | ({"": rows} if len(self.shares) > 1 else {})

    def has_t(self, name: str) -> bool:
        """Return whether a name of `tested` has t, as one column does, and not F."""
        return name != "" and not self.is_free

    @property
    def n_free(self) -> int:
        """Degrees of freedom of the noise."""
        return len(self.matrix) - int(np.linalg.matrix_rank(self.matrix))

    @property
    def condition_number(self) -> float:
        """Condition number of the columns in the good blocks, each scaled to the norm 1; infinite without good blocks."""
        columns = self.matrix[~self.is_bad]
        norms = np.linalg.norm(columns, axis=0)
        if not norms.any():
            return math.inf
        return float(np.linalg.cond(columns[:, norms > 0] / norms[norms > 0]))

    @property
    def is_free(self) -> bool:
        """Whether the response is free in several blocks."""
        return self.hrf.startswith(FIR)

    @property
    def columns_a_type(self) -> int:
        """Number of columns of the response to a type."""
        return int(self.hrf.removeprefix(FIR)) if self.is_free else 1

    @property
    def dependence(self) -> tuple[str, str]:
        """Which responses and the constant depend on each other in the good blocks, and a remedy; empty if none."""
        good, columns = ~self.is_bad, self.matrix[~self.is_bad]
        by_type = [{name: columns[:, slice_] for name, slice_ in self.responses.items()}]
        if not self.is_free:
            # Blocks outside all events in which a slow response has not yet risen are no baseline.
            shares = {name: self.shares[name][good, None] for name in self.responses}
            by_type.append({name: share for name, share in shares.items() if np.ptp(share) > 0})
        for of_type in by_type:
            if len(of_type) < 2:
                continue
            own = own_shares(np.hstack([*of_type.values()]), np.ones((len(columns), 1)))
            owners = np.repeat([*of_type], [one.shape[1] for one in of_type.values()])
            dependent = [name for name in of_type if own[owners == name].min() < LEAST_APART]
            if dependent:
                named = [name for name in dependent if name.strip().lower() in BASELINES]
                most = max(dependent, key=lambda name: float(self.shares[name].sum()))
                baseline, names = (named or [most])[0], "', '".join(dependent)
                remedy = f"omit the type '{baseline}' from the events; it is then the baseline with which others are "
                remedy += "compared"
                if self.is_free:
                    remedy = "give fewer blocks with {hrf} fir:N, so that the responses do not overlap"
                problem = f"the responses to '{names}' and the constant depend on each other"
                return f"{problem}: nearly every block is within one of them", remedy
        return "", ""

    @property
    def problem(self) -> tuple[str, str]:
        """Why the responses cannot be distinguished in the good blocks, in words, and a remedy; both empty if they can."""
        if self.n_free < LEAST_FREE:
            n_good, n_columns = int((~self.is_bad).sum()), len(self.names) - int(self.is_bad.sum())
            return (
                f"{n_good} blocks are too few for an activation model of {n_columns} columns",
                "take more or shorter blocks, or fewer trial types",
            )
        if (dependence := self.dependence)[0]:
            return dependence
        own = self._own_in(~self.is_bad)
        for name, slice_ in self.responses.items():
            if own[slice_].min() < LEAST_OWN:
                fewer = ", or fewer blocks with {hrf} fir:N" if self.is_free else ""
                return (
                    f"the response to '{name}' cannot be distinguished from the baseline, slow drift and confounds",
                    f"give more events with pauses between them{fewer}",
                )
        return "", ""

    def is_fitted(self, seen: NDArray[np.bool_], n_free: int) -> bool:
        """Return whether the responses can be fitted to some of the blocks, with some degrees of freedom of the noise."""
        is_possible = n_free >= LEAST_FREE and self.n_responses > 0
        return is_possible and bool(self._own_in(seen).min() > LEAST_FITTED)

    def _own_in(self, seen: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return what no other column explains of each response in some of the blocks."""
        columns, n = self.matrix[seen], self.n_responses
        return own_shares(columns[:, :n], columns[:, n:])


def _problem_of_type(
    events: Sequence[Event],
    times: NDArray[np.float64],
    durations: NDArray[np.float64],
    is_bad: NDArray[np.bool_],
    hrf: str,
    least_events: int,
) -> str:
    """Return why good blocks cannot show the response to the events of a type, in words; empty if they can.

    A block shows an event if it has more than LEAST_SEEN of the largest response that a block can have to one of the type.
    """
    name, block, largest = events[0].trial_type, "good block" if is_bad.any() else "block", 0.0
    usual = np.median(durations, keepdims=True)
    for event in {replace(event, onset=0.0) for event in events}:
        # At the onset, in the middle of the event, and while the response to its end lasts
        at = np.concatenate([[0, event.duration / 2], event.duration + np.arange(KERNEL_S)])
        largest = max(largest, float(np.abs(response_of([event], at, usual, hrf)).max()))
    each = (response_of([event], times, durations, hrf)[~is_bad] for event in events)
    shown = (response for response in each if np.abs(response).max(initial=0) > LEAST_SEEN * largest)
    n_shown = len([*islice(shown, LEAST_EVENTS)])
    if not n_shown:
        return f"no {block} is within the events of '{name}', so no response to it can be found"
    shares = response_of(events, times, durations, "boxcar")[~is_bad]
    if not hrf.startswith(FIR) and shares.min() > max(0, (1 - LEAST_DEPTH) * shares.max()):
        return f"all {block}s are within the events of '{name}', so no response to it can be found"
    if n_shown < least_events:
        return (
            f"the type '{name}' has {counted(n_shown, 'event')} that the {block}s show, and a response requires "
            f"{LEAST_EVENTS} or more"
        )
    if np.ptp(response_of(events, times, durations, hrf)[~is_bad], axis=0).all():
        return ""
    at_delay = f"no {block} is at one of the delays after the events of '{name}', or all are"
    return f"{at_delay}, so its free response cannot be found"


def own_shares(responses: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the energy of each response that no other column explains, over its energy around its mean, (k,).

    Parameters
    ----------
    responses, others : (n, k) and (n, m) arrays
        The responses, and all other columns of a model.
    """
    around = np.sum((responses - responses.mean(axis=0)) ** 2, axis=0)
    basis = column_basis(others)
    own = responses - basis @ (basis.T @ responses)
    scale = np.sqrt(np.maximum(around, 1e-300))
    gram = own.T @ own / np.outer(scale, scale)
    # The inverse of the Gram matrix has the inverses of the energies; one that is singular has none.
    shares: NDArray[np.float64] = 1 / np.diag(np.linalg.inv(gram + 1e-12 * np.eye(len(gram))))
    return np.where(around > 1e-12, shares, 0)


def column_basis(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return orthonormal columns that span the columns of a matrix, as many as its rank."""
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    tolerance = max(matrix.shape) * np.finfo(float).eps * (values[0] if values.size else 0)
    return np.asarray(left[:, values > tolerance])


def check_design(
    events: Sequence[Event],
    times: NDArray[np.float64],
    durations: NDArray[np.float64],
    hrf: str = "boxcar",
    n_confounds: int = 0,
    is_planned: bool = False,
) -> None:
    """Check that the blocks of a session can show a response to each type of event.

    Parameters
    ----------
    events : sequence of Event
        The events.
    times, durations : (n_blocks,) arrays
        Middle and duration of each block, in s.
    hrf : str
        As for :func:`design_of`.
    n_confounds : int
        Number of the other columns that the model will have; 0 by default.
    is_planned : bool
        Whether blocks may show fewer events, as those of one of several positions, or of a live session, which may have
        ended before the last ones; by default not.

    Raises
    ------
    InputError
        If an event is not within the session, two types overlap, a type has fewer than two events or all blocks on one side,
        the columns depend on each other, or are too many for the blocks.
    """
    end = float((times + durations / 2).max())
    for event in () if is_planned else events:
        if event.onset > end or event.duration > end:
            problem = "begins after" if event.onset > end else f"lasts {event.duration:g} s, longer than"
            raise InputError(
                f"the event '{event.trial_type}' at {event.onset:g} s {problem} the session of {end:.4g} s",
                remedy="give times in s from the first frame (are these in ms?), give {block_interval_s} if there were "
                "pauses between blocks of which the files say nothing, and omit events after the last block",
            )
    if not is_planned and not any(is_within(event, end) for event in events):
        raise InputError("no event is within the session", remedy="give the onsets in s from the first frame")
    check_events(events)
    design = design_of(events, times, durations, np.zeros(len(times), bool), hrf=hrf)
    for name, of_type in () if is_planned else joined_events(events).items():
        if not any(event.modulation for event in of_type):
            raise InputError(f"all events of '{name}' have the modulation 0", remedy="omit this type")
        if name in design.problems:
            remedy = "give more events that blocks show, and the times of the stimulus alone: other blocks are the baseline"
            if design.is_free:
                remedy = "give fewer blocks with {hrf} fir:N, or events that the blocks show"
            raise InputError(design.problems[name], remedy=remedy)
    if len(times) - design.matrix.shape[1] - n_confounds < LEAST_FREE:
        raise InputError(
            f"{len(times)} blocks are too few for an activation model of {design.matrix.shape[1] + n_confounds} columns",
            remedy="take more or shorter blocks, or fewer trial types",
        )
    problem, remedy = design.problem
    if problem:
        raise InputError(problem, remedy=remedy)


def design_of(
    events: Sequence[Event],
    times: NDArray[np.float64],
    durations: NDArray[np.float64],
    is_bad: NDArray[np.bool_],
    confounds: Mapping[str, NDArray[np.float64]] | None = None,
    hrf: str = "boxcar",
    contrasts: Iterable[str] = (),
    least_events: int = LEAST_EVENTS,
) -> Design:
    """Return the design of a session: responses, confounds, a column for each bad block, drift, and a constant.

    The drift is a line and cosines over the recorded time, in which a long pause counts as a usual step, and a level for
    each part after a long pause.

    Parameters
    ----------
    events : sequence of Event
        The events.
    times, durations : (n_blocks,) arrays
        Middle and duration of each block, in s.
    is_bad : (n_blocks,) boolean array
        Bad blocks.
    confounds : mapping, optional
        Name -> values of each block, (n_blocks,), that change the series besides the events, such as its motion; by default
        none. NaN counts as the mean, and a constant one is not in the model.
    hrf : str
        Response to an event: "boxcar", the event itself (the default); the event convolved with "glover" or "spm" (human
        BOLD), "verhoef2025" (human brain) or "claron2021" (rat spinal cord), each of unit area; or "fir:N", one column for
        each of N blocks from the one in which the event begins.
    contrasts : iterable of str
        Contrasts of types, as for :func:`contrast_weights`; none by default.
    least_events : int
        Events of a type that good blocks show, at least, for a response to it; by default LEAST_EVENTS.

    References
    ----------
    Glover, "Deconvolution of impulse response in event-related BOLD fMRI", NeuroImage 9, 1999. Claron et al., Pain 162,
    2021. Verhoef et al., medRxiv 2025.08.19.25332261. Parameters as in nilearn 0.14 and confusius 0.8.
    """
    # A missing block has the duration of a usual one.
    usual = np.median(durations[durations > 0]) if durations.any() else 0
    durations = np.where(durations > 0, durations, usual)
    types = joined_events(events)
    responses = {name: response_of(of_type, times, durations, hrf) for name, of_type in types.items()}
    end = float((times + durations / 2).max())
    inside = [event for event in events if is_within(event, end)]
    shares = {name: response_of(each, times, durations, "boxcar")[:, 0] for name, each in types.items()}
    about = times, durations, is_bad, hrf, least_events
    found = {name: _problem_of_type(of_type, *about) for name, of_type in types.items()}
    problems = {name: problem for name, problem in found.items() if problem}
    seen = {name: columns for name, columns in responses.items() if name not in problems}
    # All around their means, so that the constant, the baseline of the change, is the level of the session at rest
    own = {}
    for name, values in (confounds or {}).items():
        known = ~is_bad & np.isfinite(values)
        if known.any() and np.ptp(values[known]) > 0:
            own[name] = np.where(np.isfinite(values), values - values[known].mean(), 0)
    for block in np.flatnonzero(is_bad):
        own[f"bad_block_{block}"] = (np.arange(len(times)) == block).astype(float)
    recorded, part = recorded_time(times)
    waves = _cosines(recorded, _high_pass(inside, times, recorded))
    line = recorded - recorded.mean()
    if waves:
        # What the cosines do not have of it: with the whole line the columns would be nearly dependent
        basis = column_basis(np.stack(waves, axis=1))
        line = line - basis @ (basis.T @ line)
    drifts = {"linear_drift": line / max(np.abs(line).max(), ROUNDING_S)}
    for number in range(1, part.max(initial=0) + 1):
        drifts[f"part_{number + 1}"] = (part == number).astype(float)
    drifts |= {f"drift_{number}": wave for number, wave in enumerate(waves, 1)}
    good = ~is_bad if not is_bad.all() else is_bad
    own |= {name: values - values[good].mean() for name, values in drifts.items()}
    own["constant"] = np.ones(len(times))
    slices, named = dict[str, slice](), list[str]()
    for name, columns in seen.items():
        n_delays = columns.shape[1]
        slices[name] = slice(len(named), len(named) + n_delays)
        named += [name] if n_delays == 1 else [f"{name}_delay_{delay}" for delay in range(n_delays)]
    # A type of event may have any name.
    for name in own:
        while name in named:
            name += "_"
        named.append(name)
    expected = {name: columns.sum(axis=1) for name, columns in responses.items()}
    weights = {contrast: contrast_weights(contrast, types) for contrast in contrasts}
    for contrast, of_types in weights.items():
        expected[contrast] = np.sum([weight * expected[name] for name, weight in of_types.items()], axis=0)
    return Design(
        names=tuple(named),
        matrix=np.column_stack([*seen.values(), *own.values()]),
        responses=slices,
        expected=expected,
        shares=shares,
        problems=problems,
        is_bad=is_bad,
        hrf=hrf,
        contrasts=weights,
    )


def locked_correlation(
    values: NDArray[np.float64],
    times: NDArray[np.float64],
    durations: NDArray[np.float64],
    events: Sequence[Event],
) -> tuple[float, float, float]:
    """Return how much of a measure of the blocks follows the events of one type.

    Parameters
    ----------
    values, times, durations : (n_blocks,) arrays
        The measure, and the middle and the duration of the blocks in s; NaN where it is not known.
    events : sequence of Event
        The events.

    Returns
    -------
    correlation : float
        Multiple correlation of the measure, without a parabola over the session, with the share of the blocks within
        events and with the mean course in the first LOCKED_BLOCKS blocks after the onsets, adjusted for the number of
        columns. It is 0 for a measure that does not follow the events.
    size : float
        Standard deviation of the part that follows them, in the unit of the measure.
    p : float
        Probability of this correlation or a larger one in white noise, by F; 1 where there is none.
    """
    known = np.isfinite(values)
    if np.count_nonzero(known) < LEAST_FREE:
        return 0.0, 0.0, 1.0
    found = [response_of(events, times, durations, hrf)[known] for hrf in ("boxcar", f"{FIR}{LOCKED_BLOCKS}")]
    trend = np.polynomial.polynomial.polyvander(times[known] - times[known].mean(), 2)
    basis = np.linalg.qr(trend)[0]
    measure, columns = (one - basis @ (basis.T @ one) for one in (values[known], np.hstack(found)))
    n_columns, n_free = int(np.linalg.matrix_rank(columns)), int(known.sum()) - trend.shape[1]
    energy = float(np.sum(measure**2))
    if n_free - n_columns < 1 or not n_columns or not energy > 0:
        return 0.0, 0.0, 1.0
    from scipy.special import fdtrc

    fitted = columns @ np.linalg.lstsq(columns, measure)[0]
    rest = max(energy - float(np.sum(fitted**2)), 0.0) / (n_free - n_columns)
    f = float(np.sum(fitted**2)) / n_columns / max(rest, TINY)
    correlation = math.sqrt(max(0.0, 1 - rest / (energy / n_free)))
    return correlation, float(fitted.std()), float(fdtrc(n_columns, n_free - n_columns, f))


def recorded_time(times: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the times of blocks without what is beyond a usual step in each long pause, and the part of each block.

    Parameters
    ----------
    times : (n_blocks,) array
        Middle of each block in s.

    Returns
    -------
    recorded : (n_blocks,) float64 array
        The times without the long pauses.
    part : (n_blocks,) int array
        Number of long pauses before each block.
    """
    steps = np.diff(times)
    usual = float(np.median(steps)) if len(steps) else 0.0
    is_long = steps > max(0.5 / SLOWEST_HZ, LONG_STEPS * usual)
    lost = np.where(is_long, steps - usual, 0)
    return times - np.append(0, lost.cumsum()), np.append(0, is_long.cumsum()).astype(np.intp)


def _high_pass(events: Sequence[Event], times: NDArray[np.float64], recorded: NDArray[np.float64]) -> float:
    """Return the frequency in Hz below which cosines are drift, by the recorded times between onsets."""
    moving = [event for event in events if event.modulation]
    in_order = sorted(moving, key=lambda event: (event.trial_type, event.onset))
    onsets = np.array([event.onset for event in in_order], float)
    lost = (times - recorded)[np.maximum(np.searchsorted(times, onsets, "right") - 1, 0)]
    is_same = [later.trial_type == earlier.trial_type for earlier, later in pairwise(in_order)]
    pauses = (np.diff(onsets) - np.diff(lost))[np.array(is_same, bool)]
    longest = float(pauses.max()) if pauses.size else math.inf if moving else 0.0
    return min(SLOWEST_HZ, 1 / (PERIODS * max(longest, ROUNDING_S)))


def _cosines(times: NDArray[np.float64], below: float) -> list[NDArray[np.float64]]:
    """Return the cosines of the discrete cosine transform of type 2 up to a frequency in Hz, from the second on.

    The line of the drift stands for the first, half a period, of whose energy it has 99 %. With both, the rest of the line
    would be faster than drift, and take energy from the responses.
    """
    n = len(times)
    step = float(times[-1] - times[0]) / max(n - 1, 1)
    n_waves = min(n - 1, math.floor(2 * n * step * below))
    phases = [np.pi / n * (np.arange(n) + 0.5) * number for number in range(2, n_waves + 1)]
    return [math.sqrt(2 / n) * np.cos(phase) for phase in phases]
