"""Power Doppler, decibels and flow images against values worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from usdenoise.blood import doppler
from usdenoise.blood.doppler import axial_velocity, decibels, directional_power, power_doppler
from usdenoise.errors import OptionError
from usdenoise.stack.acquisition import Acquisition


def test_power_doppler_is_the_mean_square_magnitude():
    iq = np.array([[3 + 4j, 0], [0, 2j]], np.complex64)
    assert np.array_equal(power_doppler(iq, -1), np.float32([12.5, 2.0]))
    assert np.array_equal(power_doppler(iq, axis=0), np.float32([12.5, 2.0]))
    assert np.array_equal(power_doppler(np.float32([[1, -3]]), 1), np.float32([5.0]))


def test_power_doppler_sums_in_double_precision():
    iq = np.full((1, 20_000_000 // 1000), 1e-3, np.float32)
    iq[0, 0] = 100
    assert power_doppler(iq, -1)[0] == pytest.approx((1e4 + 19999e-6) / 20000, rel=1e-7)


@pytest.mark.parametrize(("factor", "expected"), [(10, [0, -10, -20]), (20, [0, -20, -40])])
def test_decibels_by_hand(factor, expected):
    assert decibels(np.array([5.0, 0.5, 0.05]), factor) == pytest.approx(expected)
    assert np.array_equal(decibels(np.array([1.0, 0.0])), [0, -np.inf])
    assert np.all(decibels(np.zeros(3)) == -np.inf)


# Scaling a subnormal number loses its digits before any decibel is taken.
@given(arrays(np.float64, 20, elements=st.just(0.0) | st.floats(1e-300, 1e6)), st.floats(1e-3, 1e3))
def test_decibels_do_not_depend_on_scale(power, scale):
    if power.max() > 1e-200:
        assert np.allclose(decibels(power), decibels(power * scale), atol=1e-3)


def tones(frames, *frequencies):
    """Return one row for each frequency in cycles per frame, with powers 1, 4, 9, …"""
    time = np.arange(frames)
    return np.stack([(n + 1) * np.exp(2j * np.pi * f * time) for n, f in enumerate(frequencies)])


@pytest.mark.parametrize("frames", [64, 65])
def test_directional_power_of_tones(frames):
    up, down = directional_power(tones(frames, 8 / frames, -8 / frames, 0.0), -1)
    assert up == pytest.approx([1, 0, 4.5], abs=1e-5)
    assert down == pytest.approx([0, 4, 4.5], abs=1e-5)


def test_half_the_frame_rate_has_no_direction():
    up, down = directional_power(tones(64, 0.5), -1)
    assert up == pytest.approx([0.5])
    assert down == pytest.approx([0.5])


@given(
    arrays(np.complex128, (5, 3, 17), elements=st.complex_numbers(max_magnitude=1e3)),
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.integers(0, 2),
)
def test_directions_add_up_to_the_power_and_swap_under_conjugation(iq, scale, axis):
    iq = iq * scale
    up, down = directional_power(iq, axis)
    total = power_doppler(iq, axis)
    largest = max(float(total.max()), 1e-30)
    assert np.allclose(up + down, total, rtol=1e-5, atol=1e-6 * largest)
    up_conjugate, down_conjugate = directional_power(iq.conj(), axis)
    assert np.allclose(up, down_conjugate, rtol=1e-5, atol=1e-6 * largest)
    assert np.allclose(down, up_conjugate, rtol=1e-5, atol=1e-6 * largest)


@pytest.mark.parametrize("frequency", [-0.45, -0.1, 0.0, 0.013, 0.2, 0.49])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_doppler_frequency_of_a_tone(frequency, scale):
    iq = (scale * tones(40, frequency, frequency)).astype(np.complex64)
    assert doppler.doppler_frequency(iq, -1) == pytest.approx([frequency] * 2, abs=1e-5)
    assert doppler.doppler_frequency(iq.T, 0) == pytest.approx([frequency] * 2, abs=1e-5)


def test_doppler_frequency_equals_a_textbook_loop():
    rng = np.random.default_rng(3)
    iq = rng.standard_normal((4, 3, 20)) + 1j * rng.standard_normal((4, 3, 20))
    expected = np.zeros((4, 3))
    for z in range(4):
        for x in range(3):
            lag_one = sum(iq[z, x, t + 1] * iq[z, x, t].conjugate() for t in range(19))
            expected[z, x] = np.arctan2(lag_one.imag, lag_one.real) / (2 * np.pi)
    assert doppler.doppler_frequency(iq, -1) == pytest.approx(expected, abs=1e-6)


def test_axial_velocity_by_its_scales():
    # A scatterer that moves towards the probe at 20 mm/s: 2 v f0 / c = 389.6 Hz at 15 MHz.
    speed, center, rate = 1540.0, 15e6, 2000.0
    shift = 2 * 20e-3 * center / speed
    iq = tones(50, shift / rate, -shift / rate).reshape(2, 1, 50)
    known = {"frame_rate_hz": rate, "center_frequency_hz": center}
    velocity = axial_velocity(Acquisition(iq, "zxt", **known))
    assert velocity.unit == "mm/s"
    assert velocity.values[:, 0] == pytest.approx([20, -20], rel=1e-4)
    assert "1540 m/s" in velocity.formula
    faster = axial_velocity(Acquisition(iq, "zxt", sound_speed_m_s=1600.0, **known))
    assert faster.values == pytest.approx(velocity.values * 1600 / 1540, rel=1e-5)
    in_hz = axial_velocity(Acquisition(iq.transpose(2, 0, 1), "tzx", frame_rate_hz=rate))
    assert in_hz.unit == "Hz"
    assert in_hz.values[:, 0] == pytest.approx([shift, -shift], rel=1e-4)
    assert axial_velocity(Acquisition(iq, "zxt")).unit == "cycles/frame"


@pytest.mark.parametrize("names", [("directional",), ("velocity",)])
def test_a_real_stack_has_no_direction(names):
    stack = Acquisition(np.ones((2, 3, 4)), "zxt")
    with pytest.raises(
        OptionError, match=r"requires complex IQ, and this stack is real; remove it from products"
    ):
        doppler.flow_images(stack.iq, stack, names)
