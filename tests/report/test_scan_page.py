"""The page of a scan: what it says, in words and numbers, and that it needs nothing else."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest

from tests.programs import python
from tests.report.reports import EVIL, Page, hostile_page, report
from usdenoise import METHODS
from usdenoise.report.charts import Chart
from usdenoise.report.scan_page import Picture, scan_page
from usdenoise.report.sentences import methods_paragraph

PICTURE = Picture("Blood map", b"\x89PNG", "Blood map: 12 × 10 pixels", "Power of the blood.")
NOISE = Chart("Noise over depth", "depth (mm)", "dB", [0.0, 0.1], [-9.0, -8.0])


def page(block_charts: Any = (), **fields: Any) -> Page:
    return Page(scan_page("x", report(**fields), [PICTURE], [NOISE], [], block_charts))


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
    bad = [
        {"frame": 31, "reason": "interference", "score": 12.34},
        {"frame": 77, "reason": "all zero", "score": 1.0},
    ]
    text = page(
        doubts=[{"code": "cutoff-unsure", "sentence": "the low cutoff 2 is unsure"}], bad_frames=bad
    ).text
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
    too_low = page(doubts=[{"code": "cutoff-low", "sentence": "the data suggest 2"}]).text
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
        "sampled_frames": 40,
        "n_bad": 1,
        "blocks": [{}, {}, {}],
    }
    curve = Chart("Blood power over the vessels", "time (s)", "%", [0.1, 0.2], [2.0, 5.0], flagged=[0.2])
    shown = page(block_charts=[curve], sequence=sequence)
    assert "3 blocks of 20 frames, 1 of them bad." in shown.text
    assert any("Blood power over the vessels: 2 points" in chart["aria-label"] for chart in shown.all("svg"))


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
    ({"sequence": {"window": 20, "size": "20 frames", "stride": None, "sampled_frames": 40, "n_bad": 1,
                   "design": ["on", "drift_1", "bad_block_2", "constant"], "time": [1.0, 1.5, 2.0],
                   "blocks": [{"time": 1.0}, {"time": 1.5}, {"time": 2.0, "n_frames": 40}]},
      "requested": {"display": {"db_factor": 10.0}, "output": {"products": ["power", "blood"]},
                    "session": {"events": "e.tsv", "hrf": "boxcar", "smoothing_mm": 0.2}}},
     ["3 blocks of 20 frames, one every 0.5 s, 1.06 s in total.", "half maximum of 0.2 mm", "1 block was excluded",
      "a constant, 1 cosine for slow drifts, a regressor for each bad block", "(false discovery rate 0.05) [7]."]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "says"), [*METHODS_CASES, *(({"method": method}, ["[2]"]) for method in METHODS)]
)
def test_the_methods_paragraph_has_the_numbers_and_the_sources(
    fields: dict[str, Any], says: list[str]
) -> None:
    text, sources = methods_paragraph(report(**fields))
    for words in says:
        assert words in text
    cited = [int(number) for number in re.findall(r"\[(\d+)\]", text)]
    assert list(dict.fromkeys(cited)) == list(range(1, len(sources) + 1))
    assert ("The blood map" in text) == ("velocity" not in str(fields))
    if (method := fields.get("method", "eta-decay")) in METHODS:
        assert METHODS[method].citation.replace(",", " ").split()[0] in sources[1]
        assert METHODS[method].citation[-4:] in sources[1]


def test_a_curve_is_drawn_at_its_values() -> None:
    drawn = Chart("a", "x", "y", [0, 1, 2, 3], [0.0, None, float("nan"), 10.0]).svg
    points = re.search(r'<polyline points="([^"]*)"', drawn)
    assert points is not None
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in points[1].split())
    assert x0 < x1
    assert y0 > y1
    assert drawn.count("<circle") == 2
    assert Chart("a", "x", "y", [0], [None]).svg == ""


def test_bad_points_are_marked_also_in_a_long_curve() -> None:
    chart = Chart("a", "frame", "y", range(1000), [float(k % 7) for k in range(1000)], flagged=[3, 500])
    assert chart.svg.count('<circle class="flag"') == chart.svg.count("<circle") == 2
    assert chart.text.endswith("; marked at 3, 500")
    many = Chart("a", "frame", "y", range(1000), [0.0] * 1000, flagged=range(25))
    # A bad block 1000 times as bright does not hide the course of the others.
    bright = Chart("a", "block", "%", range(4), [0.0, 5.0, 5000.0, 2.0], flagged=[2])
    assert "largest 5000 at 2" in bright.text
    (ring,) = re.findall(r'class="flag" cx="[0-9.]+" cy="([0-9.]+)"', bright.svg)
    line = [float(height) for height in re.findall(r"[0-9.]+,([0-9.]+) ", bright.svg)]
    assert float(ring) == line[2] == min(line)
    assert line[0] - line[1] > 100
    assert many.text.endswith("18, 19 and 5 more")


def test_a_long_curve_keeps_its_extremes_and_stays_small() -> None:
    values = [0.0] * 100_000
    values[31_415] = 1.0
    drawn = Chart("a", "x", "y", range(len(values)), values).svg
    assert len(drawn) < 20_000
    points = re.search(r'points="([^"]*)"', drawn)
    assert points is not None
    assert len({point.split(",")[1] for point in points[1].split()}) == 2


def test_large_pictures_are_made_smaller_so_that_the_page_is_below_3_mb() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (640, 640, 3)).astype(np.uint8)
    large = replace(PICTURE, png=iio.imwrite("<bytes>", noise, extension=".png"))
    assert 1_000_000 < len(scan_page("x", report(), [large] * 2, [])) < 3_000_000
    assert large.within(len(large.png)) == large


@pytest.mark.parametrize("is_writing", [True, False])
def test_compiled_templates_lie_beside_compiled_modules(tmp_path: Path, is_writing: bool) -> None:
    code = f"""
import importlib.util, pathlib, sys
from usdenoise.report import charts
sys.pycache_prefix, sys.dont_write_bytecode = {str(tmp_path)!r}, {not is_writing}
folder = pathlib.Path(importlib.util.cache_from_source(charts.__file__)).parent
folder.mkdir(parents=True, exist_ok=True)
print(charts.Chart("a", "x", "y", [0, 1], [2.0, 3.0]).svg)
"""
    first = python(code).stdout
    assert "<polyline" in first
    files = list(tmp_path.rglob("*.cache"))
    assert bool(files) == is_writing
    for path in files:
        # As after a full disk.
        path.write_bytes(path.read_bytes()[:-40])
    assert python(code).stdout == first
