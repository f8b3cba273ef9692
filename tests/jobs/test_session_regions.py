"""Regions of a finished session: their table, their picture, and what is refused before the work begins."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import imageio.v3 as iio
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

import usdenoise
from tests.cli.shared import cli, refused, report_of
from tests.sessions.scans import ABOUT, LENGTH, RATE_HZ, Scan, scan, weakened, write_blocks, write_events
from tests.stacks import write_stack
from usdenoise import session
from usdenoise.errors import OptionError
from usdenoise.options.job_options import DPI
from usdenoise.report.pictures import region_picture

SHAPE, N_BLOCKS = (20, 16), 4
CUTOFFS = {"rank": 12, "low_cutoff": 4}
REGIONS = ("--region", "top=rect:0,0,0.5,1.6mm", "--region", "a b=circle:12,10,3")


@pytest.fixture(scope="module")
def made() -> Scan:
    return scan(N_BLOCKS, shape=SHAPE)


@pytest.fixture(scope="module")
def files(made: Scan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four blocks. Read only."""
    folder = tmp_path_factory.mktemp("regions") / "mouse"
    return write_blocks(folder, made.blocks, every_s=0.5, spacing_mm=[0.1, 0.1])


def expected(blood: np.ndarray) -> dict[str, np.ndarray]:
    """Means of the images over the pixels of the regions, by slow loops."""
    top = [(z, x) for z in range(5) for x in range(16)]
    circle = [(z, x) for z in range(20) for x in range(16) if (z - 12) ** 2 + (x - 10) ** 2 <= 9]
    whole = [(z, x) for z in range(20) for x in range(16)]
    return {
        name: np.array([np.mean([image[place] for place in places if image[place]]) for image in blood.astype(float)])
        for name, places in {"whole image": whole, "top": top, "a b": circle}.items()
    }  # fmt: skip


@pytest.mark.usefixtures("no_pictures")
def test_the_table_has_the_mean_blood_of_each_region(files: Path, tmp_path: Path) -> None:
    report = report_of("session", files, "-o", tmp_path, "--low-cutoff", 4, *REGIONS)
    head, *lines = Path(report["output"]["regions_tsv"]).read_text().splitlines()
    names = ["whole_image", "top", "a_b"]
    columns = [f"{kind}_{name}" for name in names for kind in ("blood", "percent")]
    assert head.split("\t") == ["time", *columns, "bad"]
    values = np.array([line.split("\t") for line in lines], float)
    with h5py.File(report["output"]["sequence"]) as file:
        blood, times = file["blood_power"][()], file["time"][()]
    np.testing.assert_allclose(values[:, 0], times, rtol=1e-7)
    wanted = expected(blood).values()
    for column, percent, means in zip(values[:, 1:7:2].T, values[:, 2:7:2].T, wanted, strict=True):
        np.testing.assert_allclose(column, means, rtol=1e-6)
        np.testing.assert_allclose(percent, 100 * means / means.mean(), rtol=1e-6)
    assert "region_responses_tsv" not in report["output"]
    described = json.loads(Path(report["output"]["regions_json"]).read_text())
    assert list(described) == head.split("\t")
    assert "80 pixels" in described["blood_top"]["Description"]
    assert described["percent_top"]["Units"] == "%"
    assert ">Regions</h2>" in Path(report["output"]["report_html"]).read_text()


def test_the_library_has_the_same_series(files: Path, made: Scan) -> None:
    mask = np.zeros(SHAPE, bool)
    mask[:5] = True
    found = session(files, regions={"top": mask, "a b": "circle:12,10,3"}, **CUTOFFS)
    in_memory = session(made.iq, LENGTH, axes="tzx", frame_rate=RATE_HZ, regions={"top": mask}, **CUTOFFS)
    for name, means in expected(found.blood_power).items():
        np.testing.assert_allclose(found.regions[name], means, rtol=1e-6)
    assert found.region_responses == {}
    np.testing.assert_allclose(in_memory.regions["top"], found.regions["top"], rtol=1e-5)
    plain = session(files, **CUTOFFS)
    assert (plain.regions, plain.region_table) == ({}, {})
    with pytest.raises(OptionError, match="the session has no regions; give regions"):
        plain.plot("regions")


def test_regions_go_by_the_names_of_the_axes(files: Path, made: Scan, tmp_path: Path) -> None:
    """The first number is depth, also where the files are lateral first, and a DataArray has the names of its axes."""
    square = made.iq[:, :, :16]
    wide = np.zeros((20, 16), bool)
    wide[:, :4] = True
    iio.imwrite(tmp_path / "left.png", wide.astype(np.uint8))
    regions = {"left": "rect:0,0,20,4", "circle": "circle:12,3,3", "drawn": str(tmp_path / "left.png")}
    how: dict[str, Any] = {"frame_rate": RATE_HZ, **CUTOFFS}
    turned = session(square.transpose(0, 2, 1), LENGTH, axes="txz", regions=regions, **how)
    wanted = session(square, LENGTH, axes="tzx", regions=regions, **how)
    blood = turned.blood_power.transpose(0, 2, 1)
    np.testing.assert_allclose(wanted.blood_power, blood, rtol=1e-4, atol=1e-4)
    for name in regions:
        np.testing.assert_allclose(turned.regions[name], wanted.regions[name], rtol=1e-4)
    np.testing.assert_array_equal(turned.regions["left"], turned.regions["drawn"])
    # As xarray.where makes it
    named = xr.DataArray(np.where(wide.T, 1.0, np.nan), dims=("i", "j"))
    data = xr.DataArray(square[:, None], dims=("time", "k", "j", "i"))
    by_name = session(data, LENGTH, regions={"left": named}, **how)
    np.testing.assert_allclose(by_name.regions["left"], wanted.regions["left"], rtol=1e-4)
    with pytest.raises(OptionError, match="a region has the dimensions a, b"):
        session(files, regions={"left": xr.DataArray(wide, dims=("a", "b"))}, **CUTOFFS)


EVENTS = [(0.2 * first, 0.6, "on") for first in (3, 9, 15)]


@pytest.mark.usefixtures("no_pictures")
def test_regions_have_their_responses_to_events(tmp_path: Path) -> None:
    """The baseline of the course is the good blocks outside the events, which a weak one is not."""
    made = weakened(scan(20, rise=0.5, blood=3.0, shape=SHAPE), 7)
    path = write_stack(tmp_path / "s.h5", made.iq, **ABOUT)
    events = write_events(tmp_path / "e.tsv", EVENTS)
    regions = {"left": "rect:0,0,20,8", "right": "rect:0,8,20,16"}
    command = ("session", path, "--window", LENGTH, "--low-cutoff", 4, "--events", events)
    named = [f"--region={name}={text}" for name, text in regions.items()]
    output = report_of(*command, *named, "-o", tmp_path / "out")["output"]
    course = pd.read_csv(output["regions_tsv"], sep="\t")
    bad = [np.flatnonzero(flags).tolist() for flags in (course["bad"], course["percent_left"].isna())]
    assert bad == [[7], [7]]
    is_on = np.isin(np.arange(20) // 3, (1, 3, 5))
    for name in regions:
        blood = course[f"blood_{name}"]
        wanted = (100 * blood / blood[~is_on & (course["bad"] == 0)].mean()).where(course["bad"] == 0)
        np.testing.assert_allclose(course[f"percent_{name}"], wanted, rtol=1e-6)
    table = pd.read_csv(output["region_responses_tsv"], sep="\t")
    assert list(table) == ["region", "n_pixels", "trial_type", "change", "standard_error", "t", "p"]
    assert list(json.loads(Path(output["region_responses_json"]).read_text())) == list(table)
    assert table["region"].tolist() == ["whole image", "left", "right"]
    pairs = pd.read_csv(output["region_correlations_tsv"], sep="\t")
    described = json.loads(Path(output["region_correlations_json"]).read_text())
    assert list(described) == list(pairs) == ["region_1", "region_2", "r", "z", "p", "n_free"]
    assert pairs[["region_1", "region_2"]].to_numpy().tolist() == [["left", "right"]]
    (row,) = pairs.itertuples()
    # A bad block, a constant, a line, a response, and perhaps two columns of motion
    assert 14 <= row.n_free <= 16
    assert row.z == pytest.approx(np.arctanh(row.r), rel=1e-5)
    normal = stats.beta(row.n_free / 2 - 0.5, row.n_free / 2 - 0.5, loc=-1, scale=2)
    assert row.p == pytest.approx(2 * normal.cdf(-abs(row.r)), rel=1e-4)
    assert table["n_pixels"].tolist() == [320, 160, 160]
    left, right = (table.iloc[number] for number in (1, 2))
    assert abs(left["t"]) < 4 < right["t"]
    assert right["p"] < 0.001
    assert right["change"] == pytest.approx(50, abs=15)
    found = session(path, LENGTH, low_cutoff=4, events=iter(EVENTS), regions=regions)
    pd.testing.assert_frame_equal(pd.DataFrame(found.region_responses), table, rtol=1e-6)
    pd.testing.assert_frame_equal(pd.DataFrame(found.region_table), course, rtol=1e-6)
    # The courses in axes of the user: against the mean of the good blocks, which the bad one interrupts
    axes = usdenoise.plot(found, "regions", ax=Figure().subplots())
    lines = {line.get_label().partition(" (")[0]: line for line in axes.lines if line.get_marker() == "."}
    assert list(lines) == ["whole image", "left", "right"]
    good = np.where(found.bad, np.nan, found.regions["right"])
    np.testing.assert_allclose(lines["right"].get_xdata(), found.time)
    np.testing.assert_allclose(lines["right"].get_ydata(), 100 * (good / np.nanmean(good) - 1))
    assert [patch.get_x() for patch in axes.patches] == pytest.approx([onset for onset, _, _ in EVENTS])
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    courses = ["whole image (320 pixels)", "left (160 pixels)", "right (160 pixels)"]
    assert labels == [*courses, "bad block", "on"]
    free = session(path, LENGTH, events=EVENTS, regions=regions, hrf="fir:3", **CUTOFFS).region_responses
    assert list(free) == ["region", "n_pixels", "trial_type", "change_0", "change_1", "change_2", "f", "p"]
    assert free["change_1"][2] == pytest.approx(50, abs=20)


def test_a_vessel_without_data_in_a_block_does_not_change_its_region(made: Scan) -> None:
    mask = np.zeros(SHAPE, bool)
    mask[4:12, 4:] = True
    iq = made.iq.copy()
    # Nearly all of the blood of the region
    iq[LENGTH : 2 * LENGTH, 6:10, 4:10] = np.nan
    found, wanted = (
        session(replace(made.stack, iq=values), LENGTH, regions={"part": mask}, **CUTOFFS)
        for values in (iq, made.iq)
    )
    assert np.isnan(found.blood_power[1]).any()
    courses = found.regions["part"], wanted.regions["part"]
    np.testing.assert_allclose(*courses, rtol=0.1)
    plain = np.nanmean(np.where(mask, wanted.blood_power, np.nan), axis=(1, 2))
    np.testing.assert_allclose(courses[1], plain, rtol=1e-5)


def test_the_picture_outlines_a_region_where_it_is(made: Scan) -> None:
    """The outline of a region at the left is in the left half of the map, and moves with the region."""
    centres = []
    for text in ("rect:2,1,18,4", "rect:2,12,18,15"):
        found = session(made.iq, LENGTH, axes="tzx", frame_rate=RATE_HZ, regions={"a": text}, **CUTOFFS)
        picture = iio.imread(io.BytesIO(region_picture(found, "", "png")))[..., :3].astype(int)
        map_alone = picture[:, : int(2.9 * DPI)]
        is_blue = (map_alone[..., 2] > 140) & (map_alone[..., 0] < 60)
        assert is_blue.any()
        centres.append(np.argwhere(is_blue)[:, 1].mean())
    assert centres[1] - centres[0] > 50


def test_labels_are_regions_with_doubts_about_large_and_silent_ones(made: Scan, tmp_path: Path) -> None:
    iq = made.iq.copy()
    iq[:, 18:] = 0
    labels = np.zeros(SHAPE, np.uint8)
    labels[2:8, 2:8], labels[18:], labels[8:16] = 1, 2, 7
    files = write_blocks(tmp_path / "blocks", [iq[:LENGTH], iq[LENGTH : 2 * LENGTH]], every_s=0.5)
    iio.imwrite(tmp_path / "labels.png", labels)
    iio.imwrite(tmp_path / "most.png", np.uint8(np.arange(20)[:, None] * np.ones(16) > 1))
    named = [f"--region={name}={tmp_path / name}.png" for name in ("labels", "most")]
    report = report_of("session", files, "-o", tmp_path / "out", "--low-cutoff", 4, *named)
    regions = {region["name"]: region["n_pixels"] for region in report["sequence"]["regions"]}
    assert regions == {"whole image": 320, "labels:1": 36, "labels:2": 32, "labels:7": 128, "most": 288}
    doubted = [doubt["sentence"] for doubt in report["doubts"] if doubt["code"] == "region"]
    assert [sentence.split("'")[1] for sentence in doubted] == ["labels:2", "most"]
    assert len(pd.read_csv(report["output"]["region_correlations_tsv"], sep="\t")) == 6
    array = session(
        iq[: 2 * LENGTH], LENGTH, axes="tzx", frame_rate=RATE_HZ, regions={"labels": labels}, **CUTOFFS
    )
    assert list(array.regions) == ["whole image", "labels:1", "labels:2", "labels:7"]


def test_a_region_that_does_not_fit_is_an_error_before_the_work(files, tmp_path, monkeypatch):
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("blocks were filtered")

    monkeypatch.setattr("usdenoise.jobs.session_job.filter_session", never)
    outside = cli("session", files, "-o", tmp_path / "out", "--region", "a=rect:0,30,5,40")
    refused(outside, "region 'rect:0,30,5,40' holds no pixel of the 20 x 16 image")
    with pytest.raises(OptionError, match="region 'a' has 3 x 3 pixels"):
        session(files, regions={"a": np.ones((3, 3), bool)})
    for name in ("whole image", "power", "a/b", "a\tb"):
        with pytest.raises(OptionError, match="a region cannot have the name"):
            session(files, regions={name: "rect:0,0,5,5"})
    assert not (tmp_path / "out").exists()
