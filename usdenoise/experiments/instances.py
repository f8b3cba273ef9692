"""Random 10 x 10 problems with a planted matrix M*, and the starts of the methods on them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.starts import gaussian
from usdenoise.experiments.conventions import Start
from usdenoise.experiments.problems import Loss, OneBitLoss, SensingLoss
from usdenoise.linalg.orthonormal_bases import orthonormal

SIZE = 10
NEAR, SMALL = 0.1, 1e-12


@dataclass(frozen=True)
class Instance:
    """One random problem with its planted matrix.

    Attributes
    ----------
    loss : Loss
        Loss to minimise, with its measurements.
    factor : (n, rank) array
        Factor Q S^(1/2) of the planted matrix, with columns of zeros up to the search rank.
    starts : mapping from Start to callable
        Functions that return the first factor.
    """

    loss: Loss
    factor: NDArray[Any]
    starts: Mapping[Start, Callable[[], NDArray[Any]]]

    @property
    def truth(self) -> NDArray[Any]:
        """The planted matrix M*."""
        planted: NDArray[Any] = self.factor @ self.factor.conj().T
        return planted


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
    matrices = gaussian(rng, (measurements, SIZE * SIZE), np.float64).reshape(-1, SIZE, SIZE)
    return _measured(rng, matrices, factor, rank, sigma)


def draw_one_bit(rng: np.random.Generator, *, scales: Sequence[float], rank: int, sigma: float) -> Instance:
    """Draw a one-bit sensing problem on all entries of M* = Q S Q^T.

    The fraction of ones in an entry is the logistic function of M* + sigma Gaussian there. The parameters are
    those of :func:`draw_sensing`.
    """
    factor = _planted_factor(rng, scales)
    truth = factor @ factor.T
    noise = sigma * rng.standard_normal(truth.shape)
    return _instance(rng, OneBitLoss(truth + noise), factor, rank)


def draw_phase(rng: np.random.Generator, *, rank: int, measurements: int, sigma: float) -> Instance:
    """Draw a phase retrieval problem: y_i = |<a_i, z>|^2 + sigma Gaussian, with M* = z z^H and a complex unit z.

    Real and imaginary parts of the a_i are standard Gaussian. The parameters are those of :func:`draw_sensing`.
    """
    factor = _planted_factor(rng, [1.0], np.complex128)
    vectors = _standard(rng, (measurements, SIZE), np.complex128)
    matrices = vectors[:, :, None] * vectors[:, None, :].conj()
    return _measured(rng, matrices, factor, rank, sigma, power=2.0)


def leading_factor(matrix: NDArray[Any], rank: int) -> NDArray[Any]:
    """Return X with X X^H the nearest positive semidefinite matrix of a rank to the Hermitian part of a matrix.

    X has columns of zeros where the Hermitian part has fewer positive eigenvalues than the rank.

    Parameters
    ----------
    matrix : (n, n) array
        Any square matrix.
    rank : int
        Number of columns of X.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.conj().T) / 2)
    factor: NDArray[Any] = vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0))
    return factor


def singular_factor(matrix: NDArray[Any], rank: int) -> NDArray[Any]:
    """Return U S^(1/2) of the leading singular triples of the Hermitian part of a matrix.

    Parameters
    ----------
    matrix : (n, n) array
        Any square matrix.
    rank : int
        Number of columns of the result.
    """
    vectors, values, _ = np.linalg.svd((matrix + matrix.conj().T) / 2)
    factor: NDArray[Any] = vectors[:, :rank] * np.sqrt(values[:rank])
    return factor


def _standard(rng: np.random.Generator, shape: tuple[int, int], dtype: Any) -> NDArray[Any]:
    """Return a standard Gaussian array; real and imaginary parts of a complex one are standard Gaussian."""
    parts = 2 if np.issubdtype(dtype, np.complexfloating) else 1
    return gaussian(rng, shape, dtype) * math.sqrt(parts)


def _planted_factor(
    rng: np.random.Generator, scales: Sequence[float], dtype: Any = np.float64
) -> NDArray[Any]:
    """Return Q S^(1/2) for random orthonormal columns Q, an (n, r) factor of M* = Q S Q^H."""
    basis = orthonormal(gaussian(rng, (SIZE, len(scales)), dtype))
    factor: NDArray[Any] = basis * np.sqrt(np.asarray(scales))
    return factor


def _measured(
    rng: np.random.Generator,
    matrices: NDArray[Any],
    factor: NDArray[Any],
    rank: int,
    sigma: float,
    power: float = 0.0,
) -> Instance:
    """Return the problem of linear measurements of a planted matrix with noise."""
    noise = sigma * rng.standard_normal(len(matrices))
    truth = factor @ factor.conj().T
    seen = (matrices.reshape(len(matrices), -1).conj() @ truth.reshape(-1)).real
    return _instance(rng, SensingLoss(matrices, seen + noise, power), factor, rank)


def _instance(rng: np.random.Generator, loss: Loss, factor: NDArray[Any], rank: int) -> Instance:
    noise = _standard(rng, (SIZE, rank), factor.dtype)
    padded = np.zeros_like(noise)
    padded[:, : factor.shape[1]] = factor
    return Instance(
        loss,
        padded,
        {
            Start.SPECTRAL: lambda: leading_factor(loss.spectral_estimate(), rank),
            Start.SVD: lambda: singular_factor(loss.spectral_estimate(), rank),
            Start.APPENDIX: lambda: padded + NEAR * noise,
            Start.SMALL: lambda: SMALL * noise,
        },
    )
