"""The noise level, from the low end of a spectrum."""

import math

import numpy as np
from numpy.typing import NDArray

LOW_END = 0.5
ROUNDS = 8


def noise_from_spectrum(singular_values: NDArray[np.float64], shape: tuple[int, ...]) -> float:
    """Root mean square of the white noise in each entry (total of real and imaginary part).

    The squares of the singular values are compared with the quantiles of the Marchenko-Pastur law: those
    above the law's edge are signal, the lower half of the rest gives the variance, and both are found in
    turn. Noise that is correlated between pixels has a wider law; the estimate is then low.

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
    for _ in range(ROUNDS):
        # What is orthogonal to the signal is a noise matrix with fewer rows and columns.
        n_rows, n_columns = short - n_signal, long - n_signal
        low = max(int(LOW_END * n_rows), 1)
        quantiles = marchenko_pastur_quantiles(n_rows / n_columns, (np.arange(low) + 0.5) / n_rows)
        variance = float(np.median(ascending[:low] / (n_columns * quantiles)))
        edge = 1.05 * variance * (np.sqrt(n_rows) + np.sqrt(n_columns)) ** 2
        n_signal = min(int(np.count_nonzero(ascending > edge)), short - 1)
    return float(np.sqrt(variance))


def marchenko_pastur_quantiles(aspect: float, levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles of the Marchenko-Pastur law of unit variance (Marchenko and Pastur, 1967).

    Parameters
    ----------
    aspect : float
        Rows over columns of the noise matrix, in (0, 1].
    levels : array of numbers in (0, 1)
        Where to evaluate the quantile function.
    """
    lower, upper = (1 - np.sqrt(aspect)) ** 2, (1 + np.sqrt(aspect)) ** 2
    # x = middle + half cos(theta) takes the square-root edges out of the integrand.
    theta = np.linspace(np.pi, 0, 4001)
    x = 0.5 * (lower + upper) + 0.5 * (upper - lower) * np.cos(theta)
    density = np.sin(theta) ** 2 / np.maximum(x, 1e-300)
    cumulative = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    quantiles: NDArray[np.float64] = np.interp(levels, cumulative / cumulative[-1], x)
    return quantiles


def noise_edge(noise: float, shape: tuple[int, int]) -> float:
    """Largest singular value of a noise matrix, noise (sqrt(m) + sqrt(n)): the smallest that a signal shows.

    Parameters
    ----------
    noise : float
        Root mean square of an entry.
    shape : (int, int)
        Shape of the matrix.
    """
    return noise * (math.sqrt(shape[0]) + math.sqrt(shape[1]))
