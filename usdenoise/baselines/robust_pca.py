"""Robust PCA: low-rank tissue plus sparse blood, by principal component pursuit."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import DivergedError
from usdenoise.estimate.svd import truncated_svd
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.gram_matrices import frame_gram
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.orthonormal_bases import eigenvectors
from usdenoise.linalg.row_blocks import block_rows

FIRST_PENALTY, HIGHEST_PENALTY = 1.25, 1.25e7
"""First and highest penalty, times the largest singular value of the matrix, as in the published code of Lin, Chen
and Ma."""

GROWTH = 1.6
"""Factor by which the penalty grows in each iteration."""

TINY = 1e-30
"""Smallest divisor."""

NOT_FINITE = "an iterate of robust PCA is not finite; use double precision"


TOLERANCE = 1e-6
"""Mismatch |M - L - S| / |M| at which the iteration ends."""

MOST_ITERATIONS = 100


def robust_pca(matrix: NDArray[Any], executor: Executor) -> tuple[LowRank, int, float]:
    """Split a matrix into a low-rank and a sparse part, by principal component pursuit.

    It minimises |L|_* + weight |S|_1 subject to L + S = M, with weight = 1 / sqrt(max(n_pixels, n_frames)) [1]_, by inexact
    augmented Lagrange multipliers [2]_. With the dual Y and the penalty mu, one iteration is

        S <- shrink(M - L + Y / mu, weight / mu)
        L <- threshold(M - S + Y / mu, 1 / mu)
        Y <- Y + mu (M - L - S)
        mu <- min(1.6 mu, highest).

    Here shrink(x, t) = x max(1 - t / |x|, 0) reduces the modulus of each entry by t and keeps its phase, and
    `threshold` does the same to the singular values.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The matrix M, finite everywhere.
    executor : Executor
        Maps over the row blocks.

    Returns
    -------
    low_rank : LowRank
        The low-rank part L, with the components that remain after the last threshold of the singular values.
    iterations : int
        Number of iterations.
    mismatch : float
        Relative Frobenius norm |M - L - S| / |M| after the last iteration.

    Raises
    ------
    DivergedError
        If an iterate is not finite.

    References
    ----------
    .. [1] E. J. Candes, X. Li, Y. Ma and J. Wright, "Robust principal component analysis?", J. ACM 58(3), 2011.
    .. [2] Z. Lin, M. Chen and Y. Ma, "The augmented Lagrange multiplier method for exact recovery of corrupted low-rank
       matrices", arXiv:1009.5055, 2010.
    """
    weight = 1 / math.sqrt(max(matrix.shape))
    norm = float(np.linalg.norm(matrix))
    if not math.isfinite(norm):
        raise DivergedError(NOT_FINITE)
    largest = float(truncated_svd(matrix, 1, executor).singular_values[0])
    # With this scale Y is feasible for the dual problem, as Lin, Chen and Ma start.
    dual = matrix / matrix.real.dtype.type(max(largest, np.abs(matrix).max() / weight))
    low = np.zeros_like(matrix)
    model = LowRank(matrix[:, :0], np.zeros(0), np.zeros((matrix.shape[1], 0), matrix.dtype))
    penalty, mismatch, number = FIRST_PENALTY / largest, math.inf, 0
    while number < MOST_ITERATIONS and mismatch > TOLERANCE:
        sparse = shrunk(matrix - low + dual / penalty, weight / penalty)
        model = threshold_singular_values(matrix - sparse + dual / penalty, 1 / penalty, executor)
        left, right_h = model.band(0, model.rank)
        low = left @ right_h
        gap = matrix - low - sparse
        dual += penalty * gap
        mismatch = float(np.linalg.norm(gap)) / norm
        if not math.isfinite(mismatch):
            raise DivergedError(NOT_FINITE)
        number += 1
        penalty = min(GROWTH * penalty, HIGHEST_PENALTY / largest)
    return model, number, mismatch


def shrunk(values: NDArray[Any], threshold: float) -> NDArray[Any]:
    """Return values whose moduli are reduced by `threshold`, to 0 at least, with their phases."""
    moduli = np.abs(values)
    kept: NDArray[Any] = values * (np.maximum(moduli - threshold, 0) / np.maximum(moduli, TINY))
    return kept


def threshold_singular_values(matrix: NDArray[Any], threshold: float, executor: Executor) -> LowRank:
    """Subtract `threshold` from the singular values of a matrix, and keep the components above it.

    This is the proximal map of the nuclear norm: the L that minimises |L - M|_F^2 / 2 + threshold |L|_*. The
    components are eigenvectors of the Gram matrix of the frames.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The matrix M, finite everywhere.
    threshold : float
        Amount to subtract, in the units of the data.
    executor : Executor
        Maps over the row blocks.

    Raises
    ------
    DivergedError
        If the Gram matrix of the frames is not finite.
    """
    gram = frame_gram(matrix, executor, np.result_type(matrix.dtype, np.float64))
    if not np.isfinite(gram).all():
        raise DivergedError(NOT_FINITE)
    vectors = eigenvectors(gram, subset_by_value=(threshold**2, np.inf))
    right = np.ascontiguousarray(vectors, dtype=matrix.dtype)
    left = np.concatenate(list(executor.map(lambda rows: matrix[rows] @ right, block_rows(matrix.shape))))
    singular = np.linalg.norm(left.astype(np.result_type(left.dtype, np.float64)), axis=0)
    kept = singular > threshold
    left = left[:, kept] / singular[kept].astype(left.real.dtype)
    return LowRank(left, singular[kept] - threshold, right[:, kept])
