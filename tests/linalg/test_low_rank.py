"""Singular triplets of a product of factors, against numpy."""

import numpy as np
import pytest

from usdenoise.completion.starts import gaussian
from usdenoise.linalg.low_rank import LowRank


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
