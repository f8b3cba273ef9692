"""Bands of components, against numpy's SVD filter."""

import numpy as np
import pytest

from tests.reference import loops
from tests.reference.matrices import SERIAL, casorati_matrix, low_rank_and_noise
from usdenoise.filters.svd import truncated_svd
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.pipeline.band import Band, keep_band


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize(("low", "high"), [(0, 6), (2, 6), (3, 5), (2, None), (0, None), (6, None)])
def test_band_equals_numpys_svd_filter(dtype, low, high):
    matrix = low_rank_and_noise(dtype)
    left, singular, right = loops.truncated_svd(matrix, 6)
    with ThreadExecutor(2) as executor:
        model = truncated_svd(matrix, 6, executor)
    out = np.empty_like(matrix)
    band = Band(low, 6 if high is None else high, high is None)
    power = keep_band(casorati_matrix(matrix), model, band, 0, out).power
    clutter = (left[:, :low] * singular[:low]) @ right[:, :low].conj().T
    kept = (left[:, low:high] * singular[low:high]) @ right[:, low:high].conj().T
    expected = matrix - clutter if high is None else kept
    assert np.linalg.norm(out - expected) < 1e-4 * max(
        np.linalg.norm(expected), 1e-2 * np.linalg.norm(matrix)
    )
    assert power == pytest.approx(np.mean(np.abs(out) ** 2, axis=1), rel=1e-5)


def test_band_may_overwrite_the_data_and_fills_what_is_missing():
    matrix = low_rank_and_noise(np.complex64, noise=0.0)
    truth = matrix.copy()
    missing = np.random.default_rng(1).random(matrix.shape) < 0.1
    model = truncated_svd(truth, 6, SERIAL)
    holes = casorati_matrix(matrix, missing)
    keep_band(holes, model, Band(2, 6, True), 0, out=holes.values)
    matrix = holes.values
    a, b_h = model.band(2, 6)
    assert np.abs(matrix - a @ b_h)[missing].max() < 1e-3
    assert np.linalg.norm(matrix - a @ b_h) < 1e-3 * np.linalg.norm(truth)
