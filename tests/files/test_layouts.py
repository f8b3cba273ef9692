"""One stack, in every layout that users bring, reads back identical, with its axes and scales."""

from pathlib import Path

import numpy as np
import pytest

from tests.files.layouts import LAYOUTS, SPACING, frames_by_loops
from usdenoise import load
from usdenoise.files import describe


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_reads_back_identical(name: str, tmp_path: Path) -> None:
    how = LAYOUTS[name]
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
    # What would be read, and from where each value comes
    description = describe(path, **dict(how.options))
    assert description.problem is None
    assert description.container == how.container
    assert (description.chosen.name, description.chosen.dtype) == (how.name, "complex64")
    assert description.chosen.shape == how.expected.shape
    assert description.metadata.values["axes"] == how.axes
    assert set(description.metadata.sources) == set(description.metadata.values)
    for value, source in description.metadata.sources.items():
        assert source in ("option", "assumed") or source.startswith("file: "), value
