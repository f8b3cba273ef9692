"""Random 10 x 10 problems with a planted matrix M*: their losses, gradients and starts.

The inner product is <A, B> = Re tr(A^H B), as in :mod:`usdenoise.completion.problem`. A loss L(M) has the gradient
G with respect to the matrix M.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import Evaluation, Factors
from usdenoise.completion.starts import gaussian
from usdenoise.linalg.orthonormal_bases import orthonormal

SIZE = 10
NEAR, SMALL = 0.1, 1e-12


class Loss(Protocol):
    """A loss of an (n, n) matrix M."""

    def evaluate(self, matrix: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Return L(M) and its gradient G."""
        ...

    def residuals(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Return numbers whose squares add up to L(M) less its smallest possible value."""
        ...


class SensingLoss:
    """Linear measurements: L(M) = 1/m sum_i (<A_i, M> - y_i)^2, with G = 2/m sum_i (<A_i, M> - y_i) A_i.

    With A_i = a_i a_i^H it is phase retrieval. Zhang, Chiu and Zhang (AISTATS 2024).

    Parameters
    ----------
    matrices : (m, n, n) array
        Measurement matrices A_i.
    measurements : (m,) real array
        Measurements y_i.
    """

    def __init__(self, matrices: NDArray[Any], measurements: NDArray[Any]) -> None:
        self.matrices = matrices
        self.measurements = measurements
        self._rows = matrices.reshape(len(matrices), -1)
        self._conjugates = self._rows.conj()

    def evaluate(self, matrix: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Return L(M) and its gradient G."""
        off = self._errors(matrix)
        by_matrix = (off @ self._rows).reshape(self.matrices.shape[1:])
        return float(off @ off) / len(off), (2 / len(off)) * by_matrix

    def residuals(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Return (<A_i, M> - y_i) / sqrt(m)."""
        off = self._errors(matrix)
        return off / math.sqrt(len(off))

    def spectral_estimate(self) -> NDArray[Any]:
        """Return 1/m sum_i y_i A_i, which estimates M* for Gaussian A_i of mean 0 and variance 1."""
        weighted = (self.measurements @ self._rows).reshape(self.matrices.shape[1:])
        return np.asarray(weighted / len(self.measurements))

    def _errors(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        off: NDArray[np.float64] = (self._conjugates @ matrix.reshape(-1)).real - self.measurements
        return off


class OneBitLoss:
    """One-bit sensing of every entry: the logistic likelihood of the fractions of ones.

    With alpha_ij the fraction of ones, L(M) = sum_ij log(1 + exp M_ij) - alpha_ij M_ij, with
    G_ij = 1 / (1 + exp(-M_ij)) - alpha_ij. At a perfect fit L(M) is the entropy of the fractions, and not 0. Zhang,
    Chiu and Zhang (AISTATS 2024).

    Parameters
    ----------
    log_odds : (n, n) real array
        Log-odds log(alpha / (1 - alpha)) of the fractions.
    """

    def __init__(self, log_odds: NDArray[Any]) -> None:
        self.log_odds = log_odds
        self._ones = _logistic(log_odds)

    def evaluate(self, matrix: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Return L(M) and its gradient G."""
        value = np.sum(np.logaddexp(0, matrix) - self._ones * matrix)
        return float(value), _logistic(matrix) - self._ones

    def residuals(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Return the square root of what each entry adds to the entropy, with the sign of its error."""
        off = matrix - self.log_odds
        # The difference of two likelihoods would lose its digits near the fit, and the exponential of a large positive
        # number would overflow: ones and zeros are swapped with the sign.
        share, size = np.where(off > 0, 1 - self._ones, self._ones), np.abs(off)
        excess = np.log1p(share * np.expm1(-size)) + share * size
        signed: NDArray[np.float64] = np.sign(off) * np.sqrt(np.maximum(excess, 0))
        return signed.reshape(-1)


def _logistic(entries: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.exp(-np.logaddexp(0, -entries)))


class PlantedProblem:
    """A loss of X X^H, and the error against the planted matrix.

    The gradient of a real X is the derivative (G + G^T) X. The gradient of a complex X is the Wirtinger derivative,
    half of it.

    Parameters
    ----------
    loss : Loss
        Loss of the matrix.
    truth : (n, n) array
        Planted matrix M*, which is never fitted. The error against it is reported as the held-out error.
    """

    def __init__(self, loss: Loss, truth: NDArray[Any]) -> None:
        self.loss = loss
        self.truth = truth
        self._per_entry = 1 / math.sqrt(truth.size)

    def evaluate(self, factors: Factors) -> Evaluation:
        """Return value and gradient at a factor X, and the root mean square error of X X^H."""
        (x,) = factors
        matrix = x @ x.conj().T
        value, gradient = self.loss.evaluate(matrix)
        both = gradient + gradient.conj().T
        off = matrix - self.truth
        error = math.sqrt(np.vdot(off, off).real) * self._per_entry
        return Evaluation(value, ((both / 2 if np.iscomplexobj(x) else both) @ x,), error)


@dataclass(frozen=True)
class Instance:
    """One random problem with its planted matrix.

    Attributes
    ----------
    loss : Loss
        Loss to minimise, with its measurements.
    factor : (n, rank) array
        Factor Q S^(1/2) of the planted matrix, with columns of zeros up to the search rank.
    start : callable
        Function that returns the first factor.
    small_start : (n, rank) array
        First factor of the methods that begin near 0, 1e-12 Gaussian.
    """

    loss: Loss
    factor: NDArray[Any]
    start: Callable[[], NDArray[Any]]
    small_start: NDArray[Any]

    @property
    def truth(self) -> NDArray[Any]:
        """The planted matrix M*."""
        planted: NDArray[Any] = self.factor @ self.factor.conj().T
        return planted


def draw_sensing(
    rng: np.random.Generator, *, scales: Sequence[float], rank: int, measurements: int, sigma: float
) -> Instance:
    """Draw a Gaussian sensing problem: y_i = <A_i, M*> + sigma Gaussian, with M* = Q S Q^T.

    The entries of the A_i are independent and standard Gaussian. The start has the leading eigenpairs of the mean of
    y_i A_i.

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
    loss = SensingLoss(matrices, _measured(rng, matrices, factor, sigma))
    planted, noise = _padded(rng, factor, rank)
    return Instance(loss, planted, lambda: leading_factor(loss.spectral_estimate(), rank), SMALL * noise)


def draw_one_bit(rng: np.random.Generator, *, scales: Sequence[float], rank: int, sigma: float) -> Instance:
    """Draw a one-bit sensing problem on all entries of M* = Q S Q^T.

    The fraction of ones in an entry is the logistic function of M* + sigma Gaussian there. The start is
    Q S^(1/2) + 0.1 Gaussian. The parameters are as for :func:`draw_sensing`.
    """
    factor = _planted_factor(rng, scales)
    truth = factor @ factor.T
    loss = OneBitLoss(truth + sigma * rng.standard_normal(truth.shape))
    planted, noise = _padded(rng, factor, rank)
    return Instance(loss, planted, lambda: planted + NEAR * noise, SMALL * noise)


def draw_phase(rng: np.random.Generator, *, rank: int, measurements: int, sigma: float) -> Instance:
    """Draw a phase retrieval problem: y_i = |<a_i, z>|^2 + sigma Gaussian, with M* = z z^H and a complex unit z.

    Real and imaginary parts of the a_i are standard Gaussian. The start is z + 0.1 Gaussian. The parameters are
    as for :func:`draw_sensing`.
    """
    factor = _planted_factor(rng, [1.0], np.complex128)
    vectors = _standard(rng, (measurements, SIZE), np.complex128)
    matrices = vectors[:, :, None] * vectors[:, None, :].conj()
    loss = SensingLoss(matrices, _measured(rng, matrices, factor, sigma))
    planted, noise = _padded(rng, factor, rank)
    return Instance(loss, planted, lambda: planted + NEAR * noise, SMALL * noise)


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
    rng: np.random.Generator, matrices: NDArray[Any], factor: NDArray[Any], sigma: float
) -> NDArray[np.float64]:
    """Return linear measurements of a planted matrix with noise."""
    noise = sigma * rng.standard_normal(len(matrices))
    truth = factor @ factor.conj().T
    exact: NDArray[np.float64] = (matrices.reshape(len(matrices), -1).conj() @ truth.reshape(-1)).real
    return exact + noise


def _padded(rng: np.random.Generator, factor: NDArray[Any], rank: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the planted factor with columns of zeros up to the search rank, and Gaussian noise of its shape."""
    noise = _standard(rng, (SIZE, rank), factor.dtype)
    planted = np.zeros_like(noise)
    planted[:, : factor.shape[1]] = factor
    return planted, noise
