"""``usdenoise reproduce``: what it lists, writes, prints and refuses."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import pytest
from click.testing import Result

from tests.cli.shared import cli
from usdenoise import experiments as reproduce
from usdenoise.experiments import EXPERIMENTS, Setup, ultrasound
from usdenoise.experiments.record import ExperimentResult

NAMES = [
    "sensing-lambda", "sensing-precgd", "sensing-small-start", "sensing-well-conditioned", "high-noise",
    "wall-time", "one-bit", "phase", "ultrasound", "ultrasound-grid",
]  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """One experiment with one seed. Read only."""
    folder = tmp_path_factory.mktemp("one") / "out"
    return folder, cli("reproduce", "one-bit", "--seeds", 1, "-o", folder)


def record(folder: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return loaded


def test_without_a_name_it_lists_the_experiments() -> None:
    result = cli("reproduce")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == NAMES == list(EXPERIMENTS)
    assert list(json.loads(cli("reproduce", "--json").stdout)["experiments"]) == NAMES


@pytest.mark.parametrize("arguments", [("one-bit", "two-bit"), ("one-bit", "--seeds", 0)])
def test_wrong_usage(arguments: tuple[Any, ...]) -> None:
    result = cli("reproduce", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_it_writes_a_picture_curves_and_a_record(done: tuple[Path, Result]) -> None:
    folder, result = done
    assert result.exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["one-bit.csv", "one-bit.json", "one-bit.png"]
    assert iio.imread(folder / "one-bit.png").shape[0] > 300
    saved = record(folder, "one-bit")
    assert saved["provenance"]["software"]["usdenoise"]
    parameters = saved["provenance"]["parameters"]
    assert parameters["seeds"] == [0]
    assert parameters["settings"]["rank 4, noise 1e-6"]["methods"]["eta-decay"]["decay"] == 0.4
    with (folder / "one-bit.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for panel in saved["panels"]:
        for label, finals in panel["final_errors"].items():
            ours = [row for row in rows if (row["panel"], row["curve"]) == (panel["setting"], label)]
            assert len(ours) == 201
            assert float(ours[-1]["median"]) == finals[0]
            assert float(ours[0]["median"]) > 1e-2
    assert saved["panels"][0]["final_errors"]["eta-decay"][0] < 1e-12
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert all(lines.count(claim["statement"]) == 1 for claim in saved["claims"])


def test_existing_results_are_refused_before_the_first_experiment(done: tuple[Path, Result]) -> None:
    folder, _ = done
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    result = cli("reproduce", "phase", "one-bit", "-o", folder)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "one-bit.png" in result.stderr
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_json_is_one_object_and_overwriting_gives_the_same(tmp_path: Path) -> None:
    options = ("--quick", "--seeds", 1, "-o", tmp_path / "out", "--json")
    first = cli("reproduce", "high-noise", "one-bit", *options)
    assert first.exit_code == 0, first.stderr
    summary = json.loads(first.stdout)
    assert list(summary["experiments"]) == ["high-noise", "one-bit"]
    claims = [claim for one in summary["experiments"].values() for claim in one["claims"]]
    assert (summary["claims"], summary["held"]) == (len(claims), sum(claim["held"] for claim in claims))
    assert Path(summary["experiments"]["one-bit"]["output"]["curves"]).exists()
    saved = record(tmp_path / "out", "high-noise")
    again = cli("reproduce", "high-noise", *options[:-1], "--overwrite", "-q")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "")
    assert record(tmp_path / "out", "high-noise")["claims"] == saved["claims"]


@pytest.mark.slow
def test_ultrasound_grid_on_a_small_phantom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ultrasound, "QUICK_SHAPE", (32, 24, 120))
    table = {**EXPERIMENTS, "ultrasound-grid": replace(ultrasound.GRID, samplings=(0.5, 0.2))}
    monkeypatch.setattr(reproduce, "EXPERIMENTS", table)
    result = cli("reproduce", "ultrasound-grid", "ultrasound", "--quick", "-o", tmp_path)
    assert result.exit_code == 0, result.stderr
    # The two experiments share the phantom, and the runs at 50 %.
    assert result.stderr.count("drawing the phantom") == result.stderr.count("eta-decay at 50 %") == 1
    saved = record(tmp_path, "ultrasound-grid")
    # The published alpha is for 26000 x 2400 entries: tau stays, and the rank's share of the frames.
    methods = saved["provenance"]["parameters"]["methods"]
    assert methods["eta-decay"]["rank"] == 5
    assert methods["eta-decay"]["alpha"] == pytest.approx(1e7 * 32 * 24 * 120 / (26000 * 2400))
    assert methods["GD"]["alpha"] == pytest.approx(methods["eta-decay"]["alpha"] / 1e4)
    many, few = (panel["numbers"]["eta-decay"] for panel in saved["panels"])
    # Half of the entries are enough to remove noise, and a fifth of so small a stack is not.
    assert many["noise_left"] < 1 < few["noise_left"]
    assert 1 > many["correlation"] > few["correlation"] > 0.5
    assert record(tmp_path, "ultrasound")["panels"][0]["numbers"]["GD"] == saved["panels"][0]["numbers"]["GD"]
    assert iio.imread(tmp_path / "ultrasound_power_doppler.png").ndim == 3


def test_finished_experiments_remain_after_an_interrupt(tmp_path, monkeypatch):
    class Stopped:
        title = "Title"

        def run(self, setup: Setup) -> ExperimentResult:
            raise KeyboardInterrupt

    table = {"high-noise": EXPERIMENTS["high-noise"], "phase": Stopped()}
    monkeypatch.setattr(reproduce, "EXPERIMENTS", table)
    result = cli("reproduce", "high-noise", "phase", "--seeds", 1, "-o", tmp_path)
    assert (result.exit_code, result.stdout) == (130, "")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".json", ".png"]
