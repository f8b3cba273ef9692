"""Result of an experiment: its curves, the numbers that decide its claims, and the checked claims.

A curve reaches the noise floor if its error is at most twice the floor, in 9 of 10 seeds where the claim is about the
curve alone.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.tall_matrices import TINY
from usdenoise.report.montages import Grid
from usdenoise.stack.acquisition import Acquisition


@dataclass(frozen=True)
class Curve:
    """Errors of one method in one setting, for every seed.

    Attributes
    ----------
    label : str
        Name of the method with its parameters, as in the figure.
    x : (k,) array
        Iterations counted from 0 (the start), or seconds.
    errors : (n_seeds, k) array
        Errors at each x, one row per seed.
    numbers : mapping
        Further numbers of the method, by default none.
    """

    label: str
    x: NDArray[np.floating]
    errors: NDArray[np.float64]
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def quartiles(self) -> NDArray[np.float64]:
        """Lower quartile, median and upper quartile over the seeds, a (3, k) array."""
        return np.quantile(self.errors, [0.25, 0.5, 0.75], axis=0)

    @property
    def final(self) -> float:
        """Median over the seeds of the last error."""
        return float(np.median(self.errors[:, -1]))

    def reaches(self, level: float, share: float = 0.5) -> float:
        """Return the smallest x at which a share of the seeds have had an error of at most `level`.

        It is infinite if fewer of the seeds ever reach the level. The share is a half by default.
        """
        below = self.errors <= level
        first = np.where(below.any(axis=1), self.x[below.argmax(axis=1)], math.inf)
        return float(np.quantile(first, share, method="inverted_cdf"))


@dataclass(frozen=True)
class CurvePanel:
    """Curves of the methods in one setting.

    Attributes
    ----------
    setting : str
        Name of the setting.
    curves : tuple of Curve
        Curves of the methods.
    noise_floor : float or None
        Error that the noise leaves; None without noise.
    unit : str
        Unit of the x axis, by default "iterations".
    """

    setting: str
    curves: tuple[Curve, ...]
    noise_floor: float | None = None
    unit: str = "iterations"

    def __getitem__(self, label: str) -> Curve:
        return next(curve for curve in self.curves if curve.label == label)

    def as_dict(self) -> dict[str, object]:
        """Return the panel as it is written to the record, with the last errors of its curves."""
        return {
            "setting": self.setting,
            "noise_floor": self.noise_floor,
            "final_errors": {curve.label: curve.errors[:, -1].tolist() for curve in self.curves},
            "numbers": {curve.label: curve.numbers for curve in self.curves if curve.numbers},
        }


Reference = float | str
"""A level, or the label of a curve that a curve is compared with."""


@dataclass(frozen=True)
class Quantity:
    """A number of a curve.

    Attributes
    ----------
    words : str
        Template with placeholders for "label", "reference" and "unit".
    measure : callable
        (panel, label, reference) -> number. Infinite if a curve never gets to a level.
    """

    words: str
    measure: Callable[[CurvePanel, str, Reference], float]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper: a number of a curve, and its bounds.

    Attributes
    ----------
    label : str
        Label of the curve.
    quantity : Quantity
        The number.
    reference : float or str
        Level or label that the quantity refers to.
    at_least, at_most : float
        Bounds of the number, by default minus and plus infinity.
    is_run : bool
        Whether the bound is the length of the paper's run; by default it is ours.
    """

    label: str
    quantity: Quantity
    reference: Reference = ""
    at_least: float = -math.inf
    at_most: float = math.inf
    is_run: bool = False

    @classmethod
    def each(
        cls, labels: Sequence[str], quantity: Quantity, reference: Reference, at_least: float
    ) -> "list[Claim]":
        """Return the claim that a number of each of some curves is at least a bound."""
        return [cls(label, quantity, reference, at_least=at_least) for label in labels]

    def check(self, setting: str, panels: Sequence[CurvePanel]) -> "CheckedClaim":
        """Return the claim with the worst number of the panels of a setting."""
        numbers = [self.quantity.measure(panel, self.label, self.reference) for panel in panels]
        measured = max(numbers) if math.isinf(self.at_least) else min(numbers)
        reference = self.reference if isinstance(self.reference, str) else f"{self.reference:g}"
        words = self.quantity.words.format(label=self.label, reference=reference, unit=panels[0].unit)
        return CheckedClaim(self, f"{setting}: {words}", measured)


@dataclass(frozen=True)
class CheckedClaim:
    """A claim with the number that decides it.

    Attributes
    ----------
    claim : Claim
        The claim with its bounds.
    statement : str
        The measured quantity, in words.
    measured : float
        The number; infinite if a curve never reached a level.
    """

    claim: Claim
    statement: str
    measured: float

    @property
    def held(self) -> bool:
        """Whether the claim holds."""
        return self.claim.at_least <= self.measured <= self.claim.at_most

    @property
    def bound(self) -> str:
        """The bounds in words; "run" marks the length of the paper's run."""
        low, high = self.claim.at_least, self.claim.at_most
        if math.isinf(low):
            return f"at most {high:g}{' (run)' if self.claim.is_run else ''}"
        return f"at least {low:g}" if math.isinf(high) else f"{low:g} to {high:g}"

    @property
    def number(self) -> str:
        """The number with three digits; "other never" if only the compared curve never reaches the level."""
        if math.isfinite(self.measured):
            return f"{self.measured:.3g}"
        return "other never" if math.isinf(self.claim.at_most) else "never"

    def as_dict(self) -> dict[str, object]:
        """Return the claim as it is written to the record."""
        names = ("statement", "bound", "measured", "number", "held")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class ExperimentResult:
    """Result of one experiment.

    Attributes
    ----------
    title : str
        Title of the figure.
    parameters : mapping
        Settings of the experiment by name.
    panels : tuple of CurvePanel
        Settings with their curves.
    claims : tuple of CheckedClaim
        Claims with their numbers.
    y_label : str
        Label of the y axis of all panels, by default "relative error".
    pictures : rows of (label, image)
        Power Doppler in dB of an ultrasound experiment, with a maximum of 0 each; by default none.
    acquisition : Acquisition or None
        Acquisition that gives the axes and the spacing of the pictures.
    """

    title: str
    parameters: Mapping[str, object]
    panels: tuple[CurvePanel, ...]
    claims: tuple[CheckedClaim, ...]
    y_label: str = "relative error"
    pictures: Grid = ()
    acquisition: Acquisition | None = None

    def rows(self) -> Iterator[tuple[str, str, float, float, float, float]]:
        """Yield the curves as rows (panel, curve, x, lower quartile, median, upper quartile)."""
        for panel in self.panels:
            for curve in panel.curves:
                for x, (low, median, high) in zip(curve.x, curve.quartiles.T, strict=True):
                    yield panel.setting, curve.label, float(x), float(low), float(median), float(high)


FLOORS = 2.0
MOST_SEEDS = 0.9
CONVERGED = 1e-10
MINE = "eta-decay"
FLOOR, BEST_OTHER = "noise floor", "best other"
LAMBDAS = (1e-2, 1e-4, 1e-6, 1e-9)


def _time_to(panel: CurvePanel, label: str, reference: Reference) -> float:
    share = MOST_SEEDS if reference == FLOOR else 0.5
    return panel[label].reaches(_level_of(panel, reference), share)


def _final(panel: CurvePanel, label: str, reference: Reference) -> float:
    if reference == FLOOR:
        smallest = _noise_floor(panel)
    elif reference == BEST_OTHER:
        smallest = min(curve.final for curve in panel.curves if curve.label != label)
    else:
        smallest = panel[str(reference)].final
    # An error can be exactly 0.
    return panel[label].final / max(smallest, TINY)


def _slope(panel: CurvePanel, label: str, reference: Reference) -> float:
    errors = [max(panel[f"ScaledGD({value:g})"].final, TINY) for value in LAMBDAS]
    return float(np.polyfit(np.log(LAMBDAS), np.log(errors), 1)[0])


def _delay(panel: CurvePanel, label: str, reference: Reference) -> float:
    goal = _level_of(panel, reference)
    mine, other = panel[MINE].reaches(goal), panel[label].reaches(goal)
    return other / max(mine, TINY) if math.isfinite(mine) else 0.0


def _time_ratio(panel: CurvePanel, label: str, reference: Reference) -> float:
    other = panel[str(reference)]
    # A reference that does not reach the level is followed to its last error.
    deepest = max(CONVERGED, other.final)
    mine = panel[label].reaches(deepest)
    return mine / max(other.reaches(deepest), TINY) if math.isfinite(mine) else math.inf


def _level_of(panel: CurvePanel, reference: Reference) -> float:
    return FLOORS * _noise_floor(panel) if reference == FLOOR else float(reference)


def _noise_floor(panel: CurvePanel) -> float:
    assert panel.noise_floor is not None
    return panel.noise_floor


TIME = Quantity("{label}, {unit} to {reference}", _time_to)
"""The x at which a curve reaches a level or the noise floor."""

FINAL = Quantity("{label}, final error / {reference}", _final)
"""The last error over the noise floor, the last error of another curve, or the smallest last error of all others."""

SLOPE = Quantity("{label}, slope of log final error over log lambda", _slope)
"""Slope of the least-squares line of log error over log parameter, 1 if errors are proportional to it."""

DELAY = Quantity("{label}, time to {reference} / time of " + MINE, _delay)
"""Time of a rival over the time of eta-decay; 0 if eta-decay never reaches the level."""

TIME_RATIO = Quantity(f"{{label}}, time to {CONVERGED:g} / time of {{reference}}", _time_ratio)
"""Time of a curve over the time of its reference; infinite if the curve never gets as far as the reference."""
