"""The contract of ``usdenoise run`` that users script against: streams, the report, files, and the same numbers."""

import os
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.cli.shared import IQ, QUICK, REPORT_KEYS, cli, parse, report_of, write
from tests.jobs.batch.shared import shell
from tests.stacks import write_stack
from usdenoise import __version__, load
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.phantom import PhantomSettings

pytestmark = pytest.mark.usefixtures("no_pictures")

ENDS = [f"{name}.{end}" for name in ("power_doppler", "blood_power") for end in ("png", "tif")]
ENDS += ["frames.tsv", "frames.json"]
OUTPUTS = {end.replace(".", "_"): f"x_{end}" for end in ENDS}
OUTPUTS |= {"denoised": "x_denoised.h5", "report_html": "x_report.html", "report": "x_report.json"}


NO_BLOOD = "warning: no blood was found above the noise\n"
"""The warning about a small stack of noise."""


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A phantom that is worked on in several row blocks."""
    path = tmp_path_factory.mktemp("blocks") / "x.h5"
    simulate_to_file(path, PhantomSettings(shape=(64, 48, 60), seed=1))
    return path


# ---------------------------------------------------------------- run: streams


def test_run_prints_a_summary_on_stdout_and_writes_into_the_current_folder(stack, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    result = cli("run", stack, *QUICK, "--low-cutoff", 1)
    assert (result.exit_code, result.stderr) == (0, NO_BLOOD)
    assert f"{stack} (iq, t 40, z 12, x 10, complex64)" in result.stdout
    assert re.search("clutter +1 component removed, as given\n", result.stdout)
    written = re.findall("^(?:wrote|page) +(.*)$", result.stdout, re.MULTILINE)
    assert sorted(written) == sorted(f"x-usdenoise/{name}" for name in OUTPUTS.values())
    assert all(Path(name).stat().st_size > 0 for name in written)
    assert os.listdir() == ["x-usdenoise"]


def test_assumptions_are_notes_on_stderr(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5")
    loud = cli("run", path, "-o", tmp_path / "a", *QUICK)
    assert re.fullmatch("note: the axes of 'iq' .* read as tzx.*\n" + NO_BLOOD, loud.stderr)
    assert cli("run", path, "-o", tmp_path / "b", *QUICK, "-q").stderr == NO_BLOOD
    assert cli("run", path, "-o", tmp_path / "c", *QUICK, "--axes", "tzx").stderr == NO_BLOOD


def test_warnings_need_two_q_to_be_silent(tmp_path: Path) -> None:
    values = IQ.copy()
    values[3, 4, 5] = np.nan
    path = write(tmp_path / "x.h5", values, axes="tzx")
    once = cli("run", path, "-o", tmp_path / "a", *QUICK, "-q")
    assert (once.exit_code, once.stdout) == (0, "")
    assert sorted(os.listdir(tmp_path / "a")) == sorted(OUTPUTS.values())
    assert re.fullmatch(NO_BLOOD + "warning: 1 entries were NaN or infinite.*\n", once.stderr)
    assert cli("run", path, "-o", tmp_path / "b", *QUICK, "-qq").stderr == ""


def test_nothing_animates_without_a_terminal(stack: Path, tmp_path: Path) -> None:
    arguments = ["run", str(stack), "-o", str(tmp_path / "out"), *QUICK, "-v", "--json"]
    done = shell(*arguments, TERM="xterm-256color", COLORTERM="truecolor")
    assert done.returncode == 0
    report = parse(done.stdout)
    assert (report["command"], report["iterations"]) == (["usdenoise", *arguments], 2)
    # With -v each iteration is a line.
    *lines, warning = done.stderr.splitlines(keepends=True)
    assert [line.split()[:2] for line in lines] == [["iteration", str(i)] for i in range(3)]
    assert warning == NO_BLOOD
    for stream in (done.stdout, done.stderr):
        assert "\x1b" not in stream
        assert "\r" not in stream


@pytest.mark.parametrize(("frames", "n_read"), [("0:400", 40), ("10:4000:2", 15), ("-300:", 40)])
def test_frames_beyond_the_stack_are_reported(frames: str, n_read: int, tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5")
    done = cli("run", path, "-o", tmp_path / "out", *QUICK, f"--frames={frames}", "--json")
    ends = ":".join(frames.split(":")[:2])
    words = f"frames {ends} reach beyond the stack, which has 40 frames: {n_read} are used"
    assert f"note: {words}" in done.stderr
    assert words in parse(done.stdout)["input"]["assumptions"]
    inside = cli("info", path, "--frames=0:40", "--json")
    assert "reach beyond" not in inside.stdout + inside.stderr


# ---------------------------------------------------------------- run: the report


def test_json_is_one_object_with_every_key_of_the_contract(tmp_path: Path) -> None:
    result = cli("run", write(tmp_path / "x.h5"), "-o", tmp_path / "out", *QUICK, "--json")
    assert result.stdout.count("\n") == 1
    assert "note: " in result.stderr
    report = parse(result.stdout)
    assert set(report) >= REPORT_KEYS
    assert len(report["trace"]) == 3
    for number, line in enumerate(report["trace"]):
        assert set(line) >= {"iteration", "objective", "held_out_rmse", "damping", "step", "seconds"}
        assert line["iteration"] == number
    assert set(report["timings_s"]) >= {"load", "solve", "filter", "write", "total"}
    assert report["timings_s"]["total"] >= report["timings_s"]["solve"] > 0
    assert set(report["input"]) >= {"path", "sha256", "dataset", "shape", "axes", "dtype"}
    assert report["input"]["shape"] == [40, 12, 10]
    assert report["output"] == {key: str(tmp_path / "out" / name) for key, name in OUTPUTS.items()}
    assert set(report["software"]) >= {"usdenoise", "numpy", "scipy", "python"}
    assert report["software"]["usdenoise"] == __version__
    assert (report["rank"], report["low_cutoff"], report["high_cutoff"]) == (3, 0, 3)
    assert (report["iterations"], report["sampling"], report["seed"]) == (2, 0.5, 0)
    assert report["passes"] >= 3
    assert len(report["singular_values"]) == 3
    assert report["held_out_rmse"] > 0
    assert report["noise_floor"] > 0
    assert report["peak_memory_bytes"] > 1 << 20
    assert parse((tmp_path / "out" / "x_report.json").read_text()) == report


@pytest.mark.parametrize("method", ["svd", "gd", "precgd", "scaledgd", "scaledgd-lambda"])
def test_every_method_reports(method: str, stack: Path, tmp_path: Path) -> None:
    for iterations in (0, 2):
        options = (*QUICK, "--method", method, "--estimator", f"iterations={iterations}", "--overwrite")
        report = report_of("run", stack, "-o", tmp_path / "out", *options, "-q")
        assert set(report) >= REPORT_KEYS
        assert (report["method"], report["iterations"]) == (method, 0 if method == "svd" else iterations)
        assert (report["held_out_rmse"] is None) == (method == "svd")


# ---------------------------------------------------------------- outputs


def test_reading_options_reach_the_reader(tmp_path: Path) -> None:
    path = write_stack(tmp_path / "x.h5", IQ.transpose(1, 0, 2), "b/c")
    with h5py.File(path, "r+") as file:
        file["a"] = IQ
    options = ["--dataset=b/c", "--axes=ztx", "--frames=4:34:2", "--frame-rate=250", "--spacing=0.1,0.2"]
    report = report_of("run", path, "-o", tmp_path / "out", *QUICK, *options)
    assert report["input"]["dataset"] == "b/c"
    assert report["input"]["shape"] == [12, 15, 10]
    # Of every second frame.
    assert report["input"]["frame_rate_hz"] == 125
    assert report["input"]["spacing_mm"] == {"z": 0.1, "x": 0.2}
    result = load(report["output"]["denoised"])
    assert (result.name, result.axes, result.frame_rate_hz) == ("b/c", "ztx", 125)
    assert (result.spacing_mm, result.n_frames) == ({"z": 0.1, "x": 0.2}, 15)


# ---------------------------------------------------------------- the same numbers


def results(blocks: Path, folder: Path, *options: Any) -> tuple[bytes, bytes]:
    few = ("--rank", 5, "--estimator", "iterations=4", "--low-cutoff", 2, "--products", "power", "-q")
    assert cli("run", blocks, "-o", folder, *few, *options).exit_code == 0
    with h5py.File(folder / "x_denoised.h5") as file:
        return file["power_doppler"][()].tobytes(), file["iq"][()].tobytes()


def test_the_same_seed_gives_the_same_bytes(blocks: Path, tmp_path: Path) -> None:
    first = results(blocks, tmp_path / "a", "--seed", 7)
    assert results(blocks, tmp_path / "b", "--seed", 7) == first
    assert results(blocks, tmp_path / "c", "--seed", 8)[1] != first[1]
    assert len({(tmp_path / name / "x_power_doppler.tif").read_bytes() for name in "ab"}) == 1


@pytest.mark.parametrize("method", ["eta-decay", "svd"])
def test_threads_do_not_change_a_byte(method: str, blocks: Path, tmp_path: Path) -> None:
    first = results(blocks, tmp_path / "1", "--threads", 1, "--method", method)
    assert results(blocks, tmp_path / "3", "--threads", 3, "--method", method) == first


# ---------------------------------------------------------------- the automatic choices


def test_a_default_run_reports_its_choices(phantom_file: Path, tmp_path: Path) -> None:
    report = report_of("run", phantom_file, "-o", tmp_path / "out")
    assert 8 <= report["low_cutoff"] <= 18
    assert report["cutoff"]["low"] == report["low_cutoff"]
    assert report["cutoff"]["certainty"] in ("sure", "likely", "unsure")
    assert report["high_cutoff"] == "none"
    assert report["estimate"] == "as good as the full SVD"
    assert report["verdict"] == f"{report['blood']['sentence']}; estimate: as good as the full SVD"
    assert report["held_out_ratio"] < 1.1
