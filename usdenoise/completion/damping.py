"""Damping schedules: the eta of each iteration, from its number and the objective."""

import math
from collections.abc import Callable

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
