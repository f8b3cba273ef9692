"""Signals while the program imports its modules and starts its processes: one sentence, as at any other time."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.batch.shared import finish, start, temporary, write_scan
from tests.programs import python

# Times in s after the first line of the program. The server of a batch and its first processes start within the last.
MOMENTS = [
    ("run", 0.0, signal.SIGTERM),
    ("run", 0.4, signal.SIGINT),
    ("batch", 0.1, signal.SIGTERM),
    ("batch", 1.0, signal.SIGINT),
]
AGAIN_S = 10.0


def wait_for_handlers(process: "subprocess.Popen[str]") -> None:
    """Wait until the program, and no longer the interpreter that starts, receives signals."""
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = re.search(r"^SigCgt:\s+(\w+)$", status, re.MULTILINE)
        if caught is not None and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.002)


@pytest.mark.parametrize(("command", "delay_s", "number"), MOMENTS)
def test_a_signal_at_any_moment_of_the_start(
    command: str, delay_s: float, number: signal.Signals, tmp_path: Path
) -> None:
    # A job that lasts longer than the delays.
    for scan in (1, 2):
        write_scan(tmp_path / f"scans/scan{scan}.h5", scan, (300, 40, 40))
    source = tmp_path / "scans" / ("scan1.h5" if command == "run" else "")
    more = ("--jobs", 2) if command == "batch" else ()
    options = ("--iterations", 2000, "--patience", 0, "-q")
    process = start(command, source, "-o", tmp_path / "out", *options, *more)
    wait_for_handlers(process)
    time.sleep(delay_s)
    # To the whole group, as Ctrl-C in a terminal, or to the program alone.
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    try:
        process.wait(AGAIN_S)
    except subprocess.TimeoutExpired:
        # A library that was just imported caught it. A user presses Ctrl-C again, too.
        process.send_signal(number)
    done = finish(process)
    assert done.returncode == 128 + number, done.stderr
    assert done.stdout == ""
    # Where a library caught it, the interpreter has printed that.
    assert re.search(
        r"(\A|\n)usdenoise: interrupted; (no result was left half written|0 of 2 scans are done; .*)\n\Z",
        done.stderr,
    )
    assert not (tmp_path / "out").exists() or temporary(tmp_path / "out") == []


def test_nothing_is_imported_before_signals_are_handled() -> None:
    code = (
        "import sys, usdenoise.__main__; print(sorted({name.split('.')[0] for name in sys.modules} &"
        " {'click', 'numpy', 'scipy', 'h5py'}), [name for name in sys.modules if name.startswith('usdenoise.cli')])"
    )
    assert python(code).stdout == "[] []\n"
