"""What cannot be read is wrong usage, what makes no sense is one sentence; nothing is written either way."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import usdenoise
from tests.cli.shared import IQ, cli, parse, refused, write, write_two
from usdenoise.cli.flags import FLAGS
from usdenoise.errors import OptionError
from usdenoise.options import DenoiseOptions


@pytest.mark.parametrize(
    "options",
    [
        ("--no-such-option",), ("-o", ""), ("another", "argument"), ("--frames", "nonsense"), ("--frames", "3"),
        ("--frames", "0:1.5"), ("--frame-rate", "0"), ("--spacing", "0.1,"), ("--spacing", "-0.1"),
        ("--spacing", "0.1,0.1,0.1,0.1"), ("--rank", "many"), ("--rank", "0"), ("--high-cutoff", "2.5"),
        ("--high-cutoff", "0"), ("--low-cutoff=-1",), ("--bad-frames", "none"), ("--bad-frames=-2",),
        ("--bad-frames", "0:3000000000"), ("--bad-frames", "9" * 30), ("--bad-frames", "4:4"), ("--method", "magic"),
        ("--preset", "magic"), ("--products", "color"), ("--dynamic-range", "0"), ("--dynamic-range", "40,10"),
        ("--dynamic-range", "1,inf"), ("--seed=-1",), ("--threads", "0"), ("--memory", "much"),
        ("--estimator", "haste=3"), ("--estimator", "ridge"), ("--estimator", "ridge=some"),
        ("--estimator", "sampling=0"), ("--estimator", "sampling=1.5"), ("--estimator", "iterations=-1"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_read_is_wrong_usage(options: tuple[str, ...], stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr
    assert os.listdir(tmp_path) == ["x.h5"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",), ("--magic",), ("run",), ("info",), ("simulate",), ("batch", "s"), ("batch", "-o", "out"),
        ("batch", "s", "-o", "out", "--jobs", "0"), ("batch", "s", "-o", "out", "--magic"), ("run", ""), ("info", ""),
        ("simulate", ""), ("batch", "", "-o", "out"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage_of_the_program(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli(*arguments)
    assert (result.exit_code, result.stdout, os.listdir()) == (2, "", [])
    assert "Error: " in result.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--rank", 41), "--rank"),
        (("--rank", 41, "--method", "svd"), "--rank"),
        (("--low-cutoff", 3, "--high-cutoff", "rank"), "raise --rank or lower --low-cutoff"),
        (("--low-cutoff", 2, "--high-cutoff", 2), "raise --high-cutoff or lower --low-cutoff"),
        (("--high-cutoff", 4), "raise --rank or lower --high-cutoff"),
        (("--estimator", "sampling=nan"), "--estimator sampling"),
        (("--estimator", "alpha=inf"), "--estimator alpha"),
        (("--estimator", "step=0.5", "--estimator", "alpha=10"), "--estimator step or --estimator alpha"),
        (("--frames", "0:1"), "--frames"),
        (("--frames", "::-1"), "--frames"),
        (("--axes", "abc"), "--axes"),
        (("--axes", "tz"), "--axes"),
        (("--dataset", "absent"), "candidates are: iq"),
        (("--spacing", "1,2,3"), "--spacing"),
        (("--as", "2nd"), "--as"),
        (("--as", "iq", "--no-stack"), "--no-stack"),
        (("--bids", "sub-1"), "--nifti"),
        (("--estimator", "sampling=0.001"), "too few for rank 3"),
    ],
    ids=str,
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_sentence(
    options: tuple[Any, ...], says: str, stack: Path, tmp_path: Path
) -> None:
    refused(cli("run", stack, "-o", tmp_path / "out", "--rank", 3, *options), says)
    assert os.listdir(tmp_path) == ["x.h5"]


def test_the_rank_that_few_samples_determine_is_named_and_runs(stack: Path, tmp_path: Path) -> None:
    arguments = ("run", stack, "-o", tmp_path / "out", "--estimator", "sampling=0.1", "--rank")
    result = cli(*arguments, 20)
    refused(result, "samples of 120 pixels x 40 frames are too few for rank 20; lower --rank to [0-9]+ or")
    rank = int(re.findall("lower --rank to ([0-9]+)", result.stderr)[0])
    assert cli(*arguments, rank).exit_code == 0
    refused(cli(*arguments, rank + 1, "--overwrite"), f"too few for rank {rank + 1}")


def _region(rows: slice) -> Any:
    mask = np.zeros(IQ.shape[1:], bool)
    mask[rows] = True
    return mask


@pytest.mark.parametrize(
    ("flags", "parameters", "wrong"),
    [
        (("--stride", 5), {"stride": 5}, "stride"),
        (("--window", 5, "--stride", 6), {"window": 5, "stride": 6}, "stride"),
        (("--live", "--window", 20), {"live": True, "window": 20}, "window"),
        (("--live", "--stride", 5), {"live": True, "stride": 5}, "stride"),
        (("--window", 20, "--until-idle", 3), {"window": 20, "until_idle_s": 3}, "until_idle_s"),
        (("--window", 20, "--block-interval", 0.01), {"window": 20, "block_interval_s": 0.01}, "block_interval_s"),
        (("--window", 20, "--estimator", "step=1", "--estimator", "alpha=1"), {"window": 20, "step": 1, "alpha": 1}, "step"),
        (("--window", 20, "--movie", "mp4"), None, "movie"),
        # What a final series uses, which only the command line makes
        (None, {"live": True, "dask": "1"}, "dask"),
        (None, {"live": True, "on_block": print}, "on_block"),
        (None, {"live": True, "skip_bad_files": True}, "skip_bad_files"),
        (None, {"live": True, "hrf": "glover"}, "hrf"),
        (None, {"live": True, "smoothing_mm": 0.2}, "smoothing_mm"),
        (None, {"live": True, "until_idle_s": -1}, "until_idle_s"),
        (None, {"window": 20, "options": DenoiseOptions(), "rank": 3}, "options"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_combinations_of_a_session_are_refused_from_both(
    flags: tuple[Any, ...] | None, parameters: dict[str, Any] | None, wrong: str, stack: Path, tmp_path: Path
) -> None:
    (tmp_path / "blocks").mkdir()
    if flags is not None:
        source = tmp_path / "blocks" if "--live" in flags else stack
        done = cli("session", source, "-o", tmp_path / "out", *flags)
        assert done.exit_code == (1 if parameters else 2)
        assert FLAGS[wrong] in done.stderr
        assert len(done.stderr.splitlines()) == 1 or not parameters
    if parameters is not None:
        in_memory = usdenoise.load(stack)
        sources = [tmp_path / "blocks"] if "live" in parameters else [stack, in_memory]
        for each in sources:
            with pytest.raises(OptionError) as caught:
                usdenoise.session(each, **parameters)
            assert caught.value.option == wrong
            assert str(caught.value).startswith(wrong)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "call", "wrong"),
    [
        (("run", "--bids", "sub-1"), lambda path, out: usdenoise.run(path, out, bids="sub-1"), "bids"),
        (("batch", "--flat", "--no-stack"),
         lambda path, out: usdenoise.run_batch(path, out, flat=True, arguments={"output": usdenoise.Output(stack=False)}),
         "flat"),
        (("compare", "--signal", "rect:0,0,3,3"),
         lambda path, out: usdenoise.compare(usdenoise.load(path), signal=_region(slice(3))), "signal"),
        (("run", "--no-stack", "--as", "iq"),
         lambda path, out: usdenoise.run(path, out, output=usdenoise.Output(stack=False, stack_name="iq")), "stack_name"),
        (("run", "--low-cutoff", 5, "--rank", 3),
         lambda path, out: usdenoise.denoise(usdenoise.load(path), low_cutoff=5, rank=3), "low_cutoff"),
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_wrong_combinations_of_other_commands_are_refused_from_both(
    flags: tuple[Any, ...], call: Callable[[Path, Path], Any], wrong: str, stack: Path, tmp_path: Path
) -> None:
    command, *more = flags
    refused(cli(command, stack, "-o", tmp_path / "out", *more), FLAGS[wrong])
    with pytest.raises(OptionError) as caught:
        call(stack, tmp_path / "out")
    assert caught.value.option == wrong
    assert not (tmp_path / "out").exists()


def test_right_combinations_of_a_session_pass(stack: Path) -> None:
    in_memory, how = usdenoise.load(stack), {"rank": 3, "low_cutoff": 0, "center_frequency": 15e6}
    for source in (stack, in_memory):
        found = usdenoise.session(source, 20, 10, block_interval_s=0.5, **how)
        np.testing.assert_allclose(np.diff(found.time), 0.5)
        assert found.series.geometry.center_frequency_hz == 15e6


@pytest.mark.parametrize(
    ("entry", "options", "says"),
    [
        (..., (), "'iq' is zero everywhere; check --dataset"),
        (..., ("--method", "svd"), "'iq' is zero everywhere; check --dataset"),
        ((0, 0, 0), ("--method", "svd"), "needs every entry, and 1 .*--method eta-decay"),
    ],
)
def test_a_stack_that_cannot_be_filtered(
    entry: Any, options: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    values = IQ.copy()
    values[entry] = 0 if entry is ... else np.nan
    path = write(tmp_path / "x.h5", values, axes="tzx")
    refused(cli("run", path, "-o", tmp_path / "out", "--rank", 3, *options), says)
    with h5py.File(path, "r+") as file:
        file["iq"][...] = np.nan
    refused(cli("run", path, "-o", tmp_path / "out", *options), "'iq' has no finite entry; check how")
    assert os.listdir(tmp_path) == ["x.h5"]


def test_what_is_no_input_or_no_folder(stack: Path, tmp_path: Path) -> None:
    refused(cli("run", stack, "-o", stack / "out"), "cannot be written")
    refused(cli("info", tmp_path / "absent.h5"), r"absent\.h5 does not exist; check the path")
    several = "several stacks: a 40 x 12 x 10, b 40 x 12 x 10; pick one with --dataset"
    refused(cli("run", write_two(tmp_path / "two.h5")), several)


@pytest.mark.parametrize(
    "options",
    [
        ("--method", "gd", "--estimator", "alpha=1e30"),
        ("--method", "gd", "--estimator", "step=1e300", "--estimator", "precision=double"),
        ("--estimator", "alpha=1e38"),
        ("--estimator", "step=1e300"),
    ],
    ids=" ".join,
)
def test_divergence_is_3(options: tuple[str, ...], stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", "--rank", 3, "--json", *options)
    assert (result.exit_code, result.stdout) == (3, "")
    assert re.fullmatch("usdenoise: the solver diverged at iteration .*\n", result.stderr)
    assert os.listdir(tmp_path) == ["x.h5"]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--shape", "16x12"), 2, "--shape"),
        (("--shape", "16x12xmany"), 2, "--shape"),
        (("--shape", "16x0x20"), 2, "--shape"),
        (("--shape", "4x4x20"), 1, "at least 8 x 8 pixels and 2 frames"),
        (("--frame-rate", "0"), 2, "--frame-rate"),
        (("--blood-to-noise", "nan"), 1, "--blood-to-noise"),
        (("--set", "thin_vessels=-1"), 2, "thin_vessels"),
        (("--seed", "-1"), 2, "--seed"),
        (("--threads", "0"), 2, "--threads"),
    ],
    ids=str,
)
def test_a_phantom_that_cannot_be_made(
    options: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    result = cli("simulate", tmp_path / "p.h5", "--shape", "16x12x20", *options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in result.stderr
    assert os.listdir(tmp_path) == []


def test_an_unknown_command_names_the_nearest(tmp_path: Path) -> None:
    done = cli("sesion", tmp_path)
    assert done.exit_code == 2
    assert "Did you mean 'session'?" in done.stderr
    refused(cli("run", tmp_path), "`usdenoise session` .* `usdenoise batch`")


def test_methods_may_be_in_upper_case(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", axes="tzx")
    found = cli("run", path, "-o", tmp_path / "out", "--method", "SVD", "--rank", 3, "--json", "-qq")
    assert parse(found.stdout)["method"] == "svd"


def test_the_center_frequency_gives_velocities_in_mm_per_s(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", axes="tzx", frame_rate_hz=500.0)
    done = cli(
        "run", path, "-o", tmp_path / "out", "--rank", 3, "--products", "velocity", "--center-frequency", 15e6
    )
    assert done.exit_code == 0
    with h5py.File(tmp_path / "out/x_denoised.h5") as file:
        assert file["axial_velocity"].attrs["unit"] == "mm/s"
