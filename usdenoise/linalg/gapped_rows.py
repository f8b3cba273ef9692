"""Least-squares fits of rows with unobserved entries to orthonormal columns."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def fit_gapped_rows(
    projected: NDArray[Any],
    observed: NDArray[np.bool_] | None,
    right: NDArray[Any],
    ridge: NDArray[np.float64] | None,
) -> NDArray[Any]:
    """Turn the projections M V of some rows, with 0 for unobserved entries, into least-squares fits U, in place.

    U minimises |M - U V^H|^2 over the observed entries plus sum_k ridge_k |u_k|^2, each row on its own. Where all
    entries of a row are observed, M V is the fit, without a ridge.

    Parameters
    ----------
    projected : (m, r) array
        M V.
    observed : (m, n) boolean array or None
        Observed entries; None when all are.
    right : (n, r) array
        Orthonormal columns V.
    ridge : (r,) float64 array or None
        Weights of the squared coefficients, at least the rounding level; None for that.
    """
    if observed is not None:
        weights = np.zeros(right.shape[1]) if ridge is None else ridge
        for row in np.flatnonzero(~observed.all(axis=1)):
            projected[row] = _fit_row(projected[row], right[~observed[row]], weights)
    return projected


def _fit_row(projected: NDArray[Any], unobserved: NDArray[Any], ridge: NDArray[np.float64]) -> NDArray[Any]:
    # The regressors are orthonormal over all columns, so the normal matrix is I minus the part of the unobserved ones.
    wide = unobserved.astype(np.result_type(unobserved.dtype, np.float64))
    normal = -_normal(wide)
    rounding = len(normal) * np.finfo(unobserved.dtype).eps
    normal[np.diag_indices_from(normal)] += 1 + np.maximum(ridge, rounding)
    solution: NDArray[Any] = np.linalg.solve(normal, projected.astype(wide.dtype))
    return solution.astype(projected.dtype)


def unobserved_normal(missing: NDArray[np.bool_], right: NDArray[Any]) -> NDArray[Any]:
    """Return sum_t v_t v_t^H over the unobserved frames of each row, by which its normal matrix is less than I.

    Parameters
    ----------
    missing : (m, n) boolean array
        Unobserved entries.
    right : (n, r) array
        Rows v_t of orthonormal columns V.

    Returns
    -------
    (m, r, r) array
    """
    sums = np.zeros((len(missing), right.shape[1], right.shape[1]), right.dtype)
    for row in np.flatnonzero(missing.any(axis=1)):
        sums[row] = _normal(right[missing[row]])
    return sums


def _normal(rows: NDArray[Any]) -> NDArray[Any]:
    """Return sum_t v_t v_t^H of rows v_t: the fit of m_t = sum_k u_k conj(v_tk) solves sum_t v_t v_t^H u = sum_t m_t v_t."""
    normal: NDArray[Any] = rows.T @ rows.conj()
    return normal
