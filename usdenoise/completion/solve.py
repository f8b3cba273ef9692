"""The one loop: preconditioned gradient descent with a damping schedule.

    X <- X - step * P(X, grad f(X), eta_t)

for every factor X at once. Gradient descent, ScaledGD, ScaledGD(lambda), PrecGD and eta-decay differ only
in P and in the schedule of eta.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from usdenoise.completion.damping import Damping
from usdenoise.completion.preconditioners import Preconditioner
from usdenoise.completion.problem import Evaluation, Factors, Problem
from usdenoise.completion.stopping import StoppingRule, StopReason
from usdenoise.errors import DivergedError

MAX_HALVINGS = 30


@dataclass(frozen=True)
class Iteration:
    """One line of the trace.

    Attributes
    ----------
    iteration : int
        Number of accepted steps; 0 is the start.
    objective : float
        f after the step.
    held_out_rmse : float or None
        Error on the held-out entries after the step.
    damping : float or None
        The eta of the step.
    step : float or None
        The step length that was accepted.
    halvings : int
        How often the step was undone and halved because it raised the objective.
    seconds : float
        Since the loop began.
    """

    iteration: int
    objective: float
    held_out_rmse: float | None
    damping: float | None
    step: float | None
    halvings: int
    seconds: float


@dataclass(frozen=True)
class Solution:
    """What the loop ended with.

    Attributes
    ----------
    factors : tuple of arrays
        The last accepted factors, or those with the smallest held-out error.
    trace : tuple of Iteration
        One line for the start and one for each accepted step.
    passes : int
        Number of evaluations of value and gradients, undone steps included.
    stop_reason : StopReason
        Why it ended.
    kept_best : bool
        Whether `factors` are those with the smallest held-out error.
    """

    factors: Factors
    trace: tuple[Iteration, ...]
    passes: int
    stop_reason: StopReason
    kept_best: bool = False

    @property
    def held_out_rmse(self) -> float | None:
        """Error of `factors` on the held-out entries, None without such."""
        errors = [line.held_out_rmse for line in self.trace if line.held_out_rmse is not None]
        if not errors:
            return None
        return min(errors) if self.kept_best else errors[-1]

    @property
    def iterations(self) -> int:
        """Number of accepted steps."""
        return self.trace[-1].iteration


def solve(
    problem: Problem,
    start: Factors,
    *,
    preconditioner: Preconditioner,
    damping: Damping,
    step: float,
    stopping: StoppingRule,
    ridge: Callable[[int], float] | None = None,
    undo: bool = True,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> Solution:
    """Descend from `start`.

    A step that raises the objective by more than rounding is undone, and the step length halved from then
    on.

    Parameters
    ----------
    problem : Problem
        Gives value and gradients.
    start : tuple of arrays
        First factors; not changed.
    preconditioner, damping : callables
        Direction and schedule (see :mod:`usdenoise.completion.descent_methods`).
    step : float
        Step length for the gradient of the problem's own value (the paper's alpha).
    stopping : StoppingRule
        When to end, and whether the best or the last factors are returned.
    ridge : callable, optional
        Weight of the sum of the factors' squared norms that is added to the objective, from the iteration's
        number counted from 0.
    undo : bool
        False keeps every step and the step length, whatever they do to the objective, as published
        experiments with a fixed step do.
    on_iteration : callable, optional
        Called with every line of the trace as it is made.

    Returns
    -------
    Solution

    Raises
    ------
    DivergedError
        If an iterate, its objective or its gradient is not finite.
    """
    began = time.perf_counter()
    trace: list[Iteration] = []

    def record(
        number: int, evaluation: Evaluation, eta: float | None, length: float | None, undone: int
    ) -> None:
        line = Iteration(
            number,
            evaluation.value,
            evaluation.held_out_rmse,
            eta,
            length,
            undone,
            time.perf_counter() - began,
        )
        trace.append(line)
        if on_iteration is not None:
            on_iteration(line)

    def finished(why: StopReason) -> Solution:
        kept = best if stopping.keeps_best else factors
        return Solution(kept, tuple(trace), passes, why, stopping.keeps_best)

    factors = best = start
    current = _checked(problem.evaluate(factors), 0, step)
    passes = 1
    first = current.value
    rounding = 16 * float(np.finfo(start[0].dtype).eps)
    record(0, current, None, None, 0)
    reason = stopping.check(0, current.held_out_rmse)
    smallest = math.inf if current.held_out_rmse is None else current.held_out_rmse
    while reason is None:
        number = trace[-1].iteration
        eta = damping(number, current.value, first)
        weight = 0.0 if ridge is None else ridge(number)
        here = _penalised(current, factors, weight)
        directions = preconditioner(factors, here.gradients, eta)
        halvings = 0
        while True:
            # An overflow shows as a non-finite objective, with its own error.
            with np.errstate(over="ignore", invalid="ignore"):
                trial = tuple(
                    factor - np.asarray(step, factor.real.dtype) * direction
                    for factor, direction in zip(factors, directions, strict=True)
                )
            evaluation = _checked(problem.evaluate(trial), number + 1, step)
            passes += 1
            if not undo or _penalised(evaluation, trial, weight).value <= here.value * (1 + rounding):
                break
            if halvings == MAX_HALVINGS:
                return finished(StopReason.NO_DESCENT)
            halvings += 1
            step /= 2
        factors, current = trial, evaluation
        record(number + 1, current, eta, step, halvings)
        reason = stopping.check(number + 1, current.held_out_rmse)
        if current.held_out_rmse is None:
            best = factors
        elif current.held_out_rmse < smallest:
            best, smallest = factors, current.held_out_rmse
    return finished(reason)


def _penalised(evaluation: Evaluation, factors: Factors, weight: float) -> Evaluation:
    if weight == 0:
        return evaluation
    norms = sum(float(np.vdot(factor, factor).real) for factor in factors)
    gradients = tuple(
        gradient + np.asarray(2 * weight, factor.real.dtype) * factor
        for gradient, factor in zip(evaluation.gradients, factors, strict=True)
    )
    return Evaluation(evaluation.value + weight * norms, gradients, evaluation.held_out_rmse)


def _checked(evaluation: Evaluation, iteration: int, step: float) -> Evaluation:
    finite = math.isfinite(evaluation.value) and all(np.isfinite(g).all() for g in evaluation.gradients)
    if not finite:
        raise DivergedError(
            f"the solver diverged at iteration {iteration} with step {step:.3g}: the iterate is not finite; "
            "give a smaller --step, or more --damping"
        )
    return evaluation
