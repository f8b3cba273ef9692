"""Power Doppler and decibels by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from usdenoise.doppler import decibels, power_doppler
from usdenoise.metrics import correlation


def test_power_doppler_is_the_mean_square_magnitude():
    iq = np.array([[3 + 4j, 0], [0, 2j]], np.complex64)
    assert np.array_equal(power_doppler(iq), np.float32([12.5, 2.0]))
    assert np.array_equal(power_doppler(iq, axis=0), np.float32([12.5, 2.0]))
    assert np.array_equal(power_doppler(np.float32([[1, -3]])), np.float32([5.0]))


def test_power_doppler_sums_in_double_precision():
    iq = np.full((1, 20_000_000 // 1000), 1e-3, np.float32)
    iq[0, 0] = 100
    assert power_doppler(iq)[0] == pytest.approx((1e4 + 19999e-6) / 20000, rel=1e-7)


@pytest.mark.parametrize(("factor", "expected"), [(10, [0, -10, -20]), (20, [0, -20, -40])])
def test_decibels_by_hand(factor, expected):
    assert decibels(np.array([5.0, 0.5, 0.05]), factor) == pytest.approx(expected)


def test_decibels_of_zeros():
    assert np.array_equal(decibels(np.array([1.0, 0.0])), [0, -np.inf])
    assert np.all(decibels(np.zeros(3)) == -np.inf)


# Scaling a subnormal number loses its digits before any decibel is taken.
@given(arrays(np.float64, 20, elements=st.just(0.0) | st.floats(1e-300, 1e6)), st.floats(1e-3, 1e3))
def test_decibels_do_not_depend_on_scale(power, scale):
    if power.max() > 1e-200:
        assert np.allclose(decibels(power), decibels(power * scale), atol=1e-3)


def test_correlation_by_hand():
    assert correlation(np.array([1.0, 2, 3]), np.array([2.0, 4, 6])) == pytest.approx(1)
    assert correlation(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    assert correlation(np.array([1.0, 0, 0, 0]), np.array([0.0, 1, 0, 0])) == pytest.approx(-1 / 3)
    assert correlation(np.ones(3), np.arange(3)) == 0.0
