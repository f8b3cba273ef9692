"""What cannot be read is wrong usage, what makes no sense is one sentence; nothing is written either way."""

import os
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.cli.shared import IQ, cli, refused, write, write_two


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--no-such-option",), "No such option"),
        (("-o", ""), "the path is empty; give a name, or . for the current folder"),
        (("another", "argument"), "unexpected extra"),
        (("--frames", "nonsense"), "is not A:B or A:B:S"),
        (("--frames", "3"), "is not A:B or A:B:S"),
        (("--frames", "0:1.5"), "is not A:B or A:B:S"),
        (("--frame-rate", "0"), "'0' is not a positive number"),
        (("--spacing", "0.1,"), "is not MM"),
        (("--spacing", "-0.1"), "is not MM"),
        (("--spacing", "0.1,0.1,0.1,0.1"), "is not MM"),
        (("--rank", "many"), "'many' is not auto or a whole number"),
        (("--high-cutoff", "2.5"), "'2.5' is not rank, none or a whole number"),
        (("--ridge", "some"), "'some' is not auto or a number"),
        (("--bad-frames", "none"), "is not auto, keep or frame numbers such as 3,17,40:45"),
        (("--bad-frames=-2",), "'-2' is not auto, keep or frame numbers"),
        (("--bad-frames", "0:3000000000"), "is not auto, keep or frame numbers"),
        (("--bad-frames", "9" * 30), "is not auto, keep or frame numbers"),
        (("--bad-frames", "4:4"), "is not auto, keep or frame numbers"),
        (("--method", "magic"), "'magic' is not one of eta-decay"),
        (("--preset", "magic"), "'magic' is not 'paper'"),
        (("--products", "color"), "'color' is not one or more of power, blood"),
        (("--window", "x"), "is not a whole number"),
        (("--db-factor", "15"), "'15' is not one of 10, 20"),
        (("--dynamic-range", "0"), "'0' is not a positive number, or MIN,MAX with MIN below MAX"),
        (("--dynamic-range", "40,10"), "is not a positive number, or"),
        (("--dynamic-range", "1,inf"), "is not a positive number, or"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_wrong_usage(
    options: tuple[str, ...], says: str, stack: Path, tmp_path: Path
) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr
    assert says in " ".join(result.stderr.split())
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
        (("--rank", 41), r"rank 41 is above min\(n_pixels, n_frames\) = 40; lower --rank"),
        (("--rank", 41, "--method", "svd"), r"rank 41 is above min\(n_pixels, n_frames\) = 40; lower --rank"),
        (("--rank", 0), "--rank 0 must be at least 1; change --rank"),
        (("--sampling", 0), "--sampling 0 must be from 1e-06 to 1; change --sampling"),
        (("--sampling", 5e-324), "--sampling 4.94066e-324 must be from 1e-06 to 1; change --sampling"),
        (("--sampling", 1.5), "sampling 1.5 must be .*--sampling"),
        (("--sampling", "nan"), "sampling nan must be .*--sampling"),
        (("--low-cutoff", 3, "--high-cutoff", "rank"), "must be below rank 3; raise --rank or lower --low-cutoff"),
        (("--low-cutoff", -1), "--low-cutoff -1 must be at least 0; change --low-cutoff"),
        (("--low-cutoff", 2, "--high-cutoff", 2), "low_cutoff 2 must be below high_cutoff 2.*--high-cutoff"),
        (("--high-cutoff", 4), "high_cutoff 4 must not be above rank 3; raise --rank or lower --high-cutoff"),
        (("--high-cutoff", 0), "--high-cutoff 0 must be at least 1; change --high-cutoff"),
        (("--step", 0.5, "--alpha", 10), "give --step or --alpha, not both"),
        (("--step", 0), "--step 0 must be positive and finite; change --step"),
        (("--alpha", "nan"), "--alpha nan must be positive and finite; change --alpha"),
        (("--damping", -1), "--damping -1 must be at least 0 and finite; change --damping"),
        (("--decay", 0), "--decay 0 must be positive and at most 1; change --decay"),
        (("--iterations", -1), "--iterations -1 must be at least 0; change --iterations"),
        (("--seed", -1), "--seed -1 must be at least 0; change --seed"),
        (("--threads", 0), "--threads 0 must be at least 1; change --threads"),
        (("--frames", "0:1"), "--frames leaves 1 of 40 frames.*widen --frames"),
        (("--frames", "::-1"), "the step -1 of --frames must be positive"),
        (("--axes", "abc"), "axes 'abc' must be distinct letters.*--axes"),
        (("--axes", "tz"), "axes 'tz' names 2 axes, but the data have 3.*--axes"),
        (("--dataset", "absent"), "no dataset 'absent' .*candidates are: iq"),
        (("--spacing", "1,2,3"), "3 pixel pitches do not fit the 2 spatial axes zx.*--spacing"),
        (("--movie", "gif"), "--movie needs --window; give --window the number"),
        (("--window", "99"), "window 99 is longer than the 40 frames of the stack; lower --window"),
        (("--window", "9", "--stride", "10"), "stride 10 must be from 1 to the window.*--stride"),
        (("--low-cutoff", 2, "--cutoff-figure"), "there is no choice to draw: give --low-cutoff auto"),
        (("--sampling", 0.001), "too few for rank 3; raise --sampling"),
    ],
    ids=str,
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_sentence(
    options: tuple[Any, ...], says: str, stack: Path, tmp_path: Path
) -> None:
    refused(cli("run", stack, "-o", tmp_path / "out", "--rank", 3, *options), says)
    assert os.listdir(tmp_path) == ["x.h5"]


def test_the_rank_that_few_samples_determine_is_named_and_runs(stack: Path, tmp_path: Path) -> None:
    arguments = ("run", stack, "-o", tmp_path / "out", "--sampling", 0.1, "--iterations", 1, "--rank")
    result = cli(*arguments, 20)
    refused(result, "samples of 120 pixels x 40 frames are too few for rank 20; lower --rank to [0-9]+ or")
    rank = int(re.findall("lower --rank to ([0-9]+)", result.stderr)[0])
    assert cli(*arguments, rank).exit_code == 0
    refused(cli(*arguments, rank + 1, "--overwrite"), f"too few for rank {rank + 1}")


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
    refused(cli("run", stack, "-o", stack / "out"), "cannot be made .*choose another one with -o")
    refused(cli("info", tmp_path / "absent.h5"), r"absent\.h5 does not exist; check the path")
    several = "several stacks: a 40 x 12 x 10, b 40 x 12 x 10; pick one with --dataset"
    refused(cli("run", write_two(tmp_path / "two.h5")), several)


@pytest.mark.parametrize(
    "options",
    [
        ("--method", "gd", "--alpha", "1e30"),
        ("--method", "gd", "--step", "1e300", "--precision", "double"),
        ("--alpha", "1e38"),
        ("--step", "1e300"),
    ],
    ids=" ".join,
)
def test_divergence_is_3(options: tuple[str, ...], stack: Path, tmp_path: Path) -> None:
    result = cli("run", stack, "-o", tmp_path / "out", "--rank", 3, "--json", *options)
    assert (result.exit_code, result.stdout) == (3, "")
    assert re.fullmatch("usdenoise: the solver diverged at iteration .*smaller --step.*\n", result.stderr)
    assert os.listdir(tmp_path) == ["x.h5"]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--shape", "16x12"), 2, "--shape"),
        (("--shape", "16x12xmany"), 2, "--shape"),
        (("--shape", "16x0x20"), 2, "--shape"),
        (("--shape", "4x4x20"), 1, "at least 8 x 8 pixels and 2 frames"),
        (("--frame-rate", "0"), 1, "change --frame-rate"),
        (("--blood-to-noise", "nan"), 1, "give --blood-to-noise within"),
        (("--thin-vessels", "-1"), 2, "--thin-vessels"),
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
