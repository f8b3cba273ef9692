"""The forms that claims take: where a curve ends, how soon it gets there, and both against another curve."""

import math
import sys
from collections.abc import Sequence

from usdenoise.experiments.record import Claim, Curve, Panel

TINY = sys.float_info.min


def within_of_parameter(panel: Panel, label: str, value: float, factor: float) -> Claim:
    """A curve ends within a factor of a parameter of its method, on either side."""
    final = panel[label].final
    return Claim(
        f"{panel.title}: {label} ends within {factor:g}x of {value:g} (ends at {final:.2g})",
        max(final / value, value / final),
        factor,
    )


def reaches(
    panel: Panel, label: str, level: float, within: float, name: str = "", unit: str = "iterations"
) -> Claim:
    """A curve reaches a level within some iterations (or seconds)."""
    named = name or f"{level:g}"
    return Claim(
        f"{panel.title}: {label} reaches {named} within {within:g} {unit}",
        panel[label].reaches(level),
        within,
    )


def reaches_floor(panel: Panel, label: str, within: float, unit: str = "iterations") -> Claim:
    """A curve reaches twice the noise floor within some iterations (or seconds)."""
    return reaches(panel, label, floor_level(panel), within, "twice the noise floor", unit)


def ends_above(panel: Panel, label: str, reference: str, factor: float) -> Claim:
    """A curve ends at least some times higher than another one."""
    return Claim(
        f"{panel.title}: {label} ends at least {factor:g}x as high as {reference}",
        _ratio(panel[label], panel[reference]),
        factor,
        at_most=False,
    )


def ends_near(panel: Panel, label: str, reference: str, factor: float) -> Claim:
    """A curve ends at most some times higher than another one."""
    return Claim(
        f"{panel.title}: {label} ends at most {factor:g}x as high as {reference}",
        _ratio(panel[label], panel[reference]),
        factor,
    )


def ends_near_best(panel: Panel, label: str, others: Sequence[str], kind: str, factor: float) -> Claim:
    """A curve ends at most some times higher than the lowest of others."""
    best = min(others, key=lambda other: panel[other].final)
    return Claim(
        f"{panel.title}: {label} ends at most {factor:g}x as high as the best {kind} ({best})",
        _ratio(panel[label], panel[best]),
        factor,
    )


def sooner(panel: Panel, label: str, reference: str, level: float, factor: float, name: str = "") -> Claim:
    """A curve takes at most 1 / factor of what another one takes to reach a level."""
    named = name or f"{level:g}"
    mine, other = panel[label].reaches(level), panel[reference].reaches(level)
    return Claim(
        f"{panel.title}: {label} reaches {named} at least {factor:g}x sooner than {reference}",
        other / max(mine, TINY) if math.isfinite(mine) else 0.0,
        factor,
        at_most=False,
    )


def as_soon(panel: Panel, label: str, reference: str, level: float, factor: float) -> Claim:
    """A curve takes at most `factor` times what another one takes to reach a level."""
    mine, other = panel[label].reaches(level), panel[reference].reaches(level)
    return Claim(
        f"{panel.title}: {label} reaches {level:g} in at most {factor:g}x the iterations of {reference}",
        mine / max(other, TINY) if math.isfinite(mine) else math.inf,
        factor,
    )


def floor_level(panel: Panel) -> float:
    """Twice the noise floor of a setting that has noise."""
    assert panel.noise_floor is not None
    return 2 * panel.noise_floor


def _ratio(curve: Curve, reference: Curve) -> float:
    return curve.final / max(reference.final, TINY)
