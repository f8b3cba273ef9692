"""What is estimated from the sample of a session, and what makes a session doubtful."""

import numpy as np
import pytest

from tests.sessions.scans import LENGTH, estimate_of, scan
from usdenoise import denoise, session
from usdenoise.errors import OptionError
from usdenoise.pipeline.series import signal_image


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


@pytest.mark.parametrize(("low", "code"), [(1, "cutoff-low"), (40, "cutoff-high")])
def test_a_cutoff_that_does_not_suit_the_data_is_doubtful(low: int, code: str) -> None:
    assert code in codes(low)


def test_a_session_without_blood_is_doubtful() -> None:
    assert "no-blood" in codes("auto", blood=0.0)


def test_wrong_axes_are_doubtful() -> None:
    iq = scan(4, seed=2).iq
    found = session(np.moveaxis(iq, 0, 1), 12, axes="tzx").doubts
    assert found[0].code == "axes"
    assert "'ztx'" in found[0].sentence
