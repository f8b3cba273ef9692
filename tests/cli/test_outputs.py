"""The options of outputs on the command line, and the command expand."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_cli import REPORT_KEYS, cli, parse, refused, write
from tests.formats.layouts import LAYOUTS
from usdenoise import expand, load

FEW = ("--rank", "3", "--iterations", "2", "--low-cutoff", "1", "--high-cutoff", "rank", "--threads", "1")


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    return write(tmp_path / "x.h5", axes="tzx", frame_rate_hz=500.0)


def test_factors_then_expand(stack: Path, tmp_path: Path) -> None:
    kept = tmp_path / "out" / "x_denoised.h5"
    done = cli("run", stack, "-o", tmp_path / "out", *FEW, "--keep-factors", "--no-stack", "-q")
    assert (done.exit_code, done.stdout) == (0, "")
    result = cli("expand", kept, "-o", tmp_path / "y.mat")
    assert result.exit_code == 0
    assert re.search(
        r"stack +iq, t 40, z 12, x 10\nkept +components \d to \d, counted from 0\nwrote +.*y\.mat",
        result.stdout,
    )
    assert np.array_equal(load(tmp_path / "y.mat").iq, expand(kept).iq)
    refused(cli("expand", kept, "-o", tmp_path / "y.mat"), r"y\.mat exists; give --overwrite")
    again = cli("expand", kept, "-o", tmp_path / "y.mat", "--overwrite", "--low-cutoff", 0, "--json")
    assert parse(again.stdout)["shape"] == [40, 12, 10]
    assert np.array_equal(load(tmp_path / "y.mat").iq, expand(kept, 0).iq)
    refused(cli("expand", kept, "--high-cutoff", 9), "beyond the rank 3")
    refused(cli("expand", stack), "holds no factors; write them with usdenoise run --keep-factors")


def test_products_are_reported_and_written(stack: Path, tmp_path: Path) -> None:
    arguments = ("run", stack, "-o", tmp_path / "out", *FEW, "--json", "--compression", "gzip")
    report = parse(cli(*arguments, "--products", "directional,velocity").stdout)
    assert set(report["output"]) == {
        "denoised",
        "directional_png",
        "velocity_png",
        "frames_tsv",
        "frames_json",
        "report_html",
        "report",
    }
    for name in report["output"].values():
        assert Path(name).stat().st_size > 0


def test_a_sequence_has_the_keys_of_the_contract(stack: Path, tmp_path: Path) -> None:
    arguments = ("run", stack, "-o", tmp_path / "out", *FEW, "--window", 16, "--stride", 8, "--movie", "gif")
    result = cli(*arguments, "--json")
    report = parse(result.stdout)
    assert set(report) >= REPORT_KEYS
    assert len(report["sequence"]["blocks"]) == 4
    pictures = {f"{name}_{kind}" for name in ("power_doppler", "blood_power") for kind in ("png", "tif")}
    assert set(report["output"]) == {"sequence", *pictures, "movie", "blood_movie", "report_html", "report"}
    table = cli(*arguments, "--overwrite", "-o", tmp_path / "out").stdout
    assert re.search(
        r"^windows +4 of 16 frames every 8; ranges below are over all of them$",
        table,
        re.MULTILINE,
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--no-stack",), "nothing is kept; add --keep-factors to --no-stack"),
        (("--movie", "gif"), "--movie needs --window; give --window the number"),
        (("--window", "99"), "window 99 is longer than the 40 frames of the stack; lower --window"),
        (("--window", "9", "--stride", "10"), "stride 10 must be from 1 to the window.*--stride"),
    ],
)
def test_bad_outputs_are_refused_in_one_sentence(
    options: tuple[str, ...], says: str, stack: Path, tmp_path: Path
) -> None:
    refused(cli("run", stack, "-o", tmp_path / "out", *FEW, *options), says)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options", [("--products", "color"), ("--compression", "zip"), ("--movie", "avi"), ("--window", "x")]
)
def test_wrong_outputs_are_wrong_usage(options: tuple[str, ...], stack: Path) -> None:
    assert cli("run", stack, *options).exit_code == 2


@pytest.mark.parametrize("key", ["IQData v7.3, cell", "(2, z, x, t)", "UFF", "EchoFrame", "ConfUSIus", "npz"])
def test_info_names_the_layout_and_every_source(key: str, tmp_path: Path) -> None:
    how = LAYOUTS[key]
    path = how.write(tmp_path)
    table = cli("info", path)
    assert table.exit_code == 0
    value = parse(cli("info", path, "--json").stdout)
    assert value["container"] == how.container
    assert value["chosen"]["name"] == how.name
    assert set(value["metadata"]["sources"]) == set(value["metadata"]["values"])
    if value["chosen"]["layout"]:
        assert f"({value['chosen']['layout']})  <- read" in table.stdout
    for name, source in value["metadata"]["sources"].items():
        assert re.search(rf"^{name} .*\({re.escape(source)}\)$", table.stdout, re.MULTILINE)


def test_info_says_that_power_doppler_is_that(tmp_path: Path) -> None:
    path = write(tmp_path / "x.scan", np.ones((5, 4, 3), np.float32))
    for command in ("run", "info"):
        result = cli(command, path)
        assert result.exit_code == 1
        assert re.fullmatch(r"usdenoise: 'iq' in .*power Doppler already.*--dataset.*\n", result.stderr)
    assert "power Doppler already" in json.loads(cli("info", path, "--json").stdout)["problem"]


def test_bad_frames_are_given_as_a_list_with_ranges(stack: Path, tmp_path: Path) -> None:
    report = parse(cli("run", stack, "-o", tmp_path / "out", *FEW, "--json", "--bad-frames", "1,3:5").stdout)
    assert [bad["frame"] for bad in report["bad_frames"]] == [1, 3, 4]
    assert report["parameters"]["bad_frames"] == [1, 3, 4]
    for wrong in ("none", "3:x", "-2", "4:4"):
        result = cli("run", stack, "-o", tmp_path / "wrong", f"--bad-frames={wrong}")
        assert result.exit_code == 2
        assert "is not auto, keep or frame numbers such as 3,17,40:45" in " ".join(result.stderr.split())
