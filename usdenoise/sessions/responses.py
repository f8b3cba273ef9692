"""Events, and the responses of the blocks of a session that they cause."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc

from usdenoise.errors import InputError

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
    """

    onset: float
    duration: float
    trial_type: str


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


def check_events(events: Sequence[Event]) -> None:
    """Check that no two types of events overlap.

    Raises
    ------
    InputError
        If they do.
    """
    for one, other in combinations(sorted(events, key=lambda event: event.onset), 2):
        if one.trial_type != other.trial_type and other.onset < one.onset + one.duration - ROUNDING_S:
            raise InputError(
                f"the events '{one.trial_type}' at {one.onset:g} s and '{other.trial_type}' at {other.onset:g} s overlap"
            )


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
        As for :func:`usdenoise.sessions.design.design_of`.

    Returns
    -------
    (n_blocks, k) float64 array
        The share of the block within the events, or the mean of their response over the block. For "fir:N", 1 in the block
        of each delay.
    """
    durations = np.maximum(durations, ROUNDING_S)
    begins, ends = times - durations / 2, times + durations / 2
    if hrf.startswith(FIR):
        columns = np.zeros((len(times), int(hrf.removeprefix(FIR))))
        for event in events:
            first = int(np.searchsorted(ends, event.onset + ROUNDING_S))
            if event.onset > begins[0] - ROUNDING_S:
                delays = np.arange(min(columns.shape[1], len(times) - first))
                columns[first + delays, delays] += 1
        return columns
    course = np.zeros(len(times))
    if hrf == "boxcar":
        for event in events:
            inside = np.minimum(ends, event.onset + event.duration) - np.maximum(begins, event.onset)
            course += np.maximum(inside, 0) / durations
        return np.round(course, 9)[:, None]
    at = begins[:, None] + durations[:, None] * (np.arange(TIMES_A_BLOCK) + 0.5) / TIMES_A_BLOCK
    for event in events:
        since = at - event.onset
        course += (_integral(hrf, since) - _integral(hrf, since - event.duration)).mean(axis=1)
    return course[:, None]


def _integral(hrf: str, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the integral of a haemodynamic response from 0 up to each time; it is 1 from its end on."""
    within = np.append(np.clip(seconds, 0, KERNEL_S), KERNEL_S)
    if hrf in GAMMAS:
        terms = [weight * gammainc(shape, within / scale) for shape, scale, weight in GAMMAS[hrf]]
        total = np.stack(terms).sum(axis=0)
    else:
        shape, scale = INVERSE_GAMMA
        total = gammaincc(shape, scale / np.maximum(within, 1e-9))
    integral: NDArray[np.float64] = (total[:-1] / total[-1]).reshape(seconds.shape)
    return integral
