"""The one loop: preconditioned gradient descent with a damping schedule.

    X <- X - step * P(X, grad f(X), eta_t)

for every factor X at once. Gradient descent, ScaledGD, ScaledGD(lambda), PrecGD and eta-decay differ only in the
preconditioner P and in the schedule of the damping eta.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from usdenoise.completion.descent_methods import Damping, Penalty, Preconditioner, StoppingRule, StopReason
from usdenoise.completion.problem import Evaluation, Factors, Problem
from usdenoise.errors import DivergedError

MAX_HALVINGS = 30
"""Halvings after which the step, a billionth of the first one, is taken to lead nowhere."""

_ROUNDING_UNITS = 16
"""A step may raise the objective by this many units of rounding of the factors' precision."""


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
        Root mean square error on the held-out entries after the step; None without such entries.
    damping : float or None
        The eta of the step; None at the start.
    step : float or None
        The step length that was accepted; None at the start.
    halvings : int
        How often the step was undone and halved because it raised the objective.
    seconds : float
        Seconds since the loop began.
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
    """The result of the loop.

    Attributes
    ----------
    factors : tuple of arrays
        The last accepted factors, or those with the smallest held-out error where the stopping rule has a patience.
    held_out_rmse : float or None
        Error of `factors` on the held-out entries; None without such entries.
    iterations : int
        Number of iterations that led to `factors`: 0 where the start has the smallest held-out error.
    trace : tuple of Iteration
        One line for the start and one for each step that was kept. A step to numbers that are not finite has none.
    passes : int
        Number of evaluations of value and gradients, undone steps included.
    stop_reason : StopReason
        Why the loop ended.
    step : float
        The last step length that was tried.
    """

    factors: Factors
    held_out_rmse: float | None
    iterations: int
    trace: tuple[Iteration, ...]
    passes: int
    stop_reason: StopReason
    step: float

    def check_finite(self) -> None:
        """Check that the loop did not diverge.

        Raises
        ------
        DivergedError
            If it did.
        """
        if self.stop_reason is StopReason.DIVERGED:
            raise DivergedError(
                f"the solver diverged at iteration {len(self.trace)} with step {self.step:.3g}: the "
                "iterate is not finite",
                remedy="give a smaller {step}, or more {damping}",
            )


@dataclass
class _Progress:
    """The accepted steps so far: their trace, and the factors that the loop returns, the best or the latest."""

    stopping: StoppingRule
    on_iteration: Callable[[Iteration], None] | None
    factors: Factors
    held_out_rmse: float | None = None
    iterations: int = 0
    trace: list[Iteration] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def accept(
        self,
        factors: Factors,
        evaluation: Evaluation,
        damping: float | None = None,
        step: float | None = None,
        halvings: int = 0,
    ) -> StopReason | None:
        number, error = len(self.trace), evaluation.held_out_rmse
        seconds = time.perf_counter() - self.began
        self.trace.append(Iteration(number, evaluation.value, error, damping, step, halvings, seconds))
        if self.on_iteration is not None:
            self.on_iteration(self.trace[-1])
        is_better = error is None or self.held_out_rmse is None or error < self.held_out_rmse
        if is_better or self.stopping.patience is None:
            self.factors, self.held_out_rmse, self.iterations = factors, error, number
        return self.stopping.check(number, error)


# An overflow makes the objective infinite, which ends the loop with a reason of its own.
@np.errstate(over="ignore", invalid="ignore")
def solve(  # noqa: PLR0913
    problem: Problem,
    start: Factors,
    *,
    preconditioner: Preconditioner,
    damping: Damping,
    step: float,
    stopping: StoppingRule,
    penalty: Penalty | None = None,
    undo: bool = True,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> Solution:
    """Descend from `start`.

    A step that raises the objective by more than rounding is undone, and the step length is halved from then on.

    Parameters
    ----------
    problem : Problem
        Gives value and gradients.
    start : tuple of arrays
        First factors; not changed.
    preconditioner : callable
        Turns gradients into directions (see :mod:`usdenoise.completion.descent_methods`).
    damping : callable
        Schedule of eta (see :mod:`usdenoise.completion.descent_methods`).
    step : float
        Step length for the gradient of the problem's own value (the paper's alpha).
    stopping : StoppingRule
        When the loop ends, and whether it returns the best or the last factors.
    penalty : callable, optional
        Term that is added to the objective (see :mod:`usdenoise.completion.descent_methods`); by default nothing.
    undo : bool
        Whether a step that raises the objective is undone. With False every step is kept, with the same step
        length, as in published experiments with a fixed step.
    on_iteration : callable, optional
        Called with each line of the trace as it is made.

    Returns
    -------
    Solution
        With the stop reason DIVERGED where an iterate, its objective or its gradient is not finite.
    """
    progress = _Progress(stopping, on_iteration, start)
    factors, current, passes = start, problem.evaluate(start), 1
    first = current.value
    rounding = _ROUNDING_UNITS * float(np.finfo(start[0].real.dtype).eps)
    reason = progress.accept(start, current) if _is_finite(current) else StopReason.DIVERGED
    while reason is None:
        number = len(progress.trace) - 1
        eta = damping(number, current.value, first)
        penalised = _penalised(current, factors, number, penalty)
        directions = preconditioner(factors, penalised.gradients, eta)
        for halvings in range(MAX_HALVINGS + 1):
            pairs = zip(factors, directions, strict=True)
            trial = tuple(old - np.asarray(step, old.real.dtype) * direction for old, direction in pairs)
            evaluation = problem.evaluate(trial)
            passes += 1
            if not _is_finite(evaluation):
                reason = StopReason.DIVERGED
                break
            if not undo or _penalised(evaluation, trial, number, penalty).value <= penalised.value * (
                1 + rounding
            ):
                factors, current = trial, evaluation
                reason = progress.accept(factors, current, eta, step, halvings)
                break
            step /= 2
        else:
            reason = StopReason.NO_DESCENT
    return Solution(
        factors=progress.factors,
        held_out_rmse=progress.held_out_rmse,
        iterations=progress.iterations,
        trace=tuple(progress.trace),
        passes=passes,
        stop_reason=reason,
        step=step,
    )


def _penalised(evaluation: Evaluation, factors: Factors, number: int, penalty: Penalty | None) -> Evaluation:
    if penalty is None:
        return evaluation
    value, own = penalty(number, factors)
    gradients = tuple(a + b for a, b in zip(evaluation.gradients, own, strict=True))
    return Evaluation(evaluation.value + value, gradients, evaluation.held_out_rmse)


def _is_finite(evaluation: Evaluation) -> bool:
    gradients = evaluation.gradients
    return math.isfinite(evaluation.value) and all(bool(np.isfinite(g).all()) for g in gradients)
