"""Compiled sweeps over sampled entries: for each one a dot product and two updates of a row.

Imported only where the sparse evaluation is used: loading the compiler takes half a second.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

# The order of the additions within one dot product is the compiler's; nothing else of the relaxed
# arithmetic matters here, and non-finite values are looked for by the caller.
_OPTIONS = {"nogil": True, "cache": True, "fastmath": {"reassoc", "contract"}}


@numba.njit(**_OPTIONS)
def real_rows(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[Any],
    u: NDArray[Any],
    v: NDArray[Any],
    residual_v: NDArray[Any],
    residual_u: NDArray[Any],
) -> float:
    """Add R V to `residual_v` and R^T U to `residual_u`; return the sum of R^2 in double precision."""
    rank = u.shape[1]
    loss = 0.0
    for i in range(u.shape[0]):
        u_i, rv_i = u[i], residual_v[i]
        for k in range(starts[i], starts[i + 1]):
            j = columns[k]
            v_j, ru_j = v[j], residual_u[j]
            error = u_i[0] * v_j[0]
            for c in range(1, rank):
                error += u_i[c] * v_j[c]
            error -= values[k]
            loss += np.float64(error) * np.float64(error)
            for c in range(rank):
                rv_i[c] += error * v_j[c]
            for c in range(rank):
                ru_j[c] += error * u_i[c]
    return loss


@numba.njit(**_OPTIONS)
def complex_rows(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[Any],
    u: NDArray[Any],
    v: NDArray[Any],
    residual_v: NDArray[Any],
    residual_u: NDArray[Any],
) -> float:
    """As :func:`real_rows` for complex factors given as (rows, 2, r) real and imaginary planes.

    Adds R V to `residual_v` and R^H U to `residual_u`.
    """
    rank = u.shape[2]
    loss = 0.0
    for i in range(u.shape[0]):
        u_re, u_im = u[i, 0], u[i, 1]
        rv_re, rv_im = residual_v[i, 0], residual_v[i, 1]
        for k in range(starts[i], starts[i + 1]):
            j = columns[k]
            v_re, v_im = v[j, 0], v[j, 1]
            ru_re, ru_im = residual_u[j, 0], residual_u[j, 1]
            error_re = u_re[0] * v_re[0] + u_im[0] * v_im[0]
            error_im = u_im[0] * v_re[0] - u_re[0] * v_im[0]
            for c in range(1, rank):
                error_re += u_re[c] * v_re[c] + u_im[c] * v_im[c]
                error_im += u_im[c] * v_re[c] - u_re[c] * v_im[c]
            error_re -= values[k].real
            error_im -= values[k].imag
            loss += np.float64(error_re) * np.float64(error_re) + np.float64(error_im) * np.float64(error_im)
            for c in range(rank):
                rv_re[c] += error_re * v_re[c] - error_im * v_im[c]
                rv_im[c] += error_re * v_im[c] + error_im * v_re[c]
            for c in range(rank):
                ru_re[c] += error_re * u_re[c] + error_im * u_im[c]
                ru_im[c] += error_re * u_im[c] - error_im * u_re[c]
    return loss
