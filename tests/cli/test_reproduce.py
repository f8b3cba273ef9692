"""``usdenoise reproduce``: what it lists, writes, prints and refuses."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest
from click.testing import Result

from tests.cli.shared import cli, refused, write
from usdenoise import load
from usdenoise.experiments import run_experiments as reproduce
from usdenoise.experiments import setup as setups
from usdenoise.experiments import ultrasound
from usdenoise.experiments.record import ExperimentResult
from usdenoise.experiments.run_experiments import EXPERIMENTS
from usdenoise.experiments.setup import Setup

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
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert all(experiment.title for experiment in EXPERIMENTS.values())
    assert list(json.loads(cli("reproduce", "--json").stdout)["experiments"]) == NAMES


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("one-bit", "two-bit"), "there is no experiment 'two-bit'; give all, or some of sensing-lambda"),
        (("one-bit", "--axes", "tzx"), "give --acquisition FILE"),
        (("one-bit", "--seeds", 0), "--seeds"),
    ],
)
def test_wrong_usage(arguments: tuple[Any, ...], says: str) -> None:
    result = cli("reproduce", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_it_writes_a_picture_curves_a_record_and_claims(done: tuple[Path, Result]) -> None:
    folder, result = done
    assert result.exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "one-bit.csv", "one-bit.json", "one-bit.md", "one-bit.png",
    ]  # fmt: skip
    assert iio.imread(folder / "one-bit.png").shape[0] > 300
    saved = record(folder, "one-bit")
    assert saved["seeds"] == [0]
    assert saved["parameters"]["settings"]["rank 4, noise 1e-6"]["methods"]["eta-decay"]["decay"] == 0.4
    assert saved["provenance"]["software"]["usdenoise"]
    assert saved["provenance"]["parameters"]["seeds"] == [0]
    assert len(saved["choices"]) >= 4
    with (folder / "one-bit.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for panel in saved["panels"]:
        for curve in panel["curves"]:
            ours = [row for row in rows if (row["panel"], row["curve"]) == (panel["title"], curve["label"])]
            assert len(ours) == 201
            assert float(ours[-1]["median"]) == curve["final_error"]["median"]
            assert float(ours[0]["median"]) > 1e-2


def test_the_table_says_which_claims_held(done: tuple[Path, Result]) -> None:
    folder, result = done
    claims = record(folder, "one-bit")["claims"]
    held = sum(claim["held"] for claim in claims)
    assert 0 < held < len(claims)
    lines = result.stdout.splitlines()
    assert lines[0].startswith("one-bit: One-bit sensing (")
    assert sum(line.startswith("    held ") for line in lines) == held
    assert sum(line.startswith("    not held ") for line in lines) == len(claims) - held
    assert lines[-1] == f"the results are in {folder}"
    assert all(len(line) <= 80 for line in lines[:-1])
    # Every claim is tried from each start and with each convention.
    readings = {claim["reading"]: (claim["start"], claim["convention"]) for claim in claims}
    assert readings["paper"] == ("appendix", "f(X)")
    assert len(readings) * len({claim["statement"] for claim in claims}) == len(claims)
    for reading, kind in readings.items():
        ours = [claim["held"] for claim in claims if (claim["start"], claim["convention"]) == kind]
        assert f"{reading}: {sum(ours)} of {len(ours)} claims held" in lines
    assert {claim["bound"] for claim in claims} == {"paper", "ours"}
    text = (folder / "one-bit.md").read_text()
    assert text.count("**not held**") == len(claims) - held
    for claim in claims:
        assert claim["statement"] in text
    # Twice the noise, the same noise: eta-decay finds the matrix whatever the table says of its speed.
    first = record(folder, "one-bit")["panels"][0]["curves"][0]
    assert first["label"] == "eta-decay"
    assert max(first["final_error_of_each_seed"]) < 1e-12


def test_there_are_ten_seeds_and_two_where_it_has_to_be_quick() -> None:
    assert Setup().seeds == tuple(range(10))
    assert Setup(quick=True).seeds == (0, 1)


def test_results_that_exist_are_refused_before_anything_is_done(done: tuple[Path, Result]) -> None:
    folder, _ = done
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    result = cli("reproduce", "phase", "one-bit", "-o", folder)
    assert result.exit_code == 1
    assert "one-bit.png exists; give --overwrite" in result.stderr
    assert result.stdout == ""
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_json_is_one_object_and_overwriting_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_bit = EXPERIMENTS["one-bit"]
    short = replace(one_bit, settings=[replace(setting, iterations=20) for setting in one_bit.settings])
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {**EXPERIMENTS, "one-bit": short})
    options = ("--quick", "--seeds", 1, "-o", tmp_path / "out", "--json")
    arguments = ("reproduce", "high-noise", "one-bit", *options)
    first = cli(*arguments)
    assert first.exit_code == 0, first.stderr
    summary = json.loads(first.stdout)
    assert list(summary["experiments"]) == ["high-noise", "one-bit"]
    assert summary["claims"] == sum(len(one["claims"]) for one in summary["experiments"].values())
    assert summary["held"] == sum(
        claim["held"] for one in summary["experiments"].values() for claim in one["claims"]
    )
    for key in ("claims", "held"):
        assert sum(count[key] for count in summary["by_reading"].values()) == summary[key]
    assert Path(summary["experiments"]["one-bit"]["output"]["curves"]).exists()
    assert "high-noise: Gaussian sensing with high noise" in first.stderr
    assert "\x1b" not in first.stderr
    saved = record(tmp_path / "out", "high-noise")
    # Quick is only the gradient of the paper from two starts.
    assert {claim["convention"] for claim in saved["claims"]} == {"f(X)"}
    assert {claim["start"] for claim in saved["claims"]} == {"spectral", "appendix"}
    again = cli("reproduce", "high-noise", *options[:-1], "--overwrite", "-q")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "")
    assert record(tmp_path / "out", "high-noise")["claims"] == saved["claims"]


@pytest.mark.parametrize("name", ["sensing-lambda", "sensing-precgd", "sensing-small-start"])
def test_a_panel_of_each_other_experiment(name: str, tmp_path: Path) -> None:
    result = cli("reproduce", name, "--quick", "--seeds", 1, "-o", tmp_path)
    assert result.exit_code == 0
    saved = record(tmp_path, name)
    for panel in saved["panels"]:
        noisy = panel["noise_floor"] is not None
        assert noisy == ("noise 1e" in panel["title"])
        assert panel["curves"][0]["label"] == "eta-decay"
    # Without noise the method goes on to the end.
    assert saved["panels"][0]["start"] == "spectral"
    assert saved["panels"][0]["curves"][0]["final_error"]["median"] < 1e-6


def test_wall_time_is_drawn_against_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (setting,) = EXPERIMENTS["wall-time"].settings
    short = replace(EXPERIMENTS["wall-time"], settings=[replace(setting, iterations=1000)])
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {"wall-time": short})
    result = cli("reproduce", "wall-time", "--quick", "--seeds", 1, "-o", tmp_path)
    assert result.exit_code == 0
    with (tmp_path / "wall-time.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    mine = [row for row in rows if row["curve"] == "eta-decay" and "spectral start" in row["panel"]]
    assert float(mine[0]["x"]) == 0
    assert float(mine[-1]["x"]) == 0.5
    assert float(mine[0]["median"]) == 1
    assert float(mine[-1]["median"]) < 1e-5


def test_ultrasound_on_a_file(phantom_file: Path, tmp_path: Path) -> None:
    result = cli("reproduce", "ultrasound", "--acquisition", phantom_file, "-o", tmp_path, "--frames", "0:96")
    assert result.exit_code == 0, result.stderr
    saved = record(tmp_path, "ultrasound")
    assert saved["provenance"]["input"]["path"] == str(phantom_file)
    assert len(saved["provenance"]["input"]["sha256"]) == 64
    assert saved["parameters"]["shape"] == [96, 40, 32]
    # The published alpha is for 26000 x 2400 entries: tau stays, and so does the rank's share of the frames.
    options = saved["parameters"]["methods"]["eta-decay"]
    assert options["alpha"] == pytest.approx(1e7 * 40 * 32 * 96 / (26000 * 2400))
    assert options["rank"] == 4
    assert saved["parameters"]["methods"]["GD"]["alpha"] == pytest.approx(options["alpha"] / 1e4)
    assert iio.imread(tmp_path / "ultrasound_power_doppler.png").ndim == 3
    curves = {curve["label"]: curve for curve in saved["panels"][0]["curves"]}
    assert list(curves) == ["eta-decay", "PrecGD", "GD"]
    assert curves["eta-decay"]["final_error"]["median"] > 1
    assert saved["claims"]
    assert not any("noise-free" in claim["statement"] for claim in saved["claims"])


def test_ultrasound_grid_on_a_small_phantom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setups, "QUICK_SHAPE", (32, 24, 120))
    table = {**EXPERIMENTS, "ultrasound-grid": replace(ultrasound.GRID, samplings=(0.5, 0.2))}
    monkeypatch.setattr(reproduce, "EXPERIMENTS", table)
    result = cli("reproduce", "ultrasound-grid", "ultrasound", "--quick", "-o", tmp_path)
    assert result.exit_code == 0, result.stderr
    # One phantom serves both.
    assert result.stderr.count("drawing the phantom") == 1
    saved = record(tmp_path, "ultrasound-grid")
    assert [panel["setting"] for panel in saved["panels"]] == ["sampling 50 %", "sampling 20 %"]
    assert [len(panel["curves"]) for panel in saved["panels"]] == [4, 4]
    left = {
        sampling: by_name["eta-decay"]["rms_to_noise_free"] for sampling, by_name in saved["numbers"].items()
    }
    # Half of the entries are enough to remove noise, and a fifth of so small a stack is not.
    assert left["50 %"] < 1 < left["20 %"]
    single = record(tmp_path, "ultrasound")
    assert single["numbers"]["50 %"]["GD"] == saved["numbers"]["50 %"]["GD"]
    # What the first experiment has run the second one does not run again.
    assert result.stderr.count("eta-decay at 50 %") == 1
    picture = [by_name["eta-decay"]["correlation_with_noise_free"] for by_name in saved["numbers"].values()]
    assert 1 > picture[0] > picture[1] > 0.5
    for claim in saved["claims"]:
        assert (claim["start"], claim["convention"]) == ("spectral", "(U, V), general A_i")
    assert any("noise-free" in claim["statement"] for claim in single["claims"])


def test_interrupted_it_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped:
        title = "Title"

        def run(self, setup: Setup) -> ExperimentResult:
            raise KeyboardInterrupt

    table = {"high-noise": EXPERIMENTS["high-noise"], "phase": Stopped()}
    monkeypatch.setattr(reproduce, "EXPERIMENTS", table)
    result = cli("reproduce", "high-noise", "phase", "--quick", "--seeds", 1, "-o", tmp_path)
    assert result.exit_code == 130
    assert result.stdout == ""
    assert "interrupted; 1 of 2 experiments are written" in result.stderr
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".json", ".md", ".png"]


def test_unobserved_entries(tmp_path: Path, phantom_file: Path) -> None:
    iq = load(phantom_file, frames=slice(60)).iq
    iq[::7, 3] = np.nan
    result = ultrasound.SINGLE.run(
        Setup(acquisition=write(tmp_path / "holes.h5", iq, axes="tzx", frame_rate_hz=500.0))
    )
    assert np.isfinite(result.panels[0]["eta-decay"].final)
    assert np.isfinite(result.numbers["50 %"]["eta-decay"]["rms_to_original"])


def test_an_acquisition_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    arguments = ("reproduce", "ultrasound", "--acquisition", path, "-o", tmp_path / "out", "-q")
    refused(cli(*arguments), r"x\.h5")
    path.write_text("not a stack")
    refused(cli(*arguments, "-q"), r"x\.h5")
    write(path, np.zeros((60, 12, 10), np.complex64), axes="tzx")
    refused(cli(*arguments), "zero everywhere")
    assert not list(tmp_path.glob("out/*.json"))
