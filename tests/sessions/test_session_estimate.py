"""What is estimated from the sample of a session, and what makes a session doubtful."""

from dataclasses import replace

import numpy as np
import pytest

from tests.sessions.scans import LENGTH, estimate_of, scan
from usdenoise import denoise, session
from usdenoise.clutter.clutter_cutoff import CutoffReason
from usdenoise.errors import OptionError
from usdenoise.options import DenoiseOptions
from usdenoise.pipeline.series import signal_image
from usdenoise.sessions.bad_blocks import FEWEST_BLOCKS


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


def test_the_clutter_of_a_block_comes_from_blocks_near_in_time() -> None:
    """The tissue becomes other tissue: in the session it has twice the components of a block."""
    made = scan(24, turns=6, resolution=0.7)
    found = session(made.stack, LENGTH)
    truth = made.blood_power.mean(axis=0)
    assert FEWEST_BLOCKS <= found.n_near <= 12
    # In six blocks the tissue is at most three kinds of tissue, of four components each
    assert found.low_cutoff <= 12
    assert not found.bad.any()
    vessels = truth > 0
    for block in found.blood_power:
        assert block[vessels].mean() == pytest.approx(1.0, abs=0.25)
        assert abs(block[~vessels].mean()) < 0.1


@pytest.mark.parametrize(("seed", "turns"), [(0, 48), (1, 100)])
def test_blocks_without_common_clutter_lose_components_of_their_own(seed: int, turns: int) -> None:
    """Each block has other speckle: the components of all blocks have the tissue of none."""
    made = scan(24, turns=turns, resolution=0.7, seed=seed)
    found = session(made.stack, LENGTH)
    assert found.n_near == 1
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


def test_a_given_cutoff_is_of_common_components() -> None:
    made = scan(24, turns=48, resolution=0.7)
    found = session(made.stack, LENGTH, options=DenoiseOptions(low_cutoff=4))
    assert found.n_near == 0
    assert found.low_cutoff == 4


def test_the_clutter_near_a_block_is_that_of_its_frames() -> None:
    made = scan(24, turns=6, resolution=0.7)
    clutter = estimate_of(made.recording, DenoiseOptions())
    assert clutter.over_time is not None
    for number in (0, 11, 23):
        block = made.recording.blocks[number]
        at = clutter.at(block.start_s)
        assert at.over_time is None
        np.testing.assert_allclose(at.left.conj().T @ at.left, np.eye(at.low), atol=1e-4)
        # The nearest sampled frames, one after the other
        span, frames = clutter.over_time.span, clutter.over_time.frames
        times = clutter.over_time.start_s
        by_distance = sorted({*times.tolist()}, key=lambda time: abs(time - block.start_s))
        nearest = by_distance[: clutter.over_time.n_blocks]
        near = [t for t in range(len(frames)) if times[t] in nearest]
        values = np.stack([span @ frames[t] for t in near], axis=1)
        energies = np.linalg.svd(values, compute_uv=False) ** 2
        course = clutter.over_time.leading(block.start_s, at.low)[1]
        assert not np.delete(course, near, axis=0).any()
        left_by = [
            values - at.left @ (at.left.conj().T @ values),
            values - (values @ course[near]) @ course[near].conj().T,
        ]
        for rest in left_by:
            assert np.vdot(rest, rest).real == pytest.approx(energies[at.low :].sum(), rel=1e-3)
        x = np.asarray(block.read())
        rest = x - (x @ at.left.conj()) @ at.left.T
        shared = x - (x @ clutter.left.conj()) @ clutter.left.T
        assert np.vdot(rest, rest).real <= 1.05 * np.vdot(shared, shared).real


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
    iq = scan(4, seed=2).iq
    found = session(np.moveaxis(iq, 0, 1), 12, axes="tzx").doubts
    assert found[0].code == "axes"
    assert "'ztx'" in found[0].sentence
