"""Robust PCA: low-rank tissue plus sparse blood, by principal component pursuit."""

import math
from collections.abc import Callable
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

NOT_FINITE = "an iterate of robust PCA is not finite; use --precision double"


@dataclass(frozen=True)
class RobustPca:
    """Low-rank part L and sparse part S of a matrix M.

    Attributes
    ----------
    low_rank : LowRank
        The low-rank part, with the components that remain after the last threshold of the singular values.
    sparse : (n_pixels, n_frames) array
        The sparse part, 0 at unobserved entries.
    iterations : int
        Number of iterations done.
    mismatch : float
        Relative Frobenius norm |M - L - S| / |M| after the last iteration.
    converged : bool
        Whether the mismatch is at most the tolerance.
    """

    low_rank: LowRank
    sparse: NDArray[Any]
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
    iterations: int = 60,
    on_iteration: Callable[[int, float], None] | None = None,
) -> RobustPca:
    """Split a matrix into a low-rank and a sparse part, by principal component pursuit.

    It minimises |L|_* + weight |S|_1 subject to L + S = M on the observed entries (Candes, Li, Ma and Wright, J. ACM
    58(3), 2011). The method is the inexact augmented Lagrange multipliers of Lin, Chen and Ma (arXiv:1009.5055).
    With the dual Y and the penalty mu, one iteration is

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
    on_iteration : callable, optional
        Called after each iteration with its number, counted from 1, and the mismatch.

    Returns
    -------
    RobustPca

    Raises
    ------
    DivergedError
        If an iterate is not finite.
    """
    iterate = _Iterate(matrix, executor, observed, weight)
    largest = iterate.largest_singular_value
    penalty, highest = FIRST_PENALTY / largest, HIGHEST_PENALTY / largest
    mismatch, number = math.inf, 0
    model = LowRank(matrix[:, :0], np.zeros(0), np.zeros((matrix.shape[1], 0), matrix.dtype))
    while number < iterations and mismatch > tolerance:
        iterate.shrink_sparse(penalty)
        model = iterate.threshold_low_rank(penalty)
        mismatch = iterate.ascend_dual(penalty)
        if not math.isfinite(mismatch):
            raise DivergedError(NOT_FINITE)
        number += 1
        penalty = min(GROWTH * penalty, highest)
        if on_iteration is not None:
            on_iteration(number, mismatch)
    return RobustPca(model, iterate.observed_sparse(), number, mismatch, mismatch <= tolerance)


class _Iterate:
    """The matrices M, L, S and Y of robust PCA, and the updates of one iteration, in place by row blocks."""

    def __init__(
        self,
        matrix: NDArray[Any],
        executor: Executor,
        observed: NDArray[np.uint8] | None,
        weight: float | None,
    ) -> None:
        shape = (matrix.shape[0], matrix.shape[1])
        self._matrix, self._executor, self._observed = matrix, executor, observed
        self._blocks = block_rows(shape)
        self._real = matrix.real.dtype.type
        self._weight = 1 / math.sqrt(max(shape)) if weight is None else weight
        self._norm = math.sqrt(sum(float(row_squared_norms(matrix[rows]).sum()) for rows in self._blocks))
        if not math.isfinite(self._norm):
            raise DivergedError(NOT_FINITE)
        square = frame_gram(matrix, executor, np.result_type(matrix.dtype, np.float64))
        self.largest_singular_value = math.sqrt(float(np.linalg.eigvalsh(square)[-1]))
        peak = max(float(np.abs(matrix[rows]).max()) for rows in self._blocks)
        # With this scale Y is feasible for the dual problem, as Lin, Chen and Ma start.
        self._dual = matrix / np.asarray(
            max(self.largest_singular_value, peak / self._weight), matrix.real.dtype
        )
        self._low = np.zeros_like(matrix)
        self._sparse = np.zeros_like(matrix)

    def shrink_sparse(self, penalty: float) -> None:
        """Update S, and put M - S + Y / mu, the matrix to be thresholded, into L."""
        mu, threshold = self._real(penalty), self._real(self._weight / penalty)

        def shrink(rows: slice) -> None:
            target = self._matrix[rows] - self._low[rows] + self._dual[rows] / mu
            size = np.abs(target)
            with np.errstate(invalid="ignore", divide="ignore"):
                factor = np.maximum(1 - threshold / size, 0)
            shrunk = target * np.nan_to_num(factor, nan=0.0, posinf=0.0, neginf=0.0)
            if self._observed is not None:
                # S is not penalised at unobserved entries: it takes any value there, and L is not pulled towards 0.
                shrunk = np.where(unpack(self._observed[rows], self._matrix.shape[1]), shrunk, target)
            self._sparse[rows] = shrunk
            self._low[rows] = self._matrix[rows] - shrunk + self._dual[rows] / mu

        self._map(shrink)

    def threshold_low_rank(self, penalty: float) -> LowRank:
        """Update L by a threshold of its singular values, and return its components."""
        model = threshold_singular_values(self._low, 1 / penalty, self._executor)
        factor, factor_h = model.band(0, model.rank)

        def multiply(rows: slice) -> None:
            np.matmul(factor[rows], factor_h, out=self._low[rows])

        self._map(multiply)
        return model

    def ascend_dual(self, penalty: float) -> float:
        """Update Y, and return the mismatch |M - L - S| / |M|."""

        def ascend(rows: slice) -> float:
            gap = self._matrix[rows] - self._low[rows] - self._sparse[rows]
            self._dual[rows] += self._real(penalty) * gap
            return float(np.sum(np.abs(gap).astype(np.float64) ** 2))

        return math.sqrt(sum(self._executor.map(ascend, self._blocks))) / self._norm

    def observed_sparse(self) -> NDArray[Any]:
        """Return S with 0 at unobserved entries."""
        if self._observed is not None:
            for rows in self._blocks:
                self._sparse[rows] *= unpack(self._observed[rows], self._matrix.shape[1])
        return self._sparse

    def _map(self, update: Callable[[slice], None]) -> None:
        for _ in self._executor.map(update, self._blocks):
            pass


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
