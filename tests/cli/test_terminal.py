"""What a person sees while a command works: bars that go away, failures that stay; and nothing is lost at its end."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.jobs.batch.shared import write_scan
from tests.programs import python
from usdenoise.cli import console
from usdenoise.cli.console import Console, JobView
from usdenoise.cli.filter_commands import BatchView
from usdenoise.jobs.batch_table import Scan
from usdenoise.report.pages import Row, Status


def on_a_terminal(*arguments: Any) -> tuple[int, str, str]:
    """Return the exit code, stdout, and what was on the terminal, of a command whose stderr is one."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "usdenoise", *map(str, arguments)]
    # A backend of matplotlib that is unknown does not matter.
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "MPLBACKEND": "none of them"}
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
    assert (tmp_path / "out/x_power_doppler.png").exists()


@pytest.mark.slow
def test_a_batch_shows_how_far_it_is_and_keeps_its_failures_and_doubts(tmp_path: Path) -> None:
    for name in ("a", "night_17/sub-mouse12_run-b"):
        write_scan(tmp_path / f"scans/{name}[1].h5")
    (tmp_path / "scans/bad.h5").write_bytes(b"no stack")
    flags = ("--jobs=1", "--rank=3", "--low-cutoff=1")
    code, printed, shown = on_a_terminal("batch", tmp_path / "scans", "-o", tmp_path / "out", *flags)
    assert code == 1
    assert "3: 2 done" in printed
    words = (
        "scans", "1/3: 1 done", "2/3: ", "a[1].h5", " …-mouse12_run-b[1].h5 ", "left",
        "failed    2/3  bad.h5  ", "done      1/3  a[1].h5  ",
    )  # fmt: skip
    for word in words:
        assert word in shown, word


PROGRAM = """
import atexit, os, sys
from usdenoise import __main__, cli

def command():
    print("printed")
    sys.exit(int(sys.argv[1]))

atexit.register(os.write, 2, b"registered\\n")
cli.main = command
__main__.main()
print("not reached")
"""


@pytest.mark.parametrize("code", [0, 1, 3])
def test_output_and_exit_functions_are_not_lost(code: int) -> None:
    done = python(PROGRAM, code)
    assert (done.returncode, done.stdout, done.stderr) == (code, "printed\n", "registered\n")


def test_output_that_cannot_be_written_is_a_failure() -> None:
    # Otherwise the program would fail where it prints.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", PROGRAM, "0"]
    with Path("/dev/full").open("w") as full:
        how = {"stdout": full, "stderr": subprocess.PIPE, "env": buffered}
        done = subprocess.run(command, text=True, **how)
    assert done.returncode == 120
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("first", [1, 3])
def test_finished_blocks_show_the_remaining_time(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    shown, begun = list[str](), list[str]()
    monkeypatch.setattr(Console, "begin", lambda self, name, total=None: begun.append(name))
    monkeypatch.setattr(Console, "advance", lambda self, done, text="": shown.append(text))
    view = JobView(Console(), 10)
    # The blocks before the first one were filtered before a stop; the estimate takes a time of its own
    for number, seconds in ((first, 1000), (first + 1, 30), (5, 30)):
        now[0] += seconds
        view.blocks(number, 5)
    left = {1: "1 min 30 s", 3: "30 s"}[first]
    assert begun == ["blocks"]
    assert [text.strip() for text in shown] == [
        f"{first} of 5",
        f"{first + 1} of 5  about {left} left",
        "5 of 5",
    ]


def test_a_live_block_is_a_detail_and_each_remark_is_a_single_warning(capsys):
    view = JobView(Console(verbose=1))
    remark = "1.h5 is skipped: it is empty"
    view.live(0, "0.h5", "2 waiting  0.5 s", "", [remark])
    for number in (1, 2):
        view.live(number, "1.h5", "no blood", "it moves", [remark])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "block 0 0.h5  2 waiting  0.5 s",
        "warning: 1.h5 is skipped: it is empty",
        "block 1 1.h5  no blood",
        "warning: 1.h5 is bad: it moves",
        "block 2 1.h5  no blood",
        "warning: 1.h5 is bad: it moves",
    ]
    view = JobView(Console())
    view.live(0, "0.h5", "2 waiting  0.5 s", "it moves", [])
    assert capsys.readouterr().err == "warning: 0.h5 is bad: it moves\n"


def row(number: int, **more: Any) -> Row:
    return replace(Row(f"{number}.h5", "", "", Status.DONE, "new", seconds=1.0), **more)


@pytest.mark.parametrize("kind", ["batch", "session", "live"])
def test_without_a_terminal_many_blocks_are_counted_at_times(kind, capsys, monkeypatch):
    """1200 blocks of 0.5 s: ten lines in ten minutes, and a line of its own for a failure and a doubt."""
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    batch, job = BatchView(Console()), JobView(Console())
    now[0] = 5000  # an estimate of the common cutoff, and the plan
    batch.planned({Scan(Path(f"{k}.h5"), f"{k}.h5", Path(f"{k}")): row(k) for k in range(1200)})
    special = {
        700: {"doubts": "cutoff", "remark": "cutoff"},
        900: {"status": Status.FAILED, "error": "empty"},
    }
    for number in range(1200):
        now[0] += 0.5
        if kind == "batch":
            batch.finished(row(number, **special.get(number, {})))
        elif kind == "session":
            job.blocks(number + 1, 1200)
        else:
            job.live(number, f"{number}.h5", "0 waiting", "", [])
    lines = capsys.readouterr().err.splitlines()
    counts = [int(match[1]) for line in lines if (match := re.match(r"(?:scans|blocks|live) +(\d+)", line))]
    assert len(counts) == 10
    assert np.ptp(np.diff(counts)) <= 1
    # The blocks that are left take 0.5 s each: the time before the first one does not count.
    seconds = [int(m) * 60 + int(s) for m, s in re.findall(r"about (\d+) min (\d+) s left", "\n".join(lines))]
    wanted_s = [(1200 - count) / 2 for count in counts if 1 < count <= 1080]
    np.testing.assert_allclose(seconds[-len(wanted_s) :], wanted_s if kind != "live" else [], atol=1)
    others = [line.split()[:3] for line in lines if not line.startswith(("scans", "blocks", "live"))]
    wanted = [["done", "701/1200", "700.h5"], ["failed", "901/1200", "900.h5"]]
    assert others == (wanted if kind == "batch" else [])


def test_what_the_reader_assumes_and_the_next_steps_are_notes(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (0, 1):
        view = JobView(Console(quiet))
        view.assumed(["the axes are zxt"])
        view.message("drawing the phantom")
        view.experiments(0, 2)
        view.experiments(1, 2)
    assert capsys.readouterr().err == "note: the axes are zxt\ndrawing the phantom\n"
