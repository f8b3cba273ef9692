"""The stack of the ultrasound experiments: its spectrum, its noise and its picture."""

import numpy as np
import pytest

from usdenoise.blood.doppler import power_doppler
from usdenoise.experiments.ultrasound import Setup
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings

SHAPE, COMPONENTS = (48, 40, 240), 10


@pytest.fixture(scope="module")
def drawn():
    """The stack of quick experiments. Read only."""
    return Setup(quick=True, threads=1).stack


def singular_values(stack):
    return np.linalg.svd(stack.reshape(-1, SHAPE[-1]).astype(np.float64), compute_uv=False)


def test_blood_falls_by_35_db_from_1e4_to_the_last_component(drawn):
    values = singular_values(drawn.blood)
    assert drawn.components == COMPONENTS
    assert values[0] == pytest.approx(1e4, rel=1e-5)
    decibels = 20 * np.log10(values[:COMPONENTS] / 1e4)
    assert decibels == pytest.approx(-35 * np.arange(COMPONENTS) / 9, abs=1e-3)
    assert values[COMPONENTS] < 1e-5 * values[COMPONENTS - 1]


def test_white_noise_hides_what_is_below_the_last_component(drawn):
    noise = drawn.acquisition.iq - drawn.blood
    last = singular_values(drawn.blood)[COMPONENTS - 1]
    assert singular_values(noise)[0] == pytest.approx(last, rel=0.05)
    for axis in range(3):
        moved = np.moveaxis(noise, axis, 0)
        assert abs(np.mean(moved[:-1] * moved[1:])) < 0.01 * np.mean(noise**2)


def test_vessels_are_bright(drawn):
    with ThreadExecutor(1) as executor:
        mask = Phantom(PhantomSettings(shape=SHAPE), executor).mask
    power = power_doppler(drawn.blood, axis=-1)
    assert 15 < 10 * np.log10(power[mask].mean() / power[~mask].mean()) < 25
