"""Compiled loops that sum the lagged products of columns.

Imported only where it is used: loading the compiler takes half a second.
"""

from typing import Any

import numba
import numpy as np

# Sums may be reordered and fused; the order is fixed at compile time, so that results are reproducible.
COMPILED_SUMS = {"nogil": True, "cache": True, "fastmath": {"contract", "nsz", "reassoc"}}


@numba.njit(**COMPILED_SUMS)
def complex_lags(values: Any, parts: Any, sums: Any) -> None:
    """Add sum_t x[t + l] conj(x[t]) of each column x of `values`, over the parts of its rows t, to sums[half, column, l].

    Parameters
    ----------
    values : (n, m) complex array
        The columns.
    parts : (n_parts, 3) array of int
        First row of each part, the one after the last, and the half that it belongs to.
    sums : (2, m, n_lags) complex128 array
        The sums. Each part is summed in the precision of the values.
    """
    n, m = values.shape
    # The compiler finds vector instructions for real sums alone.
    real, imaginary = np.empty(n, values.real.dtype), np.empty(n, values.real.dtype)
    zero = np.zeros(1, values.real.dtype)[0]
    for p in range(m):
        for t in range(n):
            real[t], imaginary[t] = values[t, p].real, values[t, p].imag
        for q in range(len(parts)):
            for lag in range(sums.shape[2]):
                first, length = parts[q, 0], max(min(parts[q, 1], n - lag) - parts[q, 0], 0)
                a, b = real[first : first + length], imaginary[first : first + length]
                c, d = real[first + lag : first + lag + length], imaginary[first + lag : first + lag + length]
                along, across = zero, zero
                for t in range(length):
                    along += c[t] * a[t] + d[t] * b[t]
                    across += d[t] * a[t] - c[t] * b[t]
                sums[parts[q, 2], p, lag] += along + 1j * across


@numba.njit(**COMPILED_SUMS)
def real_lags(values: Any, parts: Any, sums: Any) -> None:
    """Do the same for real columns; the sums are float64."""
    n, m = values.shape
    row, zero = np.empty(n, values.dtype), np.zeros(1, values.dtype)[0]
    for p in range(m):
        for t in range(n):
            row[t] = values[t, p]
        for q in range(len(parts)):
            for lag in range(sums.shape[2]):
                first, length = parts[q, 0], max(min(parts[q, 1], n - lag) - parts[q, 0], 0)
                a, c = row[first : first + length], row[first + lag : first + lag + length]
                total = zero
                for t in range(length):
                    total += c[t] * a[t]
                sums[parts[q, 2], p, lag] += total
