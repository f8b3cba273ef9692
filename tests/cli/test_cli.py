"""The contract that users script against: streams, exit codes, the report, and what every refusal says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import imageio.v3 as iio
import numpy as np
import pytest
import scipy.io
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from usdenoise import __version__, load
from usdenoise.cli import main
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.phantom import PhantomSettings

_RNG = np.random.default_rng(4)
IQ = (_RNG.standard_normal((40, 12, 10)) + 1j * _RNG.standard_normal((40, 12, 10))).astype(np.complex64)
OUTPUTS = {
    "denoised": "x_denoised.h5",
    "power_doppler_png": "x_power_doppler.png",
    "power_doppler_tif": "x_power_doppler.tif",
    "blood_power_png": "x_blood_power.png",
    "blood_power_tif": "x_blood_power.tif",
    "frames_tsv": "x_frames.tsv",
    "frames_json": "x_frames.json",
    "report_html": "x_report.html",
    "report": "x_report.json",
}
QUICK = ("--rank", "3", "--iterations", "2", "--patience", "0", "--low-cutoff", "0", "--high-cutoff", "rank")


def write(path: Path, values: NDArray[Any] = IQ, **attributes: Any) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("iq", data=values).attrs.update(attributes)
    return path


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """A stack about which nothing has to be assumed."""
    return write(tmp_path / "x.h5", axes="tzx", frame_rate_hz=500.0)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A phantom that is worked on in several row blocks."""
    path = tmp_path_factory.mktemp("blocks") / "x.h5"
    simulate_to_file(path, PhantomSettings(shape=(64, 48, 60), seed=1))
    return path


def cli(*arguments: Any) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def shell(*arguments: Any, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "usdenoise", *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


def parse(text: str) -> Any:
    """JSON as the standard has it, without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def refused(result: Result, pattern: str) -> None:
    """Exit code 1, nothing on stdout, one sentence on stderr."""
    assert result.exit_code == 1
    assert result.stdout == ""
    (sentence,) = result.stderr.splitlines()
    assert re.match(rf"usdenoise: .*{pattern}", sentence), sentence


# ---------------------------------------------------------------- run: streams


def test_run_prints_a_summary_on_stdout(stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", *QUICK, "--low-cutoff", 1)
    assert result.exit_code == 0
    assert result.stderr == ""
    for text in (f"{stack} (iq, t 40, z 12, x 10, complex64)", "eta-decay, rank 3, sampling 0.5"):
        assert text in result.stdout
    assert re.search(
        r"clutter +1 component removed, as given\n"
        r"kept +components 1 to 2, counted from 0; the rest is dropped as noise\n",
        result.stdout,
    )
    assert re.search("stopped +after 2 iterations: all iterations were done", result.stdout)
    written = re.findall("^wrote +(.*)$", result.stdout, re.MULTILINE)
    assert sorted(written) == sorted(str(tmp_path / "out" / name) for name in OUTPUTS.values())
    assert all(Path(name).stat().st_size > 0 for name in written)


def test_run_says_when_the_residual_is_kept(stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", *QUICK, "--low-cutoff", 1, "--high-cutoff", "none")
    assert re.search(
        r"clutter +1 component removed.*\nkept +all components from 1 on, counted from 0, and the residual: blood and noise",
        result.stdout,
    )


@pytest.mark.parametrize("flag", ["-q", "-qq", "--quiet"])
def test_quiet_prints_nothing(flag: str, stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", *QUICK, flag)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert sorted(os.listdir(tmp_path / "out")) == sorted(OUTPUTS.values())


def test_assumptions_are_notes_on_stderr(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5")
    loud = cli("run", path, "-o", tmp_path / "a", *QUICK)
    assert re.fullmatch("note: the axes of 'iq' .* taken as tzx; --axes overrides that\n", loud.stderr)
    assert cli("run", path, "-o", tmp_path / "b", *QUICK, "-q").stderr == ""
    assert cli("run", path, "-o", tmp_path / "c", *QUICK, "--axes", "tzx").stderr == ""


def test_warnings_need_two_q_to_be_silent(tmp_path: Path) -> None:
    values = IQ.copy()
    values[3, 4, 5] = np.nan
    path = write(tmp_path / "x.h5", values, axes="tzx")
    once = cli("run", path, "-o", tmp_path / "a", *QUICK, "-q")
    assert once.stdout == ""
    assert re.fullmatch("warning: 1 entries were NaN or infinite.*\n", once.stderr)
    assert cli("run", path, "-o", tmp_path / "b", *QUICK, "-qq").stderr == ""


def test_verbose_shows_the_iterations_on_stderr(stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", *QUICK, "-v", "--json")
    lines = result.stderr.splitlines()
    assert [line.split()[:2] for line in lines] == [["iteration", str(i)] for i in range(3)]
    assert parse(result.stdout)["iterations"] == 2


def test_nothing_animates_where_there_is_no_terminal(stack: Path, tmp_path: Path) -> None:
    done = shell("run", stack, "-o", tmp_path / "out", *QUICK, "-v")
    assert done.returncode == 0
    assert "wrote" in done.stdout
    assert "iteration" in done.stderr
    for stream in (done.stdout, done.stderr):
        assert "\x1b" not in stream
        assert "\r" not in stream


# ---------------------------------------------------------------- run: the report

REPORT_KEYS = {
    "method", "rank", "sampling", "seed", "low_cutoff", "high_cutoff", "iterations", "passes", "stop_reason",
    "held_out_rmse", "noise_floor", "trace", "singular_values", "timings_s", "peak_memory_bytes", "input",
    "output", "software", "command",
}  # fmt: skip


def test_json_is_one_object_with_every_key_of_the_contract(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5")
    result = cli("run", path, "-o", tmp_path / "out", *QUICK, "--json")
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


def test_json_is_not_silenced(stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", *QUICK, "--json", "-q")
    assert parse(result.stdout)["rank"] == 3


def test_the_command_is_in_the_report(stack: Path, tmp_path: Path) -> None:
    arguments = ["run", str(stack), "-o", str(tmp_path / "out"), *QUICK, "--json"]
    done = shell(*arguments)
    assert done.stderr == ""
    assert parse(done.stdout)["command"] == ["usdenoise", *arguments]


@pytest.mark.parametrize("method", ["svd", "gd", "precgd", "scaledgd", "scaledgd-lambda"])
def test_every_method_reports(method: str, stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", *QUICK, "--method", method, "--json")
    report = parse(result.stdout)
    assert set(report) >= REPORT_KEYS
    assert report["method"] == method
    assert (report["held_out_rmse"] is None) == (method == "svd")


def test_no_iterations_report_too(stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", "--rank", 3, "--iterations", 0, "--json")
    assert parse(result.stdout)["iterations"] == 0


# ---------------------------------------------------------------- exit codes


def test_a_known_failure_is_one_line_and_1(tmp_path: Path) -> None:
    done = shell("run", tmp_path / "absent.h5", "-o", tmp_path / "out")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"usdenoise: {tmp_path / 'absent.h5'} does not exist; check the path\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--no-such-option",),
        ("--frames", "nonsense"),
        ("--frames", "3"),
        ("--frames", "1:2:3:4"),
        ("--frames", "0:1.5"),
        ("--high-cutoff", "nonsense"),
        ("--high-cutoff", "2.5"),
        ("--rank", "many"),
        ("--method", "magic"),
        ("--init", "magic"),
        ("--preset", "magic"),
        ("--db-factor", "15"),
        ("--dynamic-range", "-40"),
        ("--frame-rate", "0"),
        ("--spacing", "0.1,"),
        ("--spacing", "-0.1"),
        ("--spacing", "0.1,0.1,0.1,0.1"),
        ("another", "argument"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(arguments: tuple[str, ...], stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr
    assert os.listdir(tmp_path) == ["x.h5"]


@pytest.mark.parametrize(
    "arguments", [("no-such-command",), ("run",), ("info",), ("simulate",), ("--magic",)]
)
def test_wrong_usage_of_the_group_is_2(arguments: tuple[str, ...]) -> None:
    result = cli(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--method", "gd", "--alpha", "1e30"),
        ("--method", "gd", "--step", "1e300", "--precision", "double"),
        ("--alpha", "1e38"),
        ("--step", "1e300"),
    ],
    ids=" ".join,
)
def test_divergence_is_3(arguments: tuple[str, ...], stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", "--rank", 3, "--json", *arguments)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert re.fullmatch("usdenoise: the solver diverged at iteration .*smaller --step.*\n", result.stderr)
    assert os.listdir(tmp_path) == ["x.h5"]


def test_divergence_draws_no_warnings_on_stderr(stack: Path, tmp_path: Path) -> None:
    done = shell("run", stack, "-o", tmp_path / "out", "--rank", 3, "--method", "gd", "--alpha", "1e30")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert os.listdir(tmp_path) == ["x.h5"]


# ---------------------------------------------------------------- outputs


def test_existing_results_are_refused_then_overwritten(stack: Path, tmp_path: Path) -> None:
    arguments = ("run", stack, "-o", tmp_path / "out", *QUICK)
    assert cli(*arguments).exit_code == 0
    before = {name: (tmp_path / "out" / name).read_bytes() for name in OUTPUTS.values()}
    refused(cli(*arguments, "--seed", 5), r"x_denoised\.h5 exists; give --overwrite to replace it")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in OUTPUTS.values()} == before
    assert cli(*arguments, "--seed", 5, "--overwrite").exit_code == 0
    assert sorted(os.listdir(tmp_path / "out")) == sorted(OUTPUTS.values())
    assert parse((tmp_path / "out" / "x_report.json").read_text())["seed"] == 5


def test_the_default_folder_is_in_the_current_one(
    stack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert cli("run", stack, *QUICK, "-q").exit_code == 0
    assert os.listdir() == ["x-usdenoise"]
    assert sorted(os.listdir("x-usdenoise")) == sorted(OUTPUTS.values())


def test_matlab_in_matlab_out(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": IQ.transpose(1, 2, 0)})
    report = parse(cli("run", tmp_path / "x.mat", "-o", tmp_path / "out", *QUICK, "--json").stdout)
    assert Path(report["output"]["denoised"]).name == "x_denoised.mat"
    assert report["input"]["axes"] == "zxt"


def test_a_folder_that_cannot_be_made(stack: Path) -> None:
    refused(cli("run", stack, "-o", stack / "out"), "cannot be made .*choose another one with -o")


def test_reading_options_reach_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a"] = IQ
        file["b/c"] = IQ.transpose(1, 0, 2)
    options = (
        "--dataset",
        "b/c",
        "--axes",
        "ztx",
        "--frames",
        "4:34:2",
        "--frame-rate",
        250,
        "--spacing",
        "0.1,0.2",
    )
    report = parse(cli("run", path, "-o", tmp_path / "out", *QUICK, "--json", *options).stdout)
    assert report["input"]["dataset"] == "b/c"
    assert report["input"]["shape"] == [12, 15, 10]
    # Of every second frame.
    assert report["input"]["frame_rate_hz"] == 125
    assert report["input"]["spacing_mm"] == {"z": 0.1, "x": 0.2}
    result = load(report["output"]["denoised"])
    assert (result.name, result.axes, result.frame_rate_hz) == ("b/c", "ztx", 125)


def test_the_paper_preset_can_be_overridden(stack: Path, tmp_path: Path) -> None:
    options = ("--preset", "paper", "--rank", 2, "--iterations", 1, "--json")
    report = parse(cli("run", stack, "-o", tmp_path / "out", *options).stdout)
    assert (report["rank"], report["iterations"], report["sampling"]) == (2, 1, 0.5)
    assert (report["parameters"]["alpha"], report["parameters"]["decay"]) == (1e7, 0.05)
    assert report["parameters"]["refit"] == "none"


# ---------------------------------------------------------------- bad options


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--rank", 41), r"rank 41 is above min\(n_pixels, n_frames\) = 40; lower --rank"),
        (("--rank", 41, "--method", "svd"), r"rank 41 is above min\(n_pixels, n_frames\) = 40; lower --rank"),
        (("--rank", 0), "rank 0 must be at least 1; change --rank"),
        (("--sampling", 0), "sampling 0 must be positive and at most 1; change --sampling"),
        (("--sampling", 1.5), "sampling 1.5 must be positive and at most 1"),
        (("--sampling", "nan"), "sampling nan must be positive and at most 1"),
        (
            ("--low-cutoff", 3, "--high-cutoff", "rank"),
            "low_cutoff 3 must be below rank 3; raise --rank or lower --low-cutoff",
        ),
        (("--low-cutoff", -1), "low_cutoff -1 must be at least 0; change --low-cutoff"),
        (("--low-cutoff", 2, "--high-cutoff", 2), "low_cutoff 2 must be below high_cutoff 2.*--high-cutoff"),
        (("--high-cutoff", 4), "high_cutoff 4 must not be above rank 3; raise --rank or lower --high-cutoff"),
        (("--step", 0.5, "--alpha", 10), "give --step or --alpha, not both"),
        (("--step", 0), "step 0 must be positive and finite; change --step"),
        (("--alpha", "nan"), "alpha nan must be positive and finite; change --alpha"),
        (("--damping", -1), "damping -1 must be at least 0 and finite; change --damping"),
        (("--decay", 0), "decay 0 must be positive and at most 1; change --decay"),
        (("--iterations", -1), "iterations -1 must be at least 0; change --iterations"),
        (("--seed", -1), "seed -1 must be at least 0; change --seed"),
        (("--threads", 0), "threads 0 must be at least 1; change --threads"),
        (("--high-cutoff", 0), "high_cutoff 0 must be at least 1; change --high-cutoff"),
        (("--frames", "0:1"), "--frames leaves 1 of 40 frames.*widen --frames"),
        (("--frames", "::-1"), "the step -1 of --frames must be positive"),
        (("--axes", "abc"), "axes 'abc' must be distinct letters.*--axes"),
        (("--axes", "tz"), "axes 'tz' names 2 axes, but the data have 3.*--axes"),
        (("--dataset", "absent"), "no dataset 'absent' .*candidates are: iq"),
        (("--spacing", "1,2,3"), "3 pixel pitches do not fit the 2 spatial axes zx.*--spacing"),
    ],
    ids=str,
)
def test_a_bad_option_is_refused_in_one_sentence(
    options: tuple[Any, ...], says: str, stack: Path, tmp_path: Path
) -> None:
    refused(cli("run", stack, "-o", tmp_path / "out", "--rank", 3, *options), says)
    assert os.listdir(tmp_path) == ["x.h5"]


@pytest.mark.parametrize(
    "options",
    [
        ("--spacing", "inf"),
        ("--spacing", "0.1,inf"),
        ("--frame-rate", "nan"),
        ("--frame-rate", "inf"),
        ("--dynamic-range", "nan"),
        ("--dynamic-range", "inf"),
    ],
    ids=" ".join,
)
def test_scales_must_be_finite(options: tuple[str, ...], stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", *QUICK, *options)
    assert result.exit_code in (1, 2)
    assert options[0] in result.stderr
    assert os.listdir(tmp_path) == ["x.h5"]


def test_the_rank_that_few_samples_determine_is_named_and_runs(stack: Path, tmp_path: Path) -> None:
    arguments = ("run", stack, "-o", tmp_path / "out", "--sampling", 0.1, "--iterations", 1)
    result = cli(*arguments, "--rank", 20)
    refused(
        result, "samples of 120 pixels x 40 frames are too few for rank 20; lower --rank to [0-9]+ or raise"
    )
    named = re.search("lower --rank to ([0-9]+)", result.stderr)
    assert named is not None
    rank = int(named[1])
    assert cli(*arguments, "--rank", rank).exit_code == 0
    refused(cli(*arguments, "--rank", rank + 1, "--overwrite"), f"too few for rank {rank + 1}")


def test_too_few_samples_for_any_rank(stack: Path) -> None:
    refused(cli("run", stack, "--sampling", 0.001, "--rank", 2), "too few for rank 2; raise --sampling")


@pytest.mark.parametrize(
    ("value", "says"),
    [(0, "'iq' is zero everywhere; check --dataset"), (np.nan, "'iq' has no finite entry; check how")],
)
@pytest.mark.parametrize("method", ["eta-decay", "svd"])
def test_a_stack_of_nothing(value: float, says: str, method: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", np.full_like(IQ, value), axes="tzx")
    refused(cli("run", path, "-o", tmp_path / "out", "--rank", 3, "--method", method), says)
    assert os.listdir(tmp_path) == ["x.h5"]


def test_the_svd_needs_every_entry(tmp_path: Path) -> None:
    values = IQ.copy()
    values[0, 0, 0] = np.nan
    path = write(tmp_path / "x.h5", values, axes="tzx")
    refused(cli("run", path, "--rank", 3, "--method", "svd"), "needs every entry, and 1 .*--method eta-decay")


def test_several_stacks_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a"] = IQ
        file["b"] = IQ
    refused(cli("run", path), "several stacks: a 40 x 12 x 10, b 40 x 12 x 10; pick one with --dataset")


# ---------------------------------------------------------------- the same numbers


def results(blocks: Path, folder: Path, *options: Any) -> tuple[bytes, bytes]:
    done = cli("run", blocks, "-o", folder, "--rank", 5, "--iterations", 4, "--low-cutoff", 2, "-q", *options)
    assert done.exit_code == 0
    with h5py.File(folder / "x_denoised.h5") as file:
        return file["power_doppler"][()].tobytes(), file["iq"][()].tobytes()


def test_the_same_seed_gives_the_same_bytes(blocks: Path, tmp_path: Path) -> None:
    first = results(blocks, tmp_path / "a", "--seed", 7)
    assert results(blocks, tmp_path / "b", "--seed", 7) == first
    assert results(blocks, tmp_path / "c", "--seed", 8)[1] != first[1]
    assert (tmp_path / "a" / "x_power_doppler.tif").read_bytes() == (
        tmp_path / "b" / "x_power_doppler.tif"
    ).read_bytes()


@pytest.mark.parametrize("method", ["eta-decay", "svd"])
def test_threads_do_not_change_a_byte(method: str, blocks: Path, tmp_path: Path) -> None:
    first = results(blocks, tmp_path / "1", "--threads", 1, "--method", method)
    assert results(blocks, tmp_path / "2", "--threads", 2, "--method", method) == first
    assert results(blocks, tmp_path / "3", "--threads", 3, "--method", method) == first


# ---------------------------------------------------------------- info


def test_info_shows_a_table(stack: Path) -> None:
    result = cli("info", stack)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert re.fullmatch(f"file +{re.escape(str(stack))}", lines[0])
    assert re.fullmatch("container +HDF5", lines[1])
    assert re.search("^candidate +iq  40 x 12 x 10  complex64  <- read$", result.stdout, re.MULTILINE)
    assert re.search(r"^axes +tzx  \(file: attribute axes of iq\)$", result.stdout, re.MULTILINE)
    assert re.search(r"^frame_rate_hz +500  \(file: .*\)$", result.stdout, re.MULTILINE)


def test_info_shows_what_is_assumed_and_what_is_given(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5")
    result = cli("info", path, "--spacing", "0.1,0.2")
    assert re.search(r"^axes +tzx  \(assumed\)$", result.stdout, re.MULTILINE)
    assert re.search(r"^spacing_mm +z 0\.1, x 0\.2  \(option\)$", result.stdout, re.MULTILINE)


def test_info_json_is_one_object(stack: Path) -> None:
    result = cli("info", stack, "--json")
    assert result.stdout.count("\n") == 1
    value = parse(result.stdout)
    assert value["container"] == "HDF5"
    assert value["problem"] is None
    assert value["chosen"] == {
        "name": "iq",
        "shape": [40, 12, 10],
        "dtype": "complex64",
        "layout": "",
    }
    assert value["candidates"] == [value["chosen"]]
    assert value["metadata"]["values"]["axes"] == "tzx"
    assert value["metadata"]["sources"]["frame_rate_hz"].startswith("file: ")


def test_info_json_with_attributes_that_cannot_be_copied(stack: Path) -> None:
    with h5py.File(stack, "r+") as file:
        file["iq"].attrs["self"] = file["iq"].ref
        file["iq"].attrs["probe"] = "L22-14v"
    value = parse(cli("info", stack, "--json").stdout)
    assert "probe" in value["metadata"]["attributes"]


def test_info_of_matlab_files(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"IQ": IQ.transpose(1, 2, 0), "UF": {"FrameRateUF": 500.0, "TwFreq": 15.0}})
    result = cli("info", path)
    assert result.exit_code == 0
    assert re.search("^container +MATLAB before 7.3$", result.stdout, re.MULTILINE)
    assert re.search("^candidate +IQ  12 x 10 x 40 .*<- read$", result.stdout, re.MULTILINE)
    assert re.search(
        r"^center_frequency_hz +1\.5e\+07  \(file: UF.TwFreq in MHz\)$", result.stdout, re.MULTILINE
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_info_of_an_ambiguous_file_lists_the_candidates_and_fails(as_json: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a"] = IQ
        file["b"] = IQ
    result = cli("info", path, *(["--json"] if as_json else []))
    assert result.exit_code == 1
    if as_json:
        value = parse(result.stdout)
        assert [candidate["name"] for candidate in value["candidates"]] == ["a", "b"]
        assert value["chosen"] is None
        assert "--dataset" in value["problem"]
    else:
        assert re.findall("^candidate +([ab]) ", result.stdout, re.MULTILINE) == ["a", "b"]
        assert "<- read" not in result.stdout
    assert re.fullmatch("usdenoise: .*several stacks.*--dataset\n", result.stderr)
    assert "b  40 x 12 x 10  complex64  <- read" in cli("info", path, "--dataset", "b").stdout


def test_info_of_a_missing_file(tmp_path: Path) -> None:
    refused(cli("info", tmp_path / "absent.h5"), r"absent\.h5 does not exist; check the path")


# ---------------------------------------------------------------- simulate


SMALL = ("--shape", "16x12x20")


def test_simulate_prints_a_summary(tmp_path: Path) -> None:
    out = tmp_path / "p.h5"
    result = cli("simulate", out, *SMALL)
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.search("^phantom +z 16, x 12, t 20, complex, seed 0$", result.stdout, re.MULTILINE)
    assert re.search(f"^wrote +{re.escape(str(out))}$", result.stdout, re.MULTILINE)
    with h5py.File(out) as file:
        assert file["iq"].shape == (20, 16, 12)
        assert file["iq"].dtype == np.complex64
        assert sorted(file["truth"]) == ["blood_power", "noise_power", "velocity", "vessel_mask"]
        assert json.loads(file.attrs["usdenoise_provenance"])["parameters"]["seed"] == 0
    assert os.listdir(tmp_path) == ["p.h5"]


def test_simulate_quietly(tmp_path: Path) -> None:
    result = cli("simulate", tmp_path / "p.h5", *SMALL, "-q")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_simulate_refuses_an_existing_file(tmp_path: Path) -> None:
    out = tmp_path / "p.h5"
    out.write_text("precious")
    refused(cli("simulate", out, *SMALL), r"p\.h5 exists; give --overwrite to replace it")
    assert out.read_text() == "precious"
    assert cli("simulate", out, *SMALL, "--overwrite").exit_code == 0
    assert load(out).iq.shape == (20, 16, 12)


def test_simulate_json(tmp_path: Path) -> None:
    out = tmp_path / "p.h5"
    result = cli("simulate", out, *SMALL, "--seed", 3, "--frame-rate", 600, "--json")
    assert result.stdout.count("\n") == 1
    summary = parse(result.stdout)
    assert summary["path"] == str(out)
    assert summary["shape"] == [16, 12, 20]
    assert (summary["seed"], summary["frame_rate_hz"]) == (3, 600)
    assert 0 < summary["vessel_fraction"] < 1
    assert load(out).frame_rate_hz == 600


REALISM = {
    "--noise-gain": ("noise_gain_db", 20.0),
    "--noise-correlation": ("noise_correlation_pixels", 1.5),
    "--attenuation": ("attenuation_db", 10.0),
    "--max-speed": ("max_speed_mm_s", 15.0),
    "--thin-vessels": ("thin_vessels", 2),
    "--capillary": ("capillary_db", -8.0),
}


def test_simulate_what_real_scans_have(tmp_path: Path) -> None:
    out = tmp_path / "p.h5"
    options = [text for flag, (_, value) in REALISM.items() for text in (flag, value)]
    summary = parse(cli("simulate", out, *SMALL, "--frame-rate", 250, *options, "--json").stdout)
    assert {name: summary[name] for name, _ in REALISM.values()} == dict(REALISM.values())
    with h5py.File(out) as file:
        parameters = json.loads(file.attrs["usdenoise_provenance"])["parameters"]
        assert {name: parameters[name] for name, _ in REALISM.values()} == dict(REALISM.values())
        assert file["truth/capillary_mask"][()].any()
        decibels = 10 * np.log10(file["truth/noise_power"][:, 0])
        assert decibels[-1] - decibels[0] == pytest.approx(20.0, abs=1e-4)
    assert cli("info", out).exit_code == 0


def test_simulate_without_noise_is_json_too(tmp_path: Path) -> None:
    result = cli("simulate", tmp_path / "p.h5", *SMALL, "--blood-to-noise", "inf", "--json")
    assert result.exit_code == 0
    parse(result.stdout)
    with h5py.File(tmp_path / "p.h5") as file:
        parse(file.attrs["usdenoise_provenance"])


def test_simulate_real(tmp_path: Path) -> None:
    cli("simulate", tmp_path / "p.h5", *SMALL, "--real", "--terms")
    acquisition = load(tmp_path / "p.h5")
    assert acquisition.iq.dtype == np.float32
    with h5py.File(tmp_path / "p.h5") as file:
        assert file["truth/blood"].dtype == np.float32


def test_simulate_terms_add_up(tmp_path: Path) -> None:
    cli("simulate", tmp_path / "p.h5", *SMALL, "--terms")
    with h5py.File(tmp_path / "p.h5") as file:
        terms = sum(file[f"truth/{name}"][()].astype(np.complex128) for name in ("tissue", "blood", "noise"))
        np.testing.assert_allclose(file["iq"][()], terms, rtol=1e-5, atol=1e-5 * np.abs(terms).max())
        blood_power = np.mean(np.abs(file["truth/blood"][()]) ** 2, axis=0)
        np.testing.assert_allclose(file["truth/blood_power"][()], blood_power, rtol=1e-4)


def test_simulate_volumes(tmp_path: Path) -> None:
    assert cli("simulate", tmp_path / "p.h5", "--shape", "10x9x8x12").exit_code == 0
    acquisition = load(tmp_path / "p.h5")
    assert acquisition.axes == "tzxy"
    assert acquisition.iq.shape == (12, 10, 9, 8)
    assert set(acquisition.spacing_mm) == {"z", "x", "y"}


def test_simulate_the_same_seed_gives_the_same_stack(tmp_path: Path) -> None:
    for name, seed, threads in (("a", 1, 1), ("b", 1, 2), ("c", 2, 2)):
        cli("simulate", tmp_path / name, *SMALL, "--seed", seed, "--threads", threads)
    a, b, c = (load(tmp_path / name).iq for name in "abc")
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--shape", "16x12"), 2, "--shape"),
        (("--shape", "16x12xmany"), 2, "--shape"),
        (("--shape", "16x0x20"), 2, "--shape"),
        (("--shape", "4x4x20"), 1, "at least 8 x 8 pixels and 2 frames"),
        (("--shape", "16x12x1"), 1, "at least 8 x 8 pixels and 2 frames"),
        (("--frame-rate", "0"), 1, "change --frame-rate"),
        (("--frame-rate", "nan"), 1, "change --frame-rate"),
        (("--frame-rate", "inf"), 1, "change --frame-rate"),
        (("--center-frequency", "-1"), 1, "change --center-frequency"),
        (("--clutter-to-blood", "nan"), 1, "clutter"),
        (("--clutter-to-blood", "1e9"), 1, "clutter"),
        (("--blood-to-noise", "nan"), 1, "noise"),
        (("--noise-gain", "inf"), 1, "from 0 to 100; change --noise-gain"),
        (("--noise-correlation", "-1"), 1, "from 0 to 100; change --noise-correlation"),
        (("--attenuation", "nan"), 1, "from 0 to 100; change --attenuation"),
        (("--max-speed", "0"), 1, "change --max-speed"),
        (("--thin-vessels", "-1"), 2, "--thin-vessels"),
        (("--capillary", "inf"), 1, "from -200 to 200; change --capillary"),
        (("--seed", "-1"), 2, "--seed"),
        (("--threads", "0"), 2, "--threads"),
    ],
    ids=str,
)
def test_simulate_bad_options(options: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    result = cli("simulate", tmp_path / "p.h5", *SMALL, *options)
    assert result.exit_code == code
    assert says in result.stderr
    assert os.listdir(tmp_path) == []


def test_simulate_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(cli("simulate", tmp_path / "file" / "p.h5", *SMALL), "cannot be made")


# ---------------------------------------------------------------- the program


def test_version() -> None:
    done = shell("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"usdenoise, version {__version__}\n"


def test_help_lists_the_commands() -> None:
    result = cli("--help")
    assert result.exit_code == 0
    for name in ("run", "info", "simulate"):
        assert re.search(f"^  {name} ", result.stdout, re.MULTILINE)
    assert "Exit codes: 0 done, 1 failed" in result.stdout


@pytest.mark.parametrize(
    "arguments", [("--help",), ("run", "--help"), ("batch", "-h"), ("info", "-h"), ("simulate", "-h")]
)
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "usdenoise", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0
    assert "Usage: " in done.stdout
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "click" in imported
    assert not imported & {"numpy", "scipy", "h5py", "matplotlib", "numba", "imageio", "rich"}


# ---------------------------------------------------------------- the automatic choices


def test_default_run_says_what_it_chose_and_why(phantom_file: Path, tmp_path: Path) -> None:
    result = cli("run", phantom_file, "-o", tmp_path / "out", "--json", "--cutoff-figure")
    report = parse(result.stdout)
    assert 8 <= report["low_cutoff"] <= 18
    assert report["cutoff"]["low"] == report["low_cutoff"]
    assert report["cutoff"]["certainty"] in ("sure", "likely", "unsure")
    assert report["high_cutoff"] == "none"
    assert report["estimate"] == "as good as the full SVD"
    assert report["verdict"] == f"{report['blood']['sentence']}; estimate: as good as the full SVD"
    assert report["held_out_ratio"] < 1.1
    assert (tmp_path / "out" / "small_cutoff.png").stat().st_size > 10_000


def test_the_figure_of_the_frames_is_drawn_on_request(phantom_file: Path, tmp_path: Path) -> None:
    arguments = (
        "run",
        phantom_file,
        "-o",
        tmp_path,
        "--no-html",
        "--products",
        "power",
        "--figure-format",
        "png,svg",
    )
    report = parse(cli(*arguments, "--frames-figure", "--json").stdout)
    assert report["output"]["frames_png"] == str(tmp_path / "small_frames.png")
    text = (tmp_path / "small_frames.svg").read_text()
    for word in ("small: frames", "DVARS", "displacement", "outside the", "bands of pixels", "frame", "dB"):
        assert word in text
    # A curve above another, and the carpet below: no row of the picture is empty apart from the gaps.
    picture = iio.imread(tmp_path / "small_frames.png")[..., :3]
    assert picture.shape[0] > 800
    carpet = picture[int(0.7 * picture.shape[0]), 200:900, 0]
    assert np.ptp(carpet.astype(int)) > 60


def test_cutoff_figure_needs_a_choice(stack: Path, tmp_path: Path) -> None:
    arguments = ("run", stack, "-o", tmp_path / "out", "--low-cutoff", 2, "--cutoff-figure")
    refused(cli(*arguments), "there is no choice to draw: give --low-cutoff auto")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--rank", "--low-cutoff", "--ridge"])
def test_neither_auto_nor_a_number_is_wrong_usage(option: str, stack: Path) -> None:
    result = cli("run", stack, option, "some")
    assert result.exit_code == 2
    assert "'some' is not auto or a" in " ".join(result.stderr.split())


def test_a_sample_too_small_for_the_rank_is_warned_about(phantom_file: Path, tmp_path: Path) -> None:
    result = cli(
        "run", phantom_file, "-o", tmp_path / "out", "--refit", "none", "--sampling", 0.3, "--rank", 20
    )
    assert result.exit_code == 0
    assert re.search(
        "warning: too few samples: 36 per pixel for rank 20; raise the sampling, or refit", result.stderr
    )
    # The summary does not repeat the warning.
    assert re.search("^estimate +too few samples; see the warning$", result.stdout, re.MULTILINE)
