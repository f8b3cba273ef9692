"""Random 10 x 10 problems with a planted matrix M*, runs of a method on them, and the error that noise leaves.

The inner product is <A, B> = Re tr(A^H B), as in :mod:`usdenoise.completion.problem`. A loss L(M) has the gradient
G with respect to the matrix M.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from usdenoise.completion.descent_methods import METHODS, StoppingRule, StopReason
from usdenoise.completion.problem import Evaluation, Factors, gaussian
from usdenoise.completion.solve import solve
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.tall_matrices import orthonormal

SIZE = 10
START_DISTANCE, SMALL = 0.1, 1e-12


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

    def __init__(self, matrices: Numbers, measurements: NDArray[np.float64]) -> None:
        self.matrices = matrices
        self.measurements = measurements
        self._rows = matrices.reshape(len(matrices), -1)
        self._conjugates = self._rows.conj()

    def evaluate(self, matrix: Numbers) -> tuple[float, Numbers]:
        """Return L(M) and its gradient G."""
        off = self._errors(matrix)
        by_matrix = (off @ self._rows).reshape(self.matrices.shape[1:])
        return float(off @ off) / len(off), (2 / len(off)) * by_matrix

    def residuals(self, matrix: Numbers) -> NDArray[np.float64]:
        """Return (<A_i, M> - y_i) / sqrt(m), whose squares add up to L(M), for least squares."""
        off = self._errors(matrix)
        return off / math.sqrt(len(off))

    def spectral_estimate(self) -> Numbers:
        """Return 1/m sum_i y_i A_i, which estimates M* for Gaussian A_i of mean 0 and variance 1."""
        weighted = (self.measurements @ self._rows).reshape(self.matrices.shape[1:])
        return np.asarray(weighted / len(self.measurements))

    def _errors(self, matrix: Numbers) -> NDArray[np.float64]:
        products: NDArray[np.complexfloating] = self._conjugates @ matrix.reshape(-1)
        return np.asarray(products.real - self.measurements)


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

    def __init__(self, log_odds: Numbers) -> None:
        self.log_odds = log_odds
        self._ones = _logistic(log_odds)

    def evaluate(self, matrix: Numbers) -> tuple[float, Numbers]:
        """Return L(M) and its gradient G."""
        value = np.sum(np.logaddexp(0, matrix) - self._ones * matrix)
        return float(value), _logistic(matrix) - self._ones

    def residuals(self, matrix: Numbers) -> NDArray[np.float64]:
        """Return the square root of what each entry adds to the entropy, with the sign of its error."""
        off = matrix - self.log_odds
        # The difference of two likelihoods would lose its digits near the fit, and the exponential of a large positive
        # number would overflow: ones and zeros are swapped with the sign.
        share, size = np.where(off > 0, 1 - self._ones, self._ones), np.abs(off)
        excess = np.log1p(share * np.expm1(-size)) + share * size
        signed: NDArray[np.float64] = np.sign(off) * np.sqrt(np.maximum(excess, 0))
        return signed.reshape(-1)


def _logistic(entries: Numbers) -> Numbers:
    return np.asarray(np.exp(-np.logaddexp(0, -entries)))


Loss = SensingLoss | OneBitLoss


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

    def __init__(self, loss: Loss, truth: Numbers) -> None:
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
    factor: Numbers
    start: Callable[[], Numbers]
    small_start: Numbers

    @property
    def truth(self) -> Numbers:
        """The planted matrix M*."""
        return self.factor @ self.factor.conj().T


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
    loss = SensingLoss(matrices, _noisy_measurements(rng, matrices, factor, sigma))
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
    return Instance(loss, planted, lambda: planted + START_DISTANCE * noise, SMALL * noise)


def draw_phase(rng: np.random.Generator, *, rank: int, measurements: int, sigma: float) -> Instance:
    """Draw a phase retrieval problem: y_i = |<a_i, z>|^2 + sigma Gaussian, with M* = z z^H and a complex unit z.

    Real and imaginary parts of the a_i are standard Gaussian. The start is z + 0.1 Gaussian. The parameters are
    as for :func:`draw_sensing`.
    """
    factor = _planted_factor(rng, [1.0], np.complex128)
    vectors = _standard(rng, (measurements, SIZE), np.complex128)
    matrices = vectors[:, :, None] * vectors[:, None, :].conj()
    loss = SensingLoss(matrices, _noisy_measurements(rng, matrices, factor, sigma))
    planted, noise = _padded(rng, factor, rank)
    return Instance(loss, planted, lambda: planted + START_DISTANCE * noise, SMALL * noise)


def leading_factor(matrix: Numbers, rank: int) -> Numbers:
    """Return X with X X^H the nearest positive semidefinite matrix of a rank to the Hermitian part of a matrix.

    X has columns of zeros where the Hermitian part has fewer positive eigenvalues than the rank.

    Parameters
    ----------
    matrix : (n, n) array
        A square matrix.
    rank : int
        Number of columns of X.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.conj().T) / 2)
    factor: Numbers = vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0))
    return factor


def _standard(rng: np.random.Generator, shape: tuple[int, int], dtype: DTypeLike) -> Numbers:
    """Return a standard Gaussian array; real and imaginary parts of a complex one are standard Gaussian."""
    parts = 2 if np.issubdtype(dtype, np.complexfloating) else 1
    return gaussian(rng, shape, dtype) * math.sqrt(parts)


def _planted_factor(
    rng: np.random.Generator, scales: Sequence[float], dtype: DTypeLike = np.float64
) -> Numbers:
    """Return Q S^(1/2) for random orthonormal columns Q, an (n, r) factor of M* = Q S Q^H; S has the `scales`."""
    basis = orthonormal(gaussian(rng, (SIZE, len(scales)), dtype))
    factor: Numbers = basis * np.sqrt(np.asarray(scales))
    return factor


def _noisy_measurements(
    rng: np.random.Generator, matrices: Numbers, factor: Numbers, sigma: float
) -> NDArray[np.float64]:
    """Return linear measurements of a planted matrix with noise."""
    noise = sigma * rng.standard_normal(len(matrices))
    truth = factor @ factor.conj().T
    exact: NDArray[np.float64] = (matrices.reshape(len(matrices), -1).conj() @ truth.reshape(-1)).real
    return exact + noise


def _padded(rng: np.random.Generator, factor: Numbers, rank: int) -> tuple[Numbers, Numbers]:
    """Return the planted factor with columns of zeros up to the search rank, and Gaussian noise of its shape."""
    noise = _standard(rng, (SIZE, rank), factor.dtype)
    planted = np.zeros_like(noise)
    planted[:, : factor.shape[1]] = factor
    return planted, noise


LARGEST_ERROR = 1e9
"""Largest error that is drawn: a larger one, and the error of a run that diverged, counts as 1e9."""

OFFSET = 1e-2
"""Distance of the fit's start from the planted factor, relative to its norm, times the square root of the noise."""

FIT_TOLERANCE = 1e-6
"""Relative change of the squared residuals at which the fit ends."""


@dataclass(frozen=True)
class Variant:
    """A method with its parameters.

    Attributes
    ----------
    label : str
        Name of the curve in the figure.
    method : str
        Name of the method in :data:`usdenoise.METHODS`.
    damping : float or None
        Damping as in :class:`usdenoise.DenoiseOptions`: lambda of ScaledGD(lambda), or the proxy sigma_hat of
        PrecGD. None for eta-decay, whose first damping is sqrt(f) at the start, and for gradient descent.
    decay : float
        Factor beta of the damping in each iteration, used by eta-decay only; by default 1.
    from_small : bool
        Whether the method begins at the small start; by default it begins at the start of the problem.
    """

    label: str
    method: str
    damping: float | None = None
    decay: float = 1.0
    from_small: bool = False


@dataclass(frozen=True)
class Descent:
    """Course of one run.

    Attributes
    ----------
    errors : (k,) array
        Relative errors of X X^H in the Frobenius norm, at the start and after each iteration.
    seconds : (k,) array
        Seconds from the beginning of the run, its start included, to each error; infinite after divergence.
    """

    errors: NDArray[np.float64]
    seconds: NDArray[np.float64]

    def at(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the errors at some times; until the start is computed the estimate is 0 and its relative error 1."""
        last = np.searchsorted(self.seconds, seconds, side="right") - 1
        return np.where(last < 0, 1.0, self.errors[last])


def descend(instance: Instance, variant: Variant, step: float, iterations: int) -> Descent:
    """Run one method on one problem with a fixed step and return errors and seconds of every iteration.

    Parameters
    ----------
    instance : Instance
        Problem with its planted matrix and starts.
    variant : Variant
        Method with its parameters.
    step : float
        Step length that multiplies the preconditioned gradient. A step that raises the loss is kept, as in the
        paper.
    iterations : int
        Number of iterations.
    """
    method = METHODS[variant.method]
    began = time.perf_counter()
    start = instance.small_start if variant.from_small else instance.start()
    started = time.perf_counter() - began
    solution = solve(
        PlantedProblem(instance.loss, instance.truth),
        (start,),
        preconditioner=method.preconditioner,
        damping=method.make_damping(variant.damping, variant.decay),
        step=step,
        stopping=StoppingRule(iterations),
        undo=False,
    )
    trace, diverged = solution.trace, solution.stop_reason is StopReason.DIVERGED
    # From the root mean square over the entries to the relative Frobenius error.
    scale = math.sqrt(instance.truth.size) / float(np.linalg.norm(instance.truth))
    errors = scale * np.array([line.held_out_rmse for line in trace], np.float64)
    seconds = [started + line.seconds for line in trace]
    if diverged:
        errors, seconds = np.append(errors, LARGEST_ERROR), [*seconds, math.inf]
    return Descent(np.minimum(errors, LARGEST_ERROR), np.array(seconds))


def noise_floor(instances: Sequence[Instance]) -> float:
    """Return the median over the problems of the relative error of their least-squares fits.

    That is the minimax level of the paper, sigma sqrt(n r log n / m) / ||M*||, times a constant of the setting. None of
    the compared methods takes part in it.

    Parameters
    ----------
    instances : sequence of Instance
        The problem of every seed.
    """
    return float(np.median([least_squares_error(instance) for instance in instances]))


def least_squares_error(instance: Instance) -> float:
    """Return the relative error of the minimiser of the loss at the search rank that is nearest to M*.

    A Levenberg-Marquardt method (:func:`scipy.optimize.least_squares`) minimises the loss from the planted factor.
    The start is moved a little, because the gradient of a column of zeros is zero.

    Parameters
    ----------
    instance : Instance
        Problem with its planted factor.
    """
    from scipy.optimize import least_squares

    factor = instance.factor
    shape, dtype = factor.shape, factor.dtype
    rng = np.random.default_rng(0)
    noise = float(np.sqrt(np.sum(instance.loss.residuals(instance.truth) ** 2)))
    start = np.ascontiguousarray(factor).reshape(-1).view(np.float64).copy()
    start += OFFSET * np.sqrt(noise) * np.linalg.norm(start) * rng.standard_normal(start.size)

    def residuals(
        flat: np.ndarray[tuple[int], np.dtype[np.float64]],
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        x = flat.view(dtype).reshape(shape)
        # In units of the noise, so that the tolerances are relative to it.
        return instance.loss.residuals(x @ x.conj().T) / noise

    fit = least_squares(residuals, start, method="lm", xtol=1e-12, ftol=FIT_TOLERANCE, gtol=1e-12)
    x = np.ascontiguousarray(fit.x).view(dtype).reshape(shape)
    return float(np.linalg.norm(x @ x.conj().T - instance.truth) / np.linalg.norm(instance.truth))
