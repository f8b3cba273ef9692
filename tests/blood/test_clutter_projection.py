"""Lags after a clutter filter, against full covariance matrices."""

import numpy as np
import pytest

from tests.reference import loops
from usdenoise.blood.noise import MOST_LAGS, clutter_projection, filter_projection


def slow_vectors(n_frames, k):
    """Orthonormal vectors of slow motion: the first k discrete prolate-like modes, made from low frequencies."""
    t = np.arange(n_frames)
    waves = [np.exp(2j * np.pi * f * t / n_frames) for f in np.arange(k) - k // 2]
    rng = np.random.default_rng(k)
    mixed = np.stack(waves, axis=1) @ rng.standard_normal((k, k)) + 0.01 * rng.standard_normal((n_frames, k))
    return np.linalg.qr(mixed)[0]


@pytest.mark.parametrize("k", [0, 1, 5])
def test_white_noise_has_the_lags_of_the_full_matrix(k):
    right = slow_vectors(64, 5)[:, :k]
    projection = clutter_projection(right)
    expected = loops.expected_lags(right, lambda lag: float(lag == 0), projection.n_lags)
    np.testing.assert_allclose(projection.white, expected, atol=1e-12)


def test_without_clutter_nothing_is_made_up_for():
    projection = clutter_projection(np.zeros((200, 0)))
    assert projection.n_lags == MOST_LAGS + 1
    lags = np.array([3.0, 2.0, 1.0] + [0.0] * (MOST_LAGS - 2), complex)
    assert projection.power_before(lags) == pytest.approx(3.0)


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n_frames", [120, 200])
def test_the_power_before_the_filter_is_found(shift, n_frames):
    right = slow_vectors(n_frames, 6)
    projection = clutter_projection(right)
    width = projection.n_lags

    def autocorrelation(lag):
        return max(0.0, 1 - abs(lag) / width) * np.exp(1j * shift * lag)

    after = loops.expected_lags(right, autocorrelation, width)
    # A product over n - l of n frames, as the sums over a stack have it.
    before = projection.power_before(after)
    lost = 1 - after[0].real
    assert before == pytest.approx(1.0, abs=max(0.25 * lost, 0.01))
    assert lost > 0.1 or shift == 1.0


def test_a_filter_that_takes_nearly_all_frames_is_bounded():
    projection = clutter_projection(slow_vectors(32, 30))
    assert projection.n_lags == 2
    assert np.abs(projection.recovery).max() <= 1 / 0.45 + 1e-12


def test_a_projection_is_one_filter_of_many():
    right = np.linalg.qr(np.vander(np.linspace(-1, 1, 150), 5))[0]
    wanted = clutter_projection(right)
    found = filter_projection(np.eye(150) - right @ right.T)
    np.testing.assert_allclose(found.white, wanted.white, atol=1e-12)
    np.testing.assert_allclose(found.recovery, wanted.recovery, atol=1e-10)


def test_white_noise_has_the_lags_that_a_high_pass_gives_it():
    # x[t] - x[t - 1] / 2: lags of white noise 1.25 and -0.5.
    n = 400
    projection = filter_projection(np.eye(n) - np.eye(n, k=1) / 2)
    np.testing.assert_allclose(projection.white[:2], [1.25, -0.5], atol=0.01)
