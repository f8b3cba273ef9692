"""The warnings about a result, and the methods paragraph."""

import re
from typing import Any

import pytest

from tests.report.reports import report
from usdenoise import METHODS
from usdenoise.report.sentences import cautions, methods_paragraph


def test_a_good_result_has_no_warning() -> None:
    assert cautions(report()) == []


@pytest.mark.parametrize(("fields", "words"), [
    ({"n_unobserved": 247, "frames": {"n_entries_left_out": 240}}, "7 "),
    ({"n_unobserved": 240, "frames": {"n_entries_left_out": 240, "sentence": "2 of 40 frames"}}, "2 of 40 frames"),
    ({"n_silent": 12}, "12 "),
    ({"n_silent": 12, "n_bad_pixels": 12, "bad_pixels": ["x = 3"]}, "12 pixels are far noisier"),
    ({"doubts": [{"code": "axes", "sentence": "the axes are wrong"}]}, "the axes are wrong"),
    ({"notes": ["s of the input did not come along"]}, "did not come along"),
])  # fmt: skip
def test_each_doubt_and_remark_is_a_warning(fields: dict[str, Any], words: str) -> None:
    (sentence,) = cautions(report(**fields))
    assert words in sentence


def test_the_short_methods_paragraph_has_what_a_methods_section_needs() -> None:
    """A session with a response, in about 120 words."""
    fields, shifts = dict(METHODS_CASES[-1][0]), "24 blocks were shifted, by up to 0.6 pixels in z"
    fields["sequence"] = {**fields["sequence"], "alignment": shifts}
    text, _ = methods_paragraph(report(**fields, low_cutoff=7), is_short=True)
    for words in (
        "3 blocks of 20 frames every 0.5 s (12 × 10 pixels, 500 frames per second) were filtered with usdenoise 9.8.7 [1].",
        "The 7 leading spatial singular vectors of the session were projected out as tissue clutter [2] (number chosen from "
        "the data; estimated by",
        "24 blocks were shifted, by up to 0.6 pixels in z. 1 bad block was excluded.",
        "(boxcar) in each pixel, smoothed by 0.2 mm, was fitted by a general linear model [4] with a linear drift, 1 "
        "cosine, a regressor for each bad block and autoregressive noise [5]",
        "(false discovery rate 0.05) [6].",
    ):
        assert words in text
    assert 100 < len(text.split()) < 140
    assert not re.search(r"[a-z],[a-z]|\.[A-Z]|\s[,.;)]", text)


def test_the_methods_have_what_each_position_of_the_probe_lost() -> None:
    pose = {"position_mm": None, "certainty": "sure", "blood_to_noise_db": 8.0, "n_blocks": 3, "n_bad": 0,
            "moves_pixels": None, "n_active": {}, "doubts": [], "page": ""}  # fmt: skip
    fields = dict(METHODS_CASES[-1][0])
    for owns, words in (
        ((False, True), "In the position b these were temporal singular vectors of the block itself."),
        ((True, True), "9 to 12 leading temporal singular vectors of the block itself"),
    ):
        poses = [
            {**pose, "name": name, "low_cutoff": low, "is_own": is_own}
            for name, low, is_own in zip("ab", (9, 12), owns, strict=True)
        ]
        # The report has the cutoff of one of them
        of_poses = report(**{**fields, "sequence": {**fields["sequence"], "poses": poses}}, low_cutoff=0)
        text, _ = methods_paragraph(of_poses)
        assert words in text
        assert "6 blocks of 20 frames, 3 sweeps over 2 positions of the probe" in text
        assert "9 to 12 leading" in text
        assert "The 9 to 12 leading" in methods_paragraph(of_poses, is_short=True)[0]


METHODS_CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["40 complex frames of 12 × 10 pixels (z × x) with a pitch of 0.1 mm at 500 frames per second",
          "a matrix of 120 pixels × 40 frames, whose 4 leading singular components", "60 random pixels",
          "a random sample of 50 % of the entries (seed 7)", "in 3 iterations", "from 0.6 to 0.51 (noise: 0.32",
          "all observed entries of 100 pixels", "2 leading spatial singular vectors", "(sure)", "is below 0.5"]),
    ({"n_silent": 20}, ["20 pixels without a signal", "a matrix of 100 pixels × 40 frames", "60 % of the entries"]),
    ({"doubts": [{"code": "axes", "sentence": "the axes look wrong"}]}, ["reported: the axes look wrong."]),
    ({"held_out_rmse": 0.61}, ["[2] in 3 iterations. The components"]),
    ({"method": "svd", "iterations": 0, "trace": [], "held_out_ratio": None, "held_out_rmse": None},
     ["were computed with the full SVD [2]."]),
    ({"cutoff": {"certainty": "given", "reason": "as given"}}, ["This number was specified;"]),
    ({"low_cutoff": 0, "high_cutoff": 4},
     ["No component was removed", "components up to number 4, counted from 1", "it contains tissue."]),
    ({"n_unobserved": 252, "bad_frames": [{"frame": 3}, {"frame": 9}], "frames": {"n_left_out": 2}},
     ["2 bad frames (numbers 3, 9, counted from 0) were excluded.", "120 pixels × 38 frames", "252 entries"]),
    ({"bad_frames": [{"frame": 3}, {"frame": 9}]}, ["2 bad frames (numbers 3, 9, counted from 0) were kept."]),
    ({"requested": {"display": {"db_factor": 20.0}, "output": {"products": ["velocity", "directional"]}}},
     ["shown in dB as 20 log10", "sign of the Doppler frequency", "lag-one autocorrelation [5]"]),
    ({"sequence": {"window": 20, "size": "20 frames", "stride": None, "sampled_frames": 40, "n_bad": 1, "n_unusual": 2,
                   "has_modulation": True, "design": ["on", "drift_1", "bad_block_2", "constant"], "time": [1.0, 1.5, 2.0],
                   "blocks": [{"time": 1.0}, {"time": 1.5}, {"time": 2.0, "n_frames": 40}]},
      "requested": {"display": {"db_factor": 10.0}, "output": {"products": ["power", "blood"]},
                    "session": {"events": "e.tsv", "hrf": "boxcar", "smoothing_mm": 0.2}}},
     ["3 blocks of 20 frames, one every 0.5 s, 1.06 s in total.", "half maximum of 0.2 mm", "1 block was excluded",
      "without 2 unusual ones,", "boxcars of the events, each multiplied by the modulation of the event, a constant",
      "a constant, a linear drift, 1 cosine for slow drifts, a regressor for each bad block",
      "(false discovery rate 0.05) [7]."]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "says"), [*METHODS_CASES, *(({"method": method}, ["[2]"]) for method in METHODS)]
)
def test_the_methods_paragraph_has_the_numbers_and_the_sources(fields, says):
    text, sources = methods_paragraph(report(**fields))
    for words in says:
        assert words in text
    short, short_sources = methods_paragraph(report(**fields), is_short=True)
    for paragraph, its_sources in ((text, sources), (short, short_sources)):
        cited = [int(number) for number in re.findall(r"\[(\d+)\]", paragraph)]
        assert list(dict.fromkeys(cited)) == list(range(1, len(its_sources) + 1))
    assert {*short_sources} <= {*sources}
    assert len(short.split()) < min(160, len(text.split()))
    assert ("The blood map" in text) == ("velocity" not in str(fields))
    if (method := fields.get("method", "eta-decay")) in METHODS:
        assert METHODS[method].citation.replace(",", " ").split()[0] in sources[1]
        assert METHODS[method].citation[-4:] in sources[1]
