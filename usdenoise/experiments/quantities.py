"""The numbers that decide the claims on curves: the last error, when a curve reaches a level, and ratios of both.

A curve reaches the noise floor if its error is at most twice the floor, in 9 of 10 seeds where the claim is about the
curve alone.
"""

import math
import sys

import numpy as np

from usdenoise.experiments.record import Panel, Quantity, Reference

TINY = sys.float_info.min
FLOORS = 2.0
MOST_SEEDS = 0.9
CONVERGED = 1e-10
MINE = "eta-decay"
FLOOR, BEST_OTHER = "noise floor", "best other"
LAMBDAS = (1e-2, 1e-4, 1e-6, 1e-9)


def _time(panel: Panel, label: str, reference: Reference) -> float:
    share = MOST_SEEDS if reference == FLOOR else 0.5
    return panel[label].reaches(_level(panel, reference), share)


def _final(panel: Panel, label: str, reference: Reference) -> float:
    if reference == FLOOR:
        smallest = _noise_floor(panel)
    elif reference == BEST_OTHER:
        smallest = min(curve.final for curve in panel.curves if curve.label != label)
    else:
        smallest = panel[str(reference)].final
    # An error can be exactly 0.
    return panel[label].final / max(smallest, TINY)


def _slope(panel: Panel, label: str, reference: Reference) -> float:
    errors = [max(panel[f"ScaledGD({value:g})"].final, TINY) for value in LAMBDAS]
    return float(np.polyfit(np.log(LAMBDAS), np.log(errors), 1)[0])


def _delay(panel: Panel, label: str, reference: Reference) -> float:
    goal = _level(panel, reference)
    mine, other = panel[MINE].reaches(goal), panel[label].reaches(goal)
    return other / max(mine, TINY) if math.isfinite(mine) else 0.0


def _time_ratio(panel: Panel, label: str, reference: Reference) -> float:
    other = panel[str(reference)]
    # A reference that does not reach the level is followed to its last error.
    deepest = max(CONVERGED, other.final)
    mine = panel[label].reaches(deepest)
    return mine / max(other.reaches(deepest), TINY) if math.isfinite(mine) else math.inf


def _level(panel: Panel, reference: Reference) -> float:
    return FLOORS * _noise_floor(panel) if reference == FLOOR else float(reference)


def _noise_floor(panel: Panel) -> float:
    assert panel.noise_floor is not None
    return panel.noise_floor


TIME = Quantity("{label}, {unit} to {reference}", _time)
"""The x at which a curve reaches a level or the noise floor."""

FINAL = Quantity("{label}, final error / {reference}", _final)
"""The last error over the noise floor, the last error of another curve, or the smallest last error of all others."""

SLOPE = Quantity("{label}, slope of log final error over log lambda", _slope)
"""Slope of the least-squares line of log error over log parameter, 1 if errors are proportional to it."""

DELAY = Quantity("{label}, time to {reference} / time of " + MINE, _delay)
"""Time of a rival over the time of eta-decay; 0 if eta-decay never reaches the level."""

TIME_RATIO = Quantity(f"{{label}}, time to {CONVERGED:g} / time of {{reference}}", _time_ratio)
"""Time of a curve over the time of its reference; infinite if the curve never gets as far as the reference."""
