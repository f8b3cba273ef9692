"""Files of the tests of the command line."""

from pathlib import Path

import pytest

from tests.cli.shared import write


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A stack about which nothing has to be assumed."""
    return write(tmp_path / "x.h5", axes="tzx", frame_rate_hz=500.0)
