"""What makes a session doubtful, and what must not."""

import numpy as np
import pytest

from tests.sessions.scans import LENGTH, scan
from usdenoise import session


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
