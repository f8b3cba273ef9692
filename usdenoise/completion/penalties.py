"""Penalties on the factors, which the loop adds to the objective."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import Factors

Penalty = Callable[[int, Factors], tuple[float, Factors]]
"""(iteration counted from 0, factors) -> value and gradients of the penalty"""


def squared_norms(weight: Callable[[int], float]) -> Penalty:
    """Return the penalty w_t (|U|^2 + |V|^2), whose weight depends on the iteration t."""

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
        gradients = (
            (2 * weights * squares_v).astype(u.real.dtype) * u,
            (2 * weights * squares_u).astype(v.real.dtype) * v,
        )
        return float(np.sum(weights * squares_u * squares_v)), gradients

    return penalty
