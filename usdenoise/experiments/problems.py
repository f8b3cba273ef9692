"""Random 10 x 10 problems with a planted matrix M*: their losses, starts, and conventions of the gradient.

The inner product is <A, B> = Re tr(A^H B), as in :mod:`usdenoise.completion.problem`. A loss L(M) has the gradient
G with respect to the matrix M.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import Evaluation, Factors
from usdenoise.completion.starts import gaussian
from usdenoise.experiments.conventions import Convention, Start
from usdenoise.linalg.orthonormal_bases import orthonormal

SIZE = 10
NEAR, SMALL = 0.1, 1e-12


class SensingLoss:
    """Linear measurements: L(M) = 1/m sum_i (<A_i, M> - y_i)^2, with G = 2/m sum_i (<A_i, M> - y_i) A_i.

    With A_i = a_i a_i^H it is phase retrieval. Zhang, Chiu and Zhang (AISTATS 2024).

    Parameters
    ----------
    matrices : (m, n, n) array
        Measurement matrices A_i.
    measurements : (m,) real array
        Measurements y_i.
    power : float
        Variance v of the entries of the a_i of A_i = a_i a_i^H, whose mean is v I; 0, the default, for A_i of mean 0
        and variance 1.
    """

    def __init__(self, matrices: NDArray[Any], measurements: NDArray[Any], power: float = 0.0) -> None:
        self.matrices = matrices
        self.power = power
        self.measurements = measurements
        self._rows = matrices.reshape(len(matrices), -1)
        self._conjugates = self._rows.conj()

    def evaluate(self, matrix: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Return L(M) and its gradient G."""
        off = (self._conjugates @ matrix.reshape(-1)).real - self.measurements
        by_matrix = (off @ self._rows).reshape(self.matrices.shape[1:])
        return float(off @ off) / len(off), (2 / len(off)) * by_matrix

    def residuals(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Return (<A_i, M> - y_i) / sqrt(m)."""
        off: NDArray[np.float64] = self.measure(matrix) - self.measurements / math.sqrt(
            len(self.measurements)
        )
        return off

    def measure(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Return <A_i, M> / sqrt(m)."""
        seen: NDArray[np.float64] = (self._conjugates @ matrix.reshape(-1)).real
        return seen / math.sqrt(len(seen))

    def spectral_estimate(self) -> NDArray[Any]:
        """Return 1/m sum_i y_i (A_i - E A_i) over the variance of the A_i, which estimates M* for Gaussian matrices.

        It does so for A_i = a_i a_i^H as well, with circular Gaussian vectors of variance v: the mean of
        y_i a_i a_i^H is v^2 (M* + tr(M*) I), and that of y_i is v tr(M*).
        """
        weighted = (self.measurements @ self._rows).reshape(self.matrices.shape[1:])
        mean = np.mean(self.measurements) * self.power * np.eye(len(weighted))
        return np.asarray(weighted / len(self.measurements) - mean) / (self.power**2 or 1.0)


class OneBitLoss:
    """One-bit sensing of every entry: the logistic likelihood of the fractions of ones.

    With alpha_ij the fraction of ones, L(M) = sum_ij log(1 + exp M_ij) - alpha_ij M_ij for the real part of M, with
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
        entries = matrix.real
        value = np.sum(np.logaddexp(0, entries) - self._ones * entries)
        return float(value), _logistic(entries) - self._ones

    def residuals(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Return the square root of what each entry adds to the entropy, with the sign of its error."""
        off = matrix.real - self.log_odds
        # The difference of two likelihoods would lose its digits near the fit, and the exponential of a large positive
        # number would overflow: ones and zeros change places with the sign.
        share, size = np.where(off > 0, 1 - self._ones, self._ones), np.abs(off)
        excess = np.log1p(share * np.expm1(-size)) + share * size
        signed: NDArray[np.float64] = np.sign(off) * np.sqrt(np.maximum(excess, 0))
        return signed.reshape(-1)

    def measure(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Return the entries of M."""
        entries: NDArray[np.float64] = matrix.real.reshape(-1)
        return entries

    def spectral_estimate(self) -> NDArray[Any]:
        """Return 4 (alpha - 1/2), the log-odds of the fractions to first order."""
        return np.asarray(4 * (self._ones - 0.5))


Loss = SensingLoss | OneBitLoss
"""A loss of an (n, n) matrix M.

The squares of its residuals add up to L(M) less its smallest possible value. `measure` is the linear map of the
measurements, scaled as the residuals are, and `spectral_estimate` is linear in the measurements.
"""


def _logistic(entries: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.exp(-np.logaddexp(0, -entries)))


class PlantedProblem:
    """A loss of the product of factors with a convention of the gradient, and the error against the planted matrix.

    Parameters
    ----------
    loss : Loss
        Loss of the matrix.
    truth : (n, n) array
        Planted matrix M*, which is never fitted. The error against it is reported as the held-out error.
    convention : Convention
        f(X): one factor X with the estimate M = X X^H and the gradient (G + G^H) X. Equation (U, V): two factors
        with M = U V^H and the gradients G V and G^H U. With symmetric A_i, the Hermitian parts of M and G take
        their places.
    """

    def __init__(self, loss: Loss, truth: NDArray[Any], convention: Convention = Convention.OF_X) -> None:
        self.loss = loss
        self.truth = truth
        self.convention = convention
        self._per_entry = 1 / math.sqrt(truth.size)

    def start(self, factor: NDArray[Any]) -> Factors:
        """Return the first factors: the given one, once or twice."""
        return (factor,) if self.convention is Convention.OF_X else (factor, factor)

    def evaluate(self, factors: Factors) -> Evaluation:
        """Return value and gradients at the factors, and the root mean square error of the estimate."""
        left, right = factors[0], factors[-1]
        matrix = left @ right.conj().T
        if self.convention is Convention.OF_BOTH_SYMMETRIC:
            matrix = _hermitian_part(matrix)
        value, gradient = self.loss.evaluate(matrix)
        off = matrix - self.truth
        error = math.sqrt(np.vdot(off, off).real) * self._per_entry
        gradients: Factors
        if self.convention is Convention.OF_X:
            gradients = ((gradient + gradient.conj().T) @ left,)
        else:
            if self.convention is Convention.OF_BOTH_SYMMETRIC:
                gradient = _hermitian_part(gradient)
            gradients = (gradient @ right, gradient.conj().T @ left)
        return Evaluation(value, gradients, error)


def _hermitian_part(matrix: NDArray[Any]) -> NDArray[Any]:
    part: NDArray[Any] = (matrix + matrix.conj().T) / 2
    return part


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
