"""What the page of a scan takes from its result: pictures in words, noise over depth, curves over the frames."""

from dataclasses import replace

import imageio.v3 as iio
import numpy as np
import pytest

from tests.report.reports import Page
from usdenoise.frames.bad_frames import BadFrame, FrameReason, FrameTreatment
from usdenoise.frames.frame_quality import FrameCurves, FrameQuality
from usdenoise.jobs.run_job import run
from usdenoise.report.charts import Carpet
from usdenoise.report.page_content import described_image, frame_charts, noise_over_depth
from usdenoise.stack.acquisition import Acquisition

RNG = np.random.default_rng(0)


def stack(pitch: float | None = None) -> Acquisition:
    spacing = {} if pitch is None else {"z": pitch, "x": pitch}
    return Acquisition(RNG.standard_normal((5, 40, 20)), axes="tzx", spacing_mm=spacing)


def test_images_are_described_with_their_numbers() -> None:
    power = np.full((40, 20), 0.01)
    power[30, 5] = 1.0
    assert described_image("blood_power", power, stack(0.1), "") == (
        "40 × 20 pixels (depth × lateral), 4 × 2 mm; brightest at depth 3 mm, lateral 0.5 mm, 20 dB above the median"
    )
    signed = np.repeat([[-2.0], [6.0]], 50, axis=0) * np.ones((100, 20))
    assert described_image("axial_velocity", signed, stack(), "mm/s") == (
        "100 × 20 pixels (depth × lateral); 98 % of the values from -2 to 6 mm/s; 50 % of the pixels towards the probe"
    )


def test_the_noise_is_averaged_over_each_depth() -> None:
    noise = np.repeat([[1.0], [10.0]], 20, axis=0) * np.ones((40, 20))
    (chart,) = noise_over_depth(noise, stack(0.1))
    assert chart.x[:2] == [0.0, 0.1]
    assert (chart.x_label, chart.y_label) == ("depth (mm)", "noise power (dB)")
    assert chart.y[:20] == [0.0] * 20
    assert chart.y[20:] == pytest.approx([10.0] * 20)
    assert noise_over_depth(np.zeros((40, 20)), stack()) == []
    turned = Acquisition(RNG.standard_normal((4, 6, 5)), axes="xzt")
    (chart,) = noise_over_depth(np.arange(1.0, 7.0) * np.ones((4, 1)), turned)
    assert chart.y == pytest.approx([10 * np.log10(k) for k in range(1, 7)])
    assert chart.x_label == "depth (pixels)"
    across = Acquisition(RNG.standard_normal((5, 6, 4)), axes="tyx")
    assert noise_over_depth(np.ones((6, 4)), across) == []


def test_curves_over_the_frames_have_the_bad_ones_marked() -> None:
    power = np.array([1.0, 100.0, 0.0, 10.0])
    displacement = np.array([[0.0, 0.5], [0.0, 0.25], [np.nan, np.nan], [-0.1, 0.1]])
    carpet = np.array([[1, 1, 0, 1], [1, 30, 0, 1]], np.float32)
    curves = FrameCurves(power, np.array([np.nan, 3.0, 4.0, 5.0]), power / 10, displacement, carpet)
    bad = (BadFrame(1, FrameReason.OUTLIER, 9.5), BadFrame(2, FrameReason.ZERO, 1.0))
    quality = FrameQuality(bad, 4, FrameTreatment.TOO_MANY, curves)
    # A wavelength of 1500 m/s over 15 MHz
    scales = {"center_frequency_hz": 15e6, "sound_speed_m_s": 1500.0}
    stack = Acquisition(RNG.standard_normal((4, 6, 5)), "txz", **scales)
    *charts, below = frame_charts(quality, stack)
    assert {chart.title: list(chart.y) for chart in charts[2:]} == {
        "Power outside the clutter": [-10.0, 10.0, None, 0.0],
        "Displacement of the tissue along depth, median": [0.0, 0.0, None, pytest.approx(-10)],
        "The same, 95th percentile of the image": [50.0, 25.0, None, pytest.approx(10)],
    }
    assert [chart.y_label for chart in charts[3:]] == ["um", "um"]
    assert charts[0].points == [(0.0, 0.0), (1.0, 20.0), (3.0, 10.0)]
    assert charts[1].points == [(1.0, 3.0), (2.0, 4.0), (3.0, 5.0)]
    assert all(list(chart.flagged) == [1, 2] for chart in charts)
    *seconds, _ = frame_charts(quality, replace(stack, frame_rate_hz=500.0))
    assert [(chart.x_label, list(chart.x), list(chart.flagged)) for chart in seconds] == [
        ("time (s)", [0.0, 0.002, 0.004, 0.006], [0.002, 0.004])
    ] * 5
    grey = Carpet("a", "b", "x", np.array([[0.0, 1.0, 9.0]]), (-6.0, 6.0), 1.0)
    assert iio.imread(grey.png).tolist() == [[0, 128, 255]]
    says = "2 bands of pixels; 4 frames; largest at frame 1 in band 1, counted from 0 at the top"
    assert below.text.endswith(says)
    # 0 dB is a third of the way from -6 to 12 dB; no power is black, and 30 times the median white.
    assert iio.imread(below.png).tolist() == [[85, 85, 0, 85], [85, 255, 0, 85]]


@pytest.mark.usefixtures("no_pictures")
def test_power_doppler_comes_first_where_the_map_lacks_what_it_shows(phantom_file, tmp_path, monkeypatch):
    monkeypatch.setattr("usdenoise.pipeline.result.MOST_MISSING", -1.0)
    assert [doubt["code"] for doubt in run(phantom_file, tmp_path)["doubts"]] == ["map-incomplete"]
    shown = Page((tmp_path / "small_report.html").read_text())
    pictures = [image["alt"].partition(":")[0] for image in shown.all("img")]
    assert pictures[:2] == ["Power Doppler", "Blood map"]
