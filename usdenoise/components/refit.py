"""Refit: fit the factors to all observed entries, from an approximate temporal subspace."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.posterior import PRIOR_FLOOR
from usdenoise.linalg.low_rank import LowRank
from usdenoise.stack.rows import Rows


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


def refit(rows: Rows, right: NDArray[Any], rotate_again: bool = False, prior: Prior | None = None) -> Refit:
    """Return the singular triplets of a matrix near an approximate temporal subspace.

    One step of subspace iteration: U is fitted to the data for the known V, then V for that U. The errors of a V
    from few samples are directions near the noise level; the step shrinks them by the square of the ratio of
    singular values. Where every entry is observed, that is one pass over the data, and the triplets are those of
    the data projected on the span of U (Rayleigh-Ritz). Otherwise U is fitted once more, for the new V, with the
    variances of these triplets as the prior.

    Parameters
    ----------
    rows : Rows
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
    left, squares, moments = rows.fit_and_moments(right, None if prior is None else prior.ridge)
    before = float(np.trace(squares).real)
    white = _whitening(squares)
    rotation, singular, right_h = np.linalg.svd(white.conj().T @ moments, full_matrices=False)
    better = np.ascontiguousarray(right_h.conj().T, dtype=rows.dtype)
    if not rows.is_complete:
        if prior is not None:
            signal = singular**2 / rows.n_pixels - prior.noise_variance
            prior = replace(prior, variances=signal)
        model = refit_left(rows, better, prior)
        return Refit(model, max(float(np.sum(model.singular_values**2)) - before, 0.0))
    gained = max(float(np.sum(singular**2)) - before, 0.0)
    if rotate_again:
        left, squares = rows.fit(better)
        white = _whitening(squares)
        rotation, singular, right_h = np.linalg.svd(white.conj().T @ squares)
        better = np.ascontiguousarray((better @ right_h.conj().T).astype(rows.dtype))
    return Refit(LowRank(left @ (white @ rotation).astype(rows.dtype), singular, better), gained)


def refit_left(rows: Rows, right: NDArray[Any], prior: Prior | None = None) -> LowRank:
    """Return the singular triplets of the model with argmin_U |M - U V^H| over the observed entries, in one pass.

    Every pixel is a least-squares problem of its own, with the temporal vectors as regressors. Pixels with
    unobserved entries get a ridge at the rounding level. So a pixel with fewer observed frames than components
    gets the smallest solution, and a pixel without any gets 0.

    Parameters
    ----------
    rows : Rows
        The data.
    right : (n_frames, r) array
        Orthonormal columns V.
    prior : Prior, optional
        Of the coefficients, in pixels with unobserved entries.
    """
    return LowRank.from_factors(rows.fit(right, None if prior is None else prior.ridge)[0], right)


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
