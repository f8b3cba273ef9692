"""Singular values of noise matrices."""

import numpy as np

from usdenoise.linalg.low_rank import marchenko_pastur_quantiles


def test_marchenko_pastur_quantiles_of_a_large_noise_matrix():
    noise = np.random.default_rng(0).standard_normal((300, 900))
    eigenvalues = np.linalg.eigvalsh(noise @ noise.T / 900)
    levels = (np.arange(300) + 0.5) / 300
    assert np.abs(marchenko_pastur_quantiles(1 / 3, levels) - eigenvalues).max() < 0.05
