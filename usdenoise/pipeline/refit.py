"""Fitting the factors again, to all observed entries, from an approximate temporal subspace."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.orthonormal_bases import orthonormal
from usdenoise.linalg.row_blocks import block_rows
from usdenoise.stack.bit_mask import unpack


def refit(
    matrix: NDArray[Any],
    right: NDArray[Any],
    executor: Executor,
    observed: NDArray[np.uint8] | None,
    twice: bool = False,
) -> LowRank:
    """Singular triplets near an approximate temporal subspace, from all observed entries.

    One step of subspace iteration: U is fitted to the data with V known, then V with that U. What an
    estimate from few samples gets wrong in V are directions near the noise level; the step shrinks them by
    the square of the ratio of singular values. Where every entry is observed that is one pass over the
    data, and the triplets are those of the data projected on the span of U (Rayleigh-Ritz); otherwise U is
    fitted once more, with the new V.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The data, 0 where they are unobserved.
    right : (n_frames, r) array
        Orthonormal columns that span about the temporal subspace.
    executor : Executor
        Maps over the row blocks.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the observed entries; None when all are. In the place of the others stands the model.
    twice : bool
        Whether U is fitted once more in any case. It is what lies about the cutoff, weak and blurred by the
        noise, that this sharpens: not what is removed, but where the cut is seen.
    """
    wide = np.result_type(matrix.dtype, np.float64)
    whole = np.empty((len(matrix), right.shape[1]), matrix.dtype)

    def moment(rows: slice) -> tuple[NDArray[Any], NDArray[Any]]:
        left = whole[rows]
        left[...] = _fit_rows(matrix, rows, right, observed)
        block = matrix[rows]
        if observed is not None:
            block = np.where(unpack(observed[rows], matrix.shape[1]), block, left @ right.conj().T)
        # (U^H M)^H is M^H U; this order reads the block along its rows.
        return left.conj().T @ block, gram(left)

    moments: Any = 0.0
    squares: Any = 0.0
    for part, square in executor.map(moment, block_rows(matrix.shape)):
        moments = moments + part.astype(wide)
        squares = squares + square
    if observed is not None:
        return refit_left(matrix, orthonormal(moments.conj().T).astype(matrix.dtype), executor, observed)
    white = _whitening(squares)
    turn, singular, right_h = np.linalg.svd(white.conj().T @ moments, full_matrices=False)
    better = np.ascontiguousarray(right_h.conj().T, dtype=matrix.dtype)
    if twice:

        def fitted(rows: slice) -> NDArray[Any]:
            np.matmul(matrix[rows], better, out=whole[rows])
            return gram(whole[rows])

        squares = sum(executor.map(fitted, block_rows(matrix.shape)))
        white = _whitening(squares)
        turn, singular, right_h = np.linalg.svd(white.conj().T @ squares)
        better = np.ascontiguousarray((better @ right_h.conj().T).astype(matrix.dtype))
    return LowRank(whole @ (white @ turn).astype(matrix.dtype), singular, better)


def _whitening(squares: NDArray[Any]) -> NDArray[Any]:
    """W with W^H G W = I for a Gram matrix G, directions that rounding cannot tell from zero taken to zero."""
    size = np.sqrt(np.maximum(squares.diagonal().real, 0))
    # What is not there at all is not scaled up: its rounding errors would leave the numbers of single precision.
    scale = np.divide(1, size, out=np.zeros_like(size), where=size > np.finfo(np.float64).eps * size.max())
    values, vectors = np.linalg.eigh(squares * np.outer(scale, scale))
    # Columns were scaled to one, so what is left is how nearly they depend on each other.
    with np.errstate(divide="ignore"):
        inverse = np.where(values > len(values) * np.finfo(np.float32).eps, 1 / np.sqrt(np.abs(values)), 0.0)
    white: NDArray[Any] = vectors * inverse * scale[:, None]
    return white


def refit_left(
    matrix: NDArray[Any],
    right: NDArray[Any],
    executor: Executor,
    observed: NDArray[np.uint8] | None,
) -> LowRank:
    """Singular triplets of argmin_U |M - U V^H| over the observed entries, by one pass.

    Every pixel is its own least-squares problem with the temporal vectors as regressors. Pixels with
    unobserved entries get a ridge at the rounding level, so that a pixel with fewer observed frames than
    components has the smallest solution, and a dead pixel has 0.

    Parameters
    ----------
    matrix, right, executor, observed
        As for :func:`refit`.
    """
    parts = executor.map(lambda rows: _fit_rows(matrix, rows, right, observed), block_rows(matrix.shape))
    return LowRank.from_factors(np.concatenate(list(parts)), right)


def _fit_rows(
    matrix: NDArray[Any], rows: slice, right: NDArray[Any], observed: NDArray[np.uint8] | None
) -> NDArray[Any]:
    left: NDArray[Any] = matrix[rows] @ right
    if observed is not None:
        mask = unpack(observed[rows], matrix.shape[1])
        for row in np.flatnonzero(~mask.all(axis=1)):
            left[row] = _row_fit(left[row], right[~mask[row]].conj())
    return left


def _row_fit(moment: NDArray[Any], unseen: NDArray[Any]) -> NDArray[Any]:
    # The regressors are orthonormal over all frames: what the unseen ones take from the identity is left.
    wide = unseen.astype(np.result_type(unseen.dtype, np.float64))
    normal = -wide.conj().T @ wide
    normal[np.diag_indices_from(normal)] += 1 + len(normal) * np.finfo(unseen.dtype).eps
    solution: NDArray[Any] = np.linalg.solve(normal, moment.astype(wide.dtype))
    return solution.astype(moment.dtype)
