"""The warnings about a result, in sentences."""

from typing import Any

import pytest

from tests.pictures.reports import report
from usdenoise.jobs.cautions import cautions

FRAMES = report()["frames"]


@pytest.mark.parametrize(
    ("fields", "sentences"),
    [
        ({}, []),
        ({"n_unobserved": 247, "frames": {**FRAMES, "n_entries_left_out": 240}},
         ["7 entries were NaN or infinite; they were not used, and are filled from the low-rank model"]),
        ({"n_unobserved": 240, "frames": {**FRAMES, "n_entries_left_out": 240, "sentence": "2 of 40 frames are left out"}},
         ["2 of 40 frames are left out"]),
        ({"n_silent": 12}, ["12 pixels have no signal; they count nowhere, and are 0 in all results"]),
        ({"fit": "not-fitted", "estimate": "poor fit"}, ["poor fit"]),
        ({"start_caution": "too few samples"}, ["too few samples"]),
        ({"cutoff": {**report()["cutoff"], "certainty": "unsure"}},
         ["the low cutoff 2 is unsure; look at the picture, or set the low cutoff"]),
        ({"notes": ["s of the input did not come along"]}, ["s of the input did not come along"]),
    ],
)  # fmt: skip
def test_each_doubt_has_a_sentence(fields: dict[str, Any], sentences: list[str]) -> None:
    assert cautions(report(**fields)) == sentences
