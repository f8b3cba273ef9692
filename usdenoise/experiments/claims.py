"""The kinds of checks: the error at the end of a curve, when it reaches a level, and both against another curve.

In all of them `label` is the label of the curve that the check is about, and `reference` the label of the curve that it
is compared with.

The words have the same bounds in every experiment. A curve "reaches the noise floor" where its error is at most
twice the floor, and "stays above the noise floor" where it ends with more than that. "As accurate" is at most 1.1
times the error, "as fast" at most 1.5 times the iterations, "slower" at least 2 times, "proportional" a slope of
0.9 to 1.1 between the logarithms. These bounds are ours. Where the paper gives the length of a run, that is the bound
of what happens in the run.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from usdenoise.experiments.record import OURS, PAPER, Claim, Curve, Panel

TINY = sys.float_info.min
FLOORS = 2.0
AS_ACCURATE, AS_FAST, SLOWER = 1.1, 1.5, 2.0
SLOPE = (0.9, 1.1)
MOST_SEEDS = 0.9
ABSTRACT = "abstract; "
"""The abstract says that the method converges to minimax error at a linear rate."""


@dataclass(frozen=True)
class Check:
    """A sentence about the curves of a panel, how its number is measured, and the bounds of that number.

    Attributes
    ----------
    text : str
        The sentence.
    measure : callable
        Function that returns the number of a :class:`Panel`.
    at_least, at_most : float
        Bounds that the number is compared with, by default minus and plus infinity.
    where : str
        Place in the paper in addition to the experiment, by default none.
    bound : str
        Whose the bounds are, by default "ours".
    """

    text: str
    measure: Callable[[Panel], float]
    at_least: float = -math.inf
    at_most: float = math.inf
    where: str = ""
    bound: str = OURS

    def claim(self, panel: Panel, experiment: str) -> Claim:
        """Return the claim that a panel decides; `experiment` is its place in the paper."""
        return Claim(
            f"{panel.setting}: {self.text}",
            self.where + experiment,
            self.measure(panel),
            self.at_least,
            self.at_most,
            panel.start,
            panel.convention,
            panel.reading,
            self.bound,
        )


def in_abstract(check: Check) -> Check:
    """Return a check whose sentence is in the abstract, too."""
    return replace(check, where=ABSTRACT)


def in_its_run(check: Check) -> Check:
    """Return a check whose bound is the length of the paper's run."""
    return replace(check, bound=PAPER)


def proportional(labels: Sequence[str], values: Sequence[float], name: str) -> Check:
    """Check that the final errors of curves are proportional to a parameter of their method.

    The number is the slope of the least-squares line of log error against log parameter.

    Parameters
    ----------
    labels : sequence of str
        Labels of the curves.
    values : sequence of float
        Parameter of each curve.
    name : str
        Words for the curves and their parameter.
    """

    def slope(panel: Panel) -> float:
        errors = [max(panel[label].final, TINY) for label in labels]
        return float(np.polyfit(np.log(values), np.log(errors), 1)[0])

    return Check(f"final error of {name}: slope of log error against log lambda", slope, *SLOPE)


def reaches(label: str, level: float, within: float) -> Check:
    """Check that a curve reaches a level within a number of iterations."""
    return Check(
        f"iterations until {label} reaches {level:g}",
        lambda panel: panel[label].reaches(level),
        at_most=within,
    )


def reaches_floor(label: str, within: float, unit: str = "iterations") -> Check:
    """Check that a curve reaches the noise floor within a number of iterations or seconds in 9 of 10 seeds."""
    return Check(
        f"{unit} until {label} has reached the noise floor in {100 * MOST_SEEDS:g} % of the seeds",
        lambda panel: panel[label].reaches(FLOORS * _noise_floor(panel), MOST_SEEDS),
        at_most=within,
    )


def stays_above_floor(label: str) -> Check:
    """Check that a curve ends above twice the noise floor."""
    return Check(
        f"final error of {label} / noise floor",
        lambda panel: panel[label].final / _noise_floor(panel),
        FLOORS,
    )


def ends_above(label: str, reference: str, at_least: float) -> Check:
    """Check that the final error of a curve is at least `at_least` times that of the reference."""
    return Check(
        f"final error of {label} / final error of {reference}",
        lambda panel: _ratio(panel[label], panel[reference]),
        at_least,
    )


def ends_near_best(label: str, others: Sequence[str], kind: str, factor: float = AS_ACCURATE) -> Check:
    """Check that the final error of a curve is at most `factor` times the smallest final error of `others`."""

    def ratio(panel: Panel) -> float:
        return _ratio(panel[label], min((panel[other] for other in others), key=lambda curve: curve.final))

    return Check(f"final error of {label} / smallest final error of {kind}", ratio, at_most=factor)


def slower(label: str, reference: str, level: float | None = None) -> Check:
    """Check that the reference takes at least twice as long as a curve to reach a level.

    Without a level it is the noise floor. The number is 0 where the curve never reaches the level, and infinite where
    only the reference never does.
    """

    def ratio(panel: Panel) -> float:
        goal = FLOORS * _noise_floor(panel) if level is None else level
        mine, other = panel[label].reaches(goal), panel[reference].reaches(goal)
        return other / max(mine, TINY) if math.isfinite(mine) else 0.0

    goal = "the noise floor" if level is None else f"{level:g}"
    return Check(f"time of {reference} / time of {label} to reach {goal}", ratio, SLOWER)


def as_fast(label: str, reference: str, level: float) -> Check:
    """Check that a curve takes at most 1.5 times as long as the reference to reach a level.

    A reference that does not reach the level is followed to its last error. The number is infinite where the curve
    never gets as far as the reference.
    """

    def ratio(panel: Panel) -> float:
        deepest = max(level, panel[reference].final)
        mine, other = panel[label].reaches(deepest), panel[reference].reaches(deepest)
        return mine / max(other, TINY) if math.isfinite(mine) else math.inf

    return Check(
        f"time of {label} / time of {reference} to reach {level:g}, or the last error of {reference}",
        ratio,
        at_most=AS_FAST,
    )


def _noise_floor(panel: Panel) -> float:
    assert panel.noise_floor is not None
    return panel.noise_floor


def _ratio(curve: Curve, reference: Curve) -> float:
    # An error can be exactly 0.
    return curve.final / max(reference.final, TINY)
