"""Compiled loops of :func:`usdenoise.linalg.lag_sums.lag_sums`.

Imported only for large matrices: loading the compiler takes half a second.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

# A sum may be taken in several lanes: the order of additions depends on the number of columns alone.
_OPTIONS = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc"}}


@numba.njit(**_OPTIONS)
def _real_dot(x: NDArray[Any], y: NDArray[Any]) -> Any:
    total = x.dtype.type(0)
    for t in range(len(x)):
        total += y[t] * x[t]
    return total


@numba.njit(**_OPTIONS)
def _complex_dot(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], d: NDArray[Any]) -> Any:
    """Return sum (c + i d) conj(a + i b)."""
    real, imaginary = a.dtype.type(0), a.dtype.type(0)
    for t in range(len(a)):
        real += c[t] * a[t] + d[t] * b[t]
        imaginary += d[t] * a[t] - c[t] * b[t]
    return complex(real, imaginary)


@numba.njit(**_OPTIONS)
def add_real(rows: NDArray[Any], edges: NDArray[np.int64], sums: NDArray[np.float64]) -> None:
    """Add the lagged products of real rows to `sums`.

    Parameters
    ----------
    rows : (m, n) array
        Real.
    edges : (parts + 1,) int64 array
        Edges of the parts of the columns; part p belongs to half p % 2.
    sums : (2, m, n_lags) float64 array
        Changed in place.
    """
    n = rows.shape[1]
    for row in range(rows.shape[0]):
        for part in range(len(edges) - 1):
            for lag in range(sums.shape[2]):
                first, last = edges[part], min(edges[part + 1], n - lag)
                if first < last:
                    x, y = rows[row, first:last], rows[row, first + lag : last + lag]
                    sums[part % 2, row, lag] += _real_dot(x, y)


@numba.njit(**_OPTIONS)
def add_complex(parts: NDArray[Any], edges: NDArray[np.int64], sums: NDArray[np.complex128]) -> None:
    """Add the lagged products of complex rows to `sums`.

    Parameters
    ----------
    parts : (m, 2 n) array
        Real and imaginary parts of the rows in turn.
    edges, sums
        As in :func:`add_real`; sums is complex128.
    """
    n = parts.shape[1] // 2
    real, imaginary = np.empty(n, parts.dtype), np.empty(n, parts.dtype)
    for row in range(parts.shape[0]):
        for t in range(n):
            real[t] = parts[row, 2 * t]
            imaginary[t] = parts[row, 2 * t + 1]
        for part in range(len(edges) - 1):
            for lag in range(sums.shape[2]):
                first, last = edges[part], min(edges[part + 1], n - lag)
                if first < last:
                    sums[part % 2, row, lag] += _complex_dot(
                        real[first:last],
                        imaginary[first:last],
                        real[first + lag : last + lag],
                        imaginary[first + lag : last + lag],
                    )
