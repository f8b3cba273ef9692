"""Bands of components, against numpy's SVD filter."""

import numpy as np
import pytest

from tests.reference import loops
from tests.reference.matrices import SERIAL, casorati_matrix, low_rank_and_noise
from usdenoise.clutter.band import Band, keep_band, remove_clutter
from usdenoise.clutter.local_cutoffs import LocalCutoffs
from usdenoise.estimate.svd import truncated_svd
from usdenoise.linalg.executor import ThreadExecutor


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize(("low", "high"), [(0, 6), (2, 6), (3, 5), (2, None), (0, None), (6, None)])
def test_band_equals_numpys_svd_filter(dtype, low, high):
    matrix = low_rank_and_noise(dtype)
    left, singular, right = loops.truncated_svd(matrix, 6)
    with ThreadExecutor(2) as executor:
        model = truncated_svd(matrix, 6, executor)
    out = matrix.copy()
    band = Band(low, 6 if high is None else high, high is None)
    rest, power, _ = remove_clutter(casorati_matrix(out), model, low, 0)
    power = keep_band(rest, model, band, power)[1]
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
    power = remove_clutter(holes, model, 2, 0)[1]
    keep_band(holes, model, Band(2, 6, True), power)
    matrix = holes.values
    a, b_h = model.band(2, 6)
    assert np.abs(matrix - a @ b_h)[missing].max() < 1e-3
    assert np.linalg.norm(matrix - a @ b_h) < 1e-3 * np.linalg.norm(truth)


def _by_place(matrix, missing=None, n_lags=3):
    """A residual with the global cutoff 3, its model, cutoffs by place for components 1 to 4, power, lags."""
    model = truncated_svd(matrix, 6, SERIAL)
    data = casorati_matrix(matrix.copy(), missing)
    taken = np.random.default_rng(4).random((len(matrix), 4)).astype(np.float32)
    cutoffs = LocalCutoffs(3, 1, taken)
    return data, model, cutoffs, *remove_clutter(data, model, 3, n_lags, cutoffs)[1:]


def _filtered_by_loops(matrix, model, taken):
    """Each pixel without component 0, and without its own share of the components 1 to 4."""
    left, singular, right_h = model.left, model.singular_values, model.right.conj().T
    expected = matrix.astype(np.complex128)
    for pixel in range(len(matrix)):
        for component in range(5):
            share = 1.0 if component == 0 else taken[pixel, component - 1]
            expected[pixel] -= share * left[pixel, component] * singular[component] * right_h[component]
    return expected


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_cutoffs_by_place_take_the_share_of_each_pixel(dtype):
    matrix = low_rank_and_noise(dtype)
    data, model, cutoffs, found, lags = _by_place(matrix)
    expected = _filtered_by_loops(matrix, model, cutoffs.taken)
    # The stack and its power are those of the global cutoff.
    globally = casorati_matrix(matrix.copy())
    power = remove_clutter(globally, model, 3, 0)[1]
    assert np.array_equal(data.values, globally.values)
    assert np.array_equal(found, power)
    for lag in range(3):
        products = (expected[:, lag:] * expected[:, : expected.shape[1] - lag].conj()).sum(axis=1)
        assert lags.sums[:, :, lag].sum(axis=0) == pytest.approx(
            products, rel=1e-4, abs=1e-6 * np.abs(products).max()
        )


def test_cutoffs_by_place_leave_unobserved_entries_out_of_the_lags():
    matrix = low_rank_and_noise(np.complex64, noise=0.0)
    missing = np.random.default_rng(1).random(matrix.shape) < 0.1
    model = truncated_svd(matrix, 6, SERIAL)
    _, model, cutoffs, _, lags = _by_place(matrix.copy(), missing, n_lags=1)
    expected = _filtered_by_loops(matrix, model, cutoffs.taken)
    observed = np.where(missing, 0, np.abs(expected) ** 2).sum(axis=1)
    assert lags.sums[:, :, 0].sum(axis=0).real == pytest.approx(observed, rel=1e-3)
