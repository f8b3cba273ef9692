"""Problems with one symmetric factor X and the estimate X X^H, with their values and gradients.

The inner product is <A, B> = Re tr(A^H B), as in :mod:`usdenoise.completion.problem`. With G the gradient
of the loss with respect to the matrix, the gradient with respect to the factor is (G + G^H) X.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import Evaluation, Factors, Problem


class SensingProblem:
    """Linear measurements: f(X) = 1/m sum_i (<A_i, X X^H> - y_i)^2.

    The gradient is 2/m sum_i (<A_i, X X^H> - y_i) (A_i + A_i^H) X. Zhang, Chiu and Zhang (AISTATS 2024).

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

    def evaluate(self, factors: Factors) -> Evaluation:
        """Return value and gradient at (X,)."""
        (x,) = factors
        residual = (self._conjugates @ (x @ x.conj().T).reshape(-1)).real - self.measurements
        by_matrix = (residual @ self._rows).reshape(self.matrices.shape[1:])
        gradient = (by_matrix + by_matrix.conj().T) @ x
        scale = 2 / len(self.measurements)
        return Evaluation(float(residual @ residual) / len(residual), (scale * gradient,))

    def spectral_start(self, rank: int) -> Factors:
        """Return (X,) with X X^H the nearest positive semidefinite matrix of a rank to 1/m sum_i y_i A_i.

        For Gaussian matrices of unit variance this mean estimates the matrix that was measured.

        Parameters
        ----------
        rank : int
            Number of columns of X.
        """
        mean = (self.measurements @ self._rows).reshape(self.matrices.shape[1:]) / len(self.measurements)
        values, vectors = np.linalg.eigh((mean + mean.conj().T) / 2)
        return (vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0)),)


class OneBitProblem:
    """One-bit sensing of every entry: the logistic likelihood of the fractions of ones.

    With alpha_ij the fraction of ones and M = Re(X X^H), the negative log-likelihood is
    sum_ij log(1 + exp M_ij) - alpha_ij M_ij. The value f(X) is this sum minus its smallest possible value, the
    entropy of the fractions, so that f is 0 at a perfect fit. The gradient is (R + R^T) X with
    R_ij = 1 / (1 + exp(-M_ij)) - alpha_ij. Zhang, Chiu and Zhang (AISTATS 2024).

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

    def evaluate(self, factors: Factors) -> Evaluation:
        """Return value and gradient at (X,)."""
        (x,) = factors
        off = (x @ x.conj().T).real - self.log_odds
        near = np.abs(off) < 1
        change = np.expm1(np.where(near, off, 0.0))
        # log((1 - alpha) + alpha exp(off)), in the form that keeps its digits.
        growth = np.where(
            near, np.log1p(self._ones * change), np.logaddexp(self._log_zeros, self._log_ones + off)
        )
        value = float(np.sum(growth - self._ones * off))
        # Predicted minus observed fraction.
        residual = np.where(
            near,
            self._ones * self._zeros * change / (1 + self._ones * change),
            np.exp(self._log_ones + off - growth) - self._ones,
        )
        return Evaluation(value, ((residual + residual.T) @ x,))


class PhaseProblem:
    """Phase retrieval: f(X) = 1/m sum_i (|X^H a_i|^2 - y_i)^2.

    The gradient is 4/m sum_i (|X^H a_i|^2 - y_i) a_i a_i^H X. Zhang, Chiu and Zhang (AISTATS 2024).

    Parameters
    ----------
    vectors : (m, n) array
        Measurement vectors a_i, one per row.
    measurements : (m,) real array
        Measurements y_i.
    """

    def __init__(self, vectors: NDArray[Any], measurements: NDArray[Any]) -> None:
        self.vectors = vectors
        self.measurements = measurements

    def evaluate(self, factors: Factors) -> Evaluation:
        """Return value and gradient at (X,)."""
        (x,) = factors
        seen = self.vectors.conj() @ x
        residual = np.sum(np.abs(seen) ** 2, axis=1) - self.measurements
        gradient = (4 / len(residual)) * self.vectors.T @ (residual[:, None] * seen)
        return Evaluation(float(residual @ residual) / len(residual), (gradient,))


class AgainstTruth:
    """A problem that reports the error of X X^H against the planted matrix as its held-out error.

    Parameters
    ----------
    problem : Problem
        Problem that gives value and gradient.
    truth : (n, n) array
        Planted matrix, which X X^H should approach. It is never fitted.
    """

    def __init__(self, problem: Problem, truth: NDArray[Any]) -> None:
        self.problem = problem
        self.truth = truth

    def evaluate(self, factors: Factors) -> Evaluation:
        """Return value and gradient at (X,), and the root mean square error of X X^H."""
        (x,) = factors
        error = float(np.linalg.norm(x @ x.conj().T - self.truth)) / np.sqrt(self.truth.size)
        return replace(self.problem.evaluate(factors), held_out_rmse=float(error))
