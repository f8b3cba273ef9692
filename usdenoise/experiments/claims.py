"""The kinds of claims: the error at the end of a curve, when it reaches a level, and both against another curve.

In all of them `panel` has the curves, `where` is the place in the paper, `label` is the label of the curve that the
claim is about, and `reference` the label of the curve that it is compared with.

The words have the same bounds in every experiment. A curve "reaches the noise floor" where its error is at most
twice the floor, and "stays above the noise floor" where it ends with more than that. "As accurate" is at most 1.1
times the error, "as fast" at most 1.5 times the iterations, "slower" at least 2 times, "proportional" a slope of
0.9 to 1.1 between the logarithms.
"""

import math
import sys
from collections.abc import Sequence

import numpy as np

from usdenoise.experiments.record import Claim, Curve, Panel

TINY = sys.float_info.min
FLOORS = 2.0
AS_ACCURATE, AS_FAST, SLOWER = 1.1, 1.5, 2.0
SLOPE = (0.9, 1.1)
MOST_SEEDS = 0.9


def proportional(
    panel: Panel, where: str, labels: Sequence[str], values: Sequence[float], name: str
) -> Claim:
    """Claim that the final errors of curves are proportional to a parameter of their method.

    The number is the slope of the least-squares line of log error against log parameter.

    Parameters
    ----------
    panel, where
        As in the module's first lines.
    labels : sequence of str
        Labels of the curves.
    values : sequence of float
        Parameter of each curve.
    name : str
        Words for the curves and their parameter.
    """
    errors = [max(panel[label].final, TINY) for label in labels]
    slope = float(np.polyfit(np.log(values), np.log(errors), 1)[0])
    return _claim(
        panel, where, f"final error of {name}: slope of log error against log lambda", slope, *SLOPE
    )


def reaches(panel: Panel, where: str, label: str, level: float, within: float) -> Claim:
    """Claim that a curve reaches a level within a number of iterations."""
    return _claim(
        panel,
        where,
        f"iterations until {label} reaches {level:g}",
        panel[label].reaches(level),
        at_most=within,
    )


def reaches_floor(panel: Panel, where: str, label: str, within: float, unit: str = "iterations") -> Claim:
    """Claim that a curve reaches the noise floor within a number of iterations or seconds in 9 of 10 seeds."""
    return _claim(
        panel,
        where,
        f"share of the seeds in which {label} reaches the noise floor within {within:g} {unit}",
        panel[label].share_within(floor_level(panel), within),
        MOST_SEEDS,
    )


def stays_above_floor(panel: Panel, where: str, label: str) -> Claim:
    """Claim that a curve ends above twice the noise floor."""
    assert panel.noise_floor is not None
    return _claim(
        panel,
        where,
        f"final error of {label} / noise floor",
        panel[label].final / panel.noise_floor,
        FLOORS,
    )


def ends_above(panel: Panel, where: str, label: str, reference: str, factor: float) -> Claim:
    """Claim that the final error of a curve is at least `factor` times that of the reference."""
    return _claim(
        panel,
        where,
        f"final error of {label} / final error of {reference}",
        _ratio(panel[label], panel[reference]),
        factor,
    )


def ends_near(panel: Panel, where: str, label: str, reference: str, factor: float) -> Claim:
    """Claim that the final error of a curve is at most `factor` times that of the reference."""
    return _claim(
        panel,
        where,
        f"final error of {label} / final error of {reference}",
        _ratio(panel[label], panel[reference]),
        at_most=factor,
    )


def ends_near_best(
    panel: Panel, where: str, label: str, others: Sequence[str], kind: str, factor: float = AS_ACCURATE
) -> Claim:
    """Claim that the final error of a curve is at most `factor` times the smallest final error of `others`."""
    best = min((panel[other] for other in others), key=lambda curve: curve.final)
    return _claim(
        panel,
        where,
        f"final error of {label} / smallest final error of {kind}",
        _ratio(panel[label], best),
        at_most=factor,
    )


def slower(panel: Panel, where: str, label: str, reference: str, level: float, name: str = "") -> Claim:
    """Claim that the reference takes at least twice as long as a curve to reach a level.

    The number is 0 where the curve never reaches the level, and infinite where only the reference never does.
    """
    mine, other = panel[label].reaches(level), panel[reference].reaches(level)
    return _claim(
        panel,
        where,
        f"time of {reference} / time of {label} to reach {name or f'{level:g}'}",
        other / max(mine, TINY) if math.isfinite(mine) else 0.0,
        SLOWER,
    )


def as_fast(panel: Panel, where: str, label: str, reference: str, level: float) -> Claim:
    """Claim that a curve takes at most 1.5 times as long as the reference to reach a level.

    A reference that does not reach the level is followed to its last error. The number is infinite where the curve
    never gets as far as the reference.
    """
    deepest = max(level, panel[reference].final)
    mine, other = panel[label].reaches(deepest), panel[reference].reaches(deepest)
    return _claim(
        panel,
        where,
        f"time of {label} / time of {reference} to reach {level:g}, or the last error of {reference}",
        mine / max(other, TINY) if math.isfinite(mine) else math.inf,
        at_most=AS_FAST,
    )


def floor_level(panel: Panel) -> float:
    """Return twice the noise floor of a panel that has noise."""
    assert panel.noise_floor is not None
    return FLOORS * panel.noise_floor


def _claim(
    panel: Panel,
    where: str,
    text: str,
    measured: float,
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> Claim:
    return Claim(
        f"{panel.setting}: {text}", where, measured, at_least, at_most, panel.start, panel.convention
    )


def _ratio(curve: Curve, reference: Curve) -> float:
    # An error can be exactly 0.
    return curve.final / max(reference.final, TINY)
