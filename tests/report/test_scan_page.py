"""The page of a scan: what it says, in words and numbers, and that it needs nothing else."""

import re
import shlex
from dataclasses import replace
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest

from tests.report.reports import EVIL, Page, hostile_page, live_page, report
from usdenoise.report.charts import Chart
from usdenoise.report.scan_page import ActivationSection, Picture, scan_page

PICTURE = Picture("Blood map", b"\x89PNG", "Blood map: 12 × 10 pixels", "Power of the blood.")
NOISE = Chart("Noise over depth", "depth (mm)", "dB", [0.0, 0.1], [-9.0, -8.0])


def page(block_charts: Any = (), **fields: Any) -> Page:
    return Page(
        scan_page(
            "x", report(**fields), [PICTURE], [NOISE], [], {"Blocks": block_charts} if block_charts else {}
        )
    )


def test_the_page_has_the_numbers_of_the_report() -> None:
    text = page().text
    for words in (
        "Vessels in 19 % of the image.",
        "Nothing doubtful was found.",
        "8.1 dB", "0.82", "75 %", "Tissue that remains 2 %", "Computation good", "150 MiB",
        "Components removed: 2 (sure): from component 2 on, the similarity falls.",
        "t 40, z 12, x 10", "500 Hz", "z 0.1 mm, x 0.1 mm", "ab" * 32, "No assumption was needed.",
        "usdenoise run 'scans/my scan.h5'", "9.8.7",
    ):  # fmt: skip
        assert words in text
    assert "Bad frames" not in text
    links = [attributes["href"] for attributes in page().all("a")]
    assert links == ["./x_denoised.h5", "./x_report.json"]


def test_every_picture_and_curve_has_a_text_with_its_numbers() -> None:
    shown = page()
    assert [image["alt"] for image in shown.all("img")] == ["Blood map: 12 × 10 pixels"]
    assert [image["src"] for image in shown.all("img")] == ["data:image/png;base64,iVBORw=="]
    labels = [chart["aria-label"] for chart in shown.all("svg")]
    assert [label.partition(":")[0] for label in labels] == [
        "Singular values", "Similarity of each component to the leading ones", "Held-out error over the iterations",
        "Noise over depth",
    ]  # fmt: skip
    assert labels[-1].endswith("first −9, last −8, smallest −9 at 0, largest −8 at 0.1")


def test_hostile_text_is_shown_and_not_obeyed() -> None:
    html = hostile_page(b"")
    shown = Page(html)
    assert shown.all("script") == []
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", html)
    visible = EVIL.replace("\x1b", r"\x1b").replace("\x07", r"\x07")
    for words in (f"{visible}.", f"usdenoise {shlex.quote(visible)}"):
        assert " ".join(words.split()) in shown.text
    assert shown.text.count("<script>alert(") >= 15
    assert shown.all("img")[0]["alt"] == visible
    assert any(f"{visible}: 2 points of {visible} over" in chart["aria-label"] for chart in shown.all("svg"))
    # The text opens no element of its own.
    plain = page(notes=["a note"], bad_frames=[{"frame": 3}])
    assert {tag for tag, _ in shown.elements} <= {tag for tag, _ in plain.elements}


def test_a_page_needs_no_other_file() -> None:
    shown = page()
    policy = next(a["content"] for a in shown.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert [a["href"] for a in shown.all("link")] == ["data:,"]
    assert all(image["src"].startswith("data:") for image in shown.all("img"))


def test_bad_frames_and_remarks_are_listed() -> None:
    reasons = [(31, "interference", 12.34), (77, "all zero", 1.0)]
    bad = [{"frame": frame, "reason": reason, "score": score} for frame, reason, score in reasons]
    doubts = [{"code": "cutoff-unsure", "sentence": "the low cutoff 2 is unsure"}]
    text = page(doubts=doubts, bad_frames=bad).text
    assert "2 bad frames, counted from 0: Frame Reason Score 31 interference 12.3 77 all zero 1" in text
    assert "The low cutoff 2 is unsure." in text
    assert "Nothing doubtful" not in text
    # A sentence is not in both the verdict and the remarks.
    doubts = [{"code": "poor-estimate", "sentence": "poor fit"}]
    text = page(estimate="poor fit", fit="not-fitted", doubts=doubts).text
    assert "Poor fit. If the doubts are unfounded: vessels in 19 % of the image." in text


def test_doubts_contradict_no_number_of_the_page() -> None:
    assert "Clutter components removed 2 this number is sure Blood" in page().text
    assert "Clutter components removed 2 as given Blood" in page(cutoff={"certainty": "given"}).text
    doubted = page(doubts=[{"code": "no-blood", "sentence": "no blood was found"}]).text
    assert "Clutter components removed 2 chosen from the data Blood" in doubted
    assert "Nothing doubtful" not in doubted
    assert "No blood was found." in doubted
    doubts = [{"code": "cutoff", "sentence": "the data suggest 4"}]
    too_low = page(doubts=doubts, cutoff={"certainty": "given", "suggested": 4}).text
    assert "Tissue that remains unknown" in too_low
    # The error of the sample is shown, with its limit, only if no refit comes after it.
    assert "expected" not in page(held_out_ratio=1.13).text
    unfitted = page(parameters={"refit": "none"}, fit="as-sample-allows")
    assert "up to 1.1 times this is good" in unfitted.text


def test_a_session_has_its_blocks_and_curves() -> None:
    sequence = {
        "window": 20,
        "size": "20 frames",
        "stride": 10,
        "n_bad": 1,
        "n_unusual": 1,
        "blocks": [{}, {}, {}],
    }
    curve = Chart("Blood power over the vessels", "time (s)", "%", [0.1, 0.2], [2.0, 5.0], flagged=[0.2])
    shown = page(block_charts=[curve], sequence=sequence)
    assert "3 blocks of 20 frames, 1 of them bad." in shown.text
    assert ", without 1 unusual block." in shown.text
    assert any("Blood power over the vessels: 2 points" in chart["aria-label"] for chart in shown.all("svg"))


def test_the_page_of_a_session_begins_with_what_was_asked() -> None:
    """Active pixels and responses of regions come before the quality of the picture, in the summary and as numbers."""
    activation = {
        "n_active": 208, "threshold": 2.43, "statistic": "t", "rule": "fdr:0.05", "correlations": {},
    }  # fmt: skip
    response = {"trial_type": "on", "change": [35.7], "standard_error": 4.5, "statistic": "t"}
    response |= {"value": 7.98, "p": 3.4e-9}
    region = {"name": "left", "n_pixels": 448, "lowest": -29.7, "highest": 50.7, "responses": [response]}
    fields = {"window": 20, "size": "20 frames", "stride": None, "n_bad": 0, "blocks": [{}]}
    regions = [{**region, "name": "whole image"}, region]
    sequence = {**fields, "activation": [{**activation, "trial_type": "on"}], "regions": regions}
    more = {"activations": [ActivationSection("on", PICTURE, [NOISE])], "regions": PICTURE}
    text = Page(scan_page("x", report(sequence=sequence), [PICTURE], [NOISE], **more)).text
    summary = (
        "Activation by on: 208 pixels with |t| of 2.43 or more (false discovery rate 0.05); region left: +35.7 % at on "
        "(t = 7.98); vessels in 19 % of the image."
    )
    in_order = (
        summary,
        "Active pixels: on 208 |t| of 2.43 or more (false discovery rate 0.05)",
        "Response of left +35.7 % to on: t = 7.98, p = 3.4e-09; 448 pixels",
        "Activation: on Power of the blood. Noise over depth",
        "Regions Power of the blood.",
        "left 448 on +35.7 % ± 4.5 % t = 7.98, p = 3.4e-09",
        "Quality Clutter components removed",
        "Pictures Blood map",
    )
    places = [text.index(words) for words in in_order]
    assert places == sorted(places)
    assert "Response of whole image" not in text
    # Of free delays the largest
    response |= {
        "change": [None, -4.0, 12.5], "standard_error": None, "statistic": "F", "value": 3.1, "p": 0.02,
    }  # fmt: skip
    text = Page(scan_page("x", report(sequence=sequence), [PICTURE], [NOISE], regions=PICTURE)).text
    assert "Response of left +12.5 % to on: largest of 3 delays, F = 3.1, p = 0.02" in text
    # Without events, regions have ranges. A scan begins with its numbers.
    sequence = {**fields, "regions": [{**each, "responses": []} for each in sequence["regions"]]}
    text = Page(scan_page("x", report(sequence=sequence), [PICTURE], [NOISE], regions=PICTURE)).text
    assert "Region left: -29.7 to +50.7 %; vessels" in text
    assert "Range of left -29.7 to +50.7 % against its mean" in text
    assert page().text.index("Clutter components removed") < page().text.index("Pictures")


def test_the_page_of_a_live_session_begins_with_the_last_block() -> None:
    sections = [ActivationSection("on", PICTURE, ())]
    charts = {"Blocks": [NOISE]}
    text = Page(live_page("x", 3, pictures=[PICTURE], block_charts=charts, activations=sections)).text
    in_order = (
        "Blocks 3 0 of them bad; the last one is x",
        "Pictures Blood map",
        "Activation: on",
        "Noise over",
    )
    places = [text.index(words) for words in in_order]
    assert places == sorted(places)


@pytest.mark.slow
def test_large_pictures_are_made_smaller_so_that_the_page_is_below_3_mb() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (640, 640, 3)).astype(np.uint8)
    large = replace(PICTURE, png=iio.imwrite("<bytes>", noise, extension=".png"))
    assert 1_000_000 < len(scan_page("x", report(), [large] * 2, [])) < 3_000_000
    assert large.within(len(large.png)) == large
