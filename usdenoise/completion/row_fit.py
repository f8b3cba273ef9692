"""Rows of a sampled matrix, fitted to a known right factor with a prior for each component."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import CompletionProblem

MAX_STEPS = 200
"""Largest number of conjugate gradient steps of a row block; usually the tolerance ends them after ten to twenty. Blocks of
missing entries and tissue 60 dB over blood take up to a hundred: ended at 40 steps, the power Doppler's correlation with
the true blood power fell by up to 0.03 (python -m benchmarks.ablation)."""

TOLERANCE = 1e-4
"""The steps end when the error left is this share of the posterior's variance, averaged over the rows of a block. With 1e-2,
and without a refit, the correlation fell by up to 0.19 on phantoms of 64 x 64 x 200."""


def fit_rows(
    problem: CompletionProblem, right: NDArray[Any], ridge: NDArray[np.float64], noise_variance: float
) -> tuple[NDArray[Any], float]:
    """Return the posterior means X of the rows' coefficients for a known right factor V.

    X minimises

        sum over the sample |M - X V^H|^2 + sum_k ridge_k |x_k|^2

    by conjugate gradients on all rows of a row block at once, each row with its own step length.

    Parameters
    ----------
    problem : CompletionProblem
        Gives the matrix, the sample and the executor.
    right : (n, r) array
        Orthonormal columns V.
    ridge : (r,) float64 array
        Noise variance over the prior variance of each component of x.
    noise_variance : float
        Variance of the noise in an entry.

    Returns
    -------
    rows : (m, r) array
        X.
    passes : float
        Evaluations of the sampled model, averaged over the rows.
    """
    right_h = np.ascontiguousarray(right.conj().T)
    real = right.real.dtype
    weights, inverse = ridge.astype(real), (1 / (problem.density + ridge)).astype(real)
    enough = TOLERANCE * len(ridge) * noise_variance

    def solve_block(rows: slice) -> tuple[NDArray[Any], int]:
        mask = problem.sample.mask(rows)
        work = problem.matrix[rows] * mask
        residual = work @ right
        solution = np.zeros_like(residual)
        preconditioned = residual * inverse
        direction = preconditioned
        energy = _row_products(residual, preconditioned)
        # A row that is solved to rounding keeps its solution: its next direction would be a ratio of rounding errors.
        floor = np.finfo(real).eps ** 2 * energy + np.finfo(real).tiny
        steps = 0
        while steps < MAX_STEPS and np.mean(energy) > enough:
            steps += 1
            np.matmul(direction, right_h, out=work)
            work *= mask
            curved = work @ right + direction * weights
            length = _ratio(energy, _row_products(direction, curved), energy > floor).astype(real)
            solution += length * direction
            residual = residual - length * curved
            preconditioned = residual * inverse
            before, energy = energy, _row_products(residual, preconditioned)
            direction = preconditioned + _ratio(energy, before, energy > floor).astype(real) * direction
        return solution, steps

    parts, steps = zip(*problem.executor.map(solve_block, problem.blocks), strict=True)
    sizes = [rows.stop - rows.start for rows in problem.blocks]
    return np.concatenate(parts), float(np.average(steps, weights=sizes))


def _ratio(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64], is_used: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return a column of ratios, 0 if a ratio is not requested or not defined."""
    is_used = is_used & (denominator > 0)
    ratio = np.zeros_like(numerator)
    np.divide(numerator, denominator, out=ratio, where=is_used)
    return ratio[:, None]


def _row_products(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    products: NDArray[np.float64] = np.vecdot(a, b).real.astype(np.float64)
    return products
