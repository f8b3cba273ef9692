"""The noise level of a stack, from the low end of the spectrum of a few pixels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_PIXELS = 512
LOW_END = 0.5
ROUNDS = 6


def noise_rms(matrix: NDArray[Any], observed_fraction: float, rng: np.random.Generator) -> float:
    """Root mean square of the white noise in each entry (total of real and imaginary part).

    Eigenvalues of the Gram matrix of some random pixels are compared with the quantiles of the
    Marchenko-Pastur law: those above the law's edge are signal, the lower half of the rest gives the
    variance, and both are found in turn. Fewer pixels than frames are taken, so that most of them lie
    outside vessels and blood that fills a wide band leaves room for noise. Noise that is correlated between
    pixels has a wider law; the estimate is then low.

    Parameters
    ----------
    matrix : (n_pixels, n_frames) array
        The data, 0 where they are unobserved.
    observed_fraction : float
        Observed entries over all entries: zeros in the place of unobserved ones dilute the noise.
    rng : numpy.random.Generator
        Chooses the pixels.
    """
    n_pixels, n_frames = matrix.shape
    count = min(n_pixels, max(n_frames // 2, 1), MAX_PIXELS)
    chosen = np.sort(rng.choice(n_pixels, count, replace=False))
    rows = matrix[chosen].astype(np.result_type(matrix.dtype, np.float64))
    eigenvalues = np.maximum(np.linalg.eigvalsh(rows @ rows.conj().T), 0)
    n_signal, variance = 0, 0.0
    for _ in range(ROUNDS):
        # What is orthogonal to the signal is a noise matrix with fewer rows and columns.
        n_rows, n_columns = count - n_signal, n_frames - n_signal
        low = max(int(LOW_END * n_rows), 1)
        quantiles = marchenko_pastur_quantiles(n_rows / n_columns, (np.arange(low) + 0.5) / n_rows)
        variance = float(np.median(eigenvalues[:low] / (n_columns * quantiles)))
        edge = 1.05 * variance * (np.sqrt(n_rows) + np.sqrt(n_columns)) ** 2
        n_signal = min(int(np.count_nonzero(eigenvalues > edge)), count - 1)
    return float(np.sqrt(variance / max(observed_fraction, 1e-12)))


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
