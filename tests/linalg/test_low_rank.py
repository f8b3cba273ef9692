"""The low-rank model by its triplets, fits of rows with gaps, and the noise level by singular values."""

import numpy as np
import pytest

from usdenoise.completion.starts import gaussian
from usdenoise.linalg import tall_matrices
from usdenoise.linalg.low_rank import LowRank, fit_gapped_rows, marchenko_pastur_quantiles, unobserved_normal
from usdenoise.linalg.tall_matrices import orthonormal, tall_qr


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


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("kind", ["independent", "of very different lengths", "dependent", "zero"])
def test_the_factorisation_is_orthonormal_and_exact_for_any_columns(dtype, kind, monkeypatch):
    columns = gaussian(np.random.default_rng(0), (50, 5), dtype)
    if kind == "of very different lengths":
        columns *= np.array([1e6, 1e3, 1, 1e-3, 1e-6], columns.real.dtype)
    if kind == "dependent":
        columns[:, 3] = columns[:, 1] + 1e-5 * columns[:, 3]
    if kind == "zero":
        columns[:, 2] = 0
    wide = columns.astype(np.result_type(dtype, np.float64))
    # All rows at once, and a long matrix by parts.
    for rows in (50, 7):
        monkeypatch.setattr(tall_matrices, "_ROWS_AT_ONCE", rows)
        q, r = tall_qr(columns)
        lengths = np.maximum(np.linalg.norm(wide, axis=0), 1e-300)
        assert (np.abs(q @ r - wide) / lengths).max() < 1e-14
        assert np.abs(q.conj().T @ q - np.eye(5)).max() < 1e-13
        assert not np.tril(r, -1).any()
        in_place = wide.copy()
        own, _ = tall_qr(in_place, in_place=True)
        assert own is in_place
        assert np.array_equal(own, q)


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
    assert np.abs(marchenko_pastur_quantiles(1 / 3, levels) - eigenvalues).max() < 0.05
