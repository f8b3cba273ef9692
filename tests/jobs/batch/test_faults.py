"""Signals, full disks, closed pipes, and little memory: one error message, and no incomplete result."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.shared import cli, refused
from tests.jobs.batch import shared
from tests.jobs.batch.shared import OWN, QUICK, column, files, rows, start, temporary, write_scan
from tests.programs import files_of_at_most, python
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


def is_one_message(process: "subprocess.CompletedProcess[str]", code: int, pattern: str) -> None:
    """One sentence on stderr, nothing on stdout, and that exit code."""
    assert process.returncode == code, process.stderr
    assert process.stdout == ""
    (sentence,) = process.stderr.splitlines()
    assert re.fullmatch(f"usdenoise: {pattern}", sentence), sentence


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize(("at", "number"), [
    pytest.param("estimate_components", signal.SIGINT, marks=pytest.mark.slow), ("commit", signal.SIGTERM)
])  # fmt: skip
def test_a_run_that_is_interrupted(at: str, number: signal.Signals, scans: Path, tmp_path: Path) -> None:
    process = run_doing(f"os.kill(os.getpid(), {int(number)})", at, scans / "scan1.h5", tmp_path / "out")
    is_one_message(process, CODES[number], "interrupted; no incomplete result was written")
    assert files(tmp_path) == ["scans/scan1.h5", "scans/scan2.h5"]
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_signal_while_hdf5_writes_is_not_lost(scans: Path, tmp_path: Path) -> None:
    script = (
        "import io, os, signal; import usdenoise.files.results as results; from usdenoise.__main__ import main\n"
        "class Told(io.FileIO):\n    def write(self, data):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n        return super().write(data)\n"
        "class Place(type(results.Path())):\n    def open(self, mode):\n        return Told(self, 'w+')\n"
        "create = results.create_file\nresults.create_file = lambda path: create(Place(path))\nmain()\n"
    )
    process = python(script, "run", scans / "scan1.h5", "-o", tmp_path / "out", *QUICK)
    is_one_message(process, 143, "interrupted; no incomplete result was written")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- disks and memory


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stack of 100 MB. Read only."""
    frame = np.random.default_rng(0).standard_normal((256, 512)).view(np.complex128)
    stack = np.tile(frame.astype(np.complex64), (200, 2, 1)).reshape(200, 512, 256)
    return write_stack(tmp_path_factory.mktemp("large") / "large.h5", stack)


@pytest.mark.usefixtures("no_pictures")
def test_a_scan_that_does_not_fit_on_the_disk_is_a_row(scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_scan(scans / "wide.h5", shape=(30, 60, 60))
    with files_of_at_most(500_000):
        assert cli("batch", scans, "-o", out, *QUICK).exit_code == 1
    assert column(out, "status") == {"scan1.h5": "done", "scan2.h5": "done", "wide.h5": "failed"}
    assert "File too large" in rows(out)["wide.h5"]["error"]
    assert {path.name for path in out.iterdir()} == {*OWN, "scan1", "scan2"}
    assert temporary(out) == []


def test_a_disk_too_full_for_the_table(scans: Path, tmp_path: Path) -> None:
    with files_of_at_most(1000):
        done = cli("batch", scans / "scan1.h5", "-o", tmp_path / "out", *QUICK, "-qq")
    refused(done, r"the results could not be written to \S+out \(File too large\); free some space")
    assert files(tmp_path / "out") == []


# OpenBLAS ends the process with words of its own where it gets no memory for its buffer, so it has one before.
LIMITED = """
import resource, sys
import numpy as np, scipy.linalg.blas

square = np.ones((512, 512))
square @ square, scipy.linalg.blas.dgemm(1.0, square, square)
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv.pop(1)) << 20,) * 2)
from usdenoise.__main__ import main
main()
"""


@pytest.mark.parametrize("megabytes", [300, pytest.param(650, marks=pytest.mark.slow)])
def test_too_little_memory_is_a_single_message(megabytes: int, large: Path, tmp_path: Path) -> None:
    flags = ("-o", tmp_path / "out", *QUICK, "--threads", 1)
    process = python(LIMITED, megabytes, "run", large, *flags, OPENBLAS_NUM_THREADS="1")
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].startswith("usdenoise: there is not enough memory for this stack")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- stdout


@pytest.mark.slow
def test_stdout_closed_early_ends_quietly(scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_scan(scans / "scan3.h5", 3)
    process = start("batch", scans, "-o", out, *QUICK, "--jobs", 1, "--json", "-q")
    assert json.loads(process.stdout.readline())["scan"] == "scan1.h5"
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(60) == 141
    shared.wait_for_the_end(process.pid)
    assert temporary(out) == []
    assert rows(out)["scan1.h5"]["status"] == "done"
    assert cli("batch", scans, "-o", out, *QUICK).exit_code == 0


def test_a_reader_that_ends_gets_no_message(scans: Path) -> None:
    line = f"{sys.executable} -m usdenoise info scans/scan1.h5 --json | true"
    process = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=scans.parent)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_stdout_on_a_full_disk_is_a_single_message(scans: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "usdenoise", "info", str(scans / "scan1.h5")]
        process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert process.returncode == 1
    assert process.stderr == (
        "usdenoise: stdout cannot be written (No space left on device); free some space for it\n"
    )
