"""The methods as a table: preconditioner, damping schedule, penalty, defaults, citation; and when the loop ends."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import Factors
from usdenoise.errors import OptionError
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.low_rank import noise_edge
from usdenoise.linalg.tall_matrices import gram

Damping = Callable[[int, float, float], float]
"""(iteration counted from 0, current objective, objective at the start) -> eta"""


def constant(eta: float) -> Damping:
    """Return a constant damping `eta` (ScaledGD(lambda); Xu et al., ICML 2023).

    Without damping, eta = 0, it is ScaledGD (Tong, Ma and Chi, JMLR 2021).
    """
    return lambda iteration, value, first: eta


def residual(sigma_hat: float) -> Damping:
    """Return eta = sqrt(|f - sigma_hat^2|), sigma_hat being a proxy of the noise level.

    PrecGD; Zhang, Fattahi and Zhang, NeurIPS 2021.
    """
    return lambda iteration, value, first: math.sqrt(abs(value - sigma_hat**2))


def geometric(beta: float, eta0: float | None = None) -> Damping:
    """Return eta = beta^t eta0 (eta-decay; Zhang, Chiu and Zhang, AISTATS 2024).

    Parameters
    ----------
    beta : float
        Ratio of successive dampings, in (0, 1].
    eta0 : float, optional
        First damping; by default sqrt(f) at the start, as in the paper's experiments.
    """
    return lambda iteration, value, first: (math.sqrt(first) if eta0 is None else eta0) * beta**iteration


Preconditioner = Callable[[Factors, Factors, float], Factors]


def identity(factors: Factors, gradients: Factors, damping: float) -> Factors:
    """Return the gradients themselves (gradient descent)."""
    return gradients


def damped_gram(factors: Factors, gradients: Factors, damping: float) -> Factors:
    """Return each gradient times the inverse of the damped Gram matrix of the other factor.

    grad_U (V^H V + eta I)^-1 and grad_V (U^H U + eta I)^-1 (Zhang, Chiu and Zhang, AISTATS 2024); for a
    single symmetric factor X, grad_X (X^H X + eta I)^-1.
    """
    inverses = [damped_inverse(gram(factor), damping, factor.dtype) for factor in reversed(factors)]
    return tuple(gradient @ inverse for gradient, inverse in zip(gradients, inverses, strict=True))


def damped_inverse(matrix: Numbers, damping: float, dtype: np.dtype) -> Numbers:
    """Return (G + eta I)^-1 of a Hermitian (r, r) matrix G, as `dtype`.

    Eigenvalues that are zero within the storage precision of the factors are raised to the smallest one that is not
    zero. So a factor without full column rank gives a large direction, not a failure.
    """
    values, vectors = np.linalg.eigh(matrix)
    precision = np.finfo(dtype)
    floor = len(values) * precision.eps * max(values[-1], 0.0) + precision.tiny
    inverse = (vectors / np.maximum(values + damping, floor)) @ vectors.conj().T
    return np.asarray(inverse.astype(dtype))


Penalty = Callable[[int, Factors], tuple[float, Factors]]
"""(iteration counted from 0, factors) -> value and gradients of the penalty"""


def norm_penalty(weight: Callable[[int], float]) -> Penalty:
    """Return the penalty w_t (|U|^2 + |V|^2), with its gradients, whose weight depends on the iteration t."""

    def penalty(iteration: int, factors: Factors) -> tuple[float, Factors]:
        w = weight(iteration)
        value = w * sum(float(np.vdot(factor, factor).real) for factor in factors)
        return value, tuple(np.asarray(2 * w, factor.real.dtype) * factor for factor in factors)

    return penalty


def component_products(weights: NDArray[np.float64]) -> Penalty:
    """Return the penalty sum_k w_k |U_k|^2 |V_k|^2 over the columns of a pair (U, V).

    With w_k = noise variance / variance of component k, divided by the number of fitted entries, it is the Gaussian prior
    of the coefficients |V_k| U_k. It does not depend on how the size of a component is shared between U and V.
    """

    def penalty(iteration: int, factors: Factors) -> tuple[float, Factors]:
        u, v = factors
        squares_u, squares_v = (np.sum(np.abs(factor) ** 2, axis=0, dtype=np.float64) for factor in factors)
        by_u = (2 * weights * squares_v).astype(u.real.dtype) * u
        by_v = (2 * weights * squares_u).astype(v.real.dtype) * v
        return float(np.sum(weights * squares_u * squares_v)), (by_u, by_v)

    return penalty


class StopReason(Enum):
    """Why the loop ended; the value of each member is its sentence."""

    ITERATIONS = "all iterations were done"
    HELD_OUT = "the held-out error stopped falling"
    NO_DESCENT = "no step lowered the objective any further"
    DIVERGED = "diverged"


@dataclass
class StoppingRule:
    """Stop after a number of iterations, or earlier when the held-out error has stopped falling.

    A slow beginning, as from factors near zero, is not convergence: until the error has once fallen by `improvement`, only
    iterations in which it does not fall at all count.

    Attributes
    ----------
    iterations : int
        Largest number of iterations.
    patience : int or None
        Number of iterations without a fall of the held-out error after which the loop ends, and returns the factors with
        the smallest one. None never ends it for that reason, and returns the last factors.
    improvement : float
        Relative fall of the held-out error that counts as one.
    """

    iterations: int
    patience: int | None = None
    improvement: float = 1e-3
    _reference: float = field(default=math.inf, init=False)
    _last: float = field(default=math.inf, init=False)
    _falls: int = field(default=0, init=False)
    _waited: int = field(default=0, init=False)

    def check(self, iteration: int, held_out_rmse: float | None) -> StopReason | None:
        """Return the reason to stop after `iteration` steps, or None to go on.

        Parameters
        ----------
        iteration : int
            Number of iterations so far.
        held_out_rmse : float or None
            Error on the held-out entries after them; None without such entries.
        """
        if held_out_rmse is not None and self.patience is not None:
            if held_out_rmse < (1 - self.improvement) * self._reference:
                # The first error has nothing to fall from.
                self._falls += math.isfinite(self._reference)
                self._reference, self._waited = held_out_rmse, 0
            elif self._falls or held_out_rmse >= self._last:
                self._waited += 1
            self._last = held_out_rmse
            if self._waited >= self.patience:
                return StopReason.HELD_OUT
        return StopReason.ITERATIONS if iteration >= self.iterations else None


def check_rank_fits(shape: tuple[int, int], rank: int) -> None:
    """Check that a matrix of this shape can have this rank.

    Parameters
    ----------
    shape : (int, int)
        (n_pixels, n_frames).
    rank : int
        Number of components.

    Raises
    ------
    OptionError
        If it cannot.
    """
    if rank > min(shape):
        raise OptionError(
            f"rank {rank} is above the number of {'frames' if shape[1] <= shape[0] else 'pixels'}, {min(shape)}",
            remedy="lower {rank} or widen {frames}",
        )


def check_rank(shape: tuple[int, int], rank: int, n_fitted: int) -> None:
    """Check that a rank fits the matrix, and that the sample determines it.

    Parameters
    ----------
    shape : (int, int)
        (n_pixels, n_frames).
    rank : int
        Number of components.
    n_fitted : int
        Number of fitted entries.

    Raises
    ------
    OptionError
        If the rank is above a dimension or above the number of samples of an average row or column, or if the
        factors have more unknowns than the sample has entries.
    """
    n_pixels, n_frames = shape
    check_rank_fits(shape, rank)
    if not determines(shape, rank, n_fitted):
        if possible := highest_rank(shape, n_fitted):
            remedy = f"lower {{rank}} to {possible} or raise {{sampling}}"
        elif n_pixels == 1:
            # All of its entries are as many as the unknowns, and some are held out.
            remedy = "give a stack of several pixels"
        else:
            remedy = "raise {sampling}: these samples determine no rank"
        raise OptionError(
            f"{n_fitted} samples of {n_pixels} pixels x {n_frames} frames are too few for rank {rank}",
            remedy=remedy,
        )


def determines(shape: tuple[int, int], rank: int, n_fitted: int) -> bool:
    """Return whether there are at least as many samples as unknowns, overall and in an average row and column."""
    n_pixels, n_frames = shape
    unknowns = rank * (n_pixels + n_frames - rank)
    return n_fitted >= unknowns and n_fitted >= rank * max(n_pixels, n_frames)


def highest_rank(shape: tuple[int, int], n_fitted: int) -> int:
    """Return the highest rank that `n_fitted` samples determine, 0 where they determine none."""
    ranks = range(1, min(shape) + 1)
    return max((rank for rank in ranks if determines(shape, rank, n_fitted)), default=0)


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes
    ----------
    name : str
        Name on the command line.
    preconditioner : callable
        Turns gradients into directions.
    make_damping : callable
        (eta0 or None, decay) -> schedule. The method gives eta0 its meaning: the first damping of eta-decay, the
        lambda of ScaledGD(lambda), the proxy sigma_hat of PrecGD.
    summary : str
        The method in one line.
    citation : str
        Its source in one line.
    default_damping : callable
        (noise level, shape of the matrix) -> eta0 where none is given, in the units of the data; None by default.
    step_tau : float
        Default step for the sum-of-squares objective divided by the sampling fraction; in units of the safe bound
        where `preconditioner` is the identity. 0.5 by default.
    """

    name: str
    preconditioner: Preconditioner
    make_damping: Callable[[float | None, float], Damping]
    summary: str
    citation: str
    default_damping: Callable[[float, tuple[int, int]], float | None] = lambda noise, shape: None
    step_tau: float = 0.5


_TABLE = (
    Method(
        "eta-decay",
        damped_gram,
        lambda eta0, decay: geometric(decay, eta0),
        "preconditioned descent with a geometrically decaying damping",
        "Zhang, Chiu and Zhang, AISTATS 2024",
    ),
    Method(
        "precgd",
        damped_gram,
        lambda eta0, decay: residual(eta0 or 0.0),
        "damping sqrt(|f - sigma_hat^2|), with the damping as the proxy sigma_hat, by default the noise level",
        "Zhang, Fattahi and Zhang, NeurIPS 2021",
        lambda noise, shape: noise,
    ),
    Method(
        "scaledgd-lambda",
        damped_gram,
        lambda eta0, decay: constant(eta0 or 0.0),
        "constant damping, with the damping as lambda, by default the largest singular value of the noise",
        "Xu, Shen, Chi and Ma, ICML 2023",
        noise_edge,
    ),
    Method(
        "scaledgd",
        damped_gram,
        lambda eta0, decay: constant(0.0),
        "no damping",
        "Tong, Ma and Chi, JMLR 2021",
    ),
    Method(
        "gd",
        identity,
        lambda eta0, decay: constant(0.0),
        "plain gradient descent",
        "Chi, Lu and Chen, IEEE Trans. Signal Process. 67(20), 2019",
    ),
)

METHODS = MappingProxyType({method.name: method for method in _TABLE})
