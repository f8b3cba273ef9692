"""Random 10 x 10 problems with a planted matrix, and where to start on them."""

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
    """One random problem.

    Attributes
    ----------
    problem : Problem
        What is minimised.
    truth : (n, n) array
        The planted matrix M*.
    starts : mapping from name to callable
        First factors.
    """

    problem: Problem
    truth: NDArray[Any]
    starts: Mapping[str, Callable[[], Factors]]


def noise_floor(sigma: float, rank: int, measurements: int, truth_norm: float) -> float:
    """Relative Frobenius error that noise leaves: sigma sqrt(n r log n / m), over that of M*.

    The minimax error of Zhang, Chiu and Zhang (AISTATS 2024), without its constant, with the search rank.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise in a measurement.
    rank : int
        Search rank r.
    measurements : int
        Their number m.
    truth_norm : float
        Frobenius norm of M*.
    """
    return sigma * math.sqrt(SIZE * rank * math.log(SIZE) / measurements) / truth_norm


def draw_sensing(
    rng: np.random.Generator, *, scales: Sequence[float], rank: int, measurements: int, sigma: float
) -> Instance:
    """Gaussian sensing of M* = Q S Q^T: y_i = <A_i, M*> + sigma Gaussian, A_i of independent Gaussian entries.

    Parameters
    ----------
    rng : numpy.random.Generator
        The same state gives the same matrices and starts for every `sigma`.
    scales : sequence of float
        Diagonal of S.
    rank : int
        Search rank.
    measurements : int
        Their number m.
    sigma : float
        Standard deviation of the noise.
    """
    factor = _planted_factor(rng, scales)
    truth = factor @ factor.T
    matrices = gaussian(rng, (measurements, SIZE * SIZE), np.float64).reshape(-1, SIZE, SIZE)
    noise = sigma * rng.standard_normal(measurements)
    problem = SensingProblem(matrices, matrices.reshape(measurements, -1) @ truth.reshape(-1) + noise)
    starts = _starts(rng, factor, rank)
    return Instance(problem, truth, {**starts, "spectral": lambda: problem.spectral_start(rank)})


def draw_one_bit(rng: np.random.Generator, *, scales: Sequence[float], rank: int, sigma: float) -> Instance:
    """One-bit sensing of all entries of M*, the fraction of ones being the logistic of M* + sigma Gaussian."""
    factor = _planted_factor(rng, scales)
    truth = factor @ factor.T
    noise = sigma * rng.standard_normal(truth.shape)
    return Instance(OneBitProblem(truth + noise), truth, _starts(rng, factor, rank))


def draw_phase(rng: np.random.Generator, *, rank: int, measurements: int, sigma: float) -> Instance:
    """Phase retrieval of a complex z of unit norm: y_i = |<a_i, z>|^2 + sigma Gaussian, M* = z z^H."""
    factor = _planted_factor(rng, [1.0], np.complex128)
    vectors = gaussian(rng, (measurements, SIZE), np.complex128)
    noise = sigma * rng.standard_normal(measurements)
    seen = np.abs(vectors.conj() @ factor[:, 0]) ** 2
    return Instance(PhaseProblem(vectors, seen + noise), factor @ factor.conj().T, _starts(rng, factor, rank))


def _planted_factor(
    rng: np.random.Generator, scales: Sequence[float], dtype: Any = np.float64
) -> NDArray[Any]:
    """Q S^(1/2) for random orthonormal columns Q: an (n, r) factor of M* = Q S Q^H."""
    basis = orthonormal(gaussian(rng, (SIZE, len(scales)), dtype))
    factor: NDArray[Any] = basis * np.sqrt(np.asarray(scales))
    return factor


def _starts(rng: np.random.Generator, factor: NDArray[Any], rank: int) -> dict[str, Callable[[], Factors]]:
    """The starts near the truth (its factor plus 0.1 Gaussian) and near zero (1e-12 Gaussian)."""
    noise = gaussian(rng, (SIZE, rank), factor.dtype)
    near = np.zeros_like(noise)
    near[:, : factor.shape[1]] = factor
    return {"near": lambda: (near + NEAR * noise,), "small": lambda: (SMALL * noise,)}
