"""The low-rank Gaussian model of a sample: posterior means of the rows, and one sweep of expectation maximisation.

Every row of M is x V^H plus white noise. The coefficients x are Gaussian, with independent components.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import CompletionProblem
from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.orthonormal_bases import rotated, tall_qr
from usdenoise.linalg.row_blocks import row_blocks

MAX_STEPS = 40
"""Largest number of conjugate gradient steps of a row block; usually the tolerance ends them earlier."""

TOLERANCE = 0.01
"""The steps end when the error left is this share of the posterior's own variance: more would fit the noise."""

COLUMN_STEPS = 2
"""Gradient steps on V in a sweep, preconditioned by the expected Hessian; each costs one evaluation. On the phantoms
of LEADING a second step lowered the held-out error in five of six runs, by up to 0.4 %, and a third one in none."""

LEADING = 24
"""Components that the preconditioner treats exactly: leading coefficients may be thousands of times larger
than the others. On phantoms of 64 x 48 x 200 with tissue 40 and 55 dB up, runs with 12, 24 and 48 of them took 13 to 17, 12
to 14 and 7 passes over the sample, and 1.25, 1.3 and 2.0 s for six runs: the inverses grow with the cube."""

PRIOR_FLOOR = 1e-3
"""Smallest prior variance of a component, in units of the noise variance."""

SINGULAR = 1e-5
"""Least ridge of a row's preconditioner, whose entries are at most 1, so that a singular matrix can be inverted."""

_ROWS_OF_V, _ROWS_KEPT = 2048, 12288
"""Rows of V that are worked on at a time, and the largest number of which the outer products are kept. In longer stacks they
are made again for each row block: with 48000 frames they are more than a hundred megabytes."""

_MOST_CROWDED = 0.8
"""Largest ratio of components to samples of a row that enters the variance of a fit, which is infinite at 1."""


def fit_rows(
    problem: CompletionProblem,
    right: NDArray[Any],
    variances: NDArray[np.float64],
    noise_variance: float,
    start: NDArray[Any] | None = None,
) -> tuple[NDArray[Any], float]:
    """Return the posterior means X of the rows' coefficients for a known right factor V.

    X minimises

        sum over the sample |M - X V^H|^2 + sum_k (noise_variance / variances_k) |x_k|^2

    by conjugate gradients on all rows of a row block at once, each row with its own step length.

    Parameters
    ----------
    problem : CompletionProblem
        Gives the matrix, the sample and the executor.
    right : (n, r) array
        Orthonormal columns V.
    variances : (r,) array
        Prior variance of each component of x.
    noise_variance : float
        Variance of the noise in an entry.
    start : (m, r) array, optional
        First guess of X; by default 0.

    Returns
    -------
    rows : (m, r) array
        X.
    passes : float
        Evaluations of the sampled model, averaged over the rows: one for each step, and one for a first guess.
    """
    model = _RowModel.from_factor(right, noise_variance / variances, problem.density)
    enough = TOLERANCE * len(variances) * noise_variance

    def solve_block(rows: slice) -> tuple[NDArray[Any], int]:
        mask = problem.sample.mask(rows)
        data = problem.matrix[rows] * mask
        guess = None if start is None else start[rows]
        return _conjugate_gradients(model, data, mask, guess, enough)

    parts, steps = zip(*problem.executor.map(solve_block, problem.blocks), strict=True)
    sizes = [rows.stop - rows.start for rows in problem.blocks]
    return np.concatenate(parts), float(np.average(steps, weights=sizes))


@dataclass(frozen=True)
class _RowModel:
    """The normal equations that all rows share, x (V^H D V + diag(ridge)) with D the mask of a row.

    Attributes
    ----------
    right, right_h : (n, r) and (r, n) arrays
        V and its conjugate transpose, both C-contiguous.
    ridge : (r,) float64 array
        Noise variance over prior variance.
    inverse : (r,) array
        Diagonal of the inverse of the average normal matrix.
    outer : (n, n_leading (n_leading + 1) / 2) array or None; of complex numbers the real and imaginary parts in turn
        V_jk conj(V_jl) for k <= l in row j: a mask times it is half of a row's normal matrix. None where it is not kept.
    """

    right: NDArray[Any]
    right_h: NDArray[Any]
    ridge: NDArray[np.float64]
    inverse: NDArray[Any]
    outer: NDArray[Any] | None

    @classmethod
    def from_factor(cls, right: NDArray[Any], ridge: NDArray[np.float64], density: float) -> Self:
        real = right.real.dtype
        outer = _outer_products(right, min(len(ridge), LEADING)) if len(right) <= _ROWS_KEPT else None
        right_h = np.ascontiguousarray(right.conj().T)
        return cls(right, right_h, ridge, (1 / (density + ridge)).astype(real), outer)

    def leading_inverses(self, mask: NDArray[np.bool_]) -> NDArray[Any]:
        """Return the inverse normal matrices of some rows for the leading components, (b, n_leading, n_leading)."""
        right, n_leading = self.right, min(len(self.ridge), LEADING)
        upper = np.triu_indices(n_leading)
        half: Any = 0
        for part in row_blocks(len(right), _ROWS_OF_V if self.outer is None else len(right)):
            outer = _outer_products(right[part], n_leading) if self.outer is None else self.outer
            half = half + mask[:, part].astype(outer.dtype) @ outer
        half = half.view(right.dtype)
        normal = np.empty((len(half), n_leading, n_leading), right.dtype)
        normal[:, upper[1], upper[0]] = half.conj()
        normal[:, upper[0], upper[1]] = half
        # A row with fewer samples than leading components has a singular matrix, and next to no ridge where there
        # is next to no noise. A preconditioner need not be exact.
        regular = np.diag(np.maximum(self.ridge[:n_leading], SINGULAR))
        inverses = np.linalg.inv(normal.astype(np.result_type(right.dtype, np.float64)) + regular)
        return inverses.astype(right.dtype)

    def precondition(self, values: NDArray[Any], inverses: NDArray[Any]) -> NDArray[Any]:
        """Return the preconditioned rows: exact for the leading components, diagonal for the others."""
        scaled: NDArray[Any] = values * self.inverse
        # x A^-1 for row vectors x.
        scaled[:, : inverses.shape[1]] = np.matvec(inverses, values[:, : inverses.shape[1]])
        return scaled


def _outer_products(right: NDArray[Any], n_leading: int) -> NDArray[Any]:
    upper = np.triu_indices(n_leading)
    outer = np.empty((len(right), len(upper[0])), right.dtype)
    for part in row_blocks(len(right), _ROWS_OF_V):
        np.multiply(right[part][:, upper[0]], right[part][:, upper[1]].conj(), out=outer[part])
    return outer.view(right.real.dtype)


def _conjugate_gradients(
    model: _RowModel,
    work: NDArray[Any],
    mask: NDArray[np.bool_],
    guess: NDArray[Any] | None,
    enough: float,
) -> tuple[NDArray[Any], int]:
    """Fit the rows of a block; `work` holds the masked data and is overwritten.

    Returns
    -------
    solution : (b, r) array
        Coefficients.
    steps : int
        Evaluations of the sampled model.
    """
    right, right_h, weight = model.right, model.right_h, model.ridge.astype(model.right.real.dtype)
    if guess is None:
        steps, residual = 0, work @ right
        solution = np.zeros_like(residual)
    else:
        steps, solution = 1, guess.copy()
        fitted = solution @ right_h
        fitted *= mask
        work -= fitted
        del fitted
        residual = work @ right - solution * weight
    inverses = model.leading_inverses(mask)
    preconditioned = model.precondition(residual, inverses)
    direction = preconditioned
    energy = _row_products(residual, preconditioned)
    # A row that is solved to rounding keeps its solution: its next direction would be a ratio of rounding errors.
    floor = np.finfo(weight.dtype).eps ** 2 * energy + np.finfo(weight.dtype).tiny
    while steps < MAX_STEPS and np.mean(energy) > enough:
        steps += 1
        np.matmul(direction, right_h, out=work)
        work *= mask
        curved = work @ right + direction * weight
        length = _ratio(energy, _row_products(direction, curved), energy > floor).astype(weight.dtype)
        solution += length * direction
        residual = residual - length * curved
        preconditioned = model.precondition(residual, inverses)
        before, energy = energy, _row_products(residual, preconditioned)
        direction = preconditioned + _ratio(energy, before, energy > floor).astype(weight.dtype) * direction
    return solution, steps


def posterior_sweep(
    problem: CompletionProblem,
    right: NDArray[Any],
    variances: NDArray[np.float64],
    noise_variance: float,
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[Any], float]:
    """Return a better right factor, by one sweep of expectation maximisation on the sample.

    First the rows' posterior means X are fitted. Then V minimises the expected error

        E |P(M - X V^H)|^2 = |P(M - X V^H)|^2 + p m tr(V C V^H),

    in which C, the posterior covariance of a row, acts as a ridge on V. Without that ridge, components that the
    sample hardly determines grow from sweep to sweep. C is taken alike for all rows. (Tipping and Bishop, J. R.
    Stat. Soc. B 61(3), 1999, with missing entries.)

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
        The rows' posterior means under the old factor, in the new columns: a first guess for the next fit.
    passes : float
        Evaluations of the sampled model.
    """
    m, n = problem.shape
    rank = len(variances)
    density = problem.density
    rows, passes = fit_rows(problem, right, variances, noise_variance)
    # An exact fit of r numbers to p n samples has 1 / (1 - r / (p n)) times the variance of a fit to many samples.
    crowding = 1 - min(rank / (density * n), _MOST_CROWDED)
    covariance = np.diag(noise_variance / (density * crowding + noise_variance / variances))
    moment = gram(rows) + m * covariance
    inverse = np.linalg.inv(density * moment)
    columns = right.astype(inverse.dtype)
    for _ in range(COLUMN_STEPS):
        gradient = problem.evaluate((rows, columns.astype(right.dtype))).gradients[1]
        for part in row_blocks(n, _ROWS_KEPT):
            residual = gradient[part].astype(inverse.dtype) * (problem.sample.n_fitted / 2)
            columns[part] -= (residual + density * m * columns[part] @ covariance) @ inverse
        del gradient
    columns, triangle = tall_qr(columns, in_place=True)
    values, rotation = np.linalg.eigh(triangle @ (moment / m) @ triangle.conj().T)
    floor = PRIOR_FLOOR * noise_variance
    better = rotated(columns, rotation[:, ::-1], right.dtype)
    guess = rows @ (triangle.conj().T @ rotation[:, ::-1]).astype(rows.dtype)
    return better, np.maximum(values[::-1], floor), guess, passes + COLUMN_STEPS


def _ratio(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64], wanted: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return a column of ratios, 0 where they are not wanted or not defined."""
    wanted = wanted & (denominator > 0)
    ratio = np.zeros_like(numerator)
    np.divide(numerator, denominator, out=ratio, where=wanted)
    return ratio[:, None]


def _row_products(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    products: NDArray[np.float64] = np.vecdot(a, b).real.astype(np.float64)
    return products
