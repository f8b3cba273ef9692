"""Right preconditioners: they turn gradients into the directions in which the factors move."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.problem import Factors
from usdenoise.linalg.gram_matrices import gram

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


def damped_inverse(matrix: NDArray[Any], damping: float, dtype: Any) -> NDArray[Any]:
    """Return (G + eta I)^-1 of a Hermitian (r, r) matrix G, as `dtype`.

    Eigenvalues that are zero within the storage precision of the factors are raised to the smallest one that is not
    zero. So a factor without full column rank gives a large direction, not a failure.
    """
    values, vectors = np.linalg.eigh(matrix)
    floor = len(values) * np.finfo(dtype).eps * max(values[-1], 0.0) + np.finfo(dtype).tiny
    inverse = (vectors / np.maximum(values + damping, floor)) @ vectors.conj().T
    result: NDArray[Any] = inverse.astype(dtype)
    return result
