"""The table of the frames, its sidecar, and the bad frames in reports of images and of windows."""

import json

import h5py
import numpy as np
import pytest

from tests.cli.shared import write
from tests.conftest import all_frames
from tests.stacks import run_in_windows
from usdenoise import load
from usdenoise.files.bids import tsv_text
from usdenoise.jobs.run_job import run
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.phantom import PhantomSettings

pytestmark = pytest.mark.usefixtures("no_pictures")

BAD = [9, 70, 71]


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    stack = all_frames(PhantomSettings((32, 28, 120), frame_rate_hz=500.0, seed=4))[1].iq.copy()
    rng = np.random.default_rng(1)
    stack[BAD] += 3 * np.abs(stack).std() * (rng.standard_normal((3, 32, 28, 2)) @ [1, 1j])
    return write(tmp_path_factory.mktemp("frames") / "x.h5", stack, axes="tzx", frame_rate_hz=500.0)


def test_numbers_are_written_as_bids_has_them():
    assert tsv_text({"a": np.array([0, 1]), "b": np.array([np.nan, 2.5e-7])}) == "a\tb\n0\tn/a\n1\t2.5e-07\n"
    # Programs look for files by these names.
    assert tsv_text({"file": np.array(["-dash_0.h5", "=a"])}) == "file\n-dash_0.h5\n=a\n"
    # In other columns, a text is not a formula, and a number is a number.
    names = np.array(["=1+1", "-1+1", "-1.5", "left"])
    assert tsv_text({"pose": names}) == "pose\n'=1+1\n'-1+1\n-1.5\nleft\n"
    assert tsv_text({"a": np.array(["", "x\ty\n"])}) == "a\nn/a\nx\\ty\\n\n"


def test_the_table_has_a_row_for_each_frame_and_the_sidecar_describes_its_columns(scan, tmp_path):
    report = run(scan, tmp_path)
    lines = (tmp_path / "x_frames.tsv").read_text().splitlines()
    names = lines[0].split("\t")
    assert names == [
        "frame", "time", "intensity", "dvars", "outside", "displacement", "displacement_95", "left_out",
    ]  # fmt: skip
    sidecar = json.loads((tmp_path / "x_frames.json").read_text())
    assert list(sidecar) == names
    assert sidecar["time"]["Units"] == "s"
    assert all(entry["Description"] for entry in sidecar.values())
    rows = [dict(zip(names, line.split("\t"), strict=True)) for line in lines[1:]]
    assert len(rows) == 120
    assert rows[0]["dvars"] == "n/a"
    assert float(rows[50]["time"]) == pytest.approx(0.1)
    assert [int(row["frame"]) for row in rows if row["left_out"] == "1"] == BAD
    power = np.mean(np.abs(load(scan).iq) ** 2, axis=(1, 2))
    assert [float(row["intensity"]) for row in rows] == pytest.approx(power.tolist(), rel=1e-4)
    assert [bad["frame"] for bad in report["bad_frames"]] == BAD
    assert report["bad_frames"][0]["time_s"] == pytest.approx(9 / 500)
    assert report["bad_frames"][0]["reason"] == "outlier"
    assert report["frames"]["n_left_out"] == 3
    assert report["frames"]["n_entries_left_out"] == report["n_unobserved"] == 3 * 32 * 28
    # Without a centre frequency
    assert sidecar["displacement"]["Units"] == report["frames"]["displacement_unit"] == "wavelengths"
    moved = np.array([float(row["displacement_95"]) for row in rows if row["left_out"] == "0"])
    assert np.quantile(moved, 0.95) == pytest.approx(report["frames"]["displacement"], rel=1e-5)
    assert {row["displacement"] for row in rows if row["left_out"] == "1"} == {"n/a"}
    with h5py.File(tmp_path / "x_denoised.h5") as file:
        unobserved = file["unobserved"][()] != 0
    assert np.flatnonzero(unobserved.all(axis=(1, 2))).tolist() == BAD
    assert np.count_nonzero(unobserved) == 3 * 32 * 28


def test_bad_frames_of_windows_are_counted_from_the_first_frame_of_the_file(scan, tmp_path):
    report = run_in_windows(scan, tmp_path, 60)
    assert [bad["frame"] for bad in report["bad_frames"]] == BAD
    assert report["frames"]["n_left_out"] == 3
    given = run_in_windows(scan, tmp_path / "given", 60, options=DenoiseOptions(bad_frames=(9, 70, 71, 100)))
    assert [bad["frame"] for bad in given["bad_frames"]] == [9, 70, 71, 100]
    with h5py.File(tmp_path / "x_sequence.h5") as file:
        assert file["bad"][()].tolist() == [0, 0]


def test_a_window_that_is_mostly_bad_is_marked(scan, tmp_path):
    stack = load(scan).iq
    rng = np.random.default_rng(2)
    stack[60:75] += 3 * np.abs(stack).std() * (rng.standard_normal((15, 32, 28, 2)) @ [1, 1j])
    path = write(tmp_path / "y.h5", stack, axes="tzx", frame_rate_hz=500.0)
    report = run_in_windows(path, tmp_path / "out", 60)
    with h5py.File(tmp_path / "out/y_sequence.h5") as file:
        assert file["bad"][()].tolist() == [0, 1]
    assert [record["is_bad"] for record in report["sequence"]["blocks"]] == [False, True]
    assert "block 1 (y.h5) is bad: more than a fifth of its frames are bad" in report["frames"]["sentence"]
