"""``usdenoise compare`` as it is typed: what it prints, what it writes, how it fails."""

import csv
import json
import re

import h5py
import imageio.v3 as iio
import numpy as np
import pytest

from tests.cli.shared import cli
from tests.pictures.reports import Page
from tests.stacks import write_stack

FILES = ("comparison.csv", "comparison.html", "comparison.json", "comparison.png", "convergence.png")
COMMON = ("--low-cutoff", "12", "--rank", "20")


@pytest.fixture(scope="module")
def outcome(phantom_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    result = cli(
        "compare", phantom_file, "-o", folder, "-m", "eta-decay", "-m", "rsvd", "-m", "highpass",
        "--set", "highpass.cutoff_hz=600", "--sampling", "0.5", "--sampling", "0.3", *COMMON,
    )  # fmt: skip
    return result, folder


def test_the_table_goes_to_stdout_and_the_rest_to_stderr(outcome):
    result, _ = outcome
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        "method", "p", "s", "MiB", "held", "to", "SVD", "dB", "CNR", "gCNR", "corr", "AUC",
    ]  # fmt: skip
    table = lines[2 : lines.index("")]
    assert [line[:11].rstrip() for line in table] == [
        "eta-decay", "  blood map", "eta-decay", "  blood map", "rsvd", "  blood map", "highpass",
    ]  # fmt: skip
    assert sorted(line.split("/")[-1] for line in lines[lines.index("") + 1 :]) == sorted(FILES)
    assert max(len(line) for line in lines[: len(table) + 2]) <= 80
    assert "eta-decay at 0.3: " in result.stderr
    told = result.stderr.splitlines()
    assert told[0] == "the full SVD as reference, 1 of 5"
    assert re.fullmatch(r"eta-decay at 0\.5: \d+\.\d\d s \(2 of 5, about .* left\)", told[1])
    assert re.fullmatch(r"rsvd: \d+\.\d\d s \(4 of 5, about .* left\)", told[3])
    assert told[4] == "highpass: failed (5 of 5)"


def test_a_failed_method_is_told_and_the_exit_code_is_1(outcome):
    result, _ = outcome
    assert result.exit_code == 1
    assert "warning: highpass failed: the high-pass cutoff is 1.2 of the frame rate" in result.stderr
    assert "\nhighpass " in result.stdout
    assert " failed" in result.stdout


def test_the_files_hold_the_same_rows(outcome):
    _, folder = outcome
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    report = json.loads((folder / "comparison.json").read_text())
    table = list(csv.DictReader((folder / "comparison.csv").read_text().splitlines()))
    assert [row["method"] for row in table] == [row["method"] for row in report["rows"]]
    for line, row in zip(table, report["rows"], strict=True):
        for name in ("seconds", "held_out_rmse", "distance_to_svd", "gcnr", "correlation"):
            assert line[name] == ("" if row[name] is None else repr(row[name]))
    assert report["rows"][0]["curve"][-1][0] == report["rows"][0]["passes"]
    assert report["low_cutoff"] == 12
    assert report["settings"]["parameters"] == {"highpass": {"cutoff_hz": 600}}
    assert (report["input"]["axes"], report["input"]["dtype"]) == ("tzx", "complex64")
    assert set(report["output"]) == set(FILES)


def test_the_pictures_are_whole(outcome):
    _, folder = outcome
    montage = iio.imread(folder / "comparison.png")
    # The same scene from every method: a grid of rates with two images, and one more below.
    assert montage.shape[0] > 500
    assert montage[..., :3].std() > 30
    assert iio.imread(folder / "convergence.png")[..., :3].std() > 5


def test_json_is_one_object_on_stdout(phantom_file, tmp_path):
    result = cli("compare", phantom_file, "-o", tmp_path, "-m", "rsvd", "--json", "-q", *COMMON)
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert report["rows"][0]["correlation"] > 0.8
    # Nothing iterates, so there is no curve to draw.
    assert set(report["output"]) == {*FILES} - {"convergence.png"}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(report["output"])


def test_regions_give_contrast_where_there_is_no_truth(phantom_file, tmp_path):
    with h5py.File(phantom_file) as source:
        write_stack(tmp_path / "bare.h5", source["iq"][:, :20], axes="tzx", frame_rate_hz=500.0)
        power = source["truth/blood_power"][:20]
    signal = power > np.quantile(power, 0.9)
    np.save(tmp_path / "signal.npy", signal)
    regions = ("--signal", tmp_path / "signal.npy", "--background", "rect:0,0,20,32")
    arguments = ("compare", tmp_path / "bare.h5", "-m", "rsvd", "--json", *COMMON)
    row = json.loads(cli(*arguments, "-o", tmp_path / "a", *regions).stdout)["rows"][0]
    assert row["contrast_db"] > 1
    assert 0 < row["gcnr"] < 1
    assert row["correlation"] is None
    printed = cli("compare", tmp_path / "bare.h5", "-m", "rsvd", "-o", tmp_path / "b", *COMMON).stdout
    assert json.loads((tmp_path / "b/comparison.json").read_text())["rows"][0]["contrast_db"] is None
    assert printed.splitlines()[0].split() == ["method", "s", "MiB", "to", "SVD"]
    assert "blood map" not in printed


def test_where_every_method_fails_the_table_says_so_without_pictures(phantom_file, tmp_path):
    result = cli(
        "compare", phantom_file, "-o", tmp_path, "-m", "highpass", "--set", "highpass.cutoff_hz=600", *COMMON
    )
    assert result.exit_code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "comparison.csv", "comparison.html", "comparison.json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("-m", "svdd"), 1, "method 'svdd' is not known; did you mean svd?"),
        (("--set", "cutoff=3"), 2, "'cutoff=3' is not METHOD.NAME=VALUE"),
        (("--signal", "box"), 1, "region 'box' is neither a file nor a known form"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_and_writes_nothing(
    phantom_file, tmp_path, arguments, code, sentence
):
    result = cli("compare", phantom_file, "-o", tmp_path / "out", *arguments)
    assert result.exit_code == code
    assert sentence in result.stderr
    assert not (tmp_path / "out").exists()


def test_an_existing_comparison_is_refused(phantom_file, tmp_path):
    (tmp_path / "comparison.json").write_text("{}")
    result = cli("compare", phantom_file, "-o", tmp_path, "-m", "rsvd")
    assert result.exit_code == 1
    assert "comparison.json exists; give --overwrite" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["comparison.json"]


def test_a_picture_of_an_earlier_comparison_goes(tmp_path):
    scan, out = (
        write_stack(tmp_path / "x.h5", np.random.default_rng(0).standard_normal((40, 8, 6))),
        tmp_path / "out",
    )
    common = ("compare", scan, "-o", out, "--low-cutoff", "2", "--rank", "6")
    assert cli(*common, "-m", "eta-decay").exit_code == 0
    assert (out / "convergence.png").exists()
    (out / "mine.png").touch()
    assert cli(*common, "-m", "svd", "--overwrite").exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == [*FILES[:4], "mine.png"]
    report = json.loads((out / "comparison.json").read_text())
    assert set(report["output"]) == set(FILES[:4])
    measured = set(FILES[:4]) - {"comparison.json"}
    assert report["output_bytes"] == {name: (out / name).stat().st_size for name in measured}


def test_the_page_has_the_pictures_and_the_figures(outcome):
    _, folder = outcome
    shown = Page((folder / "comparison.html").read_text())
    assert [image["alt"] for image in shown.all("img")] == [
        "Power Doppler and blood map of each method", "Convergence of each method",
    ]  # fmt: skip
    for words in ("the low-rank methods remove 12 clutter components", "gCNR", "highpass failed", "Halko"):
        assert words in shown.text
