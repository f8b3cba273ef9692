"""``usdenoise compare`` as it is typed: what it prints, what it writes, how it fails."""

import csv
import json

import h5py
import imageio.v3 as iio
import numpy as np
import pytest

from tests.cli.shared import cli, parse
from tests.report.reports import Page
from tests.stacks import write_stack
from usdenoise.errors import InputError
from usdenoise.jobs import clutter_filters

FILES = ("comparison.csv", "comparison.html", "comparison.json", "comparison.png")
COMMON = ("--low-cutoff", "12", "--rank", "20")


def refuse(*arguments, **settings):
    raise InputError("no frames; give more --frames")


@pytest.fixture(scope="module")
def outcome(phantom_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clutter_filters, "highpass", refuse)
        result = cli(
            "compare", phantom_file, "-o", folder, "-m", "eta-decay", "-m", "rsvd", "-m", "highpass",
            "--sampling", "0.4", *COMMON,
        )  # fmt: skip
    return result, folder


def test_the_table_goes_to_stdout_the_rest_to_stderr_and_a_failure_is_1(outcome):
    result, _ = outcome
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["method", "s", "held", "to", "SVD", "dB", "CNR", "gCNR", "corr", "AUC"]
    table = lines[2 : lines.index("")]
    methods = ["eta-decay", "  blood map", "rsvd", "  blood map", "highpass"]
    assert [line[:11].rstrip() for line in table] == methods
    assert sorted(line.split("/")[-1] for line in lines[lines.index("") + 1 :]) == sorted(FILES)
    assert max(len(line) for line in lines[: len(table) + 2]) <= 80
    assert result.stderr.splitlines()[:4] == ["svd", "eta-decay", "rsvd", "highpass"]
    assert result.exit_code == 1
    assert "highpass failed: no frames" in result.stderr


def test_the_files_hold_the_same_rows(outcome):
    _, folder = outcome
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    report = json.loads((folder / "comparison.json").read_text())
    table = list(csv.DictReader((folder / "comparison.csv").read_text().splitlines()))
    assert [row["method"] for row in table] == [row["method"] for row in report["rows"]]
    for line, row in zip(table, report["rows"], strict=True):
        for name in ("seconds", "held_out_rmse", "distance_to_svd", "gcnr", "correlation"):
            assert line[name] == ("" if row[name] is None else repr(row[name]))
    assert report["low_cutoff"] == 12
    assert (report["settings"]["sampling"], report["settings"]["seed"]) == (0.4, 0)
    assert (report["input"]["axes"], report["input"]["dtype"]) == ("tzx", "complex64")
    assert set(report["output"]) == set(FILES)


def test_the_page_has_the_montage_and_the_figures_of_merit(outcome):
    _, folder = outcome
    shown = Page((folder / "comparison.html").read_text())
    assert len(shown.all("img")) == 1
    for words in ("12 clutter components", "gCNR", "highpass, no frames", "Halko"):
        assert words in shown.text
    montage = iio.imread(folder / "comparison.png")
    assert montage.shape[0] > 500
    assert montage[..., :3].std() > 30


def test_regions_give_contrast_without_a_truth_and_json_is_one_object(phantom_file, tmp_path):
    with h5py.File(phantom_file) as source:
        write_stack(tmp_path / "bare.h5", source["iq"][:, :20], axes="tzx", frame_rate_hz=500.0)
        power = source["truth/blood_power"][:20]
    np.save(tmp_path / "signal.npy", power > np.quantile(power, 0.9))
    regions = ("--signal", tmp_path / "signal.npy", "--background", "rect:0,0,20,32")
    arguments = ("compare", tmp_path / "bare.h5", "-m", "rsvd", *COMMON)
    result = cli(*arguments, "-o", tmp_path / "a", *regions, "--json", "-q")
    report = parse(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(report["output"])
    row = report["rows"][0]
    assert row["contrast_db"] > 1
    assert 0 < row["gcnr"] < 1
    assert row["correlation"] is None
    printed = cli(*arguments, "-o", tmp_path / "b").stdout
    assert printed.splitlines()[0].split() == ["method", "s", "to", "SVD"]
    assert "blood map" not in printed


def test_wrong_options_and_an_existing_comparison_are_refused(phantom_file, tmp_path):
    for arguments in (("-m", "svdd"), ("--signal", "box"), ("--rank", "0")):
        assert cli("compare", phantom_file, "-o", tmp_path / "out", *arguments).exit_code in (1, 2)
        assert not (tmp_path / "out").exists()
    (tmp_path / "comparison.json").write_text("{}")
    result = cli("compare", phantom_file, "-o", tmp_path, "-m", "rsvd")
    assert result.exit_code == 1
    assert "--overwrite" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["comparison.json"]


def test_a_picture_of_an_earlier_comparison_is_removed(tmp_path):
    scan = write_stack(tmp_path / "x.h5", np.random.default_rng(0).standard_normal((15, 8, 6)))
    out = tmp_path / "out"
    common = ("compare", scan, "-o", out, "--low-cutoff", "2", "--rank", "6")
    assert cli(*common, "-m", "eta-decay").exit_code == 0
    assert (out / "comparison.png").exists()
    (out / "mine.png").touch()
    assert cli(*common, "-m", "highpass", "--overwrite").exit_code == 1
    assert sorted(path.name for path in out.iterdir()) == [*FILES[:3], "mine.png"]
    assert set(json.loads((out / "comparison.json").read_text())["output"]) == set(FILES[:3])
