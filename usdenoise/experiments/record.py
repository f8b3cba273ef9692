"""What an experiment leaves behind: curves, claims that were checked, and the settings of both."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.acquisition import Acquisition


@dataclass(frozen=True)
class Claim:
    """A sentence, the number that it comes down to, and what that number has to be.

    Attributes
    ----------
    statement : str
        The sentence.
    measured : float
        The number; infinite where something was never reached.
    bound : float
        What it is held against.
    at_most : bool
        Whether the bound is from above.
    """

    statement: str
    measured: float
    bound: float
    at_most: bool = True

    @property
    def held(self) -> bool:
        """Whether it is so."""
        return self.measured <= self.bound if self.at_most else self.measured >= self.bound

    @property
    def wanted(self) -> str:
        """The bound in words."""
        return f"at {'most' if self.at_most else 'least'} {self.bound:.3g}"

    @property
    def figure(self) -> str:
        """The number with three digits, or what an infinite one means."""
        if math.isfinite(self.measured):
            return f"{self.measured:.3g}"
        return "never" if self.at_most else "the other never"

    def as_dict(self) -> dict[str, Any]:
        """For the record."""
        return {
            "statement": self.statement,
            "measured": self.measured,
            "figure": self.figure,
            "wanted": self.wanted,
            "held": self.held,
        }


@dataclass(frozen=True)
class Curve:
    """Errors of one method in one setting, over seeds.

    Attributes
    ----------
    label : str
        The method.
    x : (k,) array
        Iterations, or seconds.
    errors : (n_seeds, k) array
        One row a seed.
    raised : tuple of int
        How many steps of the run raised the objective, for each seed. They are kept where the step is fixed,
        as in the paper.
    halvings : tuple of int
        How often the loop undid and halved a step of the run, for each seed.
    stop_reasons : tuple of str
        Why the run ended, for each seed.
    """

    label: str
    x: NDArray[Any]
    errors: NDArray[np.float64]
    raised: tuple[int, ...]
    halvings: tuple[int, ...]
    stop_reasons: tuple[str, ...]

    @property
    def quartiles(self) -> NDArray[np.float64]:
        """(3, k) array: lower quartile, median, upper quartile over the seeds."""
        return np.quantile(self.errors, [0.25, 0.5, 0.75], axis=0)

    @property
    def final(self) -> float:
        """Median over the seeds of the error at the end."""
        return float(np.median(self.errors[:, -1]))

    def reaches(self, level: float) -> float:
        """Median over the seeds of the first x with an error of at most `level`; infinite if never."""
        below = self.errors <= level
        first = np.where(below.any(axis=1), self.x[below.argmax(axis=1)], math.inf)
        # Infinite values have no mean: the median is the lower one of the middle two.
        return float(np.quantile(first, 0.5, method="lower"))

    def as_dict(self) -> dict[str, Any]:
        """Summary for the record."""
        low, median, high = (float(value) for value in self.quartiles[:, -1])
        return {
            "label": self.label,
            "final_error": {"median": median, "quartile_1": low, "quartile_3": high},
            "final_error_of_each_seed": [float(value) for value in self.errors[:, -1]],
            "raised_steps": list(self.raised),
            "halvings": list(self.halvings),
            "stop_reasons": list(self.stop_reasons),
        }


@dataclass(frozen=True)
class Panel:
    """One setting of an experiment.

    Attributes
    ----------
    title : str
        The setting.
    curves : tuple of Curve
        One a method.
    noise_floor : float or None
        The error that the noise leaves, where there is noise.
    """

    title: str
    curves: tuple[Curve, ...]
    noise_floor: float | None = None

    def __getitem__(self, label: str) -> Curve:
        return next(curve for curve in self.curves if curve.label == label)


@dataclass(frozen=True)
class Montage:
    """Power Doppler pictures side by side.

    Attributes
    ----------
    grid : tuple of rows of (label, image)
        In dB, 0 at the maximum of each; spatial axes as in `acquisition`.
    acquisition : Acquisition
        Says what the axes are.
    """

    grid: tuple[tuple[tuple[str, NDArray[np.float32]], ...], ...]
    acquisition: Acquisition


@dataclass(frozen=True)
class ExperimentResult:
    """An experiment that was done.

    Attributes
    ----------
    title : str
        What it shows.
    parameters : mapping
        Its settings.
    choices : tuple of str
        What the paper leaves open or cannot mean, and what was done.
    seeds : tuple of int
        Seeds of the runs.
    panels : tuple of Panel
        One a setting.
    claims : tuple of Claim
        What was checked.
    x_label, y_label : str
        Of the panels.
    montage : Montage or None
        Pictures, where there are any.
    numbers : mapping
        Anything else that was measured.
    """

    title: str
    parameters: Mapping[str, Any]
    choices: tuple[str, ...]
    seeds: tuple[int, ...]
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...]
    x_label: str = "iteration"
    y_label: str = "relative error"
    montage: Montage | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the curves and the pictures."""
        return {
            "title": self.title,
            "parameters": dict(self.parameters),
            "choices": list(self.choices),
            "seeds": list(self.seeds),
            "panels": [
                {
                    "title": panel.title,
                    "noise_floor": panel.noise_floor,
                    "curves": [curve.as_dict() for curve in panel.curves],
                }
                for panel in self.panels
            ],
            "numbers": dict(self.numbers),
            "claims": [claim.as_dict() for claim in self.claims],
        }

    def rows(self) -> Iterator[tuple[str, str, float, float, float, float]]:
        """The curves as (panel, curve, x, lower quartile, median, upper quartile)."""
        for panel in self.panels:
            for curve in panel.curves:
                for x, (low, median, high) in zip(curve.x, curve.quartiles.T, strict=True):
                    yield panel.title, curve.label, float(x), float(low), float(median), float(high)

    def markdown(self, name: str) -> str:
        """A section on the experiment: what was chosen, and the table of its claims."""
        lines = [f"## {name}: {self.title}", ""]
        lines += [f"* {choice}" for choice in self.choices]
        lines += ["", "| claim | measured | wanted | |", "|---|---|---|---|"]
        for claim in self.claims:
            verdict = "held" if claim.held else "**not held**"
            lines.append(f"| {claim.statement} | {claim.figure} | {claim.wanted} | {verdict} |")
        return "\n".join(lines) + "\n"
