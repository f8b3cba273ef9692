"""Soft-Impute: the nuclear-norm estimate from a sample of the entries, by alternating ridge regressions."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from usdenoise.completion.preconditioners import damped_inverse
from usdenoise.completion.problem import CompletionProblem, Evaluation, Factors
from usdenoise.completion.solve import Iteration
from usdenoise.completion.starts import spectral
from usdenoise.errors import DivergedError
from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.low_rank import LowRank


@dataclass(frozen=True)
class SoftImputed:
    """The minimiser of half the sum of squared residuals plus `penalty` times the nuclear norm.

    Attributes
    ----------
    low_rank : LowRank
        Its singular triplets, shrunk by the penalty.
    penalty : float
        Weight of the nuclear norm, in the units of the singular values.
    iterations, passes : int
        Double sweeps, and evaluations of the residual.
    converged : bool
        Whether the objective stopped falling before the iterations ran out.
    held_out_rmse : float or None
        Error on the held-out entries, None without such.
    """

    low_rank: LowRank
    penalty: float
    iterations: int
    passes: int
    converged: bool
    held_out_rmse: float | None


def soft_impute(
    problem: CompletionProblem,
    rank: int,
    penalty: float,
    rng: np.random.Generator,
    *,
    iterations: int = 100,
    tolerance: float = 1e-5,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> SoftImputed:
    """Minimise 1/2 |P(M - Z)|^2 + penalty |Z|_* over matrices Z of rank `rank` at most.

    With Z = A B^H and |Z|_* = min (|A|^2 + |B|^2) / 2, each factor in turn is the ridge regression on the
    matrix whose unsampled entries are those of Z (softImpute-ALS; Hastie, Mazumder, Lee and Zadeh, J. Mach.
    Learn. Res. 16, 2015). The penalty comes down by halves from the size of the start, so that components
    enter from the largest on. Where the solution has fewer components than `rank`, it is the solution of the
    convex problem.

    Parameters
    ----------
    problem : CompletionProblem
        The matrix and its sample.
    rank : int
        Components at most.
    penalty : float
        In the units of the singular values.
    rng : numpy.random.Generator
        For the start.
    iterations : int
        Double sweeps at most.
    tolerance : float
        Relative fall of the objective in a double sweep, at the final penalty, below which it is done.
    on_iteration : callable, optional
        Called with a line for each double sweep; its step is 1 and its damping the penalty.

    Raises
    ------
    DivergedError
        If an iterate is not finite.
    """
    a, b = spectral(problem, rank, rng)
    began = time.perf_counter()
    n_fitted = problem.sample.n_fitted
    now = float(gram(b).diagonal().real.max())
    previous, number, converged, passes = math.inf, 0, False, 0
    evaluation = _evaluate(problem, (a, b))
    while number < iterations and not converged:
        now = max(now / 2, penalty)
        # The gradients are -2/n of R B and R^H A; a ridge regression on the filled matrix is one damped step.
        a = a - _step(a, evaluation.gradients[0] * (n_fitted / 2), b, now)
        evaluation = _evaluate(problem, (a, b))
        a, b = _balanced(a, b - _step(b, evaluation.gradients[1] * (n_fitted / 2), a, now))
        evaluation = _evaluate(problem, (a, b))
        passes += 2
        number += 1
        norms = sum(float(np.vdot(factor, factor).real) for factor in (a, b))
        objective = 0.5 * evaluation.value * n_fitted + 0.5 * now * norms
        if on_iteration is not None:
            on_iteration(
                Iteration(
                    number,
                    objective,
                    evaluation.held_out_rmse,
                    now,
                    1.0,
                    0,
                    time.perf_counter() - began,
                )
            )
        if now == penalty:
            converged = previous - objective <= tolerance * objective
            previous = objective
    # What is on its way to zero gets there: one threshold of the filled matrix within the span of B.
    model = LowRank.from_factors(a, b)
    singular = model.singular_values.astype(a.real.dtype)
    final = _evaluate(problem, (model.left * singular, model.right))
    filled = model.left * singular - final.gradients[0] * (n_fitted / 2)
    left, shrunk, turn = np.linalg.svd(filled, full_matrices=False)
    thresholded = LowRank(
        left, np.maximum(shrunk.astype(np.float64) - penalty, 0), model.right @ turn.conj().T
    )
    return SoftImputed(thresholded, penalty, number, passes + 2, converged, evaluation.held_out_rmse)


def _step(factor: Any, gradient: Any, other: Any, penalty: float) -> Any:
    ridge = np.asarray(penalty, factor.real.dtype)
    return (gradient + ridge * factor) @ damped_inverse(gram(other), penalty, factor.dtype)


def _balanced(a: Any, b: Any) -> Factors:
    """Factors of the same product that share its singular values, where the penalty is the nuclear norm."""
    model = LowRank.from_factors(a, b)
    root = np.sqrt(model.singular_values).astype(a.real.dtype)
    return model.left * root, model.right * root


def _evaluate(problem: CompletionProblem, factors: Factors) -> Evaluation:
    evaluation = problem.evaluate(factors)
    if not math.isfinite(evaluation.value):
        raise DivergedError("Soft-Impute left the finite numbers; use --precision double")
    return evaluation
