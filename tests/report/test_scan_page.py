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
from usdenoise.report.charts import Chart, ticks
from usdenoise.report.methods_paragraph import methods_paragraph
from usdenoise.report.scan_page import Picture, scan_page

PICTURE = Picture("Blood map", b"\x89PNG", "Blood map: 12 × 10 pixels", "Power of the blood.")
NOISE = Chart("Noise over depth", "depth (mm)", "dB", [0.0, 0.1], [-9.0, -8.0])


def page(block_charts: Any = (), **fields: Any) -> Page:
    return Page(scan_page("x", report(**fields), [PICTURE], [NOISE], [], block_charts))


def test_the_page_says_what_the_report_says() -> None:
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


def test_green_contradicts_no_number() -> None:
    """The error of the sample is shown, with its limit, only if no refit comes after it."""
    assert "expected" not in page(held_out_ratio=1.13).text
    assert "single entries differ by a few per cent: for localisation choose the method svd" in page().text
    unfitted = page(parameters={"refit": "none"}, fit="as-sample-allows")
    assert "up to 1.1 times this is good" in unfitted.text
    assert "localisation" not in unfitted.text
    doubted = page(doubts=[{"code": "no-blood", "sentence": "no blood was found"}]).text
    assert "Nothing doubtful" not in doubted
    assert "No blood was found." in doubted
    too_low = page(
        doubts=[{"code": "cutoff-low", "sentence": "1 component removed; the data suggest 2"}]
    ).text
    assert "Tissue that remains unknown" in too_low


def test_every_picture_and_curve_has_its_numbers_in_words() -> None:
    shown = page()
    assert [image["alt"] for image in shown.all("img")] == ["Blood map: 12 × 10 pixels"]
    assert [image["src"] for image in shown.all("img")] == ["data:image/png;base64,iVBORw=="]
    labels = [chart["aria-label"] for chart in shown.all("svg")]
    assert labels == [
        "Singular values: 4 points of dB below the first over component, first 0, last −60, smallest −60 at 4, "
        "largest 0 at 1; line at 2.5: 2 removed",
        "Similarity of each component to the leading ones: 4 points of similarity over component, first 0.9, last 0.05, "
        "smallest 0.05 at 4, largest 0.9 at 1; line at 2.5: 2 removed; line at the value 0.5: threshold",
        "Held-out error over the iterations: 4 points of rms error, units of the file over iteration, first 0.6, last "
        "0.51, smallest 0.51 at 3, largest 0.6 at 0",
        "Noise over depth: 2 points of dB over depth (mm), first −9, last −8, smallest −9 at 0, largest −8 at 0.1",
    ]


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


def test_bad_frames_and_remarks_are_listed_where_there_are_some() -> None:
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
    text = page(frames={"sentence": "the image steps by 3.0 pixels"}).text
    assert "The image steps by 3.0 pixels." in text
    assert "Frames the image steps by 3.0 pixels. No bad frame was found." in text
    # A sentence is not in both the verdict and the remarks.
    doubts = [{"code": "poor-estimate", "sentence": "poor fit"}]
    text = page(estimate="poor fit", fit="not-fitted", doubts=doubts).text
    assert "Poor fit. If the doubts are unfounded: vessels in 19 % of the image." in text


def test_the_number_of_components_is_said_to_be_sure_or_given() -> None:
    assert "Clutter components removed 2 this number is sure Blood" in page().text
    assert "Clutter components removed 2 as given Blood" in page(cutoff={"certainty": "given"}).text
    for code in ("axes", "no-blood"):
        text = page(doubts=[{"code": code, "sentence": "wrong"}]).text
        assert "Clutter components removed 2 chosen from the data Blood" in text


def test_a_page_does_not_call_a_scan_good_for_a_good_computation() -> None:
    text = page().text
    assert "Nothing doubtful was found. Vessels in 19 % of the image." in text
    assert "as good as the full SVD; this does not judge the scan or the cutoff" in text


def test_the_share_of_sampled_entries_is_one_number() -> None:
    text = page(n_sampled=341).text
    assert "a random sample of 7.1 % of the entries" in text
    assert "sampling 0.5 of a pixel subset, 7.1 % of all entries" in text
    assert "a random sample of 100 % of the entries" in page(n_sampled=4800).text


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
    for words in (
        "3 blocks of 20 frames, 1 of them bad.",
        "The same 2 spatial components are removed from all blocks. The next two sections describe the sample "
        "of 40 frames from which they were estimated.",
        "The frames were filtered as 3 blocks of 20 frames.",
    ):
        assert words in shown.text
    assert any("Blood power over the vessels: 2 points" in chart["aria-label"] for chart in shown.all("svg"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, ["40 complex frames of 12 × 10 pixels (z × x) with a pitch of 0.1 mm at 500 frames per second were filtered "
              "with usdenoise 9.8.7 [1].",
              "arranged as a matrix of 120 pixels × 40 frames, whose 4 leading singular components were estimated. "
              "The temporal factor started from the leading temporal singular vectors of 60 random pixels, and the "
              "spatial factor from the regularised least-squares fit to the sampled entries. Low-rank factors "
              "were fitted to a random sample of 50 % of the entries (seed 7), a part of which was held out, by "
              "preconditioned gradient descent with a geometrically decaying damping [2] in 3 iterations, which lowered the "
              "rms error on the held-out entries from 0.6 to 0.51 (noise: 0.32; units of the data). The components were "
              "then refined by subspace iteration with a Rayleigh-Ritz projection on all observed entries of 100 pixels, "
              "and the spatial vectors were fitted to all pixels by least squares.",
              "The frames were projected onto the orthogonal complement of the 2 leading spatial singular vectors (clutter "
              "filter [3]). This number was chosen from the data (sure): beyond it, the similarity of the envelopes of the "
              "spatial singular vectors [4] to the leading ones is below 0.5; all other components and the "
              "residual were kept.",
              "The blood map is an estimate of the power of the blood",
              "with a per-pixel cutoff where the spatial vectors determine one"]),
        ({"n_sample_pixels": 120}, ["on all observed entries. The frames were projected"]),
        ({"n_silent": 20}, ["20 pixels without a signal were excluded.", "a matrix of 100 pixels × 40 frames",
                            "a random sample of 60 % of the entries"]),
        ({"doubts": [{"code": "axes", "sentence": "the axes look wrong"}]},
         ["The quality control of the software reported: the axes look wrong."]),
        ({"cutoff": {"rule": "tissue-square", "certainty": "likely"}},
         ["(likely): the envelopes of these spatial singular vectors are similar to each other [4], as in tissue speckle;"]),
        ({"cutoff": {"rule": "blood-map"}}, ["vessel map from a non-negative factorization", "up to the end of the tissue"]),
        ({"held_out_rmse": 0.61}, ["[2] in 3 iterations. The components"]),
        ({"method": "svd", "iterations": 0, "trace": [], "held_out_ratio": None, "held_out_rmse": None},
         ["its 4 leading singular components were computed with the full SVD [2]."]),
        ({"cutoff": {"certainty": "given", "reason": "as given"}}, ["(clutter filter [3]). This number was specified;"]),
        ({"low_cutoff": 0, "high_cutoff": 4}, ["No component was removed as tissue clutter (from component 2 on",
                                               "components up to number 4, counted from 1, were kept",
                                               "it contains tissue."]),
        ({"n_unobserved": 252, "bad_frames": [{"frame": 3}, {"frame": 9}], "frames": {"n_left_out": 2}},
         ["2 bad frames (numbers 3, 9, counted from 0) were excluded.", "120 pixels × 38 frames",
          "252 entries without a finite value"]),
        ({"bad_frames": [{"frame": 3}, {"frame": 9}]},
         ["2 bad frames (numbers 3, 9, counted from 0) were kept."]),
        ({"parameters": {"refit": "all", "init": "pixels"}},
         ["with usdenoise 9.8.7 [1]. The frames were arranged",
          "residual were kept"]),
        ({"requested": {"display": {"db_factor": 20.0}, "output": {"products": ["velocity", "directional"]}}},
         ["shown in dB as 20 log10", "sign of the Doppler frequency", "lag-one autocorrelation [5]"]),
        ({"parameters": {"refit": "none", "init": "spectral"}, "iterations": 1},
         ["with zeros for the other entries, divided by the sampled share.", "in 1 iteration, which lowered"]),
        ({"sequence": {"window": 20, "size": "20 frames", "stride": None, "sampled_frames": 40, "n_bad": 1,
                       "design": ["on", "drift_1", "bad_block_2", "constant"],
                       "time": [1.0, 1.5, 2.0],
                       "blocks": [{"time": 1.0}, {"time": 1.5}, {"time": 2.0, "n_frames": 40}]},
          "requested": {"display": {"db_factor": 10.0}, "output": {"products": ["power", "blood"]},
                        "session": {"events": "e.tsv", "hrf": "boxcar", "smoothing_mm": 0.2}}},
         ["3 blocks of 20 frames, one every 0.5 s, 1.06 s in total.",
          "of the blood power, smoothed by a Gaussian with a full width at half maximum of 0.2 mm, with boxcars of the "
          "events, a constant, 1 cosine for slow drifts, a regressor for each bad block. Data and model were prewhitened",
          "at a false discovery rate of 0.05 [6].",
          "in total. 1 block was excluded"]),
        ({"iterations": 0}, ["[2] did not lower the error on held-out entries, so that the start was used."]),
    ],
)  # fmt: skip
def test_the_methods_paragraph_says_what_was_done(fields: dict[str, Any], says: list[str]) -> None:
    text, sources = methods_paragraph(report(**fields))
    for words in says:
        assert words in text
    cited = [int(number) for number in re.findall(r"\[(\d+)\]", text)]
    assert list(dict.fromkeys(cited)) == list(range(1, len(sources) + 1))
    assert ("The blood map" in text) == ("velocity" not in str(fields))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_the_table_has_its_source(method: str) -> None:
    text, sources = methods_paragraph(report(method=method))
    assert "[2]" in text
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


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.2, 17), (0.001, 0.0013), (5, 5), (0, 0), (-1e6, 1e6)])
def test_ticks_are_few_and_reach_over_the_values(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 3 <= len(found) <= 9
    assert found[0] <= low
    assert found[-1] >= high


def test_large_pictures_are_made_smaller_so_that_the_page_is_below_3_mb() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (640, 640, 3)).astype(np.uint8)
    large = replace(PICTURE, png=iio.imwrite("<bytes>", noise, extension=".png"))
    assert 1_000_000 < len(scan_page("x", report(), [large] * 2, [])) < 3_000_000
    assert large.within(len(large.png)) == large
    small = large.within(400_000)
    assert len(small.png) <= 400_000
    assert [iio.imread(large.within(most).png).shape[0] for most in (1_000_000, 10)] == [640, 480]


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
