"""Random 10 x 10 problems with a planted matrix M*, and the starts of the methods on them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import Factors, Problem
from usdenoise.completion.starts import gaussian
from usdenoise.experiments.problems import OneBitProblem, PhaseProblem, SensingProblem
from usdenoise.linalg.orthonormal_bases import orthonormal

SIZE = 10
NEAR, SMALL = 0.1, 1e-12


@dataclass(frozen=True)
class Instance:
    """One random problem with its planted matrix.

    Attributes
    ----------
    problem : Problem
        Problem to minimise, with its measurements.
    truth : (n, n) array
        The planted matrix M*.
    starts : mapping from name to callable
        Functions that return the first factors: "near" the truth, "small", and for sensing "spectral".
    """

    problem: Problem
    truth: NDArray[Any]
    starts: Mapping[str, Callable[[], Factors]]


def noise_floor(sigma: float, rank: int, measurements: int, truth_norm: float) -> float:
    """Return the relative Frobenius error that noise leaves, sigma sqrt(n r log n / m) / ||M*||.

    This is the minimax error of Zhang, Chiu and Zhang (AISTATS 2024) without its constant, at the search rank.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise in a measurement.
    rank : int
        Search rank r.
    measurements : int
        Number m of measurements.
    truth_norm : float
        Frobenius norm of M*.
    """
    return sigma * math.sqrt(SIZE * rank * math.log(SIZE) / measurements) / truth_norm


def draw_sensing(
    rng: np.random.Generator, *, scales: Sequence[float], rank: int, measurements: int, sigma: float
) -> Instance:
    """Draw a Gaussian sensing problem: y_i = <A_i, M*> + sigma Gaussian, with M* = Q S Q^T.

    The entries of the A_i are independent and standard Gaussian.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of matrices, noise and starts. The same state gives the same matrices and starts for every `sigma`.
    scales : sequence of float
        Diagonal of S, whose length is the rank of M*.
    rank : int
        Search rank, the number of columns of the starts.
    measurements : int
        Number m of measurements.
    sigma : float
        Standard deviation of the noise; 0 for none.
    """
    factor = _planted_factor(rng, scales)
    truth = factor @ factor.T
    matrices = gaussian(rng, (measurements, SIZE * SIZE), np.float64).reshape(-1, SIZE, SIZE)
    noise = sigma * rng.standard_normal(measurements)
    problem = SensingProblem(matrices, matrices.reshape(measurements, -1) @ truth.reshape(-1) + noise)
    starts = _starts(rng, factor, rank)
    return Instance(problem, truth, {**starts, "spectral": lambda: problem.spectral_start(rank)})


def draw_one_bit(rng: np.random.Generator, *, scales: Sequence[float], rank: int, sigma: float) -> Instance:
    """Draw a one-bit sensing problem on all entries of M* = Q S Q^T.

    The fraction of ones in an entry is the logistic function of M* + sigma Gaussian there. The parameters are
    those of :func:`draw_sensing`.
    """
    factor = _planted_factor(rng, scales)
    truth = factor @ factor.T
    noise = sigma * rng.standard_normal(truth.shape)
    return Instance(OneBitProblem(truth + noise), truth, _starts(rng, factor, rank))


def draw_phase(rng: np.random.Generator, *, rank: int, measurements: int, sigma: float) -> Instance:
    """Draw a phase retrieval problem: y_i = |<a_i, z>|^2 + sigma Gaussian, with M* = z z^H and a complex unit z.

    The entries of the a_i are circular Gaussian. The parameters are those of :func:`draw_sensing`.
    """
    factor = _planted_factor(rng, [1.0], np.complex128)
    vectors = gaussian(rng, (measurements, SIZE), np.complex128)
    noise = sigma * rng.standard_normal(measurements)
    seen = np.abs(vectors.conj() @ factor[:, 0]) ** 2
    return Instance(PhaseProblem(vectors, seen + noise), factor @ factor.conj().T, _starts(rng, factor, rank))


def _planted_factor(
    rng: np.random.Generator, scales: Sequence[float], dtype: Any = np.float64
) -> NDArray[Any]:
    """Return Q S^(1/2) for random orthonormal columns Q, an (n, r) factor of M* = Q S Q^H."""
    basis = orthonormal(gaussian(rng, (SIZE, len(scales)), dtype))
    factor: NDArray[Any] = basis * np.sqrt(np.asarray(scales))
    return factor


def _starts(rng: np.random.Generator, factor: NDArray[Any], rank: int) -> dict[str, Callable[[], Factors]]:
    """Return the starts near the truth (its factor plus 0.1 Gaussian) and near zero (1e-12 Gaussian)."""
    noise = gaussian(rng, (SIZE, rank), factor.dtype)
    near = np.zeros_like(noise)
    near[:, : factor.shape[1]] = factor
    return {"near": lambda: (near + NEAR * noise,), "small": lambda: (SMALL * noise,)}
