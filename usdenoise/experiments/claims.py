"""The kinds of claims: the error at the end of a curve, when it reaches a level, and both against another curve.

In all of them `panel` is the setting that has the curves, `label` the label of the curve that the claim is about,
and `reference` the label of the curve that it is compared with.
"""

import math
import sys
from collections.abc import Sequence

from usdenoise.experiments.record import Claim, Curve, Panel

TINY = sys.float_info.min


def within_of_parameter(panel: Panel, label: str, value: float, factor: float) -> Claim:
    """Claim that the final error of a curve is within a factor of a parameter of its method, above it or below it."""
    final = panel[label].final
    return Claim(
        f"{panel.title}: final error of {label} is within a factor of {factor:g} of {value:g} "
        f"(it is {final:.2g})",
        max(final / value, value / final),
        factor,
    )


def reaches(
    panel: Panel, label: str, level: float, within: float, name: str = "", unit: str = "iterations"
) -> Claim:
    """Claim that a curve reaches a level within a number of iterations or seconds.

    Parameters
    ----------
    panel : Panel
        Setting with the curve.
    label : str
        Label of the curve.
    level : float
        Error that the curve has to reach.
    within : float
        Largest number of iterations or seconds.
    name : str
        Words for the level, by default its number.
    unit : str
        Unit of `within` in the sentence, by default iterations.
    """
    named = name or f"{level:g}"
    return Claim(
        f"{panel.title}: {label} reaches {named} within {within:g} {unit}",
        panel[label].reaches(level),
        within,
    )


def reaches_floor(panel: Panel, label: str, within: float, unit: str = "iterations") -> Claim:
    """Claim that a curve reaches twice the noise floor within a number of iterations or seconds."""
    return reaches(panel, label, floor_level(panel), within, "twice the noise floor", unit)


def ends_above(panel: Panel, label: str, reference: str, factor: float) -> Claim:
    """Claim that the final error of a curve is at least `factor` times that of the reference."""
    return Claim(
        f"{panel.title}: final error of {label} / final error of {reference} is at least {factor:g}",
        _ratio(panel[label], panel[reference]),
        factor,
        at_most=False,
    )


def ends_near(panel: Panel, label: str, reference: str, factor: float) -> Claim:
    """Claim that the final error of a curve is at most `factor` times that of the reference."""
    return Claim(
        f"{panel.title}: final error of {label} / final error of {reference} is at most {factor:g}",
        _ratio(panel[label], panel[reference]),
        factor,
    )


def ends_near_best(panel: Panel, label: str, others: Sequence[str], kind: str, factor: float) -> Claim:
    """Claim that the final error of a curve is at most `factor` times the smallest final error of `others`.

    The sentence names the curve with the smallest final error, and calls it the best `kind`.
    """
    best = min(others, key=lambda other: panel[other].final)
    return Claim(
        f"{panel.title}: final error of {label} / final error of the best {kind} ({best}) is at most "
        f"{factor:g}",
        _ratio(panel[label], panel[best]),
        factor,
    )


def sooner(panel: Panel, label: str, reference: str, level: float, factor: float, name: str = "") -> Claim:
    """Claim that the reference takes at least `factor` times as long as a curve to reach a level.

    The number is 0 where the curve never reaches the level, and infinite where only the reference never does.
    """
    named = name or f"{level:g}"
    mine, other = panel[label].reaches(level), panel[reference].reaches(level)
    return Claim(
        f"{panel.title}: {reference} takes at least {factor:g} times as long as {label} to reach {named}",
        other / max(mine, TINY) if math.isfinite(mine) else 0.0,
        factor,
        at_most=False,
    )


def as_soon(panel: Panel, label: str, reference: str, level: float, factor: float) -> Claim:
    """Claim that a curve takes at most `factor` times the iterations of the reference to reach a level.

    The number is infinite where the curve never reaches the level.
    """
    mine, other = panel[label].reaches(level), panel[reference].reaches(level)
    return Claim(
        f"{panel.title}: {label} takes at most {factor:g} times the iterations of {reference} to reach {level:g}",
        mine / max(other, TINY) if math.isfinite(mine) else math.inf,
        factor,
    )


def floor_level(panel: Panel) -> float:
    """Return twice the noise floor of a setting that has noise."""
    assert panel.noise_floor is not None
    return 2 * panel.noise_floor


def _ratio(curve: Curve, reference: Curve) -> float:
    # An error can be exactly 0.
    return curve.final / max(reference.final, TINY)
