"""The stack of the ultrasound experiments: its spectrum, its noise, its picture and its unit."""

from pathlib import Path

import numpy as np
import pytest

from tests.cli.shared import write
from usdenoise.blood.power_doppler import power_doppler
from usdenoise.experiments.filtered_stack import draw_filtered_stack
from usdenoise.experiments.setup import LARGEST_SINGULAR_VALUE, Setup, search_rank
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings

SHAPE, COMPONENTS = (48, 40, 240), 10


@pytest.fixture(scope="module")
def drawn():
    """One drawn stack. Read only."""
    with ThreadExecutor(1) as executor:
        return draw_filtered_stack(SHAPE, COMPONENTS, executor)


def singular_values(stack):
    return np.linalg.svd(stack.reshape(-1, SHAPE[-1]).astype(np.float64), compute_uv=False)


def test_blood_has_as_many_components_as_asked_for_and_falls_by_35_db(drawn):
    values = singular_values(drawn[1])
    assert values[0] == pytest.approx(1, rel=1e-5)
    assert 20 * np.log10(values[:COMPONENTS]) == pytest.approx(-35 * np.arange(COMPONENTS) / 9, abs=1e-3)
    assert values[COMPONENTS] < 1e-5 * values[COMPONENTS - 1]


def test_noise_hides_what_is_below_the_last_component(drawn):
    acquisition, blood, settings = drawn
    noise = acquisition.iq - blood
    values = singular_values(noise)
    last = singular_values(blood)[COMPONENTS - 1]
    assert values[0] == pytest.approx(last, rel=0.05)
    rms = np.sqrt(np.mean(noise**2)) / np.sqrt(np.mean(blood**2))
    assert rms == pytest.approx(settings["noise_rms_over_blood_rms"], rel=0.01)
    # White: neighbouring pixels and neighbouring frames have nothing in common.
    for axis in range(3):
        moved = np.moveaxis(noise, axis, 0)
        assert abs(np.mean(moved[:-1] * moved[1:])) < 0.01 * np.mean(noise**2)


def test_vessels_are_bright(drawn):
    with ThreadExecutor(1) as executor:
        mask = Phantom(PhantomSettings(shape=SHAPE), executor).mask
    power = power_doppler(drawn[1], axis=-1)
    ratio = 10 * np.log10(power[mask].mean() / power[~mask].mean())
    assert 15 < ratio < 25


def test_threads_do_not_change_the_stack(drawn):
    with ThreadExecutor(2) as executor:
        again = draw_filtered_stack(SHAPE, COMPONENTS, executor)
    assert np.array_equal(drawn[0].iq, again[0].iq)


def test_the_stack_is_scaled_to_the_ratio_of_the_published_steps():
    stack = Setup(quick=True, threads=1).stack
    largest = singular_values(stack.acquisition.iq)[0]
    assert LARGEST_SINGULAR_VALUE == 1e4
    assert largest == pytest.approx(1e4, rel=1e-3)
    assert stack.rank == COMPONENTS
    assert stack.noise_free is not None
    assert singular_values(stack.noise_free)[0] == pytest.approx(1e4, rel=0.01)


def test_the_unit_of_a_file_with_unobserved_entries_does_not_matter(tmp_path: Path, drawn):
    paths = []
    for scale in (1.0, 1e3):
        iq = scale * drawn[0].iq
        iq[::7, 3] = np.nan
        paths.append(write(tmp_path / f"{scale:g}.h5", iq, axes="zxt", frame_rate_hz=500.0))
    first, second = (Setup(acquisition=path).stack for path in paths)
    assert np.allclose(first.acquisition.iq, second.acquisition.iq, rtol=1e-4, equal_nan=True)
    assert first.noise_free is None
    assert second.source["largest_singular_value"] == pytest.approx(
        1e3 * first.source["largest_singular_value"], rel=1e-4
    )


def test_search_rank_keeps_its_part_of_the_shorter_side():
    assert search_rank(26000, 2400) == 100
    assert search_rank(26000, 240) == 10
    assert search_rank(48, 2400) == 2
    assert search_rank(10, 10) == 1
