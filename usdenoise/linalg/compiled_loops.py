"""Compiled loops: lags of columns, interpolation by 12 taps, products and turns of frames, and sparse evaluation.

For each sampled entry (i, j) with error e = (U V^H)_ij - M_ij the sweep adds |e|^2 to the loss, e v_j to row i of R V
and conj(e) u_i to row j of R^H U; ``tests/reference/loops.py`` has that loop as it is written here. Complex rows are split
into real and imaginary parts, since the compiler finds vector instructions for real sums alone
(``benchmarks/evaluation.py``).

Imported only where it is used: loading the compiler takes half a second.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pickle import UnpicklingError
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.array_library import Numbers

Taps = tuple[np.floating, ...]
"""The 12 factors of a kernel."""

Sides = tuple[int, int, int]
Place = tuple[NDArray[np.intp], NDArray[np.floating]]
Places = tuple[Place, Place, Place]
"""Pixels of a tile along z, x and y; the first of two tiles beside each pixel along an axis, and the second one's weight."""

# Sums may be reordered and fused; the order is fixed at compile time, so that results are reproducible.
REORDERED_SUMS = frozenset({"contract", "nsz", "reassoc"})


def compiled(fastmath: frozenset[str] = frozenset()) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator that compiles a loop when it is called first, and keeps the code for later processes.

    The code is not kept where no folder for it can be written, as in a container, or if the disk is full.

    Parameters
    ----------
    fastmath : frozenset of str
        Liberties that the compiler may take with sums; by default none.
    """
    # Divisions that are checked have no vector instructions
    how: dict[str, Any] = {"nogil": True, "fastmath": set(fastmath), "error_model": "numpy"}

    def compile_loop(loop: Callable[..., Any]) -> Any:
        try:
            compiled_loop = numba.njit(loop, cache=True, **how)
        except RuntimeError:
            compiled_loop = numba.njit(loop, **how)
        # The full disk of a home folder, and code that was written in part, would end the job. Numba guards against errors
        # of files only on Windows. With NUMBA_DISABLE_JIT nothing is compiled.
        errors = (OSError, EOFError, UnpicklingError)
        with suppress(AttributeError):
            compiled_loop._cache._guard_against_spurious_io_errors = partial(suppress, *errors)
        return compiled_loop

    return compile_loop


@compiled(REORDERED_SUMS)
def complex_lags(
    values: NDArray[np.complexfloating], parts: NDArray[np.int64], sums: NDArray[np.complex128]
) -> None:
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


@compiled(REORDERED_SUMS)
def real_lags(values: NDArray[np.floating], parts: NDArray[np.int64], sums: NDArray[np.float64]) -> None:
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


@compiled(REORDERED_SUMS)
def along_rows(
    images: NDArray[np.floating], taps: Taps, places: NDArray[np.intp], out: NDArray[np.floating]
) -> None:
    """Set out[k, i, c] = sum_t taps[t] images[k, places[i + t], c], for real (n, m, columns) arrays.

    Parameters
    ----------
    images, out : (n, m, columns) arrays
        The images, contiguous, and the results.
    taps : tuple of 12 floats
        The kernel.
    places : (m + 11,) array of int
        Rows of the image that the kernel meets.
    """
    # The compiler finds vector instructions for sums that are written out alone.
    t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11 = taps
    for k in range(images.shape[0]):
        for i in range(images.shape[1]):
            result, p = out[k, i], places[i:]
            a0, a1, a2, a3 = images[k, p[0]], images[k, p[1]], images[k, p[2]], images[k, p[3]]
            a4, a5, a6, a7 = images[k, p[4]], images[k, p[5]], images[k, p[6]], images[k, p[7]]
            a8, a9, a10, a11 = images[k, p[8]], images[k, p[9]], images[k, p[10]], images[k, p[11]]
            for c in range(len(result)):
                result[c] = (
                    (t0 * a0[c] + t1 * a1[c] + t2 * a2[c] + t3 * a3[c])
                    + (t4 * a4[c] + t5 * a5[c] + t6 * a6[c] + t7 * a7[c])
                    + (t8 * a8[c] + t9 * a9[c] + t10 * a10[c] + t11 * a11[c])
                )


@compiled(REORDERED_SUMS)
def along_columns(
    images: NDArray[np.floating], taps: Taps, places: NDArray[np.intp], out: NDArray[np.floating]
) -> None:
    """Do the same where columns are few: one, or two for complex numbers."""
    t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11 = taps
    n, m, step = images.shape
    line = np.empty(len(places) * step, images.dtype)
    flat = np.empty(len(places) * step, np.int64)
    for j in range(len(flat)):
        flat[j] = places[j // step] * step + j % step
    for k in range(n):
        values, result = images[k].reshape(m * step), out[k].reshape(m * step)
        for j in range(len(flat)):
            line[j] = values[flat[j]]
        a1, a2, a3, a4 = line[step:], line[2 * step :], line[3 * step :], line[4 * step :]
        a5, a6, a7, a8 = line[5 * step :], line[6 * step :], line[7 * step :], line[8 * step :]
        a9, a10, a11 = line[9 * step :], line[10 * step :], line[11 * step :]
        for c in range(m * step):
            result[c] = (
                (t0 * line[c] + t1 * a1[c] + t2 * a2[c] + t3 * a3[c])
                + (t4 * a4[c] + t5 * a5[c] + t6 * a6[c] + t7 * a7[c])
                + (t8 * a8[c] + t9 * a9[c] + t10 * a10[c] + t11 * a11[c])
            )


@compiled(REORDERED_SUMS)
def lagged_products_by_frame(
    images: NDArray[np.floating], lag: int, sides: Sides, sums: NDArray[np.floating]
) -> None:
    """Add x[t + lag] conj(x[t]) to sums[t] of the tile in which each pixel is. Complex numbers are pairs of real ones.

    Parameters
    ----------
    images : (n, n_z, n_x, 2 n_y) array
        The images x, contiguous.
    lag : int
        The lag.
    sides : tuple of 3 int
        Pixels of a tile along each axis.
    sums : (n - lag, tiles along z, tiles along x, 2 * tiles along y) array
        The sums.
    """
    _, n_z, n_x, n_y = images.shape
    real, imaginary = np.empty(n_y // 2, images.dtype), np.empty(n_y // 2, images.dtype)
    for t, i, j in np.ndindex(sums.shape[:3]):
        # Rows of a tile first, which has vector instructions
        real[:], imaginary[:] = 0, 0
        for z in range(i * sides[0], min((i + 1) * sides[0], n_z)):
            for x in range(j * sides[1], min((j + 1) * sides[1], n_x)):
                a, b = images[t + lag, z, x], images[t, z, x]
                for y in range(len(real)):
                    real[y] += a[2 * y] * b[2 * y] + a[2 * y + 1] * b[2 * y + 1]
                    imaginary[y] += a[2 * y + 1] * b[2 * y] - a[2 * y] * b[2 * y + 1]
        for y in range(len(real)):
            sums[t, i, j, 2 * (y // sides[2])] += real[y]
            sums[t, i, j, 2 * (y // sides[2]) + 1] += imaginary[y]


@compiled(REORDERED_SUMS)
def lagged_products_by_pixel(
    images: NDArray[np.floating], lag: int, sides: Sides, sums: NDArray[np.floating]
) -> None:
    """Do the same for images (n_z, n_x, n_y, 2 n) and sums (tiles along z, x and y, 2 n - 2 lag)."""
    for z, x, y in np.ndindex(images.shape[:3]):
        total = sums[z // sides[0], x // sides[1], y // sides[2]]
        a, b = images[z, x, y, 2 * lag :], images[z, x, y]
        for t in range(len(total) // 2):
            total[2 * t] += a[2 * t] * b[2 * t] + a[2 * t + 1] * b[2 * t + 1]
            total[2 * t + 1] += a[2 * t + 1] * b[2 * t] - a[2 * t] * b[2 * t + 1]


@compiled(REORDERED_SUMS)
def turned_frames(
    images: NDArray[np.floating],
    steps: NDArray[np.floating],
    places: Places,
    turn: NDArray[np.floating],
    sign: np.floating,
    numbers: NDArray[np.intp],
    first_row: int,
    out: NDArray[np.floating],
) -> None:
    """Multiply images by turns e, which are products of interpolated steps over their magnitudes.

    Complex numbers are pairs of real ones.

    Parameters
    ----------
    images : (n, n_z, n_x, 2 n_y) array
        The images, contiguous.
    steps : (n, tiles along z, tiles along x, 2 * tiles along y) array
        The step of each tile and image.
    places : Places
        Along z, x and y.
    turn : (2, rows, n_x, n_y) array
        Real and imaginary part of e before the first image, which become those in the last one.
    sign : 1 or -1
        -1 to multiply by conj(e).
    numbers : (m,) array of int
        Numbers of the images that are multiplied, increasing.
    first_row : int
        The first of the rows along z that are turned.
    out : (m, n_z, n_x, 2 n_y) array
        Gets the images; it may be `images` if all are multiplied.
    """
    n_tiles_z, n_tiles_x, n_tiles_y = steps.shape[1], steps.shape[2], steps.shape[3] // 2
    _, rows, n_x, n_y = turn.shape
    of_tiles = np.empty((2, n_tiles_y + 1), steps.dtype)
    real, imaginary, k = np.empty(n_y, steps.dtype), np.empty(n_y, steps.dtype), 0
    for t in range(len(steps)):
        is_wanted = k < len(numbers) and numbers[k] == t
        for row, x in np.ndindex(rows, n_x):
            z = first_row + row
            # The steps along z and x, then along y
            i, j, of_z, of_x = places[0][0][z], places[1][0][x], places[0][1][z], places[1][1][x]
            i_next, j_next = min(i + 1, n_tiles_z - 1), min(j + 1, n_tiles_x - 1)
            a, b, c, d = steps[t, i, j], steps[t, i, j_next], steps[t, i_next, j], steps[t, i_next, j_next]
            for part in range(2):
                for tile in range(n_tiles_y):
                    at = 2 * tile + part
                    near = a[at] + of_x * (b[at] - a[at])
                    of_tiles[part, tile] = near + of_z * (c[at] + of_x * (d[at] - c[at]) - near)
                of_tiles[part, n_tiles_y] = of_tiles[part, n_tiles_y - 1]
            for y in range(n_y):
                at, weight = places[2][0][y], places[2][1][y]
                real[y] = of_tiles[0, at] + weight * (of_tiles[0, at + 1] - of_tiles[0, at])
                imaginary[y] = of_tiles[1, at] + weight * (of_tiles[1, at + 1] - of_tiles[1, at])
            e, f = turn[0, row, x], turn[1, row, x]
            for y in range(n_y):
                scale = np.sqrt(real[y] * real[y] + imaginary[y] * imaginary[y])
                before, other = e[y], f[y]
                e[y] = (real[y] * before - imaginary[y] * other) / scale
                f[y] = (real[y] * other + imaginary[y] * before) / scale
            if is_wanted:
                image, turned = images[t, z, x], out[k, z, x]
                for y in range(n_y):
                    turned[2 * y], turned[2 * y + 1] = (
                        image[2 * y] * e[y] - image[2 * y + 1] * sign * f[y],
                        image[2 * y] * sign * f[y] + image[2 * y + 1] * e[y],
                    )
        k += is_wanted


@compiled(REORDERED_SUMS)
def turned_pixels(
    images: NDArray[np.floating],
    steps: NDArray[np.floating],
    places: Places,
    turn: NDArray[np.floating],
    sign: np.floating,
    numbers: NDArray[np.intp],
    first_row: int,
    out: NDArray[np.floating],
) -> None:
    """Do the same for images (n_z, n_x, n_y, 2 n), steps (tiles along z, x and y, 2 n), and out (n_z, n_x, n_y, 2 m)."""
    n_tiles_z, n_tiles_x, n_tiles_y, n = steps.shape
    _, rows, n_x, n_y = turn.shape
    of_tiles, both = np.empty((n_tiles_y, n), steps.dtype), np.empty(n, steps.dtype)
    for row, x in np.ndindex(rows, n_x):
        z = first_row + row
        i, j, of_z, of_x = places[0][0][z], places[1][0][x], places[0][1][z], places[1][1][x]
        i_next, j_next = min(i + 1, n_tiles_z - 1), min(j + 1, n_tiles_x - 1)
        for tile in range(n_tiles_y):
            a, b = steps[i, j, tile], steps[i, j_next, tile]
            c, d, between = steps[i_next, j, tile], steps[i_next, j_next, tile], of_tiles[tile]
            for t in range(n):
                near = a[t] + of_x * (b[t] - a[t])
                between[t] = near + of_z * (c[t] + of_x * (d[t] - c[t]) - near)
        for y in range(n_y):
            first, weight = places[2][0][y], places[2][1][y]
            a, b = of_tiles[first], of_tiles[min(first + 1, n_tiles_y - 1)]
            for t in range(n // 2):
                real = a[2 * t] + weight * (b[2 * t] - a[2 * t])
                imaginary = a[2 * t + 1] + weight * (b[2 * t + 1] - a[2 * t + 1])
                scale = np.sqrt(real * real + imaginary * imaginary)
                both[2 * t], both[2 * t + 1] = real / scale, imaginary / scale
            e, f = turn[0, row, x, y], turn[1, row, x, y]
            for t in range(n // 2):
                real, imaginary = both[2 * t], both[2 * t + 1]
                e, f = real * e - imaginary * f, real * f + imaginary * e
                both[2 * t], both[2 * t + 1] = e, sign * f
            turn[0, row, x, y], turn[1, row, x, y] = e, f
            image, turned = images[z, x, y], out[z, x, y]
            if len(numbers):
                for t in range(n // 2):
                    both[2 * t], both[2 * t + 1] = (
                        image[2 * t] * both[2 * t] - image[2 * t + 1] * both[2 * t + 1],
                        image[2 * t] * both[2 * t + 1] + image[2 * t + 1] * both[2 * t],
                    )
            for k in range(len(numbers)):
                turned[2 * k], turned[2 * k + 1] = both[2 * numbers[k]], both[2 * numbers[k] + 1]


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
