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

GROWTH = 1.6
NOT_FINITE = "robust PCA left the finite numbers; use --precision double"


@dataclass(frozen=True)
class RobustPca:
    """Low-rank and sparse part of a matrix.

    Attributes
    ----------
    low_rank : LowRank
        Of as many components as survived.
    sparse : (n_pixels, n_frames) array
        The sparse part; 0 where the matrix was unobserved.
    iterations : int
        Iterations done.
    mismatch : float
        |M - L - S| over |M|, Frobenius.
    converged : bool
        Whether the mismatch came below the tolerance.
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
    """Principal component pursuit: minimise |L|_* + weight |S|_1 with L + S = M on the observed entries.

    Candes, Li, Ma and Wright, J. ACM 58(3), 2011, by the inexact augmented Lagrange multipliers of Lin,
    Chen and Ma (arXiv:1009.5055). Entries of S shrink towards 0 in modulus, keeping their phase.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The data, 0 where they are unobserved.
    executor : Executor
        Maps over the row blocks.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the observed entries; None when all are.
    weight : float, optional
        By default 1 / sqrt(max(n_pixels, n_frames)).
    tolerance : float
        Of the mismatch |M - L - S| / |M|.
    iterations : int
        At most.
    on_iteration : callable, optional
        Called with the iteration's number and the mismatch.

    Raises
    ------
    DivergedError
        If an iterate is not finite.
    """
    shape = (matrix.shape[0], matrix.shape[1])
    blocks = block_rows(shape)
    weight = 1 / math.sqrt(max(shape)) if weight is None else weight
    total = math.sqrt(sum(float(row_squared_norms(matrix[rows]).sum()) for rows in blocks))
    if not math.isfinite(total):
        raise DivergedError(NOT_FINITE)
    largest = math.sqrt(
        float(np.linalg.eigvalsh(frame_gram(matrix, executor, np.result_type(matrix.dtype, np.float64)))[-1])
    )
    peak = max(float(np.abs(matrix[rows]).max()) for rows in blocks)
    # Feasible for the dual problem, as its authors start.
    dual = matrix / np.asarray(max(largest, peak / weight), matrix.real.dtype)
    low = np.zeros_like(matrix)
    sparse = np.zeros_like(matrix)
    penalty, highest = 1.25 / largest, 1.25e7 / largest
    real = matrix.real.dtype.type

    def shrink(rows: slice) -> None:
        target = matrix[rows] - low[rows] + dual[rows] / real(penalty)
        size = np.abs(target)
        with np.errstate(invalid="ignore", divide="ignore"):
            factor = np.maximum(1 - real(weight / penalty) / size, 0)
        shrunk = target * np.nan_to_num(factor, nan=0.0, posinf=0.0, neginf=0.0)
        if observed is not None:
            # Unpenalised where nothing was seen, so that nothing there pulls at the low-rank part.
            shrunk = np.where(unpack(observed[rows], shape[1]), shrunk, target)
        sparse[rows] = shrunk
        low[rows] = matrix[rows] - shrunk + dual[rows] / real(penalty)

    def ascend(rows: slice) -> float:
        gap = matrix[rows] - low[rows] - sparse[rows]
        dual[rows] += real(penalty) * gap
        return float(np.sum(np.abs(gap).astype(np.float64) ** 2))

    mismatch, number = math.inf, 0
    model = LowRank(matrix[:, :0], np.zeros(0), np.zeros((shape[1], 0), matrix.dtype))
    while number < iterations and mismatch > tolerance:
        for _ in executor.map(shrink, blocks):
            pass
        model = threshold_singular_values(low, 1 / penalty, executor)
        factor, factor_h = model.band(0, model.rank)

        def multiply(rows: slice, a: NDArray[Any] = factor, b_h: NDArray[Any] = factor_h) -> None:
            np.matmul(a[rows], b_h, out=low[rows])

        for _ in executor.map(multiply, blocks):
            pass
        mismatch = math.sqrt(sum(executor.map(ascend, blocks))) / total
        if not math.isfinite(mismatch):
            raise DivergedError(NOT_FINITE)
        number += 1
        penalty = min(GROWTH * penalty, highest)
        if on_iteration is not None:
            on_iteration(number, mismatch)
    if observed is not None:
        for rows in blocks:
            sparse[rows] *= unpack(observed[rows], shape[1])
    return RobustPca(model, sparse, number, mismatch, mismatch <= tolerance)


def threshold_singular_values(matrix: NDArray[Any], threshold: float, executor: Executor) -> LowRank:
    """Proximal map of the nuclear norm: singular values less `threshold`, those above it only.

    Through the Gram matrix of the shorter side.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        Finite everywhere.
    threshold : float
        In the units of the data.
    executor : Executor
        Maps over the row blocks.

    Raises
    ------
    DivergedError
        If the matrix is not finite.
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
