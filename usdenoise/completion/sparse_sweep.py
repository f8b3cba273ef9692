"""The sparse evaluation: one compiled sweep over the sampled entries of a part of the rows.

For each sampled entry (i, j) with error e = (U V^H)_ij - M_ij the sweep adds |e|^2 to the loss, e v_j to row i of R V
and conj(e) u_i to row j of R^H U; ``tests/reference/loops.py`` has that loop as it is written here. Complex rows are split
into real and imaginary parts, since the compiler finds vector instructions for real sums alone
(``benchmarks/evaluation.py``).

Imported only where the sparse evaluation is used: loading the compiler takes half a second.
"""

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.compiled_loops import REORDERED_SUMS, compiled


def sweep(
    starts: NDArray[np.int64], columns: NDArray[np.int32], values: Numbers, u: Numbers, v: Numbers
) -> tuple[float, Numbers, Numbers]:
    """Return the sum of |R|^2 in double precision, R V and R^H U for the residual R on the sampled entries.

    Parameters
    ----------
    starts, columns, values : arrays
        Fields of :class:`usdenoise.completion.problem.Entries`, of b rows.
    u : (b, r) array
        Rows of U.
    v : (n, r) array
        The factor V.

    Returns
    -------
    loss : float
        Sum of |R|^2.
    residual_v : (b, r) array
        R V.
    residual_u : (n, r) array
        R^H U.
    """
    if not np.iscomplexobj(values):
        residual_v, residual_u = np.zeros_like(u), np.zeros_like(v)
        loss = _real_rows(starts, columns, values, u, v, residual_v, residual_u)
        return loss, residual_v, residual_u
    # Re(conj(a) b) and Im(conj(a) b) are real dot products of rows that hold real and imaginary parts.
    pairs = (u.real, u.imag), (u.imag, -u.real), (v.real, v.imag)
    own, turned, other_factors = (np.concatenate(pair, axis=1) for pair in pairs)
    by_real, by_imaginary, sums_u = (np.zeros_like(rows) for rows in (own, own, other_factors))
    loss = _complex_rows(
        starts, columns, values, (own, turned, other_factors), (by_real, by_imaginary, sums_u)
    )
    real, imaginary = slice(0, v.shape[1]), slice(v.shape[1], None)
    residual_v = np.empty_like(u)
    residual_v.real = by_real[:, real] - by_imaginary[:, imaginary]
    residual_v.imag = by_real[:, imaginary] + by_imaginary[:, real]
    return loss, residual_v, sums_u[:, real] + 1j * sums_u[:, imaginary]


@compiled(REORDERED_SUMS)
def _real_rows(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[np.floating],
    u: NDArray[np.floating],
    v: NDArray[np.floating],
    residual_v: NDArray[np.floating],
    residual_u: NDArray[np.floating],
) -> float:
    loss, rank = 0.0, u.shape[1]
    for tile, i in np.ndindex(starts.shape[0], u.shape[0]):
        for k in range(starts[tile, i], starts[tile, i + 1]):
            j = columns[k]
            error = -values[k]
            for r in range(rank):
                error += u[i, r] * v[j, r]
            loss += np.float64(error) * np.float64(error)
            for r in range(rank):
                residual_v[i, r] += error * v[j, r]
            for r in range(rank):
                residual_u[j, r] += error * u[i, r]
    return loss


@compiled(REORDERED_SUMS)
def _complex_rows(
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[np.complexfloating],
    factors: tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.floating]],
    sums: tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.floating]],
) -> float:
    # Rows [Re u, Im u], [Im u, -Re u] and [Re v, Im v]; sums of Re(R) and of Im(R) times the last, and R^H U.
    own, turned, other_factors = factors
    by_real, by_imaginary, sums_u = sums
    loss, width = 0.0, own.shape[1]
    for tile, i in np.ndindex(starts.shape[0], own.shape[0]):
        for k in range(starts[tile, i], starts[tile, i + 1]):
            j = columns[k]
            real, imaginary = -values[k].real, -values[k].imag
            for r in range(width):
                real += own[i, r] * other_factors[j, r]
                imaginary += turned[i, r] * other_factors[j, r]
            loss += np.float64(real) * np.float64(real) + np.float64(imaginary) * np.float64(imaginary)
            for r in range(width):
                by_real[i, r] += real * other_factors[j, r]
                by_imaginary[i, r] += imaginary * other_factors[j, r]
            for r in range(width):
                sums_u[j, r] += real * own[i, r] + imaginary * turned[i, r]
    return loss
