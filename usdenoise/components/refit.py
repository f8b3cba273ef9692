"""Refit: fit the factors to all observed entries, from an approximate temporal subspace."""

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.posterior import PRIOR_FLOOR
from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.low_rank import LowRank
from usdenoise.stack.casorati import CasoratiMatrix


@dataclass(frozen=True)
class Refit:
    """Components that were fitted to all observed entries.

    Attributes
    ----------
    model : LowRank
        The components.
    gained_energy : float
        Energy that they hold more than the best fit with the temporal subspace from before the step: what the step
        mended. A further step would gain less.
    """

    model: LowRank
    gained_energy: float


@dataclass(frozen=True)
class Prior:
    """What is known of the coefficients of a pixel: independent Gaussian components, next to white noise.

    Attributes
    ----------
    variances : (r,) float64 array
        Variance of each component.
    noise_variance : float
        Variance of the noise in an entry.
    """

    variances: NDArray[np.float64]
    noise_variance: float

    @property
    def ridge(self) -> NDArray[np.float64]:
        """Weight of each squared coefficient next to the squared errors: noise variance over variance."""
        floor = max(PRIOR_FLOOR * self.noise_variance, float(np.finfo(np.float64).tiny))
        return self.noise_variance / np.maximum(self.variances, floor)


def refit(
    matrix: CasoratiMatrix, right: NDArray[Any], rotate_again: bool = False, prior: Prior | None = None
) -> Refit:
    """Return the singular triplets of a matrix near an approximate temporal subspace.

    One step of subspace iteration: U is fitted to the data for the known V, then V for that U. The errors of a V
    from few samples are directions near the noise level; the step shrinks them by the square of the ratio of
    singular values. Where every entry is observed, that is one pass over the data, and the triplets are those of
    the data projected on the span of U (Rayleigh-Ritz). Otherwise U is fitted once more, for the new V, with the
    variances of these triplets as the prior.

    Parameters
    ----------
    matrix : CasoratiMatrix
        The data. The model U V^H replaces unobserved entries.
    right : (n_frames, r) array
        Orthonormal columns V that approximately span the temporal subspace.
    rotate_again : bool
        Whether U is fitted once more, for the new V, and the triplets are rotated to be singular ones for that U.
        That separates weak components near the cutoff, which are mixed by the noise. It changes how components are
        told apart, not the subspace. Without effect where entries are unobserved.
    prior : Prior, optional
        Of the coefficients for the columns V, where entries are unobserved: gaps in time make the columns depend on
        each other, and least squares alone would fill the gaps with amplified noise.

    Returns
    -------
    Refit
        Of r components.
    """
    fit = fit_both(matrix, right, None if prior is None else prior.ridge)
    left, squares = fit.left, fit.squares
    before = float(np.trace(squares).real)
    white = _whitening(squares)
    rotation, singular, right_h = np.linalg.svd(white.conj().T @ fit.moments, full_matrices=False)
    better = np.ascontiguousarray(right_h.conj().T, dtype=matrix.dtype)
    if not matrix.is_complete:
        if prior is not None:
            signal = singular**2 / matrix.n_pixels - prior.noise_variance
            prior = replace(prior, variances=signal)
        model = refit_left(matrix, better, prior)
        return Refit(model, max(float(np.sum(model.singular_values**2)) - before, 0.0))
    gained = max(float(np.sum(singular**2)) - before, 0.0)
    if rotate_again:
        left, squares = fit_left(matrix, better, None)
        white = _whitening(squares)
        rotation, singular, right_h = np.linalg.svd(white.conj().T @ squares)
        better = np.ascontiguousarray((better @ right_h.conj().T).astype(matrix.dtype))
    return Refit(LowRank(left @ (white @ rotation).astype(matrix.dtype), singular, better), gained)


def refit_left(matrix: CasoratiMatrix, right: NDArray[Any], prior: Prior | None = None) -> LowRank:
    """Return the singular triplets of the model with argmin_U |M - U V^H| over the observed entries, in one pass.

    Every pixel is a least-squares problem of its own, with the temporal vectors as regressors. Pixels with
    unobserved entries get a ridge at the rounding level. So a pixel with fewer observed frames than components
    gets the smallest solution, and a pixel without any gets 0.

    Parameters
    ----------
    matrix : CasoratiMatrix
        The data.
    right : (n_frames, r) array
        Orthonormal columns V.
    prior : Prior, optional
        Of the coefficients, in pixels with unobserved entries.
    """
    return LowRank.from_factors(fit_left(matrix, right, None if prior is None else prior.ridge)[0], right)


@dataclass(frozen=True)
class Fit:
    """A fit of U for a known V, and what the next V follows from.

    Attributes
    ----------
    left : (n_pixels, r) array
        U.
    moments : (r, n_frames) array
        U^H M in double precision, with U V^H for unobserved entries.
    squares : (r, r) array
        U^H U in double precision.
    """

    left: NDArray[Any]
    moments: NDArray[Any]
    squares: NDArray[Any]


@singledispatch
def fit_both(matrix: CasoratiMatrix, right: NDArray[Any], ridge: NDArray[np.float64] | None) -> Fit:
    """Fit U for a known V, and sum up the moments of the matrix with it, in one pass.

    Parameters
    ----------
    matrix : CasoratiMatrix
        The data.
    right : (n_frames, r) array
        Orthonormal columns V.
    ridge : (r,) float64 array or None
        Weights of the squared coefficients of pixels with unobserved entries; None for the rounding level.
    """
    wide = np.result_type(matrix.dtype, np.float64)
    left = np.empty((matrix.n_pixels, right.shape[1]), matrix.dtype)

    def moment(rows: slice) -> tuple[NDArray[Any], NDArray[Any]]:
        left[rows] = _fit_rows(matrix, rows, right, ridge)
        block, observed = matrix.values[rows], matrix.observed_mask(rows)
        if observed is not None:
            block = np.where(observed, block, left[rows] @ right.conj().T)
        # (U^H M)^H is M^H U; this order reads the block along its rows.
        return left[rows].conj().T @ block, gram(left[rows])

    moments: Any = 0.0
    squares: Any = 0.0
    for part, square in matrix.map_row_blocks(moment):
        moments = moments + part.astype(wide)
        squares = squares + square
    return Fit(left, moments, squares)


@singledispatch
def fit_left(
    matrix: CasoratiMatrix, right: NDArray[Any], ridge: NDArray[np.float64] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return U fitted for a known V, and U^H U in double precision; parameters as for :func:`fit_both`."""
    left = np.empty((matrix.n_pixels, right.shape[1]), matrix.dtype)

    def fitted(rows: slice) -> NDArray[Any]:
        left[rows] = _fit_rows(matrix, rows, right, ridge)
        return gram(left[rows])

    squares: Any = sum(matrix.map_row_blocks(fitted))
    return left, squares


def _whitening(squares: NDArray[Any]) -> NDArray[Any]:
    """Return W with W^H G W = I for a Gram matrix G; directions that rounding cannot tell from zero become zero."""
    size = np.sqrt(np.maximum(squares.diagonal().real, 0))
    # A component that is not there is not scaled up: its rounding errors would overflow in single precision.
    scale = np.divide(1, size, out=np.zeros_like(size), where=size > np.finfo(np.float64).eps * size.max())
    values, vectors = np.linalg.eigh(squares * np.outer(scale, scale))
    # The columns have length one now, so small eigenvalues mean that columns depend on each other.
    with np.errstate(divide="ignore"):
        inverse = np.where(values > len(values) * np.finfo(np.float32).eps, 1 / np.sqrt(np.abs(values)), 0.0)
    white: NDArray[Any] = vectors * inverse * scale[:, None]
    return white


def _fit_rows(
    matrix: CasoratiMatrix, rows: slice, right: NDArray[Any], ridge: NDArray[np.float64] | None
) -> NDArray[Any]:
    left: NDArray[Any] = matrix.values[rows] @ right
    return mend_rows(left, matrix.observed_mask(rows), right, ridge)


def mend_rows(
    moments: NDArray[Any],
    observed: NDArray[np.bool_] | None,
    right: NDArray[Any],
    ridge: NDArray[np.float64] | None,
) -> NDArray[Any]:
    """Turn the moments M V of some pixels, with 0 for unobserved entries, into fits of U, in place.

    Parameters
    ----------
    moments : (m, r) array
        M V; of a pixel whose entries are all observed it is the fit already.
    observed : (m, n_frames) boolean array or None
        Observed entries; None when all are.
    right, ridge
        As for :func:`fit_both`.
    """
    if observed is not None:
        weights = np.zeros(right.shape[1]) if ridge is None else ridge
        for row in np.flatnonzero(~observed.all(axis=1)):
            moments[row] = _fit_row(moments[row], right[~observed[row]].conj(), weights)
    return moments


def _fit_row(moment: NDArray[Any], unobserved: NDArray[Any], ridge: NDArray[np.float64]) -> NDArray[Any]:
    # The regressors are orthonormal over all frames, so the normal matrix is I minus the unobserved frames' part.
    wide = unobserved.astype(np.result_type(unobserved.dtype, np.float64))
    normal = -wide.conj().T @ wide
    rounding = len(normal) * np.finfo(unobserved.dtype).eps
    normal[np.diag_indices_from(normal)] += 1 + np.maximum(ridge, rounding)
    solution: NDArray[Any] = np.linalg.solve(normal, moment.astype(wide.dtype))
    return solution.astype(moment.dtype)
