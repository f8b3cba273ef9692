"""What a person sees on a terminal while a command works: bars that go away, and failures that stay."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.batch.shared import write_scan


def on_a_terminal(*arguments: Any) -> tuple[int, str, str]:
    """Return the exit code, stdout, and what was on the terminal, of a command whose stderr is one."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "usdenoise", *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    how = {"stdout": subprocess.PIPE, "stderr": slave, "env": environment}
    with subprocess.Popen(command, text=True, **how) as process:
        os.close(slave)
        shown = b""
        # The terminal has no other end when the command has ended.
        with suppress(OSError):
            while part := os.read(master, 1 << 16):
                shown += part
        os.close(master)
        printed = process.communicate()[0]
    return process.returncode, printed, shown.decode()


def test_a_run_shows_its_stages(tmp_path: Path) -> None:
    scan = write_scan(tmp_path / "x.h5")
    flags = ("--rank=3", "--products=power")
    code, printed, shown = on_a_terminal("run", scan, "-o", tmp_path / "out", *flags)
    assert code == 0
    assert "wrote" in printed
    for word in ("load", "solve", "write"):
        assert word in shown, word
    assert "pass" not in shown


@pytest.mark.slow
def test_a_batch_shows_how_far_it_is_and_keeps_its_failures(tmp_path: Path) -> None:
    for name in ("a", "night_17/sub-mouse12_run-b"):
        write_scan(tmp_path / f"scans/{name}[1].h5")
    (tmp_path / "scans/bad.h5").write_bytes(b"no stack")
    flags = ("--jobs=1", "--rank=3", "--low-cutoff=1")
    code, printed, shown = on_a_terminal("batch", tmp_path / "scans", "-o", tmp_path / "out", *flags)
    assert code == 1
    assert "3: 2 done" in printed
    words = (
        "scans",
        "1/3: 1 done",
        "2/3: ",
        "a[1].h5",
        " …-mouse12_run-b[1].h5 ",
        "left",
        "failed    2/3  bad.h5  ",
    )
    for word in words:
        assert word in shown, word
    assert "done      1/3" not in shown
