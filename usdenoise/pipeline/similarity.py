"""Spatial similarity of singular vectors, and the two squares in it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def spatial_similarity(left: NDArray[Any]) -> NDArray[np.float64]:
    """Return the correlation over the pixels of |u_n| with |u_m| (Baranger et al., IEEE Trans. Med. Imaging 37(7), 2018).

    Parameters
    ----------
    left : (n_pixels, k) array
        Spatial singular vectors.

    Returns
    -------
    (k, k) float64 array
        1 on the diagonal.
    """
    envelopes = np.abs(left).astype(np.float64)
    envelopes -= envelopes.mean(axis=0)
    envelopes /= np.maximum(np.linalg.norm(envelopes, axis=0), np.finfo(np.float64).tiny)
    similarity: NDArray[np.float64] = envelopes.T @ envelopes
    return similarity


def two_squares(similarity: NDArray[np.float64]) -> tuple[int, int, float]:
    """Return the edges of two squares of ones on the diagonal, tissue [0, a) and blood [a, b), that fit a matrix best.

    With a table of sums every pair (a, b) costs the same few operations, n^2 in all (IEEE Trans. Ultrason.
    Ferroelectr. Freq. Control 70(8):821, 2023).

    Parameters
    ----------
    similarity : (n, n) array
        Spatial similarity matrix, n at least 2.

    Returns
    -------
    a, b : int
        Edges of the squares, 0 < a < b <= n.
    correlation : float
        Of the matrix with the two squares.
    """
    n = len(similarity)
    table = np.zeros((n + 1, n + 1))
    table[1:, 1:] = similarity.cumsum(axis=0).cumsum(axis=1)
    corner = np.diag(table)
    a, b = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    ones = (a**2 + (b - a) ** 2).astype(np.float64)
    inside = corner[a] + corner[b] - table[a, b] - table[b, a] + corner[a]
    mean = table[n, n] / n**2
    spread = np.sqrt(np.maximum(np.sum(similarity**2) - n**2 * mean**2, np.finfo(np.float64).tiny))
    template = np.sqrt(np.maximum(ones - ones**2 / n**2, 0))
    valid = (a > 0) & (a < b) & (template > 0)
    score = np.full(a.shape, -np.inf)
    score[valid] = (inside - mean * ones)[valid] / (template[valid] * spread)
    best = np.unravel_index(int(np.argmax(score)), score.shape)
    return int(best[0]), int(best[1]), float(score[best])
