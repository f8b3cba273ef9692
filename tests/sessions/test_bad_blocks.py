"""Blocks that are not like the others are found, and no others."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sessions.scans import IMAGE, LENGTH, scan
from usdenoise import session
from usdenoise.sessions import bad_blocks
from usdenoise.sessions.bad_blocks import LOST, MOTION, UNLIKE, BlockLevel, find_bad_blocks, upper_group


def powers_of(n_blocks: int, shape: float = 50, size: int = 300, seed: int = 0) -> list[Any]:
    """The power of blocks of speckle."""
    rng = np.random.default_rng(seed)
    return [rng.gamma(shape, size=size).astype(np.float32) for _ in range(n_blocks)]


def bad_among(powers: list[Any], known: Any = None) -> tuple[list[int], NDArray[np.float64]]:
    """The numbers of the bad blocks, and how much more power is left in each."""
    known = np.zeros(len(powers), bool) if known is None else known
    reasons = ["known" if is_known else "" for is_known in known]
    levels = [BlockLevel(power, reason) for power, reason in zip(powers, reasons, strict=True)]
    why, spread = find_bad_blocks(levels)
    return [number for number, reason in enumerate(why) if reason], spread


def test_few_blocks_and_gaps_are_judged_with_care() -> None:
    powers = powers_of(6)
    powers[2] *= 3
    bad, spread = bad_among(powers)
    assert bad == [2]
    assert spread[2] > 10
    # One that was recorded with a fifth of the amplitude.
    bad, spread = bad_among([*powers, powers[0] / 25])
    assert bad == [2, 6]
    assert spread[6] < -10
    # Of four good ones nobody knows which is unusual.
    assert bad_among(powers[:4])[0] == []
    # A block without data is bad, and one that is known to be bad does not say what is usual.
    bad, spread = bad_among([*powers, None], [True, *[False] * 6])
    assert bad == [0, 2, 6]
    assert np.isnan(spread[6])
    assert np.isfinite(spread[:6]).all()
    assert bad_among([None, None])[0] == [0, 1]


def test_the_reason_is_told() -> None:
    powers = powers_of(9)
    powers[1] *= 3
    powers[3] /= 4
    powers[4][:3] *= 20
    # A tissue that is 11 dB weaker, with the power of the others after the filter.
    levels = [BlockLevel(power, gain_db=-11.0 if number == 6 else 0.0) for number, power in enumerate(powers)]
    why, _ = find_bad_blocks(levels)
    wanted = {1: MOTION, 3: LOST, 4: bad_blocks.ARTEFACT.format(n=3), 6: bad_blocks.WEAK}
    assert {number: reason for number, reason in enumerate(why) if reason} == wanted


def test_a_block_of_another_position_is_bad_if_most_are_of_one() -> None:
    powers = powers_of(9)

    def why(foreign: set[int]) -> list[str]:
        alike = [number not in foreign for number in range(9)]
        levels = [BlockLevel(power, is_alike=each) for power, each in zip(powers, alike, strict=True)]
        return find_bad_blocks(levels)[0]

    assert why({2, 7}) == [UNLIKE if number in (2, 7) else "" for number in range(9)]
    # In images of noise none is like another one.
    assert not any(why(set(range(2, 9))))


def test_pixels_without_data_do_not_count() -> None:
    powers = powers_of(7, seed=6)
    powers[5] *= 3
    for number, power in enumerate(powers):
        power[:40] = np.nan
        power[40 * number : 40 * number + 40] = np.nan
    assert bad_among(powers)[0] == [5]


def test_bubbles_that_pass_in_all_blocks_are_no_artefact() -> None:
    rng = np.random.default_rng(7)
    powers = powers_of(20, size=1000)
    for power in powers:
        power[rng.choice(1000, 8, replace=False)] *= 50
    assert bad_among(powers)[0] == []
    powers[3][:60] *= 50
    assert bad_among(powers)[0] == [3]


@pytest.mark.parametrize("noise", [powers_of(20), powers_of(20, 200, 400, seed=4)])
@pytest.mark.parametrize("rise", [0.5, 1.2, 8.0, 100.0])
def test_a_change_of_the_blood_makes_no_block_bad(noise: list[Any], rise: float) -> None:
    # Vessels in a third of the pixels change, as by vasomotion and contrast agent.
    blood = np.where(np.arange(len(noise[0])) % 3, 0.0, np.linspace(10, 1000, len(noise[0])))
    course = np.ones(20)
    course[8:14] = np.linspace(rise, 1, 6)
    changed = [power + strength * blood for power, strength in zip(noise, course, strict=True)]
    powers = [power.astype(np.float32) for power in changed]
    assert bad_among(powers)[0] == []
    # Tissue leaks in all pixels, and clipping is in few.
    powers[9] *= 3
    assert bad_among(powers)[0] == [9]
    powers[9] /= 3
    powers[3][1:12:3] *= 50
    why, _ = find_bad_blocks([BlockLevel(power) for power in powers])
    assert why[3] == bad_blocks.ARTEFACT.format(n=4)
    assert sum(map(bool, why)) == 1


@pytest.mark.parametrize("n_frames", [3, 7, 15, 40, 300])
def test_a_shorter_or_longer_block_is_judged_by_its_number_of_frames(n_frames: int) -> None:
    powers = powers_of(15, size=1000)
    own = powers_of(1, 50 * n_frames / 100, 1000, seed=1)[0] / (n_frames / 100)
    levels = [BlockLevel(power, n_frames=100) for power in powers]
    why, spread = find_bad_blocks([*levels, BlockLevel(own, n_frames=n_frames)])
    assert not any(why)
    assert abs(spread[-1]) < 4
    # Ten times the power, or a twentieth of it, is bad for its own reason.
    for factor, reason in ((10, MOTION), (0.05, LOST)):
        why, _ = find_bad_blocks([*levels, BlockLevel(factor * own, n_frames=n_frames)])
        assert why == [*[""] * 15, reason]


def test_the_last_block_of_a_session_may_be_short() -> None:
    found = session(scan(8, seed=3).iq[: 7 * LENGTH + 16], LENGTH, axes="tzx")
    assert found.blocks["n_frames"][-1] == 16
    assert not found.bad.any()
    assert found.blocks["leftover"][-1] < 3


def test_blocks_of_another_animal_are_bad_and_the_remedy_is_named() -> None:
    blocks = scan(9, seed=3).blocks
    blocks[6:] = scan(9, seed=4).blocks[6:]
    found = session(np.concatenate(blocks), LENGTH, axes="tzx")
    assert [block.why for block in found.block_records] == [*[""] * 6, *[UNLIKE] * 3]
    assert "one session of each position" in UNLIKE


@pytest.mark.parametrize("seed", range(4))
def test_values_of_one_kind_are_no_two_groups(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for logs in (rng.standard_normal(24), rng.uniform(-3, 3, 60), np.linspace(0, 5, 24), np.full(24, 2.0)):
        assert not upper_group(logs).any()
    upper = rng.permutation(24) < 9
    logs = np.where(upper, 2.0, 0.0) + 0.2 * rng.standard_normal(24)
    logs[rng.permutation(24)[:2]] = np.nan
    np.testing.assert_array_equal(upper_group(logs), upper & np.isfinite(logs))
    assert not upper_group(logs[:4]).any()


def test_bad_blocks_are_interpolated_between_the_good_blocks_with_data() -> None:
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.random(12) + 0.1)
    images = rng.standard_normal((12, 3, 4)).astype(np.float32)
    bad = np.isin(np.arange(12), (0, 3, 4, 8, 11))
    # Bad blocks without data, a pixel without data in neighbours, and one without data in any good block
    images[[4, 11]], images[[2, 5], 1, 1] = np.nan, np.nan
    images[~bad, 2, 3] = np.nan
    images[:, 0, 0] = 0
    before = images.copy()
    found = bad_blocks.interpolated_series(images, times, bad)
    np.testing.assert_array_equal(images, before)
    np.testing.assert_array_equal(found[~bad], images[~bad])
    for z, x in np.ndindex(3, 4):
        known = ~bad & np.isfinite(images[:, z, x])
        wanted = np.full(5, np.nan)
        if known.any():
            wanted = np.interp(times[bad], times[known], images[known, z, x])
        np.testing.assert_allclose(found[bad, z, x], wanted, rtol=1e-5, atol=1e-6)
    assert not found[:, 0, 0].any()
    np.testing.assert_array_equal(bad_blocks.interpolated_series(images, times, np.zeros(12, bool)), images)


def test_a_component_that_some_blocks_have_more_of_leaves_none_out() -> None:
    """It is in few pixels, nine times as strong in five blocks, and the others have it, too."""
    made = scan(16)
    z, x = np.indices(IMAGE)
    patch = np.exp(-((z - 14) ** 2 + (x - 9) ** 2) / 8 + 0.7j * z)
    strength = np.where(np.isin(np.arange(16), range(3, 8)), 18.0, 6.0)
    course = np.repeat(strength, LENGTH) * np.exp(0.06j * np.pi * np.arange(16 * LENGTH))
    iq = (made.iq + course[:, None, None] * patch).astype(np.complex64)
    found = session(replace(made.stack, iq=iq), LENGTH)
    assert found.n_unusual == 0
    assert not found.bad.any()


def test_blocks_in_which_the_image_jumps_are_left_out() -> None:
    found = session(scan(16, bursts=(3, 9), seed=1).stack, LENGTH)
    assert found.n_unusual == 2
    assert np.flatnonzero(found.bad).tolist() == [3, 9]
