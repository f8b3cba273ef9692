"""The extension of components to all pixels: factors that are fitted to all observed entries (the refit).

The temporal singular vectors are common to all pixels, so the vectors of a few pixels are a start for all pixels.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.tall_matrices import rotated, tall_qr
from usdenoise.stack.pixel_sample import PixelSample

PRIOR_FLOOR = 1e-3
"""Smallest prior variance of a component, in units of the noise variance."""


@dataclass(frozen=True)
class Prior:
    """Prior of the coefficients of a pixel: independent Gaussian components, next to white noise.

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


FIRST_PIXELS = 2000
"""Pixels, at least, of the refit before the one on the whole sample: they rotate the subspace most of the way for a
fraction of the price."""


def extend(rows: PixelSample, sampled: LowRank, noise_rms: float) -> tuple[LowRank, float, Prior]:
    """Return the components of a pixel sample, from the components of its sampled pixels, and the gain of the last refit.

    Parameters
    ----------
    rows : PixelSample
        The data.
    sampled : LowRank
        Components of the sampled pixels.
    noise_rms : float
        Noise level.

    Returns
    -------
    model, gained_energy, prior
        As for :func:`refit`.
    """
    right = sampled.right
    prior = Prior(sampled.singular_values**2 / len(sampled.left), noise_rms**2)
    if rows.is_complete:
        # Most of the rotation, for a fraction of the price of a step over all pixels.
        right = refit(rows.spread(FIRST_PIXELS), right, prior)[0].right
    # The components near the cutoff must be separated.
    return refit(rows, right, prior, rotate_again=True)


def refit(
    rows: PixelSample, right: NDArray[Any], prior: Prior, rotate_again: bool = False
) -> tuple[LowRank, float, Prior]:
    """Return the singular triplets of a matrix near an approximate temporal subspace.

    One step of subspace iteration: U is fitted to the data for the known V, then V for that U. The errors of a V
    from few samples are directions near the noise level; the step shrinks them by the square of the ratio of
    singular values. Where every entry is observed, this is one pass over the data, and yields the triplets of
    the data projected on the span of U (Rayleigh-Ritz). Otherwise U is fitted once more, for the new V, with the
    variances of these triplets as the prior.

    Parameters
    ----------
    rows : PixelSample
        The data. The model U V^H replaces unobserved entries.
    right : (n_frames, r) array
        Orthonormal columns V that approximately span the temporal subspace.
    prior : Prior
        Of the coefficients for the columns V, where entries are unobserved: gaps in time make the columns depend on
        each other, and least squares alone would fill the gaps with amplified noise.
    rotate_again : bool
        Whether U is fitted once more, for the new V, and the triplets are rotated to be singular ones for that U.
        That separates weak components near the cutoff, which are mixed by the noise. It changes how components are
        separated, not the subspace. Without effect where entries are unobserved.

    Returns
    -------
    model : LowRank
        r components.
    gained_energy : float
        Energy that they hold more than the best fit with the temporal subspace from before the step: what the step
        mended. A further step would gain less.
    prior : Prior
        Of the coefficients for the columns of the model.
    """
    left, squares, moments = rows.fit_and_moments(right, prior.ridge)
    before = float(np.trace(squares).real)
    white = _whitening(squares)
    # In long stacks the moments take tens of megabytes.
    basis, triangle = tall_qr(np.conjugate(moments, out=moments).T, in_place=True)
    rotation, singular, turn = np.linalg.svd((triangle @ white).conj().T)
    better = rotated(basis, turn.conj().T, rows.dtype)
    del moments, basis
    prior = replace(prior, variances=singular**2 / rows.n_pixels - prior.noise_variance)
    if not rows.is_complete:
        model = LowRank.from_factors(rows.fit(better, prior.ridge)[0], better)
        return model, max(float(np.sum(model.singular_values**2)) - before, 0.0), prior
    gained = max(float(np.sum(singular**2)) - before, 0.0)
    if rotate_again:
        left, squares = rows.fit(better)
        white = _whitening(squares)
        rotation, singular, turn = np.linalg.svd(white.conj().T @ squares)
        better = rotated(better, turn.conj().T, rows.dtype)
    return LowRank(left @ (white @ rotation).astype(rows.dtype), singular, better), gained, prior


def _whitening(squares: NDArray[Any]) -> NDArray[Any]:
    """Return W with W^H G W = I for a Gram matrix G; directions that are zero within rounding become zero."""
    size = np.sqrt(np.maximum(squares.diagonal().real, 0))
    # A component that is not there is not scaled up: its rounding errors would overflow in single precision.
    scale = np.divide(1, size, out=np.zeros_like(size), where=size > np.finfo(np.float64).eps * size.max())
    values, vectors = np.linalg.eigh(squares * np.outer(scale, scale))
    # The scaled columns have length one, so small eigenvalues mean that columns depend on each other.
    with np.errstate(divide="ignore"):
        inverse = np.where(values > len(values) * np.finfo(np.float32).eps, 1 / np.sqrt(np.abs(values)), 0.0)
    white: NDArray[Any] = vectors * inverse * scale[:, None]
    return white
