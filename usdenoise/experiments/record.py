"""Result of an experiment: its curves, its checked claims, and its settings."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.experiments.conventions import Convention, Start
from usdenoise.stack.acquisition import Acquisition

PAPER, OURS = "paper", "ours"
"""The paper's own reading of an experiment; whose a bound is."""


@dataclass(frozen=True)
class Claim:
    """A sentence about curves, the number that decides it, and the bounds of that number.

    Attributes
    ----------
    statement : str
        Sentence that is claimed.
    where : str
        Place in the paper.
    measured : float
        Number that decides; infinite where a curve never reached a level.
    at_least, at_most : float
        Bounds that the number is compared with, by default minus and plus infinity.
    start : Start
        Start of the runs, by default spectral.
    convention : Convention
        Convention of the gradient, by default that of f(X).
    reading : str
        "paper" (the default) where start and convention are the paper's, otherwise their names.
    bound : str
        "paper" where the bounds are the paper's, "ours" (the default) where the paper gives none.
    """

    statement: str
    where: str
    measured: float
    at_least: float = -math.inf
    at_most: float = math.inf
    start: Start = Start.SPECTRAL
    convention: Convention = Convention.OF_X
    reading: str = PAPER
    bound: str = OURS

    @property
    def held(self) -> bool:
        """Whether the claim holds."""
        return self.at_least <= self.measured <= self.at_most

    @property
    def wanted(self) -> str:
        """The bounds in words, and whose they are."""
        if math.isinf(self.at_least):
            words = f"at most {self.at_most:g}"
        elif math.isinf(self.at_most):
            words = f"at least {self.at_least:g}"
        else:
            words = f"{self.at_least:g} to {self.at_most:g}"
        return f"{words} ({self.bound})"

    @property
    def figure(self) -> str:
        """The number with three digits, or the words for an infinite one.

        "never": the curve never reaches the level. "the other never": only the curve it is compared with never
        does.
        """
        if math.isfinite(self.measured):
            return f"{self.measured:.3g}"
        return "the other never" if math.isinf(self.at_most) else "never"

    def as_dict(self) -> dict[str, Any]:
        """Return the claim as it is written to the record."""
        return {name: getattr(self, name) for name in _RECORDED}


_RECORDED = (
    "statement", "where", "reading", "start", "convention", "measured", "figure", "wanted", "bound", "held",
)  # fmt: skip
"""What the record has of a claim."""


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
    raised : tuple of int
        Number of steps that raised the objective, for each seed. With a fixed step, as in the paper, they are
        kept.
    halvings : tuple of int
        Number of times that the loop undid and halved a step, for each seed.
    stop_reasons : tuple of str
        Sentence that says why the run ended, for each seed.
    """

    label: str
    x: NDArray[Any]
    errors: NDArray[np.float64]
    raised: tuple[int, ...]
    halvings: tuple[int, ...]
    stop_reasons: tuple[str, ...]

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

        It is infinite where fewer of the seeds ever reach the level. The share is a half by default.
        """
        below = self.errors <= level
        first = np.where(below.any(axis=1), self.x[below.argmax(axis=1)], math.inf)
        return float(np.quantile(first, share, method="inverted_cdf"))

    def as_dict(self) -> dict[str, Any]:
        """Return the summary that is written to the record."""
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
    """Curves of one setting from one start, with one convention of the gradient.

    Attributes
    ----------
    setting : str
        Name of the setting.
    curves : tuple of Curve
        Curves of the methods.
    noise_floor : float or None
        Error that the noise leaves; None without noise.
    start : Start
        Start of the methods that have none of their own, by default spectral.
    convention : Convention
        Convention of the gradient, by default that of f(X).
    reading : str
        Reading of its claims, by default "paper".
    """

    setting: str
    curves: tuple[Curve, ...]
    noise_floor: float | None = None
    start: Start = Start.SPECTRAL
    convention: Convention = Convention.OF_X
    reading: str = PAPER

    def __getitem__(self, label: str) -> Curve:
        return next(curve for curve in self.curves if curve.label == label)

    @property
    def title(self) -> str:
        """Setting, start and convention in one line."""
        return f"{self.setting}, {self.start} start, {self.convention}"


Rows = tuple[tuple[tuple[str, NDArray[np.float32]], ...], ...]
"""Rows of labelled power Doppler images in dB, with a maximum of 0 each."""


@dataclass(frozen=True)
class ExperimentResult:
    """Result of one experiment.

    Attributes
    ----------
    title : str
        Title of the figure.
    parameters : mapping
        Settings of the experiment by name.
    choices : tuple of str
        Sentences on what the paper leaves open or cannot mean, each with the choice made here.
    seeds : tuple of int
        Seeds of the random problems.
    panels : tuple of Panel
        Settings with their curves.
    claims : tuple of Claim
        Claims that were checked, with every start and convention.
    x_label, y_label : str
        Axis labels of all panels, by default "iteration" and "relative error".
    pictures : rows of (label, image)
        Pictures of an ultrasound experiment; by default none.
    acquisition : Acquisition or None
        Acquisition that gives the axes and the spacing of the pictures.
    numbers : mapping
        Further numbers by sampling and method, by default none.
    """

    title: str
    parameters: Mapping[str, Any]
    choices: tuple[str, ...]
    seeds: tuple[int, ...]
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...]
    x_label: str = "iteration"
    y_label: str = "relative error"
    pictures: Rows = ()
    acquisition: Acquisition | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the curves and the pictures, as it is written to the record."""
        return {
            "title": self.title,
            "parameters": dict(self.parameters),
            "choices": list(self.choices),
            "seeds": list(self.seeds),
            "panels": [
                {
                    "title": panel.title,
                    "setting": panel.setting,
                    "start": panel.start.value,
                    "convention": panel.convention.value,
                    "noise_floor": panel.noise_floor,
                    "curves": [curve.as_dict() for curve in panel.curves],
                }
                for panel in self.panels
            ],
            "numbers": dict(self.numbers),
            "claims": [claim.as_dict() for claim in self.claims],
        }

    def rows(self) -> Iterator[tuple[str, str, float, float, float, float]]:
        """Yield the curves as rows (panel, curve, x, lower quartile, median, upper quartile)."""
        for panel in self.panels:
            for curve in panel.curves:
                for x, (low, median, high) in zip(curve.x, curve.quartiles.T, strict=True):
                    yield panel.title, curve.label, float(x), float(low), float(median), float(high)

    def markdown(self, name: str) -> str:
        """Return the experiment's section in Markdown: its choices and the table of its claims.

        Parameters
        ----------
        name : str
            Name of the experiment in the table of experiments.
        """
        lines = [f"## {name}: {self.title}", ""]
        lines += [f"* {choice}" for choice in self.choices]
        return "\n".join([*lines, "", *claim_table(self.claims)]) + "\n"


def claim_table(claims: Sequence[Claim]) -> list[str]:
    """Return claims as the lines of a Markdown table, with a column for each reading that they have.

    Parameters
    ----------
    claims : sequence of Claim
        Claims; those with the same statement share a row.
    """
    readings = dict.fromkeys(claim.reading for claim in claims)
    heads = ["claim", "in the paper", "wanted", *readings]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    rows: dict[str, dict[str, Claim]] = {}
    for claim in claims:
        rows.setdefault(claim.statement, {})[claim.reading] = claim
    for statement, row in rows.items():
        first = next(iter(row.values()))
        cells = [
            f"{'held' if row[name].held else '**not held**'}: {row[name].figure}" if name in row else ""
            for name in readings
        ]
        lines.append("| " + " | ".join([statement, first.where, first.wanted, *cells]) + " |")
    return lines
