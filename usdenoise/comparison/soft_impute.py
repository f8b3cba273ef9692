"""Soft-Impute: the nuclear-norm estimate from a sample of the entries, by alternating ridge regressions."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from usdenoise.comparison.work import Filtered, Work, keep_shared_band
from usdenoise.completion.identifiability import check_rank, highest_rank
from usdenoise.completion.preconditioners import damped_inverse
from usdenoise.completion.problem import CompletionProblem, Evaluation, Factors
from usdenoise.completion.starts import spectral
from usdenoise.components.pixel_subset import draw_pixel_subset
from usdenoise.errors import DivergedError
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.noise_spectrum import noise_edge
from usdenoise.stack.random_streams import RandomStream
from usdenoise.stack.sampling import draw_entries


def run_soft_impute(work: Work) -> Filtered:
    """Filter by a Soft-Impute estimate from a sample of the entries.

    The filter's parameter `penalty` counts in noise edges of the sampled matrix: sqrt(p) times the largest singular
    value of a noise matrix, p being the sampling.
    """
    parameters, seed = dict(work.parameters), work.settings.seed
    began = time.perf_counter()
    with ThreadExecutor(work.settings.threads) as executor:
        rows, grid = work.rows(executor, missing=True)
        sample = draw_entries(rows.shape, work.sampling or 1.0, seed, rows.observed)
        rank = min(work.number("rank"), highest_rank(rows.shape, sample.n_fitted))
        check_rank(rows.shape, rank, sample.n_fitted)
        problem = CompletionProblem(rows.values, sample, executor)
        noise = draw_pixel_subset(rows, RandomStream.PIXEL_SUBSET.generator(seed)).subset.noise_rms
        edge = np.sqrt(sample.density) * noise_edge(noise, sample.shape)
        penalty = parameters.pop("penalty") * edge
        curve: list[tuple[int, float, float]] = []

        def follow(number: int, held_out_rmse: float | None) -> None:
            if held_out_rmse is not None:
                curve.append((1 + 2 * number, time.perf_counter() - began, held_out_rmse))

        rng = RandomStream.START.generator(seed)
        found = soft_impute(problem, rank, penalty, rng, on_iteration=follow, **parameters)
        # On a random sample of fraction p the penalty lowers every singular value by penalty / p.
        shrunk = found.low_rank
        model = LowRank(shrunk.left, shrunk.singular_values + penalty / sample.density, shrunk.right)
        return keep_shared_band(
            work,
            rows,
            grid,
            model,
            held_out_rmse=found.held_out_rmse,
            iterations=found.iterations,
            passes=found.passes,
            note="converged" if found.converged else "not converged",
            curve=tuple(curve),
        )


@dataclass(frozen=True)
class SoftImputed:
    """The minimiser Z of 1/2 |P(M - Z)|^2 + penalty |Z|_*.

    Attributes
    ----------
    low_rank : LowRank
        Singular triplets of Z. The penalty has shrunk its singular values.
    iterations : int
        Number of iterations done, each of which updates both factors.
    passes : int
        Number of evaluations of the sampled residual.
    converged : bool
        Whether the objective stopped falling before the iterations ran out.
    held_out_rmse : float or None
        Root mean square error on the held-out entries, in the units of the data; None where none are held out.
    """

    low_rank: LowRank
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
    on_iteration: Callable[[int, float | None], None] | None = None,
) -> SoftImputed:
    """Minimise 1/2 |P(M - Z)|^2 + penalty |Z|_* over the matrices Z whose rank is at most `rank`.

    P keeps the sampled entries, and |Z|_* is the nuclear norm. Since |Z|_* is the minimum of (|A|^2 + |B|^2) / 2 over all
    Z = A B^H, each factor is updated by a ridge regression on the matrix whose unsampled entries are filled from Z
    (softImpute-ALS; Hastie, Mazumder, Lee and Zadeh, J. Mach. Learn. Res. 16, 2015). With the sampled residual
    R = P(M - A B^H), evaluated again for each update, an iteration is

        A <- A + (R B - penalty A) (B^H B + penalty I)^-1
        B <- B + (R^H A - penalty B) (A^H A + penalty I)^-1.

    At the end of an iteration A and B are balanced: both get the square roots of the singular values of A B^H. The
    penalty is halved in each iteration, from the largest singular value of the spectral start down to its final
    value, so that large components enter before small ones. If the solution has fewer components than `rank`, it is
    also the solution without a limit on the rank, which is a convex problem.

    Parameters
    ----------
    problem : CompletionProblem
        The matrix M and its sampled entries.
    rank : int
        Largest number of components.
    penalty : float
        Final weight of the nuclear norm, in the units of the singular values.
    rng : numpy.random.Generator
        Draws the test vectors of the spectral start.
    iterations : int
        Largest number of iterations, each of which updates both factors.
    tolerance : float
        The iteration ends when the objective, at the final penalty, falls by at most this fraction of itself.
    on_iteration : callable, optional
        Called after each iteration with its number from 1, and the held-out error or None.

    Returns
    -------
    SoftImputed

    Raises
    ------
    DivergedError
        If an iterate is not finite.
    """
    a, b = spectral(problem, rank, rng)
    n_fitted = problem.sample.n_fitted
    now = float(gram(b).diagonal().real.max())
    previous, number, converged, passes = math.inf, 0, False, 0
    evaluation = _evaluate(problem, (a, b))
    while number < iterations and not converged:
        now = max(now / 2, penalty)
        # The gradients are -2/n R B and -2/n R^H A with n fitted entries, so a ridge regression is one damped step.
        a = a - _step(a, evaluation.gradients[0] * (n_fitted / 2), b, now)
        evaluation = _evaluate(problem, (a, b))
        a, b = _balanced(a, b - _step(b, evaluation.gradients[1] * (n_fitted / 2), a, now))
        evaluation = _evaluate(problem, (a, b))
        passes += 2
        number += 1
        norms = sum(float(np.vdot(factor, factor).real) for factor in (a, b))
        objective = 0.5 * evaluation.value * n_fitted + 0.5 * now * norms
        if on_iteration is not None:
            on_iteration(number, evaluation.held_out_rmse)
        if now == penalty:
            converged = previous - objective <= tolerance * objective
            previous = objective
    # Singular values that tend to 0 only reach it here, by one threshold of the filled matrix within the span of B.
    model = LowRank.from_factors(a, b)
    singular = model.singular_values.astype(a.real.dtype)
    final = _evaluate(problem, (model.left * singular, model.right))
    filled = model.left * singular - final.gradients[0] * (n_fitted / 2)
    left, shrunk, rotation = np.linalg.svd(filled, full_matrices=False)
    thresholded = LowRank(
        left, np.maximum(shrunk.astype(np.float64) - penalty, 0), model.right @ rotation.conj().T
    )
    return SoftImputed(thresholded, number, passes + 2, converged, evaluation.held_out_rmse)


def _step(factor: Any, gradient: Any, other: Any, penalty: float) -> Any:
    """Return the change of a factor, (G + penalty F) (O^H O + penalty I)^-1, which is to be subtracted."""
    ridge = np.asarray(penalty, factor.real.dtype)
    return (gradient + ridge * factor) @ damped_inverse(gram(other), penalty, factor.dtype)


def _balanced(a: Any, b: Any) -> Factors:
    """Return factors U sqrt(s) and V sqrt(s) of the product A B^H = U s V^H, where the penalty is its nuclear norm."""
    model = LowRank.from_factors(a, b)
    root = np.sqrt(model.singular_values).astype(a.real.dtype)
    return model.left * root, model.right * root


def _evaluate(problem: CompletionProblem, factors: Factors) -> Evaluation:
    evaluation = problem.evaluate(factors)
    if not math.isfinite(evaluation.value):
        raise DivergedError("an iterate of Soft-Impute is not finite; use --precision double")
    return evaluation
