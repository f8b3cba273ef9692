"""The completion problem: the mean squared residual on sampled entries, its gradients, rows fitted to a factor, and starts.

Let R be the residual U V^H - M on the sampled entries of a part of the rows, and zero elsewhere. The dense and the sparse
evaluation of a part of the rows both return sum |R|^2, R V and U^H R, not divided by the number of entries.

The inner product of matrices is <A, B> = Re tr(A^H B), for complex and real factors alike. With it the
gradients of f(U, V) = 1/|O| sum_{(i,j) in O} |(U V^H)_ij - M_ij|^2 are (2/|O|) R V and (2/|O|) R^H U,
R being the sampled residual.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from usdenoise.errors import OptionError
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.tall_matrices import (
    COMPILED_ENTRIES,
    FEWEST_PARTS,
    gram,
    normal_product,
    orthonormal,
    part_slices,
    row_parts,
    slices_of,
    squared_norm,
)
from usdenoise.stack.sampling import EntrySample

SPARSE_BELOW_DENSITY = 0.12
"""Density up to which the sparse evaluation is used: above it the kept entries would take too much memory, and the
gain shrinks (benchmarks/evaluation.py)."""

TILE_COLUMNS = 512
"""Columns of a tile of entries: its rows of V, 80 kB at rank 20 in complex64, stay in the cache."""


class PartSums(NamedTuple):
    """The sums over a part of b rows, for factors of rank r.

    Attributes
    ----------
    loss : float
        Sum of |R|^2, added up in double precision.
    residual_v : (b, r) array
        R V.
    u_residual : (r, n) array
        U^H R.
    held_out : float
        Sum of |U V^H - M|^2 over the held-out entries.
    """

    loss: float
    residual_v: Numbers
    u_residual: Numbers
    held_out: float


class Entries(NamedTuple):
    """The sampled entries of a part of b rows, gathered once.

    Read where they are in the matrix, they would cost as much as the whole part. They are ordered by tiles of
    TILE_COLUMNS columns, whose rows of V the caches hold, and by rows within a tile.

    Attributes
    ----------
    starts : (n_tiles, b + 1) array
        Index of the first entry of each row in each tile.
    columns : array
        Column of each entry.
    values : array
        Value of each entry.
    held_out : (3,) tuple of arrays
        Row, column and value of each held-out entry.
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: Numbers
    held_out: tuple[NDArray[np.int32], NDArray[np.int32], Numbers]


def gather(
    values: Numbers, mask: NDArray[np.bool_], held_out: tuple[NDArray[np.int32], NDArray[np.int32]]
) -> Entries:
    """Gather the sampled and the held-out entries of a part of the rows.

    Parameters
    ----------
    values, mask, held_out
        As for :func:`dense_sums`.
    """
    starts, columns, picked, total = [], [], [], 0
    for first in range(0, mask.shape[1], TILE_COLUMNS):
        tile = slice(first, first + TILE_COLUMNS)
        sampled = mask[:, tile]
        row_starts = np.concatenate([[0], np.count_nonzero(sampled, axis=1).cumsum()]) + total
        total = int(row_starts[-1])
        starts.append(row_starts)
        columns.append((np.nonzero(sampled)[1] + first).astype(np.int32))
        picked.append(values[:, tile][sampled])
    return Entries(
        np.array(starts, np.int64),
        np.concatenate(columns),
        np.concatenate(picked),
        (*held_out, values[held_out]),
    )


@np.errstate(over="ignore", invalid="ignore")
def dense_sums(
    u: Numbers,
    v: Numbers,
    v_h: Numbers,
    values: Numbers,
    mask: NDArray[np.bool_],
    held_out: tuple[NDArray[np.int32], NDArray[np.int32]],
) -> PartSums:
    """Return the sums of a part of the rows by three matrix products, with the mask applied between them.

    Parameters
    ----------
    u : (b, r) array
        Rows of U.
    v, v_h : (n, r) and (r, n) arrays
        V and its conjugate transpose, both C-contiguous.
    values : (b, n) array
        Rows of M, finite everywhere.
    mask : (b, n) array of booleans
        The sampled entries.
    held_out : pair of index arrays
        Rows and columns of the held-out entries of the part.
    """
    residual = u @ v_h
    residual -= values
    missed = residual[held_out]
    residual *= mask
    return PartSums(
        squared_norm(residual), residual @ v, u.conj().T @ residual, squared_norm(missed.reshape(1, -1))
    )


@np.errstate(over="ignore", invalid="ignore")
def sparse_sums(u: Numbers, v: Numbers, entries: Entries) -> PartSums:
    """Return the sums of a part of the rows over its sampled entries, by a compiled sweep.

    Parameters
    ----------
    u, v
        As for :func:`dense_sums`.
    entries : Entries
        The sampled entries of the part.
    """
    from usdenoise.linalg.compiled_loops import sweep

    rows, columns, values = entries.held_out
    missed = np.vecdot(v.take(columns, axis=0), u.take(rows, axis=0)) - values
    loss, residual_v, residual_u = sweep(*entries[:3], u, v)
    return PartSums(loss, residual_v, residual_u.conj().T, squared_norm(missed.reshape(1, -1)))


Factors = tuple[Numbers, ...]


@dataclass(frozen=True)
class Evaluation:
    """Value and gradients of an objective at some factors.

    Attributes
    ----------
    value : float
        Value of the objective.
    gradients : tuple of arrays
        Gradient by each factor, of the shape of the factor.
    held_out_rmse : float or None
        Root mean square error on the held-out entries, in the units of the data; None without such entries.
    """

    value: float
    gradients: Factors
    held_out_rmse: float | None = None


class Problem(Protocol):
    """Anything with a value and gradients for a tuple of factors: a pair (U, V), or one X."""

    def evaluate(self, factors: Factors) -> Evaluation:
        """Return value and gradients at `factors`."""
        ...


class CompletionProblem:
    """The objective of matrix completion and its gradients, by a map over parts of the rows and a sum.

    Parameters
    ----------
    matrix : (m, n) array, or anything that gives its rows for a slice
        The matrix M; entries outside the sample are read but never used, and must be finite.
    sample : EntrySample
        The fitted and the held-out entries.
    executor : Executor
        Maps over parts of the rows.
    kernel : {"auto", "dense", "sparse"}
        Dense evaluation by parts of the rows, or sparse evaluation by entries; "auto" takes the faster one for the density
        and the rank.
    """

    def __init__(
        self, matrix: Numbers, sample: EntrySample, executor: Executor, kernel: str = "auto"
    ) -> None:
        self.matrix = matrix
        self.sample = sample
        self.executor = executor
        self.kernel = kernel
        self.parts = row_parts(matrix.shape)
        self._entries: dict[int, Entries] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (m, n) of the matrix."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def is_sparse(self, rank: int) -> bool:
        """Return whether factors of this rank are evaluated entry by entry.

        The dense evaluation costs the same at any density. The sparse one costs two to four times the dense cost of an
        entry, for each sampled entry, and stores the position and the value of each.
        """
        if self.kernel == "auto":
            sample = self.sample
            return sample.density <= SPARSE_BELOW_DENSITY and sample.n_fitted * rank >= COMPILED_ENTRIES
        return self.kernel == "sparse"

    def evaluate(self, factors: Factors) -> Evaluation:
        """Return objective, gradients and held-out error at (U, V), in one pass over the sampled residual."""
        u, v = factors
        gradient_u = np.empty_like(u)
        u_residual = np.zeros(v.shape[::-1], np.result_type(v.dtype, np.float64))
        loss = held_out = 0.0
        scale = 2 / self.sample.n_fitted
        for rows, sums in self._map(u, v):
            loss += sums.loss
            held_out += sums.held_out
            gradient_u[rows] = sums.residual_v
            u_residual += sums.u_residual
            # Before the next ones are waited for.
            del sums
        gradient_u *= np.asarray(scale, gradient_u.real.dtype)
        gradient_v = np.empty(v.shape, v.dtype)
        # In long stacks each copy of these sums takes tens of megabytes.
        for part in part_slices(*v.shape):
            gradient_v[part] = scale * u_residual[:, part].conj().T
        n_held_out = self.sample.n_held_out
        return Evaluation(
            loss / self.sample.n_fitted,
            (gradient_u, gradient_v),
            float(np.sqrt(held_out / n_held_out)) if n_held_out else None,
        )

    def _map(self, u: Numbers, v: Numbers) -> Iterator[tuple[slice, PartSums]]:
        if self.is_sparse(v.shape[1]):
            # Each part costs a sum of the size of V, and its entries need not fit a cache.
            n_rows = len(u)
            larger = list(slices_of(n_rows, max(1, -(-n_rows // FEWEST_PARTS))))

            def by_entries(rows: slice) -> tuple[slice, PartSums]:
                # The sparse evaluation is used where entries are few, so they are kept between passes.
                if rows.start not in self._entries:
                    held_out = self.sample.held_out(rows)
                    self._entries[rows.start] = gather(self.matrix[rows], self.sample.mask(rows), held_out)
                return rows, sparse_sums(u[rows], v, self._entries[rows.start])

            return self.executor.map(by_entries, larger)
        v_h = np.ascontiguousarray(v.conj().T)

        def by_rows(rows: slice) -> tuple[slice, PartSums]:
            held_out = self.sample.held_out(rows)
            return rows, dense_sums(u[rows], v, v_h, self.matrix[rows], self.sample.mask(rows), held_out)

        return self.executor.map(by_rows, self.parts)


MAX_STEPS = 200
"""Largest number of conjugate gradient steps of a part of the rows; usually they end after ten to twenty. Parts of
missing entries and tissue 60 dB over blood take up to a hundred: ended at 40 steps, the power Doppler's correlation with
the true blood power fell by up to 0.03 (python -m benchmarks.ablation)."""

TOLERANCE = 1e-4
"""The steps end when the error left is this share of the posterior's variance, averaged over the rows of a part. With 1e-2,
and without a refit, the correlation fell by up to 0.19 on phantoms of 64 x 64 x 200."""


def fit_rows(
    problem: CompletionProblem, right: Numbers, ridge: NDArray[np.float64], noise_variance: float
) -> tuple[Numbers, float]:
    """Return the posterior means X of the rows' coefficients for a known right factor V.

    X minimises

        sum over the sample |M - X V^H|^2 + sum_k ridge_k |x_k|^2

    by conjugate gradients on all rows of a part of the rows at once, each row with its own step length.

    Parameters
    ----------
    problem : CompletionProblem
        Gives the matrix, the sample and the executor.
    right : (n, r) array
        Orthonormal columns V.
    ridge : (r,) float64 array
        Noise variance over the prior variance of each component of x.
    noise_variance : float
        Variance of the noise in an entry.

    Returns
    -------
    rows : (m, r) array
        X.
    passes : float
        Evaluations of the sampled model, averaged over the rows.
    """
    right_h = np.ascontiguousarray(right.conj().T)
    real = right.real.dtype
    weights, inverse = ridge.astype(real), (1 / (problem.sample.density + ridge)).astype(real)
    enough = TOLERANCE * len(ridge) * noise_variance

    def solve_part(rows: slice) -> tuple[Numbers, int]:
        mask = problem.sample.mask(rows)
        work = problem.matrix[rows] * mask
        residual = work @ right
        solution = np.zeros_like(residual)
        preconditioned = residual * inverse
        direction = preconditioned
        energy = _row_products(residual, preconditioned)
        # A row that is solved to rounding keeps its solution: its next direction would be a ratio of rounding errors.
        floor = np.finfo(real).eps ** 2 * energy + np.finfo(real).tiny
        steps = 0
        while steps < MAX_STEPS and np.mean(energy) > enough:
            steps += 1
            np.matmul(direction, right_h, out=work)
            work *= mask
            curved = work @ right + direction * weights
            length = _ratio(energy, _row_products(direction, curved), energy > floor).astype(real)
            solution += length * direction
            residual = residual - length * curved
            preconditioned = residual * inverse
            before, energy = energy, _row_products(residual, preconditioned)
            direction = preconditioned + _ratio(energy, before, energy > floor).astype(real) * direction
        return solution, steps

    parts, steps = zip(*problem.executor.map(solve_part, problem.parts), strict=True)
    sizes = [rows.stop - rows.start for rows in problem.parts]
    return np.concatenate(parts), float(np.average(steps, weights=sizes))


def _ratio(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64], is_used: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return a column of ratios, 0 if a ratio is not requested or not defined."""
    is_used = is_used & (denominator > 0)
    ratio = np.zeros_like(numerator)
    np.divide(numerator, denominator, out=ratio, where=is_used)
    return ratio[:, None]


def _row_products(a: Numbers, b: Numbers) -> NDArray[np.float64]:
    return np.asarray(np.vecdot(a, b).real.astype(np.float64))


OVERSAMPLING = 10
"""Columns of the range finder beyond the rank (Halko, Martinsson and Tropp advise 5 to 10)."""

POWER_PASSES = 3
"""Power iterations of the range finder, each one pass over the sampled entries."""

SMALL_RMS = 1e-6
"""Rms of the product of small random factors, relative to the rms of the data."""


def spectral_start(problem: CompletionProblem, rank: int, rng: np.random.Generator) -> Factors:
    """Return balanced factors of the best rank-r approximation of P_O(M) / p.

    A randomized range finder with orthonormalised power iterations (Halko, Martinsson and Tropp, SIAM Review 53(2),
    2011) finds the column space of the transpose, so that nothing larger than a part of the rows is factorised.

    Parameters
    ----------
    problem : CompletionProblem
        Gives the matrix, the sample and the executor.
    rank : int
        Number of columns of each factor.
    rng : numpy.random.Generator
        Draws the test vectors.

    Returns
    -------
    U : (m, r) array
    V : (n, r) array
        U V^H approximates P_O(M) / p, with U^H U = V^H V diagonal.
    """
    m, n = problem.shape
    width = min(rank + OVERSAMPLING, n, m)
    basis = orthonormal(gaussian(rng, (n, width), problem.matrix.dtype))
    for _ in range(POWER_PASSES):
        product = normal_product(partial(_masked, problem), problem.parts, basis, problem.executor)
        basis = orthonormal(product.astype(problem.matrix.dtype))
    products = problem.executor.map(lambda rows: _masked(problem, rows) @ basis, problem.parts)
    images = np.concatenate(list(products))
    # B = A Q is tall: its small Gram matrix gives its right singular vectors and its singular values.
    squares, rotation = np.linalg.eigh(gram(images))
    squares, rotation = squares[::-1][:rank], rotation[:, ::-1][:, :rank]
    singular = np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
    u = images.astype(rotation.dtype) @ (rotation / np.sqrt(singular))
    v = basis.astype(rotation.dtype) @ (rotation * np.sqrt(singular))
    scale = np.sqrt(problem.sample.density)
    return tuple((factor / scale).astype(problem.matrix.dtype) for factor in (u, v))


def largest_singular_value(problem: CompletionProblem, rng: np.random.Generator) -> float:
    """Return a lower bound of the largest singular value of P_O(M) / p, right to a few per cent."""
    v = spectral_start(problem, 1, rng)[1]
    return float(gram(v)[0, 0].real)


def random_start(
    problem: CompletionProblem, rank: int, rng: np.random.Generator, scale: float = 1.0
) -> Factors:
    """Return Gaussian factors whose product has `scale` times the rms of the sampled entries."""
    energies = problem.executor.map(lambda rows: squared_norm(_masked(problem, rows)), problem.parts)
    rms = np.sqrt(sum(energies) / problem.sample.n_fitted)
    size = np.sqrt(scale * rms / np.sqrt(rank))
    m, n = problem.shape
    return tuple(
        (gaussian(rng, (length, rank), problem.matrix.dtype) * size).astype(problem.matrix.dtype)
        for length in (m, n)
    )


def small_start(problem: CompletionProblem, rank: int, rng: np.random.Generator) -> Factors:
    """Return Gaussian factors close to zero: their product has a millionth of the rms of the data."""
    return random_start(problem, rank, rng, SMALL_RMS)


def start_from(problem: CompletionProblem, rank: int, rng: np.random.Generator, factors: Factors) -> Factors:
    """Return given factors, with small random columns added up to the rank.

    Parameters
    ----------
    problem : CompletionProblem
        Gives the matrix and the sample.
    rank : int
        Number of columns of the result.
    rng : numpy.random.Generator
        Draws the columns that are added.
    factors : pair of arrays, (m, r) and (n, r)
        Factors of an earlier estimate, r at most the rank.

    Raises
    ------
    OptionError
        If the factors do not have the lengths of the matrix, or more columns than the rank.
    """
    u, v = factors
    m, n = problem.shape
    start_rank = u.shape[1]
    if u.shape != (m, start_rank) or v.shape != (n, start_rank) or start_rank > rank:
        raise OptionError(
            f"factors of {u.shape} and {v.shape} cannot start a matrix of {m} pixels x {n} frames at rank {rank}; "
            "give an (n_pixels, r) and an (n_frames, r) array with r at most the rank"
        )
    more = small_start(problem, rank - start_rank, rng) if rank > start_rank else (u[:, :0], v[:, :0])
    return tuple(
        np.hstack([old, new]).astype(problem.matrix.dtype) for old, new in zip(factors, more, strict=True)
    )


def gaussian(rng: np.random.Generator, shape: tuple[int, int], dtype: DTypeLike) -> Numbers:
    """Return a standard Gaussian array; a complex one is circular and has a total variance of 1."""
    if np.issubdtype(dtype, np.complexfloating):
        pairs = rng.standard_normal((*shape, 2)) / np.sqrt(2)
        values: Numbers = pairs.view(np.complex128)[..., 0]
    else:
        values = rng.standard_normal(shape)
    return values.astype(dtype)


def _masked(problem: CompletionProblem, rows: slice) -> Numbers:
    return np.asarray(problem.matrix[rows] * problem.sample.mask(rows))
