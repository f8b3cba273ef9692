"""Which frames are in the sample, and what is made of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sessions.scans import LENGTH, estimate_of, scan
from usdenoise import denoise, session
from usdenoise.errors import OptionError
from usdenoise.pipeline.series import signal_image
from usdenoise.sessions.session_sample import SAMPLED_FRAMES, sampled_frames


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


def test_another_seed_takes_other_frames() -> None:
    first, second = (np.concatenate(sampled_frames([300] * 40, seed)) for seed in (0, 1))
    assert not np.array_equal(first, second)
    # Anywhere in the blocks, and not the same frames of each.
    assert np.unique(first).size > 290


def test_the_clutter_is_what_the_blocks_have_in_common() -> None:
    made = scan(3)
    fit = denoise(made.iq, axes="tzx")
    # All of its frames are in the sample.
    clutter = estimate_of(made.recording, fit.options).clutter
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


def test_arrays_are_one_stack_or_none() -> None:
    made = scan(2)
    with pytest.raises(OptionError, match="join the arrays along time, and give window"):
        session(list(made.blocks), axes="tzx")
    with pytest.raises(OptionError, match="requires window, the number of frames of a block"):
        session(made.stack)
    with pytest.raises(OptionError, match="reading requires a file; omit it, or give a path"):
        session(made.stack, LENGTH, reading={"frames": slice(0, 20)})


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    session(scan(3).stack, LENGTH, low_cutoff=4, on_block=lambda *done: told.append(done))
    assert told == [(1, 3), (2, 3), (3, 3)]
