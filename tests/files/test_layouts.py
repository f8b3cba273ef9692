"""One stack, in every layout that users bring, reads back identical, with its axes and scales."""

from pathlib import Path

import numpy as np
import pytest

from tests.files.layouts import LAYOUTS, SPACING, Layout, frames_by_loops
from usdenoise import load
from usdenoise.files import describe, layout


@pytest.fixture(params=LAYOUTS)
def how(request: pytest.FixtureRequest) -> Layout:
    return LAYOUTS[request.param]


def test_every_layout_reads_back_identical(how: Layout, tmp_path: Path) -> None:
    path = how.write(tmp_path)
    acquisition = load(path, **dict(how.options))
    assert acquisition.axes == how.axes
    assert acquisition.iq.dtype == np.complex64
    assert np.array_equal(acquisition.iq, how.expected)
    assert np.array_equal(acquisition.frames, frames_by_loops(how.expected, how.axes))
    assert acquisition.frame_rate_hz == how.frame_rate
    assert acquisition.center_frequency_hz == how.frequency
    assert acquisition.sound_speed_m_s == how.speed
    assert acquisition.spacing_mm == pytest.approx(
        {letter: SPACING[letter] for letter in how.spacing}, rel=1e-5
    )
    assert acquisition.name == how.name


def test_slabs_and_frames_of_every_layout(
    how: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = how.write(tmp_path)
    monkeypatch.setattr(layout, "SLAB_BYTES", 300)
    frames = slice(1, 11, 3)
    expected = how.of_frames(frames)
    for precision, dtype in ((None, "c8"), ("single", "c8"), ("double", "c16")):
        acquisition = load(path, frames=frames, dtype=precision, **dict(how.options))
        assert acquisition.iq.dtype == np.dtype(dtype)
        assert np.array_equal(acquisition.iq, expected)
        assert np.array_equal(acquisition.frames, frames_by_loops(expected, how.axes))
        # They are read in this order: the frames are the memory of the stack.
        assert np.shares_memory(acquisition.frames, acquisition.iq)
        assert acquisition.frames.flags.forc


def test_info_says_what_would_be_read_and_from_where(how: Layout, tmp_path: Path) -> None:
    description = describe(how.write(tmp_path), **dict(how.options))
    assert description.problem is None
    assert description.container == how.container
    assert description.chosen is not None
    assert description.chosen.name == how.name
    assert description.chosen.dtype == "complex64"
    assert description.chosen.shape == how.expected.shape
    assert description.metadata.values["axes"] == how.axes
    assert set(description.metadata.sources) == set(description.metadata.values)
    for name, source in description.metadata.sources.items():
        assert source in ("option", "assumed") or source.startswith("file: "), name
