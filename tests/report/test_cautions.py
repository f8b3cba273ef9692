"""The warnings about a result."""

from typing import Any

import pytest

from tests.report.reports import report
from usdenoise.report.sentences import cautions


def test_a_good_result_has_no_warning() -> None:
    assert cautions(report()) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n_unobserved": 247, "frames": {"n_entries_left_out": 240}}, "7 "),
        (
            {
                "n_unobserved": 240,
                "frames": {"n_entries_left_out": 240, "sentence": "2 of 40 frames"},
            },
            "2 of 40 frames",
        ),
        ({"n_silent": 12}, "12 "),
        ({"n_silent": 12, "n_bad_pixels": 12, "bad_pixels": ["x = 3"]}, "12 pixels are far noisier"),
        ({"doubts": [{"code": "axes", "sentence": "the axes are wrong"}]}, "the axes are wrong"),
        ({"notes": ["s of the input did not come along"]}, "did not come along"),
    ],
)
def test_each_doubt_and_remark_is_a_warning(fields: dict[str, Any], words: str) -> None:
    (sentence,) = cautions(report(**fields))
    assert words in sentence
