"""Refit: fit the factors to all observed entries, from an approximate temporal subspace."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.orthonormal_bases import orthonormal
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


def refit(matrix: CasoratiMatrix, right: NDArray[Any], rotate_again: bool = False) -> Refit:
    """Return the singular triplets of a matrix near an approximate temporal subspace.

    One step of subspace iteration: U is fitted to the data for the known V, then V for that U. The errors of a V
    from few samples are directions near the noise level; the step shrinks them by the square of the ratio of
    singular values. Where every entry is observed, that is one pass over the data, and the triplets are those of
    the data projected on the span of U (Rayleigh-Ritz). Otherwise U is fitted once more, for the new V.

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

    Returns
    -------
    Refit
        Of r components.
    """
    wide = np.result_type(matrix.dtype, np.float64)
    left = np.empty((matrix.n_pixels, right.shape[1]), matrix.dtype)

    def moment(rows: slice) -> tuple[NDArray[Any], NDArray[Any]]:
        left[rows] = _fit_rows(matrix, rows, right)
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
    before = float(np.trace(squares).real)
    if not matrix.is_complete:
        model = refit_left(matrix, orthonormal(moments.conj().T).astype(matrix.dtype))
        return Refit(model, max(float(np.sum(model.singular_values**2)) - before, 0.0))
    white = _whitening(squares)
    rotation, singular, right_h = np.linalg.svd(white.conj().T @ moments, full_matrices=False)
    gained = max(float(np.sum(singular**2)) - before, 0.0)
    better = np.ascontiguousarray(right_h.conj().T, dtype=matrix.dtype)
    if rotate_again:

        def fitted(rows: slice) -> NDArray[Any]:
            np.matmul(matrix.values[rows], better, out=left[rows])
            return gram(left[rows])

        squares = sum(matrix.map_row_blocks(fitted))
        white = _whitening(squares)
        rotation, singular, right_h = np.linalg.svd(white.conj().T @ squares)
        better = np.ascontiguousarray((better @ right_h.conj().T).astype(matrix.dtype))
    return Refit(LowRank(left @ (white @ rotation).astype(matrix.dtype), singular, better), gained)


def refit_left(matrix: CasoratiMatrix, right: NDArray[Any]) -> LowRank:
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
    """
    parts = matrix.map_row_blocks(lambda rows: _fit_rows(matrix, rows, right))
    return LowRank.from_factors(np.concatenate(list(parts)), right)


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


def _fit_rows(matrix: CasoratiMatrix, rows: slice, right: NDArray[Any]) -> NDArray[Any]:
    left: NDArray[Any] = matrix.values[rows] @ right
    observed = matrix.observed_mask(rows)
    if observed is not None:
        for row in np.flatnonzero(~observed.all(axis=1)):
            left[row] = _fit_row(left[row], right[~observed[row]].conj())
    return left


def _fit_row(moment: NDArray[Any], unobserved: NDArray[Any]) -> NDArray[Any]:
    # The regressors are orthonormal over all frames, so the normal matrix is I minus the unobserved frames' part.
    wide = unobserved.astype(np.result_type(unobserved.dtype, np.float64))
    normal = -wide.conj().T @ wide
    normal[np.diag_indices_from(normal)] += 1 + len(normal) * np.finfo(unobserved.dtype).eps
    solution: NDArray[Any] = np.linalg.solve(normal, moment.astype(wide.dtype))
    return solution.astype(moment.dtype)
