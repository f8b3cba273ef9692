"""A batch that is killed and run again: every scan is there once and whole."""

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import scipy.io

from tests.cli.shared import cli
from tests.jobs.batch.shared import ARGUMENTS, QUICK, column, finish, shell, start, wait_for, write_scan
from tests.results import differences
from tests.stacks import low_rank
from usdenoise.jobs import scan_process
from usdenoise.jobs.scan_process import run_scan, scan_workers
from usdenoise.options import DenoiseOptions
from usdenoise.system.processes import locked

N_SCANS = 5


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scans in two folders and three containers. Read only."""
    folder = tmp_path_factory.mktemp("kills") / "scans"
    for number in range(N_SCANS - 2):
        write_scan(folder / f"day1/scan{number}.h5", number)
    (folder / "day2").mkdir()
    stack = low_rank((24, 12, 10), seed=4)
    np.save(folder / "day2/scan8.npy", stack)
    scipy.io.savemat(folder / "day2/scan9.mat", {"IQ": stack.transpose(1, 2, 0)})
    return folder


@pytest.fixture(scope="module")
def undisturbed(scans: Path) -> Path:
    """The results of a batch that is left alone. Read only."""
    out = scans.parent / "undisturbed"
    assert cli("batch", scans, "-o", out, *QUICK, "--jobs", 2).exit_code == 0
    return out


def n_reports(out: Path) -> int:
    # Folders of scans in work disappear, which rglob does not allow.
    return sum(name.endswith("_report.json") for _, _, names in os.walk(out) for name in names)


def begun(*command: Any, done: Any = lambda: True) -> "tuple[subprocess.Popen[str], list[psutil.Process]]":
    """A batch at a random moment of its work, and the processes of its scans."""
    process = start(*command)
    batch = psutil.Process(process.pid)
    wait_for(lambda: process.poll() is not None or (bool(batch.children()) and done()))
    time.sleep(random.uniform(0, 0.5))
    return process, batch.children() if process.poll() is None else []


def interrupted(number: signal.Signals, out: Path, *command: Any) -> None:
    """Begin a batch, and end it with a signal when a scan more than before is done."""
    before = n_reports(out)
    process, children = begun(*command, done=lambda: n_reports(out) > before)
    # The Ctrl-C of a terminal goes to the whole process group.
    os.killpg(process.pid, number)
    done = finish(process)
    assert done.returncode == 128 + number, done.stderr
    assert "Traceback" not in done.stderr
    assert psutil.wait_procs(children, 0)[1] == []
    reports = {path.parent.name for path in out.rglob("*_report.json")}
    finished = {scan for scan, status in column(out, "status").items() if status == "done"}
    assert {Path(scan).stem for scan in finished} == reports
    # The summary is printed as at the end of a batch.
    assert done.stdout.startswith(f"scans  {N_SCANS}: {len(finished)} done"), done.stdout
    assert f"wrote  {out / 'batch.csv'}" in done.stdout
    assert list(out.rglob(".*")) == []


def killed(times: int, whom: str, out: Path, *command: Any) -> None:
    n_done = [0]
    for _ in range(times):
        process, children = begun(*command)
        process.kill()
        for child in children if whom == "all" else []:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        finish(process)
        # The processes of a killed batch end by themselves.
        assert psutil.wait_procs(children, 20)[1] == []
        n_done.append(n_reports(out))
    assert n_done == sorted(n_done)


def resumed(undisturbed: Path, out: Path, *command: Any) -> None:
    n_done = n_reports(out)
    assert cli(*command).exit_code == 0
    assert list(column(out, "status").values()) == ["done"] * N_SCANS
    assert list(column(out, "reason").values()).count("complete") == n_done
    assert differences(undisturbed, out) == []


def test_interrupted_and_resumed(scans: Path, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("batch", scans, "-o", out, *QUICK, "--jobs", 1)
    interrupted(signal.SIGINT, out, *command)
    resumed(undisturbed, out, *command)


@pytest.mark.slow
def test_killed_at_three_moments_and_resumed(scans: Path, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("batch", scans, "-o", out, *QUICK, "--jobs", 2, "-q")
    killed(2, "all", out, *command)
    killed(1, "batch", out, *command)
    resumed(undisturbed, out, *command)


@pytest.mark.slow
def test_terminated_and_resumed(scans: Path, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("batch", scans, "-o", out, *QUICK, "--jobs", 1)
    interrupted(signal.SIGTERM, out, *command)
    resumed(undisturbed, out, *command)


@pytest.mark.slow
def test_scan_that_does_not_stop_ends_with_its_batch(tmp_path: Path) -> None:
    (tmp_path / "h5py.py").write_text("import time; time.sleep(60)")
    (tmp_path / "lock").touch()
    program = (
        "import os, signal, sys; from pathlib import Path; from usdenoise.jobs.scan_process import run_scan\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.environ['PYTHONPATH'] = sys.argv[1] + os.pathsep + os.environ.get('PYTHONPATH', '')\n"
        "run_scan({'path': 'scan.npy'}, Path(sys.argv[1], 'lock'))"
    )
    batch = psutil.Popen([sys.executable, "-c", program, tmp_path])
    wait_for(lambda: bool(batch.children()))
    scans = batch.children()
    batch.kill()
    assert psutil.wait_procs([*scans, batch], 20)[1] == []


def test_scan_that_is_stopped_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_process, "GRACE_S", 0.1)
    lock = tmp_path / "lock"
    lock.touch()

    def scans() -> list[psutil.Process]:
        return [child for child in psutil.Process().children() if "serve" in " ".join(child.cmdline())]

    with ThreadPoolExecutor() as thread:
        failure = thread.submit(run_scan, {"path": "gone.npy"}, lock)
        wait_for(lambda: bool(scans()))
        scans()[0].suspend()
        lock.unlink()
        assert "ended by signal 9" in str(failure.result(20))


class EndOfFile:
    """Options that are not."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise EOFError("the file ends")


def test_a_process_filters_scans_one_after_the_other_and_a_kill_loses_one(scans, tmp_path):
    lock = tmp_path / "lock"
    lock.touch()

    def arguments(name: str, **more: Any) -> dict[str, Any]:
        return {**ARGUMENTS, "path": scans / "day1/scan0.h5", "folder": tmp_path / name, **more}

    def process() -> psutil.Process:
        (found,) = [child for child in psutil.Process().children() if "serve" in " ".join(child.cmdline())]
        return found

    assert "does not exist" in str(run_scan(arguments("gone", path=scans / "gone.h5"), lock))
    first = process()
    # An error that is no message of ours is one of the scan, also one that a closed connection raises
    assert run_scan(arguments("c", options=EndOfFile()), lock) == "EOFError: the file ends"
    assert process() == first
    assert run_scan(arguments("a"), lock) is None
    assert process() == first
    endless = {"options": DenoiseOptions(iterations=10**6, patience=0)}
    with ThreadPoolExecutor() as thread:
        failure = thread.submit(run_scan, arguments("b", **endless), lock)
        wait_for(lambda: (tmp_path / "b").exists())
        first.kill()
        assert "ended by signal 9" in str(failure.result(20))
    assert run_scan(arguments("b"), lock) is None
    assert differences(tmp_path / "a", tmp_path / "b") == []
    last = process()
    # The end of a batch ends its processes.
    with scan_workers(1, None):
        pass
    assert not last.is_running()


def test_two_commands_do_not_write_to_one_folder(scans: Path, tmp_path: Path) -> None:
    with locked(tmp_path / "out"):
        done = shell("batch", scans / "day1", "-o", tmp_path / "out")
        assert (done.returncode, done.stdout) == (1, "")
        assert "another batch or session" in done.stderr
        session = cli("session", scans / "day1", "-o", tmp_path / "out")
        assert (session.exit_code, session.stdout) == (1, "")
        assert "another batch or session" in session.stderr
        assert len(list((tmp_path / "out").iterdir())) == 1
