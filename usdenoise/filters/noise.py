"""The noise level of a stack, from the low end of the spectrum of a few pixels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_PIXELS = 512
LOW_END = 0.3


def noise_rms(matrix: NDArray[Any], observed_fraction: float, rng: np.random.Generator) -> float:
    """Root mean square of the white noise in each entry (total of real and imaginary part).

    The smallest 30 % of the eigenvalues of the Gram matrix of some random pixels are compared with the
    quantiles of the Marchenko-Pastur law of the same aspect. Fewer pixels than frames are taken, so that
    most of them lie outside vessels and their low end is noise even where blood fills a wide band. Noise
    that is correlated between pixels has a wider law; the estimate is then low.

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
    eigenvalues = np.linalg.eigvalsh(rows @ rows.conj().T)
    low = max(int(LOW_END * count), 1)
    expected = marchenko_pastur_quantiles(count / n_frames, (np.arange(low) + 0.5) / count)
    variance = np.median(np.maximum(eigenvalues[:low], 0) / (n_frames * expected))
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
