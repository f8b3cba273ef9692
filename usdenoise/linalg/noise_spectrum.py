"""Singular values of a noise matrix: their largest, their distribution, and the noise level that follows.

The noise map, one number for each pixel, is in :mod:`usdenoise.blood.noise_map`.
"""

import math

import numpy as np
from numpy.typing import NDArray

LOW_END = 0.5
"""Share of the noise singular values, from the smallest, that gives the noise level: weak components raise the
upper half."""

_ROUNDS = 8
"""Rounds in which the number of signal components and the noise level are found in turn. On random matrices of rank
5 to 40 plus noise both settle in the second one."""

_EDGE_MARGIN = 1.05
"""Power, over the power of the noise edge, from which a component is signal. In 20 white noise matrices of 256 rows
the largest singular value was 0.97 to 1.012 of the edge; noise that is correlated in space exceeds it by more."""


def noise_edge(noise: float, shape: tuple[int, int]) -> float:
    """Return the noise edge, noise (sqrt(m) + sqrt(n)): the largest singular value that noise alone has.

    Parameters
    ----------
    noise : float
        Root mean square of the noise in an entry, in the units of the data.
    shape : (int, int)
        Shape (m, n) of the matrix.
    """
    return noise * (math.sqrt(shape[0]) + math.sqrt(shape[1]))


def noise_from_spectrum(singular_values: NDArray[np.float64], shape: tuple[int, ...]) -> float:
    """Return the root mean square of the white noise in an entry, real and imaginary parts together.

    The squared singular values are compared with the quantiles of the Marchenko-Pastur law. Values above the
    edge of the law are signal, and the lower half of the remaining ones gives the variance; both are found in turn. If
    noise is correlated between pixels, its law is wider, and the estimate is too low.

    Parameters
    ----------
    singular_values : (k,) array
        All singular values of a matrix of low rank plus noise, decreasing.
    shape : (int, int)
        Shape of the matrix, k being the smaller of both.
    """
    short, long = min(shape), max(shape)
    ascending = np.sort(singular_values**2)
    n_signal, variance = 0, 0.0
    for _ in range(_ROUNDS):
        # The part that is orthogonal to the signal is a noise matrix with fewer rows and columns.
        n_rows, n_columns = short - n_signal, long - n_signal
        low = max(int(LOW_END * n_rows), 1)
        quantiles = marchenko_pastur_quantiles(n_rows / n_columns, (np.arange(low) + 0.5) / n_rows)
        variance = float(np.median(ascending[:low] / (n_columns * quantiles)))
        edge = _EDGE_MARGIN * variance * (np.sqrt(n_rows) + np.sqrt(n_columns)) ** 2
        n_signal = min(int(np.count_nonzero(ascending > edge)), short - 1)
    return float(np.sqrt(variance))


def marchenko_pastur_quantiles(aspect: float, levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return quantiles of the Marchenko-Pastur law of unit variance (Marchenko and Pastur, 1967).

    Parameters
    ----------
    aspect : float
        Rows over columns of the noise matrix, in (0, 1].
    levels : array of numbers in (0, 1)
        Where the quantile function is evaluated.

    Returns
    -------
    float64 array of the shape of `levels`
    """
    lower, upper = (1 - np.sqrt(aspect)) ** 2, (1 + np.sqrt(aspect)) ** 2
    # x = middle + half cos(theta) removes the square-root edges from the integrand.
    theta = np.linspace(np.pi, 0, 4001)
    x = 0.5 * (lower + upper) + 0.5 * (upper - lower) * np.cos(theta)
    density = np.sin(theta) ** 2 / np.maximum(x, 1e-300)
    cumulative = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    quantiles: NDArray[np.float64] = np.interp(levels, cumulative / cumulative[-1], x)
    return quantiles
