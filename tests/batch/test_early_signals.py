"""Signals while the program imports its modules and starts its processes: one sentence, as at any other time."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.batch.shared import environment, finish, start, temporary, write_scan

# Times in s after the first line of the program. The server of a batch and its first processes start within the last.
DELAYS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.3)
NUMBERS = (signal.SIGINT, signal.SIGTERM)


def wait_for_handlers(process: "subprocess.Popen[str]") -> None:
    """Wait until the program, and no longer the interpreter that starts, receives signals."""
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = re.search(r"^SigCgt:\s+(\w+)$", status, re.MULTILINE)
        if caught is not None and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.002)


@pytest.mark.parametrize("delay_s", DELAYS)
@pytest.mark.parametrize("command", ["run", "batch"])
def test_a_signal_at_any_moment_of_the_start(command: str, delay_s: float, tmp_path: Path) -> None:
    # A job that lasts longer than the delays.
    for number in (1, 2):
        write_scan(tmp_path / f"scans/scan{number}.h5", number, (300, 40, 40))
    source = tmp_path / "scans" / ("scan1.h5" if command == "run" else "")
    more = ("--jobs", 2) if command == "batch" else ()
    number = NUMBERS[DELAYS.index(delay_s) % 2]
    process = start(
        command, source, "-o", tmp_path / "out", "--iterations", 2000, "--patience", 0, "-q", *more
    )
    wait_for_handlers(process)
    time.sleep(delay_s)
    # Every second signal goes to the whole group, as Ctrl-C in a terminal.
    if DELAYS.index(delay_s) // 2 % 2:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    done = finish(process)
    assert done.returncode == 128 + number, done.stderr
    assert done.stdout == ""
    assert re.fullmatch(
        "usdenoise: interrupted; (no result was left half written|0 of 2 scans are done; .*)\n", done.stderr
    )
    assert not (tmp_path / "out").exists() or temporary(tmp_path / "out") == []


def test_nothing_is_imported_before_signals_are_handled() -> None:
    code = (
        "import sys, usdenoise.__main__; print(sorted({name.split('.')[0] for name in sys.modules} &"
        " {'click', 'numpy', 'scipy', 'h5py'}), [name for name in sys.modules if name.startswith('usdenoise.cli')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"


# The interpreter imports this module when it starts. Its objects are removed at the end of the interpreter.
WITNESS = """
import atexit, os

class Witness:
    def __del__(self, write=os.write):
        write(2, b"the interpreter ends\\n")

witness = Witness()
atexit.register(os.write, 2, b"atexit\\n")
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("info", "absent.h5"), "atexit\n"), (("--version",), "atexit\n")],
    ids=["failed", "done"],
)
def test_the_program_ends_without_the_end_of_the_interpreter(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITNESS)
    command = [sys.executable, "-m", "usdenoise", *arguments]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{root}"),
    )
    lines = [line for line in done.stderr.splitlines(True) if not line.startswith("usdenoise:")]
    assert "".join(lines) == said
