"""Curves over the frames, against slow loops."""

import numpy as np
import pytest

from tests.reference.matrices import casorati_matrix, low_rank_and_noise
from usdenoise.frames.frame_quality import frame_curves
from usdenoise.linalg import tall_matrices


@pytest.mark.parametrize("cached", [500, 40_000])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_curves_equal_loops(dtype, cached, monkeypatch):
    monkeypatch.setattr(tall_matrices, "CACHED_ENTRIES", cached)
    matrix = low_rank_and_noise(dtype)
    left = np.linalg.svd(matrix, full_matrices=False)[0][:, :3]
    curves = frame_curves(casorati_matrix(matrix), left, np.zeros((matrix.shape[1], 2)))
    assert np.isnan(curves.dvars[0])
    for t in range(matrix.shape[1]):
        frame = matrix[:, t].astype(np.complex128)
        assert curves.intensity[t] == pytest.approx(np.mean(np.abs(frame) ** 2), rel=1e-5)
        outside = frame - left @ (left.conj().T @ frame)
        assert curves.outside[t] == pytest.approx(np.mean(np.abs(outside) ** 2), rel=1e-3)
        if t:
            step = frame - matrix[:, t - 1]
            assert curves.dvars[t] == pytest.approx(np.sqrt(np.mean(np.abs(step) ** 2)), rel=1e-5)


def test_a_frame_without_an_observed_entry_has_no_values():
    matrix = low_rank_and_noise(np.complex64)
    n_frames = matrix.shape[1]
    whole = np.ones(matrix.shape, bool)
    whole[:, 5] = whole[3, 8] = False
    curves = frame_curves(casorati_matrix(matrix, ~whole), matrix[:, :0], np.zeros((n_frames, 2)))
    for name in ("intensity", "outside", "displacement"):
        missing = np.isnan(getattr(curves, name).reshape(n_frames, -1)).any(axis=1)
        assert np.flatnonzero(missing).tolist() == [5], name
    assert np.flatnonzero(np.isnan(curves.dvars)).tolist() == [0, 5, 6]


def test_the_carpet_is_the_power_of_bands_over_their_medians():
    rng = np.random.default_rng(3)
    values = (rng.standard_normal((512, 50)) * np.repeat([1.0, 100.0], 256)[:, None]).astype(np.float32)
    values[:, 20] *= 10
    values[-8:] = 0
    sample = casorati_matrix(values)
    carpet = frame_curves(sample, np.zeros((512, 0), np.float32), np.zeros((50, 2))).carpet
    assert carpet.shape == (64, 50)
    for band in range(63):
        power = np.mean(values[8 * band : 8 * band + 8].astype(float) ** 2, axis=0)
        np.testing.assert_allclose(carpet[band], power / np.median(power), rtol=1e-5)
    assert not carpet[63].any()
    assert (carpet[:63].argmax(axis=1) == 20).all()
