"""What a night can bring: signals, kills, full disks, other batches, and little memory."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.batch.shared import (
    OWN,
    QUICK,
    column,
    files,
    finish,
    results,
    rows,
    shell,
    start,
    temporary,
    wait_for,
    wait_for_line,
    wait_for_the_end,
    write_scan,
)
from tests.cli.shared import cli, refused
from tests.programs import python
from tests.stacks import write_stack

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}

# Every interpreter imports this module when it starts. It makes the job on scan2 stand still at a stage.
SLOW = """
import time
from usdenoise.batch import filter_scan
from usdenoise.formats.output_folder import OutputFolder

def tell_slowly(message, tell=filter_scan.ask):
    answer = tell(message)
    if message[0].name == "scan2.h5" and message[1:] == {message!r} != ("stage", "write"):
        time.sleep(60)
    return answer

filter_scan.filter_scan.__defaults__ = (tell_slowly,)
commit = OutputFolder.commit
def commit_slowly(folder, *arguments):
    if {message!r}[1] == "write" and folder.folder.name == "scan2":
        time.sleep(60)
    commit(folder, *arguments)
OutputFolder.commit = commit_slowly
"""


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Two small scans."""
    for number in (1, 2):
        write_scan(tmp_path / f"scans/scan{number}.h5", number)
    return tmp_path / "scans"


def start_and_stop(
    scans: Path, out: Path, message: tuple[str, Any], jobs: int = 1
) -> "tuple[subprocess.Popen[str], int]":
    """A batch whose job on scan2 stands still after a message, at "write" before files get names; and its process."""
    slow = scans.parent / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(SLOW.format(message=message))
    inherited = os.environ.get("PYTHONPATH")
    path = f"{slow}{os.pathsep + inherited if inherited else ''}"
    process = start("batch", scans, "-o", out, *QUICK, "-v", "--jobs", jobs, PYTHONPATH=path)
    worker = int(wait_for_line(process, r"start    scan2.h5  \(process (\d+)\)")[1])
    if message[1] == "write":
        wait_for(lambda: half_written(out / "scan2"))
    else:
        wait_for_line(process, "{} {} scan2".format(*message))
    return process, worker


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
    only_ones(process, CODES[number], "interrupted; no result was left half written")
    assert files(tmp_path) == ["scans/scan1.h5", "scans/scan2.h5"]
    assert not (tmp_path / "out").exists()


def test_a_signal_while_hdf5_writes_is_not_lost(scans: Path, tmp_path: Path) -> None:
    script = (
        "import io, os, signal; import usdenoise.formats.results as results; from usdenoise.__main__ import main\n"
        "class Told(io.FileIO):\n    def write(self, data):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n        return super().write(data)\n"
        "class Place(type(results.Path())):\n    def open(self, mode):\n        return Told(self, 'w+')\n"
        "create = results.create_file\nresults.create_file = lambda path: create(Place(path))\nmain()\n"
    )
    process = python(script, "run", scans / "scan1.h5", "-o", tmp_path / "out", *QUICK)
    only_ones(process, 143, "interrupted; no result was left half written")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("message", "number"), [(("iteration", 0), signal.SIGTERM), (("stage", "write"), signal.SIGINT)], ids=str
)
def test_batch_told_to_stop(
    message: tuple[str, Any], number: signal.Signals, scans: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process, _ = start_and_stop(scans, out, message)
    refused(
        cli("batch", scans, "-o", out, *QUICK),
        rf"the folder \S+out is held by another batch, process {process.pid} on \S+ since 2\S+; wait until it "
        "has ended, or choose another folder with -o$",
    )
    # A terminal's Ctrl-C reaches every process.
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    done = finish(process)
    assert done.returncode == CODES[number]
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        "usdenoise: interrupted; 1 of 2 scans are done; the same command does the others"
    )
    assert "Traceback" not in done.stderr
    assert files(out) == sorted([*OWN, *results(["scan1"])])
    assert column(out, "status") == {"scan1.h5": "done", "scan2.h5": "not run"}


def half_written(folder: Path) -> bool:
    return any(name.endswith("_denoised.h5") for name in temporary(folder))


# ---------------------------------------------------------------- killed


def test_a_worker_that_is_killed_is_one_failed_row(scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process, worker = start_and_stop(scans, out, ("stage", "write"), jobs=2)
    os.kill(worker, signal.SIGKILL)
    assert finish(process).returncode == 1
    assert column(out, "status") == {"scan1.h5": "done", "scan2.h5": "failed"}
    row = rows(out)["scan2.h5"]
    assert row["failure"] == "killed"
    assert re.match("the process of this scan was ended by SIGKILL, .*; run the batch again", row["error"])
    assert files(out) == sorted([*OWN, *results(["scan1"])])
    assert not (out / "scan2").exists()
    # That it was killed is not held against it.
    again = cli("batch", scans, "-o", out, *QUICK)
    assert (again.exit_code, again.stdout.splitlines()[0]) == (0, "scans  2: 1 done, 1 skipped")


def test_workers_end_when_their_batch_is_killed(scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process, _ = start_and_stop(scans, out, ("stage", "write"))
    process.kill()
    finish(process)
    assert [name for name in temporary(out) if name != ".usdenoise-batch.lock"] == []
    assert files(out / "scan1") == sorted(name.removeprefix("scan1/") for name in results(["scan1"]))
    again = cli("batch", scans, "-o", out, *QUICK)
    assert again.stdout.startswith("scans  2: 1 done, 1 skipped")
    assert files(out) == sorted([*OWN, *results(["scan1", "scan2"])])


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
    assert column(out, "failure") == {"scan1.h5": "", "scan2.h5": "", "wide.h5": "output"}
    assert "File too large" in rows(out)["wide.h5"]["error"]
    assert files(out) == sorted([*OWN, *results(["scan1", "scan2"])])


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
    process = shell("run", large, "-o", tmp_path / "out", *QUICK, "--threads", 1, **settings)
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].startswith("usdenoise: the memory is not enough for this stack")
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


@pytest.mark.parametrize("command", ["run scans/scan1.h5 -o out --json", "--help"])
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
