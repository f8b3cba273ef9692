"""The extension of components to all pixels: factors that are fitted to all observed entries (the refit).

The temporal singular vectors are common to all pixels, so those of a few pixels are a start for all of them.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.estimate.prior import Prior
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.orthonormal_bases import rotated, tall_qr
from usdenoise.stack.rows import Rows

FIRST_PIXELS, COARSE_PIXELS = 2000, 6000
"""Pixels, at least, of the refit before the one on all pixels, and of the coarse fit. 2000 pixels rotate the subspace
most of the way for a tenth of the price; with 6000 the automatic cutoff keeps its quality
(benchmarks/quality.py --full)."""

COMPONENTS_BEYOND_CUTOFF = 8
"""Components above the low cutoff that are fitted to all pixels, so that the last one below it is exact."""


def extend(
    rows: Rows, sampled: LowRank, noise_rms: float, pixels: Rows, choose_cutoff: bool
) -> tuple[LowRank, float]:
    """Return the components of some or all pixels, from those of the sampled ones, and what the last refit gained.

    Parameters
    ----------
    rows : Rows
        The data.
    sampled : LowRank
        Components of the sampled pixels.
    noise_rms : float
        Noise level.
    pixels : Rows
        The rows to which the components are fitted, from :func:`pixels_to_fit`.
    choose_cutoff : bool
        Whether the low cutoff will be chosen from the result.

    Returns
    -------
    model, gained_energy
        As for :func:`refit`.
    """
    right = sampled.right
    prior = Prior(sampled.singular_values**2 / len(sampled.left), noise_rms**2)
    if rows.is_complete and pixels is rows:
        # Most of the rotation, for a fraction of the price of a step over all pixels.
        right = refit(rows.spread(FIRST_PIXELS), right)[0].right
    # The components near the cutoff have to be told apart where it is chosen, or where few pixels represent all.
    return refit(pixels, right, choose_cutoff or pixels is not rows, prior)


def pixels_to_fit(rows: Rows, rank: int, low_cutoff: int | str) -> Rows:
    """Return the rows to which components are fitted that are not needed in all pixels: some, spread over the image.

    All rows, where a given low cutoff leaves only the components that are fitted to all pixels anyway.
    """
    needs_all = not isinstance(low_cutoff, str) and rank <= low_cutoff + COMPONENTS_BEYOND_CUTOFF
    return rows if needs_all else rows.spread(COARSE_PIXELS)


def extend_coarse(rows: Rows, coarse: LowRank, low: int) -> tuple[LowRank, NDArray[np.float64], float]:
    """Return the components that a filter needs, fitted to all pixels, from those of every few pixels.

    Parameters
    ----------
    rows : Rows
        The data.
    coarse : LowRank
        Components of every few pixels.
    low : int
        Low cutoff: the components [0, low) are needed exactly.

    Returns
    -------
    model : LowRank
        The components below low + COMPONENTS_BEYOND_CUTOFF.
    singular_values : array
        Those of all components; of the others they are scaled up from the coarse fit.
    gained_energy : float
        As for :func:`refit`.
    """
    needed = low + COMPONENTS_BEYOND_CUTOFF
    model, gained = refit(rows, coarse.right[:, :needed])
    rest = coarse.singular_values[needed:] * np.sqrt(rows.n_pixels / len(coarse.left))
    smallest = model.singular_values[-1]
    return model, np.append(model.singular_values, np.minimum(rest, smallest)), gained


def refit(
    rows: Rows, right: NDArray[Any], rotate_again: bool = False, prior: Prior | None = None
) -> tuple[LowRank, float]:
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
    model : LowRank
        r components.
    gained_energy : float
        Energy that they hold more than the best fit with the temporal subspace from before the step: what the step
        mended. A further step would gain less.
    """
    left, squares, moments = rows.fit_and_moments(right, None if prior is None else prior.ridge)
    before = float(np.trace(squares).real)
    white = _whitening(squares)
    # In long stacks the moments take tens of megabytes.
    basis, triangle = tall_qr(np.conjugate(moments, out=moments).T, in_place=True)
    rotation, singular, turn = np.linalg.svd((triangle @ white).conj().T)
    better = rotated(basis, turn.conj().T, rows.dtype)
    del moments, basis
    if not rows.is_complete:
        if prior is not None:
            signal = singular**2 / rows.n_pixels - prior.noise_variance
            prior = replace(prior, variances=signal)
        model = refit_left(rows, better, prior)
        return model, max(float(np.sum(model.singular_values**2)) - before, 0.0)
    gained = max(float(np.sum(singular**2)) - before, 0.0)
    if rotate_again:
        left, squares = rows.fit(better)
        white = _whitening(squares)
        rotation, singular, turn = np.linalg.svd(white.conj().T @ squares)
        better = rotated(better, turn.conj().T, rows.dtype)
    return LowRank(left @ (white @ rotation).astype(rows.dtype), singular, better), gained


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
