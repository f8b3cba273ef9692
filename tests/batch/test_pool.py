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
from usdenoise.batch.pool import _PRELOADED
from usdenoise.options.denoise_options import DenoiseOptions

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
    """A process that imports what the server does first, and then fails as a server without memory."""
    code = (
        f"import sys\n{before}\nimport usdenoise.system.preloaded\nprint(len(sys.modules))\nraise MemoryError"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_the_server_loads_the_libraries_and_prints_no_traceback() -> None:
    done = server("")
    assert (done.returncode, done.stderr) == (1, "")
    # A library that cannot be loaded ends nothing: None in sys.modules makes its import fail.
    without = server("sys.modules['matplotlib'] = None")
    assert (without.returncode, without.stderr) == (1, "")
    assert 100 < int(without.stdout) < int(done.stdout)


def test_a_server_without_memory_for_a_library_ends_at_once() -> None:
    # The libraries of numpy take tens of megabytes of addresses.
    done = server("import resource; resource.setrlimit(resource.RLIMIT_AS, (48 << 20, 48 << 20))")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_what_comes_before_the_guard_is_light() -> None:
    code = (
        "import sys\n"
        "class Finder:\n    def find_spec(self, name, path, target=None):\n"
        "        if name == 'numpy':\n            print(sys.excepthook.__module__)\n            raise SystemExit(0)\n"
        f"sys.meta_path.insert(0, Finder())\n__import__({_PRELOADED[0]!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "usdenoise.system.preloaded\n", "")


def test_every_module_that_the_server_loads_exists() -> None:
    code = (
        f"import importlib\nfrom usdenoise.system.preloaded import LIBRARIES\nfor name in (*LIBRARIES, *{_PRELOADED!r}):\n"
        "    importlib.import_module(name)\nprint(len(LIBRARIES))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert int(done.stdout) > 5
