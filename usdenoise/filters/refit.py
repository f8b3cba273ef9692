"""Fitting the left factor again, to all observed entries, with the temporal subspace known."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.executor import Executor
from usdenoise.completion.problem import block_rows
from usdenoise.filters.lowrank import LowRank
from usdenoise.sampling import unpack


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
    matrix : (n_pixels, n_frames) array
        The data, 0 where they are unobserved.
    right : (n_frames, r) array
        Orthonormal temporal vectors V.
    executor : Executor
        Maps over the row blocks.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the observed entries; None when all are.
    """
    conjugate = np.ascontiguousarray(right.conj())

    def fit(rows: slice) -> NDArray[Any]:
        left: NDArray[Any] = matrix[rows] @ right
        if observed is not None:
            mask = unpack(observed[rows], matrix.shape[1])
            for row in np.flatnonzero(~mask.all(axis=1)):
                left[row] = _row_fit(left[row], conjugate[mask[row]])
        return left

    return LowRank.from_factors(np.concatenate(list(executor.map(fit, block_rows(matrix.shape)))), right)


def _row_fit(moment: NDArray[Any], seen: NDArray[Any]) -> NDArray[Any]:
    wide = seen.astype(np.result_type(seen.dtype, np.float64))
    normal = wide.conj().T @ wide
    ridge = len(normal) * np.finfo(seen.dtype).eps
    normal[np.diag_indices_from(normal)] += ridge
    solution: NDArray[Any] = np.linalg.solve(normal, moment.astype(wide.dtype))
    return solution.astype(moment.dtype)
