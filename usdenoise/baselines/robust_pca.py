"""Robust PCA: low-rank tissue plus sparse blood, by principal component pursuit."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import DivergedError
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.gram_matrices import frame_gram
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.orthonormal_bases import eigenvectors
from usdenoise.linalg.row_blocks import block_rows, row_squared_norms
from usdenoise.stack.bit_mask import unpack

FIRST_PENALTY, HIGHEST_PENALTY = 1.25, 1.25e7
"""First and highest penalty, times the largest singular value of the matrix, as in the published code of Lin, Chen
and Ma."""

GROWTH = 1.6
"""Factor by which the penalty grows in each iteration."""

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
    blocks, real = block_rows((matrix.shape[0], matrix.shape[1])), matrix.real.dtype.type
    weight = 1 / math.sqrt(max(matrix.shape)) if weight is None else weight
    norm = math.sqrt(sum(float(row_squared_norms(matrix[rows]).sum()) for rows in blocks))
    if not math.isfinite(norm):
        raise DivergedError(NOT_FINITE)
    gram = frame_gram(matrix, executor, np.result_type(matrix.dtype, np.float64))
    largest = math.sqrt(float(np.linalg.eigvalsh(gram)[-1]))
    peak = max(float(np.abs(matrix[rows]).max()) for rows in blocks)
    # With this scale Y is feasible for the dual problem, as Lin, Chen and Ma start.
    dual = matrix / real(max(largest, peak / weight))
    low, sparse = np.zeros_like(matrix), np.zeros_like(matrix)
    model = LowRank(matrix[:, :0], np.zeros(0), np.zeros((matrix.shape[1], 0), matrix.dtype))
    penalty, mismatch, number = FIRST_PENALTY / largest, math.inf, 0

    def shrink_sparse(rows: slice) -> None:
        """Update S, and put M - S + Y / mu, the matrix to be thresholded, into L."""
        scaled_dual = dual[rows] / real(penalty)
        target = matrix[rows] - low[rows] + scaled_dual
        with np.errstate(invalid="ignore", divide="ignore"):
            factor = np.maximum(1 - real(weight / penalty) / np.abs(target), 0)
        shrunk = target * np.nan_to_num(factor, nan=0.0, posinf=0.0, neginf=0.0)
        if observed is not None:
            # S is not penalised at unobserved entries: it takes any value there, and L is not pulled towards 0.
            shrunk = np.where(unpack(observed[rows], matrix.shape[1]), shrunk, target)
        sparse[rows] = shrunk
        low[rows] = matrix[rows] - shrunk + scaled_dual

    def ascend_dual(rows: slice) -> float:
        """Update L and Y, and return |M - L - S|^2."""
        np.matmul(left[rows], right_h, out=low[rows])
        gap = matrix[rows] - low[rows] - sparse[rows]
        dual[rows] += real(penalty) * gap
        return float(np.sum(np.abs(gap).astype(np.float64) ** 2))

    while number < iterations and mismatch > tolerance:
        for _ in executor.map(shrink_sparse, blocks):
            pass
        model = threshold_singular_values(low, 1 / penalty, executor)
        left, right_h = model.band(0, model.rank)
        mismatch = math.sqrt(sum(executor.map(ascend_dual, blocks))) / norm
        if not math.isfinite(mismatch):
            raise DivergedError(NOT_FINITE)
        number += 1
        penalty = min(GROWTH * penalty, HIGHEST_PENALTY / largest)
    return RobustPca(model, number, mismatch, mismatch <= tolerance)


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
