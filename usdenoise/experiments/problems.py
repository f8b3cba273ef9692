"""Losses of a matrix, and the problems of its factors with each convention of the gradient.

The inner product is <A, B> = Re tr(A^H B), as in :mod:`usdenoise.completion.problem`. A loss L(M) has the gradient
G with respect to the matrix M.
"""

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import Evaluation, Factors
from usdenoise.experiments.conventions import Convention


class Loss(Protocol):
    """A loss of an (n, n) matrix that is 0 at a perfect fit."""

    def evaluate(self, matrix: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Return L(M) and its gradient G."""
        ...

    def residuals(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Return numbers whose squares add up to L(M)."""
        ...

    def measure(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Return the linear map A(M) of the measurements, scaled as the residuals are."""
        ...

    def spectral_estimate(self) -> NDArray[Any]:
        """Return an estimate of M* that is linear in the measurements."""
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
    mean : (n, n) array or float
        Expected value of the A_i, by default 0.
    """

    def __init__(
        self, matrices: NDArray[Any], measurements: NDArray[Any], mean: NDArray[Any] | float = 0.0
    ) -> None:
        self.matrices = matrices
        self.mean = mean
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
        """Return 1/m sum_i y_i (A_i - E A_i), which estimates M* for Gaussian matrices of unit variance.

        It does so for A_i = a_i a_i^H as well, with circular Gaussian vectors of unit variance: E A_i is I, the mean of
        y_i a_i a_i^H is M* + tr(M*) I, and that of y_i is tr(M*).
        """
        weighted = (self.measurements @ self._rows).reshape(self.matrices.shape[1:])
        return np.asarray(weighted / len(self.measurements) - np.mean(self.measurements) * self.mean)


class OneBitLoss:
    """One-bit sensing of every entry: the logistic likelihood of the fractions of ones.

    With alpha_ij the fraction of ones, the negative log-likelihood is sum_ij log(1 + exp M_ij) - alpha_ij M_ij for
    the real part M. The loss L(M) is this sum minus its smallest possible value, the entropy of the fractions, so
    that it is 0 at a perfect fit. The gradient is G_ij = 1 / (1 + exp(-M_ij)) - alpha_ij. Zhang, Chiu and Zhang
    (AISTATS 2024).

    Both are computed from the difference of M and the log-odds of the fractions: near the fit the two terms of
    the formula would cancel.

    Parameters
    ----------
    log_odds : (n, n) real array
        Log-odds log(alpha / (1 - alpha)) of the fractions.
    """

    def __init__(self, log_odds: NDArray[Any]) -> None:
        self.log_odds = log_odds
        self._log_ones = -np.logaddexp(0, -log_odds)
        self._log_zeros = -np.logaddexp(0, log_odds)
        self._ones = np.exp(self._log_ones)
        self._zeros = np.exp(self._log_zeros)

    def evaluate(self, matrix: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Return L(M) and its gradient G."""
        off, near, change, excess = self._parts(matrix)
        # Predicted minus observed fraction.
        gradient = np.where(
            near,
            self._ones * self._zeros * change / (1 + self._ones * change),
            np.exp(self._log_ones + off - (excess + self._ones * off)) - self._ones,
        )
        return float(np.sum(excess)), gradient

    def residuals(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Return the square root of each entry's part of L(M), with the sign of its error."""
        off, _, _, excess = self._parts(matrix)
        signed: NDArray[np.float64] = np.sign(off) * np.sqrt(np.maximum(excess, 0))
        return signed.reshape(-1)

    def measure(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """Return the entries of M."""
        entries: NDArray[np.float64] = matrix.real.reshape(-1)
        return entries

    def spectral_estimate(self) -> NDArray[Any]:
        """Return 4 (alpha - 1/2), the log-odds of the fractions to first order."""
        return np.asarray(4 * (self._ones - 0.5))

    def _parts(self, matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        off = matrix.real - self.log_odds
        near = np.abs(off) < 1
        change = np.expm1(np.where(near, off, 0.0))
        # log((1 - alpha) + alpha exp(off)), in the form that keeps its digits.
        growth = np.where(
            near, np.log1p(self._ones * change), np.logaddexp(self._log_zeros, self._log_ones + off)
        )
        return off, near, change, growth - self._ones * off


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
