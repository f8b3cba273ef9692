"""Models of low rank, fits to gapped rows and the singular values of noise, against numpy."""

import numpy as np
import pytest

from usdenoise.completion.problem import gaussian
from usdenoise.linalg import low_rank
from usdenoise.linalg.low_rank import LowRank, fit_gapped_rows, interpolated, unobserved_normal
from usdenoise.linalg.tall_matrices import orthonormal


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_from_factors_gives_the_svd_of_the_product(dtype):
    rng = np.random.default_rng(0)
    u, v = (gaussian(rng, (n, 5), dtype) for n in (50, 30))
    model = LowRank.from_factors(u, v)
    product = u.astype(np.complex128) @ v.astype(np.complex128).conj().T
    assert model.singular_values == pytest.approx(np.linalg.svd(product)[1][:5], rel=1e-5)
    a, b_h = model.band(0, 5)
    assert np.abs(a @ b_h - product).max() < 1e-4
    for side in (model.left, model.right):
        assert np.abs(side.conj().T @ side - np.eye(5)).max() < 1e-5


def test_temporal_vectors_are_interpolated_over_frames_that_are_left_out():
    right = np.zeros((6, 1), np.complex64)
    right[[0, 1, 4], 0] = [1, 1 + 1j, 4 + 7j]
    model = LowRank(np.ones((2, 1), np.complex64), np.ones(1), right)
    filled = interpolated(model, np.array([False, False, True, True, False, True])).right[:, 0]
    assert filled == pytest.approx(np.array([1, 1 + 1j, 2 + 3j, 3 + 5j, 4 + 7j, 4 + 7j]))
    assert interpolated(model, np.zeros(6, bool)) is model
    assert right[2, 0] == 0


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_rows_with_unobserved_entries_are_fitted_to_the_observed_ones(dtype):
    rng = np.random.default_rng(0)
    right = orthonormal(gaussian(rng, (60, 4), dtype))
    rows = gaussian(rng, (9, 60), dtype)
    observed = rng.random(rows.shape) < 0.7
    observed[3] = True
    expected = [
        np.linalg.lstsq(right[seen].conj(), row[seen], rcond=None)[0]
        for row, seen in zip(rows, observed, strict=True)
    ]
    projected = np.where(observed, rows, 0) @ right
    normal = np.eye(4) - unobserved_normal(~observed, right)
    by_normal = np.linalg.solve(normal, projected[..., None])[..., 0]
    np.testing.assert_allclose(by_normal, expected, atol=1e-10)
    np.testing.assert_allclose(fit_gapped_rows(projected, observed, right, None), expected, atol=1e-10)


def test_marchenko_pastur_quantiles_of_a_large_noise_matrix():
    noise = np.random.default_rng(0).standard_normal((300, 900))
    eigenvalues = np.linalg.eigvalsh(noise @ noise.T / 900)
    levels = (np.arange(300) + 0.5) / 300
    assert np.abs(low_rank.marchenko_pastur_quantiles(1 / 3, levels) - eigenvalues).max() < 0.05
