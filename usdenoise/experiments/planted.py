"""An experiment on random 10 x 10 problems: what it declares, its runs, the noise floor, and the condition on the start."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from usdenoise.experiments.claims import Check
from usdenoise.experiments.conventions import MAIN_TEXT, STARTS, Convention, Start, Tried
from usdenoise.experiments.problems import SIZE, Instance
from usdenoise.experiments.record import PAPER, Curve, ExperimentResult, Panel
from usdenoise.experiments.setup import Setup
from usdenoise.experiments.trials import Variant, descend
from usdenoise.linalg.executor import ThreadExecutor

SECONDS_POINTS = 201

OFFSET = 1e-2
"""Distance of the fit's start from the planted factor, relative to its norm, times the square root of the noise."""

TOLERANCE = 1e-6
"""Relative change of the squared residuals at which the fit ends. With 1e-12 it took 16 times as long, and the errors
differed in the third digit."""


@dataclass(frozen=True)
class Setting:
    """One setting of an experiment: its problems and the methods that are compared on them.

    Attributes
    ----------
    name : str
        Name of the setting, for example "noiseless".
    draw : callable
        Function that draws a problem from a generator, such as :func:`usdenoise.experiments.problems.draw_sensing`.
    problem : mapping
        Its other arguments, among them `sigma`. With noise there is a noise floor.
    variants : sequence of Variant
        Methods with their parameters, one curve each.
    step : float
        Step length that multiplies the preconditioned gradient.
    iterations : int
        Number of iterations of each run.
    seconds : float or None
        Length of the time axis in seconds, for errors against wall time; None, the default, for errors against
        iterations.
    checks : sequence of Check
        Checks of every panel of the setting, by default none.
    """

    name: str
    draw: Callable[..., Instance]
    problem: Mapping[str, Any]
    variants: Sequence[Variant]
    step: float
    iterations: int
    seconds: float | None = None
    checks: Sequence[Check] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the setting as it is written to the record."""
        methods = {variant.label: asdict(variant) for variant in self.variants}
        numbers = {"step": self.step, "iterations": self.iterations, "seconds": self.seconds}
        return {**self.problem, **numbers, "methods": methods}


@dataclass(frozen=True)
class PlantedExperiment:
    """An experiment that finds a planted matrix M* by several methods.

    Attributes
    ----------
    title : str
        Title of the figure.
    where : str
        Place in the paper.
    settings : sequence of Setting
        Problems with their methods and checks.
    choices : sequence of str
        Sentences on what the paper leaves open or cannot mean, each with the choice made here.
    smallest_eigenvalue : float
        Smallest nonzero eigenvalue of M*, by default 1.
    tried : mapping from Convention to starts
        Conventions of the gradient with their starts, the paper's reading first; by default MAIN_TEXT.
    """

    title: str
    where: str
    settings: Sequence[Setting]
    choices: Sequence[str]
    smallest_eigenvalue: float = 1.0
    tried: Tried = field(default_factory=lambda: MAIN_TEXT)

    def run(self, setup: Setup) -> ExperimentResult:
        """Run every method in every setting, and check the claims on each panel."""
        convention, starts = next(iter(self.tried.items()))
        tried = {convention: starts[:2]} if setup.quick else self.tried
        found = [
            (panel, setting) for setting in self.settings for panel in panels(setting, setup.seeds, tried)
        ]
        first, words = self.settings[0], f"the paper's reading: {starts[0]} start, gradient {convention}"
        clean = partial(first.draw, **{**first.problem, "sigma": 0.0})
        return ExperimentResult(
            self.title,
            {"size": SIZE, "settings": {setting.name: setting.as_dict() for setting in self.settings}},
            (words, *self.choices),
            setup.seeds,
            tuple(panel for panel, _ in found),
            tuple(check.claim(panel, self.where) for panel, setting in found for check in setting.checks),
            x_label="iteration" if first.seconds is None else "seconds",
            numbers=condition_of_starts(clean, setup.seeds, self.smallest_eigenvalue),
        )


def panels(setting: Setting, seeds: Sequence[int], tried: Tried) -> list[Panel]:
    """Run the methods of a setting on the same random problems, from every start.

    Parameters
    ----------
    setting : Setting
        Problems and methods.
    seeds : sequence of int
        Seeds of the generators, one problem each.
    tried : mapping from Convention to starts
        Conventions of the gradient, each with the starts that are tried with it; the paper's reading comes first.

    Returns
    -------
    list of Panel
        Curves of each pair of convention and start, in their order.
    """
    # On such small matrices a second thread of BLAS only costs time.
    with ThreadExecutor(1):
        instances = [setting.draw(np.random.default_rng(seed), **setting.problem) for seed in seeds]
        floor = noise_floor(instances) if setting.problem["sigma"] else None
        found: list[Panel] = []
        for convention, starts in tried.items():
            # A method with a start of its own has the same curve in the panels of both starts.
            curves = {
                (variant.label, start): _run(setting, variant, instances, start, convention)
                for variant in setting.variants
                for start in ((variant.start,) if variant.start else starts)
            }
            for start in starts:
                of_start = (curves[variant.label, variant.start or start] for variant in setting.variants)
                reading = f"{start} start, {convention}" if found else PAPER
                found.append(Panel(setting.name, tuple(of_start), floor, start, convention, reading))
    return found


def _run(
    setting: Setting, variant: Variant, instances: Sequence[Instance], start: Start, convention: Convention
) -> Curve:
    descents = [
        descend(instance, variant, setting.step, setting.iterations, start, convention)
        for instance in instances
    ]
    if setting.seconds is None:
        x = np.arange(setting.iterations + 1, dtype=np.float64)
        # A run that diverged ends early: its last error is drawn to the end.
        errors = [np.pad(one.errors, (0, len(x) - len(one.errors)), mode="edge") for one in descents]
    else:
        x = np.linspace(0, setting.seconds, SECONDS_POINTS)
        errors = [one.at(x) for one in descents]
    return Curve(
        variant.label,
        x,
        np.array(errors),
        tuple(one.raised for one in descents),
        (0,) * len(descents),
        tuple(one.stop_reason for one in descents),
    )


def noise_floor(instances: Sequence[Instance]) -> float:
    """Return the median over the problems of the relative error of their least-squares fits.

    That is the minimax level of the paper, sigma sqrt(n r log n / m) / ||M*||, times a constant of the setting. None of
    the compared methods takes part in it.

    Parameters
    ----------
    instances : sequence of Instance
        The problem of every seed.
    """
    return float(np.median([least_squares_error(instance) for instance in instances]))


def least_squares_error(instance: Instance) -> float:
    """Return the relative error of the minimiser of the loss at the search rank that is nearest to M*.

    A Levenberg-Marquardt method (:func:`scipy.optimize.least_squares`) minimises the loss from the planted factor.
    The start is moved a little, because the gradient of a column of zeros is zero.

    Parameters
    ----------
    instance : Instance
        Problem with its planted factor.
    """
    from scipy.optimize import least_squares

    factor = instance.factor
    shape, dtype = factor.shape, factor.dtype
    rng = np.random.default_rng(0)
    noise = float(np.sqrt(np.sum(instance.loss.residuals(instance.truth) ** 2)))
    start = np.ascontiguousarray(factor).reshape(-1).view(np.float64).copy()
    start += OFFSET * np.sqrt(noise) * np.linalg.norm(start) * rng.standard_normal(start.size)

    def residuals(
        flat: np.ndarray[tuple[int], np.dtype[np.float64]],
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        x = flat.view(dtype).reshape(shape)
        # In units of the noise, so that the tolerances are relative to it.
        return instance.loss.residuals(x @ x.conj().T) / noise

    fit = least_squares(residuals, start, method="lm", xtol=1e-12, ftol=TOLERANCE, gtol=1e-12)
    x = np.ascontiguousarray(fit.x).view(dtype).reshape(shape)
    return float(np.linalg.norm(x @ x.conj().T - instance.truth) / np.linalg.norm(instance.truth))


def condition_of_starts(
    draw: Callable[[np.random.Generator], Instance], seeds: Sequence[int], smallest: float
) -> dict[str, Any]:
    """Return both sides of the condition |A(X0 X0^T - M*)|^2 <= rho^2 (1 - delta) lambda_r^2, by start.

    A is the linear map of the measurements, scaled so that the loss without noise is the left side. The paper has
    rho < 1 and delta > 0, so the right side is at most lambda_r^2, which is given.

    Parameters
    ----------
    draw : callable
        Function that draws a problem from a generator.
    seeds : sequence of int
        Seeds of the generators.
    smallest : float
        Smallest nonzero eigenvalue lambda_r of M*.

    Returns
    -------
    dict
        "condition of the theorem" has the largest possible right side, and for each start the medians of the left
        side and of the relative error, the number of problems that satisfy the condition, and the number of columns
        of X0 that are not zero in each problem.
    """
    numbers: dict[str, Any] = {"largest_right_side": smallest**2}
    instances = [draw(np.random.default_rng(seed)) for seed in seeds]
    for start in STARTS:
        left, error, columns = [], [], []
        for instance in instances:
            factor = instance.starts[start]()
            off = factor @ factor.conj().T - instance.truth
            left.append(float(np.sum(instance.loss.measure(off) ** 2)))
            columns.append(int(np.count_nonzero(np.linalg.norm(factor, axis=0) > 0)))
            error.append(float(np.linalg.norm(off) / np.linalg.norm(instance.truth)))
        numbers[start.value] = {
            "left_side": float(np.median(left)),
            "relative_error": float(np.median(error)),
            "nonzero_columns": columns,
            "problems_that_satisfy_it": sum(side <= smallest**2 for side in left),
        }
    return {"condition of the theorem": numbers}
