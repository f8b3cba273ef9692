"""An experiment on random 10 x 10 problems: what it declares, its runs, and the noise floor."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.descent_methods import METHODS
from usdenoise.completion.solve import solve
from usdenoise.completion.stopping import StoppingRule, StopReason
from usdenoise.experiments.problems import SIZE, Instance, PlantedProblem
from usdenoise.experiments.record import Claim, Curve, ExperimentResult, Panel
from usdenoise.experiments.setup import Setup
from usdenoise.linalg.executor import ThreadExecutor

LOST = 1e9
"""Largest error that is drawn: a larger one, and the error of a run that diverged, counts as 1e9."""

SECONDS_POINTS = 201

OFFSET = 1e-2
"""Distance of the fit's start from the planted factor, relative to its norm, times the square root of the noise."""

TOLERANCE = 1e-6
"""Relative change of the squared residuals at which the fit ends."""


@dataclass(frozen=True)
class Variant:
    """A method with its parameters.

    Attributes
    ----------
    label : str
        Name of the curve in the figure.
    method : str
        Name of the method in :data:`usdenoise.METHODS`.
    damping : float or None
        Damping as in :class:`usdenoise.DenoiseOptions`: lambda of ScaledGD(lambda), or the proxy sigma_hat of
        PrecGD. None for eta-decay, whose first damping is sqrt(f) at the start, and for gradient descent.
    decay : float
        Factor beta of the damping in each iteration, used by eta-decay only; by default 1.
    from_small : bool
        Whether the method begins at the small start; by default it begins at the start of the problem.
    """

    label: str
    method: str
    damping: float | None = None
    decay: float = 1.0
    from_small: bool = False


@dataclass(frozen=True)
class Setting:
    """One setting of an experiment: its problems, the methods that are compared on them, and its claims.

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
    claims : sequence of Claim
        Claims on the curves.
    seconds : float or None
        Length of the time axis in seconds, for errors against wall time; None, the default, for errors against
        iterations.
    """

    name: str
    draw: Callable[..., Instance]
    problem: Mapping[str, Any]
    variants: Sequence[Variant]
    step: float
    iterations: int
    claims: Sequence[Claim] = ()
    seconds: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the setting as it is written to the record."""
        methods = {variant.label: asdict(variant) for variant in self.variants}
        return {**self.problem, "step": self.step, "iterations": self.iterations, "methods": methods}


@dataclass(frozen=True)
class PlantedExperiment:
    """An experiment that finds a planted matrix M* by several methods.

    Attributes
    ----------
    title : str
        Title of the figure.
    settings : sequence of Setting
        Problems with their methods and claims.
    """

    title: str
    settings: Sequence[Setting]

    def run(self, setup: Setup) -> ExperimentResult:
        """Run every method in every setting, and check the claims."""
        panels = [panel(setting, setup.seeds) for setting in self.settings]
        return ExperimentResult(
            title=self.title,
            parameters={
                "size": SIZE,
                "seeds": list(setup.seeds),
                "settings": {setting.name: setting.as_dict() for setting in self.settings},
            },
            panels=tuple(panels),
            claims=tuple(
                claim.check(setting.name, [panel])
                for setting, panel in zip(self.settings, panels, strict=True)
                for claim in setting.claims
            ),
        )


def panel(setting: Setting, seeds: Sequence[int]) -> Panel:
    """Run the methods of a setting on the same random problems.

    Parameters
    ----------
    setting : Setting
        Problems and methods.
    seeds : sequence of int
        Seeds of the generators, one problem each.
    """
    # On such small matrices a second thread of BLAS only costs time.
    with ThreadExecutor(1):
        instances = [setting.draw(np.random.default_rng(seed), **setting.problem) for seed in seeds]
        return Panel(
            setting=setting.name,
            curves=tuple(_curve(setting, variant, instances) for variant in setting.variants),
            noise_floor=noise_floor(instances) if setting.problem["sigma"] else None,
            unit="iterations" if setting.seconds is None else "seconds",
        )


def _curve(setting: Setting, variant: Variant, instances: Sequence[Instance]) -> Curve:
    descents = [descend(one, variant, setting.step, setting.iterations) for one in instances]
    if setting.seconds is None:
        x = np.arange(setting.iterations + 1, dtype=np.float64)
        # A run that diverged ends early: its last error is drawn to the end.
        errors = [np.pad(one.errors, (0, len(x) - len(one.errors)), mode="edge") for one in descents]
    else:
        x = np.linspace(0, setting.seconds, SECONDS_POINTS)
        errors = [one.at(x) for one in descents]
    return Curve(variant.label, x, np.array(errors))


@dataclass(frozen=True)
class Descent:
    """Course of one run.

    Attributes
    ----------
    errors : (k,) array
        Relative errors of X X^H in the Frobenius norm, at the start and after each iteration.
    seconds : (k,) array
        Seconds from the beginning of the run, its start included, to each error; infinite after divergence.
    """

    errors: NDArray[np.float64]
    seconds: NDArray[np.float64]

    def at(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the errors at some times; until the start is computed the estimate is 0 and its relative error 1."""
        last = np.searchsorted(self.seconds, seconds, side="right") - 1
        return np.where(last < 0, 1.0, self.errors[last])


def descend(instance: Instance, variant: Variant, step: float, iterations: int) -> Descent:
    """Run one method on one problem with a fixed step and return errors and seconds of every iteration.

    Parameters
    ----------
    instance : Instance
        Problem with its planted matrix and starts.
    variant : Variant
        Method with its parameters.
    step : float
        Step length that multiplies the preconditioned gradient. A step that raises the loss is kept, as in the
        paper.
    iterations : int
        Number of iterations.
    """
    method = METHODS[variant.method]
    began = time.perf_counter()
    start = instance.small_start if variant.from_small else instance.start()
    started = time.perf_counter() - began
    solution = solve(
        PlantedProblem(instance.loss, instance.truth),
        (start,),
        preconditioner=method.preconditioner,
        damping=method.make_damping(variant.damping, variant.decay),
        step=step,
        stopping=StoppingRule(iterations),
        undo=False,
    )
    trace, diverged = solution.trace, solution.stop_reason is StopReason.DIVERGED
    # From the root mean square over the entries to the relative Frobenius error.
    scale = math.sqrt(instance.truth.size) / float(np.linalg.norm(instance.truth))
    errors = scale * np.array([line.held_out_rmse for line in trace], np.float64)
    seconds = [started + line.seconds for line in trace]
    if diverged:
        errors, seconds = np.append(errors, LOST), [*seconds, math.inf]
    return Descent(np.minimum(errors, LOST), np.array(seconds))


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
