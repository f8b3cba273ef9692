"""Rates of the displacement of the tissue: found where it repeats itself, and nowhere else."""

import numpy as np
import pytest

from tests.conftest import all_frames
from usdenoise import Acquisition, denoise
from usdenoise.frames.frame_quality import rhythms
from usdenoise.phantom import PhantomSettings
from usdenoise.sessions.result_series import series_of_stack


def beats(rate, n, frame_rate=500.0, start=0.3):
    """Pulses of a tenth of their period."""
    return np.exp(-0.5 * ((((np.arange(n) / frame_rate * rate + start) % 1) - 0.5) / 0.08) ** 2)


@pytest.mark.parametrize("heart", [6.1, 7.7, 11.3])
def test_heart_and_breathing_are_found(heart):
    breathing = np.sin(2 * np.pi * 1.55 * np.arange(1500) / 500.0)
    moved = beats(heart, 1500) + breathing
    moved[200:204] = np.nan
    found = rhythms(moved, 500.0)
    assert sorted(found) == [pytest.approx(1.55, rel=0.05), pytest.approx(heart, rel=0.01)]
    assert rhythms(1e-6 * moved, 500.0) == found
    assert rhythms(moved, 1000.0) == pytest.approx([2 * rate for rate in found], rel=1e-2)


def test_what_does_not_repeat_itself_has_no_rate():
    rng, found = np.random.default_rng(0), []
    for _ in range(50):
        noise = rng.standard_normal(300)
        found += [rhythms(moved, 500.0) for moved in (noise, np.cumsum(noise), np.cumsum(np.cumsum(noise)))]
    assert sum(map(bool, found)) <= 0.02 * len(found)
    assert rhythms(np.linspace(0, 1, 300) ** 2, 500.0) == ()
    assert rhythms(np.zeros(300), 500.0) == rhythms(np.full(300, np.nan), 500.0) == ()
    # Fewer than four beats may be anything
    assert rhythms(beats(8.0, 180), 500.0) == ()


def test_the_motion_of_a_phantom_is_in_its_record():
    settings = PhantomSettings((48, 40, 250), frame_rate_hz=500.0, seed=5, breathing=(0.5, 9.0))
    stack = Acquisition(all_frames(settings)[1].iq, "tzx", frame_rate_hz=500.0, center_frequency_hz=15.4e6)
    frames = series_of_stack(denoise(stack)).block_records[0].frames
    # 0.4 of half a pixel, which is a wavelength of 100 um, along depth, and what the tissue moves besides
    assert frames.displacement_unit == "um"
    assert 35 < frames.displacement < 60
    assert frames.rates_hz[0] == pytest.approx(9.0, rel=0.03)
    recorded = series_of_stack(denoise(stack, tissue="recorded")).block_records[0].frames
    assert (recorded.displacement, recorded.rates_hz) == (None, ())
