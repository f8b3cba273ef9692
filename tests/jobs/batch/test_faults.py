"""What a night can bring: signals, kills, full disks, other batches, and little memory."""

import json
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.shared import cli
from tests.jobs.batch.shared import (
    OWN,
    QUICK,
    column,
    files,
    rows,
    shell,
    start,
    temporary,
    wait_for_the_end,
    write_scan,
)
from tests.programs import python
from tests.stacks import write_stack

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Two small scans."""
    for number in (1, 2):
        write_scan(tmp_path / f"scans/scan{number}.h5", number)
    return tmp_path / "scans"


def run_doing(action: str, at: str, scan: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    """`usdenoise run`, which does something when it first calls a function of that name."""
    script = (
        "import os, signal, sys; from usdenoise.__main__ import main\n"
        "def look(frame, event, argument):\n"
        f"    if event == 'call' and frame.f_code.co_name == {at!r} and 'usdenoise' in frame.f_code.co_filename:\n"
        f"        sys.setprofile(None)\n        {action}\n"
        "sys.setprofile(look)\nmain()\n"
    )
    return python(script, "run", scan, "-o", out, *QUICK)


def only_ones(process: "subprocess.CompletedProcess[str]", code: int, pattern: str) -> None:
    """One sentence on stderr, nothing on stdout, and that exit code."""
    assert process.returncode == code, process.stderr
    assert process.stdout == ""
    (sentence,) = process.stderr.splitlines()
    assert re.fullmatch(f"usdenoise: {pattern}", sentence), sentence


# ---------------------------------------------------------------- told to stop


@pytest.mark.parametrize(
    ("at", "number"), [("estimate_components", signal.SIGINT), ("commit", signal.SIGTERM)]
)
def test_run_told_to_stop(at: str, number: signal.Signals, scans: Path, tmp_path: Path) -> None:
    process = run_doing(f"os.kill(os.getpid(), {int(number)})", at, scans / "scan1.h5", tmp_path / "out")
    only_ones(process, CODES[number], "interrupted; no incomplete result was written")
    assert files(tmp_path) == ["scans/scan1.h5", "scans/scan2.h5"]
    assert not (tmp_path / "out").exists()


def test_a_signal_while_hdf5_writes_is_not_lost(scans: Path, tmp_path: Path) -> None:
    script = (
        "import io, os, signal; import usdenoise.files.results as results; from usdenoise.__main__ import main\n"
        "class Told(io.FileIO):\n    def write(self, data):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n        return super().write(data)\n"
        "class Place(type(results.Path())):\n    def open(self, mode):\n        return Told(self, 'w+')\n"
        "create = results.create_file\nresults.create_file = lambda path: create(Place(path))\nmain()\n"
    )
    process = python(script, "run", scans / "scan1.h5", "-o", tmp_path / "out", *QUICK)
    only_ones(process, 143, "interrupted; no incomplete result was written")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- disks and memory


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stack of 100 MB. Read only."""
    frame = np.random.default_rng(0).standard_normal((256, 512)).view(np.complex128)
    stack = np.tile(frame.astype(np.complex64), (200, 2, 1)).reshape(200, 512, 256)
    return write_stack(tmp_path_factory.mktemp("large") / "large.h5", stack)


def limited(limits: dict[int, int]) -> dict[str, Any]:
    """Settings of a program that is started under such limits."""

    def limit() -> None:
        for what, value in limits.items():
            resource.setrlimit(what, (value, value))

    return {"before": limit, "OPENBLAS_NUM_THREADS": "1"}


def test_a_scan_that_does_not_fit_on_the_disk_is_a_row(scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_scan(scans / "wide.h5", shape=(30, 60, 60))
    settings = limited({resource.RLIMIT_FSIZE: 500_000})
    process = shell("batch", scans, "-o", out, *QUICK, **settings)
    assert process.returncode == 1
    assert column(out, "status") == {"scan1.h5": "done", "scan2.h5": "done", "wide.h5": "failed"}
    assert "File too large" in rows(out)["wide.h5"]["error"]
    assert {path.name for path in out.iterdir()} == {*OWN, "scan1", "scan2"}
    assert temporary(out) == []


def test_a_disk_too_full_for_the_table(scans: Path, tmp_path: Path) -> None:
    settings = limited({resource.RLIMIT_FSIZE: 1000})
    process = shell("batch", scans / "scan1.h5", "-o", tmp_path / "out", *QUICK, "-qq", **settings)
    only_ones(
        process, 1, r"the results could not be written to \S+out \(File too large\); free some space .*"
    )
    assert files(tmp_path / "out") == []


@pytest.mark.parametrize("megabytes", [300, 650])
def test_too_little_memory_is_one_sentence(megabytes: int, large: Path, tmp_path: Path) -> None:
    settings = limited({resource.RLIMIT_AS: megabytes << 20})
    process = shell("run", large, "-o", tmp_path / "out", *QUICK, **settings)
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].startswith("usdenoise: there is not enough memory for this stack")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- nobody listens


def test_stdout_closed_early_ends_quietly(scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_scan(scans / "scan3.h5", 3)
    process = start("batch", scans, "-o", out, *QUICK, "--jobs", 1, "--json", "-q")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["scan"] == "scan1.h5"
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(60) == 141
    wait_for_the_end(process.pid)
    assert temporary(out) == []
    assert rows(out)["scan1.h5"]["status"] == "done"
    assert cli("batch", scans, "-o", out, *QUICK).exit_code == 0


@pytest.mark.parametrize("command", ["run scans/scan1.h5 -o out --json -qq", "--help"])
def test_head_hears_no_complaint(command: str, scans: Path) -> None:
    line = f"{sys.executable} -m usdenoise {command} | true"
    process = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=scans.parent)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_stdout_on_a_full_disk_is_one_sentence(scans: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "usdenoise", "info", str(scans / "scan1.h5")]
        process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert process.returncode == 1
    assert process.stderr == (
        "usdenoise: stdout cannot be written (No space left on device); free some space for it\n"
    )
