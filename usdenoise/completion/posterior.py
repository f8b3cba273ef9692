"""The low-rank Gaussian model: rows by their posterior means, and a sweep of expectation maximisation."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import CompletionProblem
from usdenoise.linalg.gram_matrices import gram

MAX_STEPS = 40
TOLERANCE = 0.01
COLUMN_STEPS = 2
LEADING = 24
PRIOR_FLOOR = 1e-3
"""Smallest prior variance of a component, in units of the noise variance."""
SINGULAR = 1e-5
"""Least ridge of a row's preconditioner, whose entries are at most 1: what is singular is not inverted."""


def fit_rows(
    problem: CompletionProblem,
    right: NDArray[Any],
    variances: NDArray[np.float64],
    noise_variance: float,
    start: NDArray[Any] | None = None,
) -> tuple[NDArray[Any], float]:
    """Posterior means of the coefficients x of every row, a row of M being x V^H plus white noise.

    They minimise sum over the sample |M - X V^H|^2 + sum_k (noise variance / variance_k) |x_k|^2. Solved by
    conjugate gradients over all rows of a block at once, each row with its own step. The preconditioner is
    exact for the LEADING columns of each row, whose coefficients are thousands of times larger than the
    rest, and the average normal matrix's diagonal for the others.

    Parameters
    ----------
    problem : CompletionProblem
        Gives the matrix, the sample and the executor.
    right : (n, r) array
        Orthonormal columns V.
    variances : (r,) array
        Prior variance of each component of x.
    noise_variance : float
        Of an entry.
    start : (m, r) array, optional
        First guess of X; by default 0.

    Returns
    -------
    rows : (m, r) array
        X.
    passes : float
        Evaluations of the sampled model, averaged over the rows: one for each step, and one for a first
        guess. The steps end when what is left is a hundredth of the posterior's own spread.
    """
    ridge = noise_variance / variances
    right_h = np.ascontiguousarray(right.conj().T)
    real = right.real.dtype
    weight = ridge.astype(real)
    inverse = (1 / (problem.density + ridge)).astype(real)
    n_leading = min(len(ridge), LEADING)
    # Row j holds V_jk conj(V_jl) for all k <= l: a row's mask times it is half of the row's normal matrix.
    upper = np.triu_indices(n_leading)
    outer = (np.take(right, upper[0], axis=1) * np.take(right, upper[1], axis=1).conj()).view(real)
    wide = np.result_type(right.dtype, np.float64)
    # A row with fewer samples than leading components has a singular matrix, and hardly a ridge where there
    # is hardly noise. A preconditioner need not be exact.
    regular = np.diag(np.maximum(ridge[:n_leading], SINGULAR))
    tiny = np.finfo(real).tiny

    enough = TOLERANCE * len(ridge) * noise_variance

    def solve_block(rows: slice) -> tuple[NDArray[Any], int]:
        mask = problem.sample.mask(rows)
        # One array of the block's size is enough: the data are wanted no more once the residual is known.
        image = problem.matrix[rows] * mask
        if start is None:
            residual: NDArray[Any] = image @ right
            solution = np.zeros_like(residual)
        else:
            solution = start[rows].copy()
            guess = solution @ right_h
            guess *= mask
            image -= guess
            del guess
            residual = image @ right - solution * weight
        half = (mask.astype(real) @ outer).view(right.dtype)
        normal = np.empty((len(half), n_leading, n_leading), right.dtype)
        normal[:, upper[1], upper[0]] = half.conj()
        normal[:, upper[0], upper[1]] = half
        blocks = np.linalg.inv(normal.astype(wide) + regular).astype(right.dtype)

        def precondition(values: NDArray[Any]) -> NDArray[Any]:
            scaled: NDArray[Any] = values * inverse
            # x A^-1 for a row vector x: the coefficients stand in rows.
            scaled[:, :n_leading] = np.matvec(blocks, values[:, :n_leading])
            return scaled

        preconditioned = precondition(residual)
        direction = preconditioned
        energy = _row_products(residual, preconditioned)
        # A row that is solved to rounding stands still: its next direction would be a ratio of rounding errors.
        floor = np.finfo(real).eps ** 2 * energy + tiny
        steps = 0 if start is None else 1
        while steps < MAX_STEPS and np.mean(energy) > enough:
            steps += 1
            np.matmul(direction, right_h, out=image)
            image *= mask
            curved = image @ right + direction * weight
            length = _ratio(energy, _row_products(direction, curved), energy > floor).astype(real)
            solution += length * direction
            residual = residual - length * curved
            preconditioned = precondition(residual)
            before, energy = energy, _row_products(residual, preconditioned)
            direction = preconditioned + _ratio(energy, before, energy > floor).astype(real) * direction
        return solution, steps

    parts, steps = zip(*problem.executor.map(solve_block, problem.blocks), strict=True)
    sizes = [rows.stop - rows.start for rows in problem.blocks]
    return np.concatenate(parts), float(np.average(steps, weights=sizes))


def posterior_sweep(
    problem: CompletionProblem,
    right: NDArray[Any],
    variances: NDArray[np.float64],
    noise_variance: float,
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[Any], float]:
    """One sweep of expectation maximisation for the low-rank Gaussian model, from the sample alone.

    Every row is x V^H plus white noise, x Gaussian with independent components. The rows' posterior means
    are fitted first. The right factor then minimises the expected error, in which the posterior covariance
    of the rows acts as a ridge on it: without that the components that the samples hardly determine grow
    from sweep to sweep. (Tipping and Bishop, J. R. Stat. Soc. B 61(3), 1999, with missing entries.) The
    covariance is taken alike for all rows.

    Parameters
    ----------
    problem, right, variances, noise_variance
        As for :func:`fit_rows`.

    Returns
    -------
    right : (n, r) array
        New orthonormal columns, by decreasing variance.
    variances : (r,) array
        New prior variances.
    rows : (m, r) array
        The rows' posterior means under the old factor, in the new columns: a first guess for the new ones.
    passes : float
        Evaluations of the sampled model.
    """
    m, n = problem.shape
    rank = len(variances)
    density = problem.density
    rows, passes = fit_rows(problem, right, variances, noise_variance)
    # An exact fit of r numbers to p n samples has 1 / (1 - r / (p n)) times the variance of a long one.
    crowding = 1 - min(rank / (density * n), 0.8)
    covariance = np.diag(noise_variance / (density * crowding + noise_variance / variances))
    moment = gram(rows) + m * covariance
    inverse = np.linalg.inv(density * moment)
    columns = right.astype(inverse.dtype)
    for _ in range(COLUMN_STEPS):
        gradient = problem.evaluate((rows, columns.astype(right.dtype))).gradients[1]
        residual = gradient.astype(inverse.dtype) * (problem.sample.n_fitted / 2)
        columns = columns - (residual + density * m * columns @ covariance) @ inverse
    basis, triangle = np.linalg.qr(columns)
    values, turn = np.linalg.eigh(triangle @ (moment / m) @ triangle.conj().T)
    floor = PRIOR_FLOOR * noise_variance
    turned = np.ascontiguousarray((basis @ turn[:, ::-1]).astype(right.dtype))
    guess = rows @ (triangle.conj().T @ turn[:, ::-1]).astype(rows.dtype)
    return turned, np.maximum(values[::-1], floor), guess, passes + COLUMN_STEPS


def _ratio(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64], wanted: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Column of ratios, 0 where they are not wanted or not defined."""
    wanted = wanted & (denominator > 0)
    ratio = np.zeros_like(numerator)
    np.divide(numerator, denominator, out=ratio, where=wanted)
    return ratio[:, None]


def _row_products(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    products: NDArray[np.float64] = np.vecdot(a, b).real.astype(np.float64)
    return products
