"""Robust PCA: low-rank tissue plus sparse blood, by principal component pursuit."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.components.svd import truncated_svd
from usdenoise.errors import DivergedError
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.gram_matrices import frame_gram
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.orthonormal_bases import eigenvectors
from usdenoise.linalg.row_blocks import block_rows
from usdenoise.stack.bit_mask import unpack

FIRST_PENALTY, HIGHEST_PENALTY = 1.25, 1.25e7
"""First and highest penalty, times the largest singular value of the matrix, as in the published code of Lin, Chen
and Ma."""

GROWTH = 1.6
"""Factor by which the penalty grows in each iteration."""

TINY = 1e-30
"""Smallest divisor."""

NOT_FINITE = "an iterate of robust PCA is not finite; use double precision"


@dataclass(frozen=True)
class RobustPca:
    """Low-rank part L of a matrix M, which is the sum of L and a sparse part.

    Attributes
    ----------
    low_rank : LowRank
        The low-rank part, with the components that remain after the last threshold of the singular values.
    iterations : int
        Number of iterations done.
    mismatch : float
        Relative Frobenius norm |M - L - S| / |M| after the last iteration.
    converged : bool
        Whether the mismatch is at most the tolerance.
    """

    low_rank: LowRank
    iterations: int
    mismatch: float
    converged: bool


def robust_pca(
    matrix: NDArray[Any],
    executor: Executor,
    *,
    observed: NDArray[np.uint8] | None = None,
    weight: float | None = None,
    tolerance: float = 1e-6,
    iterations: int = 100,
) -> RobustPca:
    """Split a matrix into a low-rank and a sparse part, by principal component pursuit.

    It minimises |L|_* + weight |S|_1 subject to L + S = M on the observed entries [1]_, by inexact augmented Lagrange
    multipliers [2]_. With the dual Y and the penalty mu, one iteration is

        S <- shrink(M - L + Y / mu, weight / mu)
        L <- threshold(M - S + Y / mu, 1 / mu)
        Y <- Y + mu (M - L - S)
        mu <- min(1.6 mu, highest).

    Here shrink(x, t) = x max(1 - t / |x|, 0) reduces the modulus of each entry by t and keeps its phase, and
    `threshold` does the same to the singular values. Unobserved entries of S are not shrunk.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The matrix M, 0 at unobserved entries.
    executor : Executor
        Maps over the row blocks.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the observed entries; None when all are observed.
    weight : float, optional
        Weight of the sparse part; by default 1 / sqrt(max(n_pixels, n_frames)).
    tolerance : float
        The iteration ends when the mismatch |M - L - S| / |M| is at most this.
    iterations : int
        Largest number of iterations.

    Returns
    -------
    RobustPca

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
    weight = 1 / math.sqrt(max(matrix.shape)) if weight is None else weight
    norm = float(np.linalg.norm(matrix))
    if not math.isfinite(norm):
        raise DivergedError(NOT_FINITE)
    missing = None if observed is None else ~unpack(observed, matrix.shape[1])
    largest = float(truncated_svd(matrix, 1, executor).singular_values[0])
    # With this scale Y is feasible for the dual problem, as Lin, Chen and Ma start.
    dual = matrix / matrix.real.dtype.type(max(largest, np.abs(matrix).max() / weight))
    low = np.zeros_like(matrix)
    model = LowRank(matrix[:, :0], np.zeros(0), np.zeros((matrix.shape[1], 0), matrix.dtype))
    penalty, mismatch, number = FIRST_PENALTY / largest, math.inf, 0
    while number < iterations and mismatch > tolerance:
        target = matrix - low + dual / penalty
        sparse = shrunk(target, weight / penalty)
        if missing is not None:
            # S is not penalised at missing entries: it takes any value there, and L is not pulled towards 0.
            sparse[missing] = target[missing]
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
    return RobustPca(low_rank=model, iterations=number, mismatch=mismatch, converged=mismatch <= tolerance)


def shrunk(values: NDArray[Any], threshold: float) -> NDArray[Any]:
    """Return values whose moduli are reduced by `threshold`, to 0 at least, with their phases."""
    moduli = np.abs(values)
    kept: NDArray[Any] = values * (np.maximum(moduli - threshold, 0) / np.maximum(moduli, TINY))
    return kept


def threshold_singular_values(matrix: NDArray[Any], threshold: float, executor: Executor) -> LowRank:
    """Subtract `threshold` from the singular values of a matrix, and keep the components above it.

    This is the proximal map of the nuclear norm: the L that minimises |L - M|_F^2 / 2 + threshold |L|_*. A matrix with
    fewer pixels than frames is factorised directly, any other one through the Gram matrix of its frames.

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
    if matrix.shape[0] < matrix.shape[1]:
        left, singular, right_h = np.linalg.svd(matrix, full_matrices=False)
        right = right_h.conj().T
        kept = singular > threshold
        return LowRank(
            left[:, kept],
            singular[kept].astype(np.float64) - threshold,
            np.ascontiguousarray(right[:, kept]),
        )
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
