"""The first factors: spectral, random, small random, or given ones (a warm start)."""

from functools import partial

import numpy as np
from numpy.typing import DTypeLike

from usdenoise.completion.problem import CompletionProblem, Factors
from usdenoise.errors import OptionError
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.tall_matrices import gram, normal_product, orthonormal, squared_norm

OVERSAMPLING = 10
"""Columns of the range finder beyond the rank (Halko, Martinsson and Tropp advise 5 to 10)."""

POWER_PASSES = 3
"""Power iterations of the range finder, each one pass over the sampled entries."""

SMALL_RMS = 1e-6
"""Rms of the product of small random factors, relative to the rms of the data."""


def spectral(problem: CompletionProblem, rank: int, rng: np.random.Generator) -> Factors:
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
    density = problem.density
    return tuple((factor / np.sqrt(density)).astype(problem.matrix.dtype) for factor in (u, v))


def largest_singular_value(problem: CompletionProblem, rng: np.random.Generator) -> float:
    """Return a lower bound of the largest singular value of P_O(M) / p, right to a few per cent."""
    v = spectral(problem, 1, rng)[1]
    return float(gram(v)[0, 0].real)


def random(problem: CompletionProblem, rank: int, rng: np.random.Generator, scale: float = 1.0) -> Factors:
    """Return Gaussian factors whose product has `scale` times the rms of the sampled entries."""
    energies = problem.executor.map(lambda rows: squared_norm(_masked(problem, rows)), problem.parts)
    rms = np.sqrt(sum(energies) / problem.sample.n_fitted)
    size = np.sqrt(scale * rms / np.sqrt(rank))
    m, n = problem.shape
    return tuple(
        (gaussian(rng, (length, rank), problem.matrix.dtype) * size).astype(problem.matrix.dtype)
        for length in (m, n)
    )


def small(problem: CompletionProblem, rank: int, rng: np.random.Generator) -> Factors:
    """Return Gaussian factors close to zero: their product has a millionth of the rms of the data."""
    return random(problem, rank, rng, SMALL_RMS)


def warm(problem: CompletionProblem, rank: int, rng: np.random.Generator, factors: Factors) -> Factors:
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
    more = small(problem, rank - start_rank, rng) if rank > start_rank else (u[:, :0], v[:, :0])
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
    values: Numbers = problem.matrix[rows] * problem.sample.mask(rows)
    return values
