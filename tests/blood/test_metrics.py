"""Figures of merit on cases that are small enough to work out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdenoise.blood import metrics
from usdenoise.errors import InputError

POWER = np.array([[1.0, 3.0], [10.0, 30.0]], np.float32)
TOP = np.array([[True, True], [False, False]])


def test_contrast_and_cnr_by_hand():
    # Means 20 and 2: a ratio of 10 in power is 10 dB.
    assert metrics.contrast_db(POWER, ~TOP, TOP) == pytest.approx(10.0)
    assert metrics.contrast_db(POWER, TOP, ~TOP) == pytest.approx(-10.0)
    # |20 - 2| over the root of 100 + 1.
    assert metrics.cnr(POWER, ~TOP, TOP) == pytest.approx(18 / np.sqrt(101))
    assert np.isnan(metrics.cnr(np.ones_like(POWER), TOP, ~TOP))


def test_gcnr_by_hand():
    # Signal 1 1 5 5, background 1 1 1 5: two bins split at 5 hold (1/2, 1/2) and (3/4, 1/4): overlap 3/4.
    power = np.array([1, 1, 5, 5, 1, 1, 1, 5.0])
    signal = np.arange(8) < 4
    assert metrics.gcnr(power, signal, ~signal) == pytest.approx(0.25)
    assert metrics.gcnr(POWER, ~TOP, TOP) == 1.0
    assert metrics.gcnr(np.ones(8), signal, ~signal) == 0.0


def test_gcnr_of_two_normal_distributions_is_the_textbooks():
    rng = np.random.default_rng(0)
    power = np.concatenate([rng.normal(2, 1, 200_000), rng.normal(0, 1, 200_000)])
    signal = np.arange(400_000) < 200_000
    # Two unit normals two apart overlap by 2 Phi(-1).
    assert metrics.gcnr(power, signal, ~signal) == pytest.approx(1 - 2 * 0.158655, abs=0.01)


def test_auc_by_hand():
    # Pairs (signal, background): 10 > 1, 10 > 3, 30 > 1, 30 > 3.
    assert metrics.detection_auc(POWER, ~TOP) == 1.0
    assert metrics.detection_auc(POWER, TOP) == 0.0
    # 2 beats 1 and ties 2 and loses to 3: 1 + 1/2 of 3.
    power = np.array([2, 1, 2, 3.0])
    assert metrics.detection_auc(power, np.array([True, False, False, False])) == pytest.approx(0.5)
    power = np.array([2, 2, 1, 2, 3.0])
    mask = np.array([True, True, False, False, True])
    # Two 2s against 1 and 2: 1.5 each; the 3 wins both: 5 of 6.
    assert metrics.detection_auc(power, mask) == pytest.approx(5 / 6)


def test_correlation_by_hand():
    assert metrics.correlation(np.array([1, 2, 3.0]), np.array([2, 4, 6.0])) == pytest.approx(1)
    assert metrics.correlation(np.array([1, 2, 3.0]), np.array([1, 2, 1.0])) == pytest.approx(0)
    assert metrics.correlation(np.array([1, 0, 0, 0.0]), np.array([0, 1, 0, 0.0])) == pytest.approx(-1 / 3)
    assert metrics.correlation(np.array([1, 2, 3.0]), np.ones(3)) == 0


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
def test_ranks_decide_gcnr_and_auc_whatever_the_scale(seed, scale):
    rng = np.random.default_rng(seed)
    power = rng.exponential(size=(20, 15)) + 0.1
    mask = rng.random((20, 15)) < 0.4
    power[mask] *= 2
    for figure in (lambda p: metrics.gcnr(p, mask, ~mask), lambda p: metrics.detection_auc(p, mask)):
        assert figure(power) == figure(10 * np.log10(scale * power)) == figure(np.sqrt(power))
    contrasts = [metrics.contrast_db(factor * power, mask, ~mask) for factor in (1, scale)]
    assert contrasts[1] == pytest.approx(contrasts[0], abs=1e-9)
    assert metrics.cnr(scale * power, mask, ~mask) == pytest.approx(metrics.cnr(power, mask, ~mask))


@pytest.mark.parametrize("figure", [metrics.contrast_db, metrics.cnr, metrics.gcnr])
def test_regions_that_do_not_fit_are_refused(figure):
    with pytest.raises(InputError, match=r"the signal region has shape \(2,\) and the image \(2, 2\)"):
        figure(POWER, TOP[0], TOP)
    with pytest.raises(InputError, match="the background region holds no pixel"):
        figure(POWER, TOP, TOP & ~TOP)
    with pytest.raises(InputError, match="holds no pixel"):
        metrics.detection_auc(POWER, TOP | ~TOP)
