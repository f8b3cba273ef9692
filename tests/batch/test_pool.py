"""Processes that cannot be started, and the server that starts them."""

import errno
import os
import re
import subprocess
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

import usdenoise
from tests.batch.shared import write_scan
from usdenoise.batch.preloaded import LIBRARIES
from usdenoise.pipeline.options import DenoiseOptions

ARGUMENTS = {"options": DenoiseOptions(rank=3, iterations=2, low_cutoff=1)}


@pytest.mark.parametrize(
    ("error", "failure", "sentence"),
    [
        (
            EOFError("unexpected EOF"),
            "killed",
            r"could not be started \(unexpected EOF\); run the batch again",
        ),
        (
            OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
            "memory",
            "the memory is not enough for this stack",
        ),
    ],
    ids=["server ended", "no memory"],
)
def test_a_process_that_cannot_be_started_is_a_failed_row(
    error: Exception, failure: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        write_scan(tmp_path / f"scans/scan{number}.h5", number)
    begin, refused = ForkServerProcess.start, []

    def refuse_once(process: ForkServerProcess) -> None:
        if not refused:
            refused.append(process)
            raise error
        begin(process)

    monkeypatch.setattr(ForkServerProcess, "start", refuse_once)
    report = usdenoise.run_batch(tmp_path / "scans", tmp_path / "out", arguments=ARGUMENTS)
    assert [row.status for row in report.rows] == ["failed", "done"]
    assert report.rows[0].failure == failure
    assert re.search(sentence, report.rows[0].error)
    again = usdenoise.run_batch(tmp_path / "scans", tmp_path / "out", arguments=ARGUMENTS)
    assert [row.status for row in again.rows] == ["done", "skipped"]


def server(before: str) -> "subprocess.CompletedProcess[str]":
    """A process that imports what the server does, and then fails as a server without memory."""
    code = (
        f"import sys\n{before}\nimport usdenoise.batch.preloaded\nprint(len(sys.modules))\nraise MemoryError"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_the_server_loads_the_libraries_and_prints_no_traceback() -> None:
    done = server("")
    assert (done.returncode, done.stderr) == (1, "")
    # A library that cannot be loaded ends nothing: None in sys.modules makes its import fail.
    without = server("sys.modules['matplotlib'] = None")
    assert (without.returncode, without.stderr) == (1, "")
    assert 100 < int(without.stdout) < int(done.stdout)


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_library_of_the_server_exists(name: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {name}"], check=True)
