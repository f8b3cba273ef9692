"""Runs of the methods on random problems, for every seed and with the package's one descent loop."""

import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.descent_methods import METHODS
from usdenoise.completion.solve import solve
from usdenoise.completion.stopping import StoppingRule, StopReason
from usdenoise.experiments.conventions import Convention, Start
from usdenoise.experiments.problems import Instance, PlantedProblem

LOST = 1e9
"""Largest error that is drawn: a larger one, and that of a run that diverged, counts as 1e9."""


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
    start : Start or None
        Start of this method in every panel; None, the default, for the start of the panel.
    """

    label: str
    method: str
    damping: float | None = None
    decay: float = 1.0
    start: Start | None = None


def eta_decay(decay: float) -> Variant:
    """Return eta-decay, with the damping eta_t = beta^t sqrt(f(X_0)).

    This is the method of Zhang, Chiu and Zhang (AISTATS 2024).
    """
    return Variant("eta-decay", "eta-decay", decay=decay)


def scaledgd_lambda(damping: float, start: Start | None = None) -> Variant:
    """Return ScaledGD(lambda), with the constant damping eta_t = lambda; for lambda = 0 it is ScaledGD.

    The methods are those of Xu, Shen, Chi and Ma (ICML 2023) and of Tong, Ma and Chi (JMLR 2021).
    """
    return Variant(f"ScaledGD({damping:g})", "scaledgd-lambda", damping, start=start)


def precgd(sigma_hat: float) -> Variant:
    """Return PrecGD, with the damping eta_t = sqrt(|f(X_t) - sigma_hat^2|) and a proxy sigma_hat of the noise level.

    This is the method of Zhang, Fattahi and Zhang (NeurIPS 2021).
    """
    return Variant(f"PrecGD, proxy {sigma_hat:g}", "precgd", sigma_hat)


def gradient_descent(start: Start | None = None) -> Variant:
    """Return plain gradient descent."""
    return Variant("GD", "gd", start=start)


@dataclass(frozen=True)
class Descent:
    """Course of one run.

    Attributes
    ----------
    errors : (k,) array
        Relative errors of X X^H in the Frobenius norm, at the start and after each iteration.
    seconds : (k,) array
        Seconds from the beginning of the run, its start included, to each error; infinite after divergence.
    raised : int
        Number of steps that raised the objective.
    stop_reason : str
        Sentence that says why the run ended, or "diverged".
    """

    errors: NDArray[np.float64]
    seconds: NDArray[np.float64]
    raised: int
    stop_reason: str

    def at(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the errors at some times; until the start is computed the estimate is 0 and its relative error 1."""
        last = np.searchsorted(self.seconds, seconds, side="right") - 1
        return np.where(last < 0, 1.0, self.errors[last])


def descend(
    instance: Instance,
    variant: Variant,
    step: float,
    iterations: int,
    start: Start = Start.SPECTRAL,
    convention: Convention = Convention.OF_X,
) -> Descent:
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
    start : Start
        Start of a method that has none of its own, by default spectral.
    convention : Convention
        Convention of the gradient, by default that of f(X).
    """
    method = METHODS[variant.method]
    began = time.perf_counter()
    problem = PlantedProblem(instance.loss, instance.truth, convention)
    factors = problem.start(instance.starts[variant.start or start]())
    started = time.perf_counter() - began
    # An overflow makes an iterate infinite, which ends the loop.
    with np.errstate(over="ignore", invalid="ignore"):
        solution = solve(
            problem,
            factors,
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
    if diverged:
        errors = np.append(errors, LOST)
    objectives = np.array([line.objective for line in trace])
    return Descent(
        np.minimum(errors, LOST),
        np.array([started + line.seconds for line in trace] + [math.inf] * diverged),
        int(np.sum(np.diff(objectives) > 0)),
        solution.stop_reason.value,
    )
