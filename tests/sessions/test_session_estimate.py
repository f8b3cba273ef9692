"""What is estimated from the sample of a session, and what makes a session doubtful."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sessions.scans import LENGTH, estimate_of, scan
from usdenoise import denoise, session
from usdenoise.clutter.clutter_cutoff import CutoffReason
from usdenoise.errors import OptionError
from usdenoise.options import DenoiseOptions
from usdenoise.pipeline.series import signal_image
from usdenoise.sessions.session_sample import SAMPLED_FRAMES, sampled_frames


def test_the_clutter_is_what_the_blocks_have_in_common() -> None:
    made = scan(3)
    fit = denoise(made.iq, axes="tzx")
    # All of its frames are in the sample.
    clutter = estimate_of(made.recording, fit.options)
    k = clutter.low
    assert k == fit.options.low_cutoff == 4
    assert clutter.left.shape == (576, k)
    np.testing.assert_allclose(clutter.left.conj().T @ clutter.left, np.eye(k), atol=1e-5)
    # Components take as much from all pixels as there are components: k / n_pixels on average.
    assert 1 - clutter.kept_share.mean() == pytest.approx(k / 576, rel=1e-3)
    # A block loses to components that were fitted to its frames too.
    right = fit.model.right[:, :k].reshape(3, LENGTH, k)
    lost = np.mean([np.sum(np.abs(block) ** 2) / LENGTH for block in right])
    assert 1 - clutter.projection.white[0].real == pytest.approx(lost, rel=1e-6)
    image = np.arange(576, dtype=np.float32).reshape(24, 24)
    geometry = made.recording.geometry
    pixels = clutter.grid.at_signal(geometry.pixels(image))
    np.testing.assert_array_equal(signal_image(geometry, clutter.grid, pixels), image)


@pytest.mark.parametrize(("seed", "turns"), [
    (1, 6), (0, 48), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0, 6), (1, 100))),
])  # fmt: skip
def test_blocks_of_changing_tissue_lose_components_of_their_own(seed: int, turns: int) -> None:
    """The speckle becomes other speckle: within four blocks, or from block to block."""
    made = scan(24, turns=turns, resolution=0.7, seed=seed)
    found = session(made.stack, LENGTH)
    assert found.low_cutoff == 4
    assert found.fit.cutoff.reason is CutoffReason.BLOCK_ALONE
    assert not found.bad.any()
    vessels = made.blood_power.mean(axis=0) > 0
    for number, block in enumerate(made.blocks):
        # The SVD of the block
        left, values, right = np.linalg.svd(block.reshape(LENGTH, -1), full_matrices=False)
        rest = (left[:, 4:] * values[4:]) @ right[4:]
        power = np.mean(np.abs(rest) ** 2, axis=0).reshape(vessels.shape)
        np.testing.assert_allclose(found.power_doppler[number], power, rtol=0.02)
    for block in found.blood_power:
        assert block[vessels].mean() == pytest.approx(1.0, abs=0.25)
        assert abs(block[~vessels].mean()) < 0.1


def test_a_burst_in_the_middle_does_not_say_how_many_components_blocks_have() -> None:
    made, rng = scan(24, turns=48, resolution=0.7), np.random.default_rng(1)
    iq = made.iq.copy()
    burst = iq[12 * LENGTH : 13 * LENGTH]
    for _ in range(8):
        # Further speckle of the same strength, each with a time course of its own
        other = made.iq[rng.integers(len(iq))] * rng.standard_normal((LENGTH, 1, 1))
        burst += other.astype(iq.dtype)
    (alone,) = (denoise(burst, axes="tzx").low_cutoff,)
    assert alone > 8
    found = session(replace(made.stack, iq=iq), LENGTH)
    assert found.fit.cutoff.reason is CutoffReason.BLOCK_ALONE
    assert found.low_cutoff == 4


def test_a_given_cutoff_is_of_common_components() -> None:
    made = scan(24, turns=48, resolution=0.7)
    found = session(made.stack, LENGTH, options=DenoiseOptions(low_cutoff=4))
    assert found.low_cutoff == 4
    assert found.fit.is_cutoff_given
    # The components of all blocks leave the tissue of each
    assert found.power_doppler.mean() > 10 * made.blood_power.mean()


def test_some_blocks_of_a_session_are_filtered_alone() -> None:
    made = scan(12)
    part = session(made.stack, LENGTH, blocks=slice(4, 10))
    alone = session(replace(made.stack, iq=made.iq[4 * LENGTH : 10 * LENGTH]), LENGTH)
    np.testing.assert_array_equal(part.blood_power, alone.blood_power)
    np.testing.assert_allclose(part.time, alone.time + 4 * LENGTH / 500)
    # A selection that ends beyond the session is used, and reported.
    assert part.geometry.assumptions == ()
    (note,) = session(made.stack, LENGTH, blocks=slice(4, 40)).geometry.assumptions
    assert note == "blocks 4:40 reach beyond the session, which has 12 blocks: 8 are used"
    with pytest.raises(OptionError, match="selects none of the 12 blocks"):
        session(made.stack, LENGTH, blocks=slice(12, None))


def test_arrays_are_one_stack_or_none() -> None:
    made = scan(2)
    with pytest.raises(OptionError, match="join the arrays along time, and give window"):
        session(list(made.blocks), axes="tzx")
    with pytest.raises(OptionError, match="window is required"):
        session(made.stack)
    with pytest.raises(OptionError, match="reading requires files"):
        session(made.stack, LENGTH, reading={"frames": slice(0, 20)})


def codes(low_cutoff: int | str, **settings: float) -> list[str]:
    """The codes of the doubts about a session."""
    found = session(scan(12, seed=2, **settings).stack, LENGTH, low_cutoff=low_cutoff)
    return [doubt.code for doubt in found.doubts]


def test_a_good_session_is_not_doubtful() -> None:
    assert codes("auto") == []


@pytest.mark.parametrize("low", [1, 40])
def test_a_cutoff_that_does_not_suit_the_data_is_doubtful(low: int) -> None:
    assert "cutoff" in codes(low)


def test_a_session_without_blood_is_doubtful() -> None:
    assert "no-blood" in codes("auto", blood=0.0)


def test_wrong_axes_are_doubtful() -> None:
    found = session(np.moveaxis(scan(4, seed=2).iq, 0, 1), 12, axes="tzx").doubts
    assert found[0].code == "axes"
    assert "'ztx'" in found[0].sentence


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(2, 900), min_size=1, max_size=60), st.integers(0, 2**32 - 1))
def test_the_sample_has_frames_of_every_block(lengths: list[int], seed: int) -> None:
    found = sampled_frames(lengths, seed)
    assert len(found) == len(lengths)
    for frames, length in zip(found, lengths, strict=True):
        assert len(frames) >= 1
        assert np.all(np.diff(frames) > 0)
        assert frames[0] >= 0
        assert frames[-1] < length
    total, wanted = sum(lengths), SAMPLED_FRAMES
    n_found = sum(map(len, found))
    if len(lengths) == 1 or total <= wanted:
        assert n_found == total
    else:
        # Rounded in each block, and one frame of the shortest.
        assert abs(n_found - wanted) <= len(lengths)
    again = sampled_frames(lengths, seed)
    assert all(np.array_equal(one, other) for one, other in zip(found, again, strict=True))
