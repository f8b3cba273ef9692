"""Singular triplets of a product of factors, and the QR factorisation below it, against numpy."""

import numpy as np
import pytest

from usdenoise.completion.starts import gaussian
from usdenoise.linalg import orthonormal_bases
from usdenoise.linalg.low_rank import LowRank
from usdenoise.linalg.orthonormal_bases import tall_qr


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
def test_a_long_matrix_is_factorised_by_parts(dtype, monkeypatch):
    columns = gaussian(np.random.default_rng(0), (50, 5), dtype)
    wide = columns.astype(np.result_type(dtype, np.float64))
    expected = np.linalg.qr(wide)
    for found, known in zip(tall_qr(columns), expected, strict=True):
        assert np.array_equal(found, known)
    monkeypatch.setattr(orthonormal_bases, "_ROWS_AT_ONCE", 7)
    q, r = tall_qr(columns)
    assert not np.array_equal(q, expected[0])
    assert np.abs(q @ r - wide).max() < 1e-14
    assert np.abs(q.conj().T @ q - np.eye(5)).max() < 1e-14
    assert np.abs(np.abs(r) - np.abs(expected[1])).max() < 1e-14
    assert not np.tril(r, -1).any()
