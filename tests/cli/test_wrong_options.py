"""Wrong usage is exit code 2, impossible options are 1 with a single message, divergence is 3; nothing is written."""

import os
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import usdenoise
from tests.cli.shared import IQ, cli, parse, refused, write, write_two
from usdenoise.errors import OptionError
from usdenoise.options import FLAGS, DenoiseOptions

WRONG_USAGE = {
    "run x.h5": [
        "--no-such-option", "another argument", "--frames=nonsense", "--frames=3", "--frames=0:1.5",
        "--frame-rate=0", "--spacing=0.1,", "--spacing=-0.1", "--spacing=0.0001", "--spacing=100",
        "--spacing=0.1,0.1,0.1,0.1", "--rank=many", "--rank=0",
        "--high-cutoff=2.5", "--high-cutoff=0", "--low-cutoff=-1", "--bad-frames=none", "--bad-frames=-2",
        "--bad-frames=0:3000000000", "--bad-frames=4:4", "--method=magic", "--preset=magic", "--products=color",
        "--dynamic-range=0", "--dynamic-range=40,10", "--dynamic-range=1,inf", "--seed=-1", "--threads=0", "--memory=much",
        "--estimator=haste=3", "--estimator=ridge", "--estimator=ridge=some", "--estimator=sampling=0",
        "--estimator=sampling=1.5", "--estimator=iterations=-1",
    ],
    "simulate p.h5 --shape=16x12x20": [
        "--shape=16x12", "--shape=16x12xmany", "--shape=16x0x20", "--frame-rate=0", "--set=thin_vessels=-1", "--seed=-1",
        "--threads=0",
    ],
    "batch x.h5 -o out": ["--jobs=0", "--magic"],
    "": ["no-such-command", "--magic", "run", "info", "simulate", "batch s", "batch -o out"],
    "session x.h5 -o out": ["--region=cortex"],
}  # fmt: skip


def test_what_cannot_be_read_is_wrong_usage(stack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command, options in WRONG_USAGE.items():
        for option in options:
            result = cli(*command.split(), *option.split())
            assert (result.exit_code, result.stdout) == (2, ""), (command, option)
            assert "Error: " in result.stderr
    for words in (("run", ""), ("info", ""), ("simulate", ""), ("run", "x.h5", "-o", "")):
        assert cli(*words).exit_code == 2
    assert os.listdir() == ["x.h5"]


IMPOSSIBLE = {
    "--rank=41": "--rank",
    "--rank=41 --method=svd": "--rank",
    "--low-cutoff=3 --high-cutoff=rank": "raise --rank or lower --low-cutoff",
    "--low-cutoff=2 --high-cutoff=2": "raise --high-cutoff or lower --low-cutoff",
    "--high-cutoff=4": "raise --rank or lower --high-cutoff",
    "--estimator=sampling=nan": "--estimator sampling",
    "--estimator=alpha=inf": "--estimator alpha",
    "--estimator=step=0.5 --estimator=alpha=10": "--estimator step or --estimator alpha",
    "--frames=0:1": "--frames",
    "--frames=::-1": "--frames",
    "--axes=abc": "--axes",
    "--axes=tz": "--axes",
    "--dataset=absent": "candidates are: iq",
    "--spacing=1,2,3": "--spacing",
    "--as=2nd": "--as",
    "--as=iq --no-stack": "--no-stack",
    "--bids=sub-1": "--nifti",
    "--estimator=sampling=0.001": "too few for rank 3",
}


def test_impossible_options_are_refused_with_a_single_message(stack: Path, tmp_path: Path) -> None:
    for options, says in IMPOSSIBLE.items():
        refused(cli("run", stack, "-o", tmp_path / "out", "--rank", 3, *options.split()), says)
    small = ("simulate", tmp_path / "p.h5", "--shape", "16x12x20")
    refused(cli(*small, "--shape", "4x4x20"), "at least 8 x 8 pixels and 2 frames")
    refused(cli(*small, "--blood-to-noise", "nan"), "--blood-to-noise")
    assert os.listdir(tmp_path) == ["x.h5"]


@pytest.mark.usefixtures("no_pictures")
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


@pytest.mark.parametrize(("flags", "parameters", "wrong"), [
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
    (None, {"live": True, "threshold": "t:3"}, "threshold"),
    (None, {"live": True, "bad_blocks": "interpolate"}, "bad_blocks"),
    (None, {"bad_blocks": "drop"}, "bad_blocks"),
    (None, {"live": True, "confounds": "none"}, "confounds"),
    (None, {"hrf": "fir:0"}, "hrf"),
    (None, {"hrf": "canonical"}, "hrf"),
    (None, {"threshold": "fdr:2"}, "threshold"),
    (None, {"threshold": "p:0.05"}, "threshold"),
    (None, {"threshold": "cluster:0.001"}, "threshold"),
    (None, {"window": 20, "contrasts": ["a - b"]}, "contrasts"),
    (("--window", 20, "--contrast", "a", "--hrf", "fir:3"), {"window": 20, "contrasts": ["a"], "hrf": "fir:3"}, "contrasts"),
    (("--live", "--contrast", "a"), {"live": True, "contrasts": ["a"]}, "contrasts"),
    (None, {"confounds": "tissue:3"}, "confounds"),
    (None, {"live": True, "smoothing_mm": 0.2}, "smoothing_mm"),
    (None, {"live": True, "until_idle_s": -1}, "until_idle_s"),
    (None, {"window": 20, "options": DenoiseOptions(), "rank": 3}, "options"),
], ids=str)  # fmt: skip
def test_wrong_combinations_of_a_session_are_refused_from_both(flags, parameters, wrong, stack, tmp_path):
    (tmp_path / "blocks").mkdir()
    if flags is not None:
        source = tmp_path / "blocks" if "--live" in flags else stack
        done = cli("session", source, "-o", tmp_path / "out", *flags)
        assert done.exit_code == (1 if parameters else 2)
        assert FLAGS[wrong] in done.stderr
        assert len(done.stderr.splitlines()) == 1 or not parameters
    if parameters is not None:
        sources = [tmp_path / "blocks"] if "live" in parameters else [stack, usdenoise.load(stack)]
        for each in sources:
            with pytest.raises(OptionError) as caught:
                usdenoise.session(each, **parameters)
            assert caught.value.option == wrong
            assert str(caught.value).startswith(wrong)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("flags", "call", "wrong"), [
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
], ids=lambda value: str(value) if isinstance(value, tuple) else "")  # fmt: skip
def test_wrong_combinations_of_other_commands_are_refused_from_both(flags, call, wrong, stack, tmp_path):
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
        assert found.geometry.center_frequency_hz == 15e6


def test_inputs_that_cannot_be_filtered_are_refused(stack: Path, tmp_path: Path) -> None:
    missing = IQ.copy()
    missing[0, 0, 0] = np.nan
    cases: list[tuple[Any, tuple[str, ...], str]] = [
        (0 * IQ, (), "'iq' is zero everywhere; check --dataset"),
        (0 * IQ, ("--method", "svd"), "'iq' is zero everywhere; check --dataset"),
        (missing, ("--method", "svd"), "needs every entry, and 1 .*--method eta-decay"),
        (np.nan * IQ, (), "'iq' has no finite entry; check how"),
    ]
    for values, options, says in cases:
        path = write(tmp_path / "y.h5", values, axes="tzx")
        refused(cli("run", path, "-o", tmp_path / "out", "--rank", 3, *options), says)
    refused(cli("run", stack, "-o", stack / "out"), "cannot be written")
    refused(cli("info", tmp_path / "absent.h5"), r"absent\.h5 does not exist; check the path")
    several = "several stacks: a 40 x 12 x 10, b 40 x 12 x 10; pick one with --dataset"
    refused(cli("run", write_two(tmp_path / "two.h5")), several)
    refused(cli("run", tmp_path), "`usdenoise session` .* `usdenoise batch`")
    assert sorted(os.listdir(tmp_path)) == ["two.h5", "x.h5", "y.h5"]


def test_divergence_is_3(stack: Path, tmp_path: Path) -> None:
    for options in ("--method=gd --estimator=alpha=1e30", "--estimator=alpha=1e38", "--estimator=step=1e300"):
        result = cli("run", stack, "-o", tmp_path / "out", "--rank", 3, "--json", *options.split())
        assert (result.exit_code, result.stdout) == (3, "")
        assert re.fullmatch("usdenoise: the solver diverged at iteration .*\n", result.stderr)
    assert os.listdir(tmp_path) == ["x.h5"]


def test_an_unknown_command_names_the_nearest(tmp_path: Path) -> None:
    done = cli("sesion", tmp_path)
    assert done.exit_code == 2
    assert "Did you mean 'session'?" in done.stderr
    unknown = cli("simulate", tmp_path / "p.h5", "--set", "thin_vesels=2")
    assert unknown.exit_code == 2
    assert "thin_vessels, capillary_db" in unknown.stderr


def test_methods_may_be_in_upper_case_and_the_center_frequency_gives_mm_per_s(stack, tmp_path):
    flags = ("--rank", 3, "--method", "SVD", "--products", "velocity", "--center-frequency", 15e6)
    done = cli("run", stack, "-o", tmp_path / "out", *flags, "--json", "-qq")
    assert parse(done.stdout)["method"] == "svd"
    with h5py.File(tmp_path / "out/x_denoised.h5") as file:
        assert file["axial_velocity"].attrs["unit"] == "mm/s"
