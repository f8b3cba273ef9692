"""Settings of a phantom that no phantom can have."""

from typing import Any

import pytest

from usdenoise.errors import OptionError
from usdenoise.phantom import PhantomSettings


@pytest.mark.parametrize("settings", [
    {"activation": 10},
    {"session": 4, "burst_blocks": (1, 4), "jerk_pixels": 1},
    {"session": 4, "burst_blocks": (1,)},
    {"session": 4, "block_interval_s": 0.1},
])  # fmt: skip
def test_an_impossible_session_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        PhantomSettings(**settings)
