"""First factors: spectral, random, small random, or given ones filled up to the rank (warm)."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import CompletionProblem, Factors
from usdenoise.errors import OptionError
from usdenoise.linalg.gram_matrices import gram, normal_product
from usdenoise.linalg.orthonormal_bases import orthonormal
from usdenoise.linalg.row_blocks import squared_norm

OVERSAMPLING = 10
POWER_PASSES = 3
SMALL = 1e-6


def spectral(problem: CompletionProblem, rank: int, rng: np.random.Generator) -> Factors:
    """Balanced factors of the best rank-r approximation of P_O(M) / p.

    By a randomized range finder with power passes, each orthonormalised (Halko, Martinsson and Tropp, SIAM
    Review 2011), on the side of the columns, so that nothing larger than a block is ever factorised.

    Parameters
    ----------
    problem : CompletionProblem
        Gives the matrix, the sample and the executor.
    rank : int
        Number of columns of each factor.
    rng : numpy.random.Generator
        For the test vectors.

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
        basis = orthonormal(_normal_product(problem, basis))
    images = _product(problem, basis)
    # B = A Q is tall: its right singular vectors and values come from its small Gram matrix.
    squares, turn = np.linalg.eigh(gram(images))
    squares, turn = squares[::-1][:rank], turn[:, ::-1][:, :rank]
    singular = np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
    u = images.astype(turn.dtype) @ (turn / np.sqrt(singular))
    v = basis.astype(turn.dtype) @ (turn * np.sqrt(singular))
    density = problem.density
    return tuple((factor / np.sqrt(density)).astype(problem.matrix.dtype) for factor in (u, v))


def largest_singular_value(problem: CompletionProblem, rng: np.random.Generator) -> float:
    """Largest singular value of P_O(M) / p, from below and to a few per cent."""
    v = spectral(problem, 1, rng)[1]
    return float(gram(v)[0, 0].real)


def random(problem: CompletionProblem, rank: int, rng: np.random.Generator, scale: float = 1.0) -> Factors:
    """Gaussian factors whose product has `scale` times the rms of the sampled entries."""
    rms = np.sqrt(sum(_map_loss(problem)) / problem.sample.n_fitted)
    size = np.sqrt(scale * rms / np.sqrt(rank))
    m, n = problem.shape
    return tuple(
        (gaussian(rng, (length, rank), problem.matrix.dtype) * size).astype(problem.matrix.dtype)
        for length in (m, n)
    )


def small(problem: CompletionProblem, rank: int, rng: np.random.Generator) -> Factors:
    """Gaussian factors close to zero: their product has a millionth of the rms of the data."""
    return random(problem, rank, rng, SMALL)


def warm(problem: CompletionProblem, rank: int, rng: np.random.Generator, factors: Factors) -> Factors:
    """Given factors, with small random columns added up to the rank.

    Raises
    ------
    OptionError
        If the factors do not have the lengths of the matrix, or more columns than the rank.
    """
    u, v = factors
    m, n = problem.shape
    given = u.shape[1]
    if u.shape != (m, given) or v.shape != (n, given) or given > rank:
        raise OptionError(
            f"factors of {u.shape} and {v.shape} cannot start a matrix of {m} pixels x {n} frames at rank {rank}; "
            "give an (n_pixels, r) and an (n_frames, r) array with r at most the rank"
        )
    more = small(problem, rank - given, rng) if rank > given else (u[:, :0], v[:, :0])
    return tuple(
        np.hstack([old, new]).astype(problem.matrix.dtype) for old, new in zip(factors, more, strict=True)
    )


def gaussian(rng: np.random.Generator, shape: tuple[int, int], dtype: Any) -> NDArray[Any]:
    """Standard Gaussian array, circular and of unit total variance where `dtype` is complex."""
    if np.issubdtype(dtype, np.complexfloating):
        pairs = rng.standard_normal((*shape, 2)) / np.sqrt(2)
        values: NDArray[Any] = pairs.view(np.complex128)[..., 0]
    else:
        values = rng.standard_normal(shape)
    return values.astype(dtype)


def _masked(problem: CompletionProblem, rows: slice) -> NDArray[Any]:
    block: NDArray[Any] = problem.matrix[rows] * problem.sample.mask(rows)
    return block


def _map_loss(problem: CompletionProblem) -> list[float]:
    return list(problem.executor.map(lambda rows: squared_norm(_masked(problem, rows)), problem.blocks))


def _product(problem: CompletionProblem, basis: NDArray[Any]) -> NDArray[Any]:
    """P_O(M) Q, (m, width)."""
    parts = problem.executor.map(lambda rows: _masked(problem, rows) @ basis, problem.blocks)
    return np.concatenate(list(parts))


def _normal_product(problem: CompletionProblem, basis: NDArray[Any]) -> NDArray[Any]:
    """Return P_O(M)^H P_O(M) Q, (n, width), in the precision of the matrix."""
    product = normal_product(partial(_masked, problem), problem.blocks, basis, problem.executor)
    return product.astype(problem.matrix.dtype)
