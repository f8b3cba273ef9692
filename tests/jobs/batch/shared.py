"""What the tests of batches share: small scans, the program in a process of its own, and what is left of it."""

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from tests.programs import as_from_a_shell
from tests.report.reports import Page
from tests.stacks import low_rank, write_stack
from usdenoise.errors import UsdenoiseError
from usdenoise.jobs import scan_process
from usdenoise.jobs.run_job import run
from usdenoise.options import FLAGS, DenoiseOptions, Output

ROOT = Path(__file__).parents[3]
QUICK = ("--rank", "3", "--estimator", "iterations=2", "--low-cutoff", "1", "--products", "power")
OPTIONS, POWER = DenoiseOptions(rank=3, iterations=2, low_cutoff=1), Output(products=("power",))
ARGUMENTS = {"options": OPTIONS, "output": POWER}
"""The same small job for the command line and for the library."""


@contextmanager
def scans_here() -> Iterator[None]:
    """Within this context, the scans of a batch run in this process, one at a time."""
    one_at_a_time = Lock()

    def run_scan(arguments: Mapping[str, Any], lock: Path) -> str | None:
        try:
            with one_at_a_time:
                run(**arguments)
        except UsdenoiseError as error:
            return error.worded(FLAGS)
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_process, "run_scan", run_scan)
        yield


@pytest.fixture(scope="session", autouse=True)
def scans_in_this_process() -> Iterator[None]:
    """Batches of all tests have no processes, each of which costs seconds of imports."""
    with scans_here():
        yield


def write_scan(path: Path, seed: int = 0, shape: tuple[int, ...] = (24, 12, 10)) -> Path:
    """A stack, time first, about which nothing has to be assumed: three components over noise."""
    return write_stack(path, low_rank(shape, seed=seed), axes="tzxy"[: len(shape)], frame_rate_hz=500.0)


def environment(**extra: str) -> dict[str, str]:
    """The environment of a user who has the package."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **extra}


def start(
    *arguments: Any, cwd: Path | None = None, before: Callable[[], None] | None = None, **extra: str
) -> "subprocess.Popen[str]":
    """The program, in a process group of its own."""

    def prepare() -> None:
        as_from_a_shell()
        if before is not None:
            before()

    return subprocess.Popen(
        [sys.executable, "-m", "usdenoise", *map(str, arguments)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=cwd, env=environment(**extra), preexec_fn=prepare,
        start_new_session=True,
    )  # fmt: skip


def finish(process: "subprocess.Popen[str]", patience_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
    """Wait for the program, and for all that it started."""
    out, err = process.communicate(timeout=patience_s)
    wait_for_the_end(process.pid)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def powerless() -> None:
    """Give up root's right to read and write everywhere; the next program does not have it."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        drop_from_bounding_set, override, read_search = 24, 1, 2
        for capability in (override, read_search):
            assert libc.prctl(drop_from_bounding_set, capability, 0, 0, 0) == 0


def shell(*arguments: Any, **settings: Any) -> "subprocess.CompletedProcess[str]":
    """Run the program."""
    return finish(start(*arguments, **settings))


def in_session(session: int) -> list[int]:
    """Processes that live in the session of a program that was started here."""
    alive = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = status.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(its_session) == session and state != "Z":
            alive.append(int(status.parent.name))
    return alive


def wait_for_the_end(session: int) -> None:
    """Wait until no process of a session is left, which may not take long."""
    wait_for(lambda: not in_session(session), 20)


def wait_for(condition: Callable[[], bool], patience_s: float = 60.0) -> None:
    """Wait until a condition holds; on a busy machine that may take long."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def files(folder: Path) -> list[str]:
    """Names of all files below a folder, hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def temporary(folder: Path) -> list[str]:
    """Names of files in temporary folders."""
    return [name for name in files(folder) if "/.usdenoise-partial-" in f"/{name}"]


def results(stems: Sequence[str], folder: str = "") -> list[str]:
    """Names of the files that whole results of scans are with the options QUICK."""
    kinds = ["denoised.h5", "power_doppler.png", "power_doppler.tif"]
    kinds += ["frames.tsv", "frames.json", "report.json", "report.html"]
    return sorted(f"{folder}{stem}/{Path(stem).name}_{kind}" for stem in stems for kind in kinds)


OWN = ["batch.csv", "batch.json", "index.html"]


def rows(out: Path) -> dict[str, dict[str, Any]]:
    """The rows of the record of a batch, by scan."""
    record = json.loads((out / "batch.json").read_text())
    return {row["scan"]: row for row in record["rows"]}


def column(out: Path, name: str) -> dict[str, Any]:
    """One value of every row, by scan."""
    return {scan: row[name] for scan, row in rows(out).items()}


def page_of(out: Path) -> Page:
    """The page of a batch."""
    return Page((out / "index.html").read_text())


def values(page: Page, column: str) -> list[str | None]:
    """The values of a column of the page."""
    return [cell["data-value"] for cell in page.all("td") if cell.get("data-name") == column]
