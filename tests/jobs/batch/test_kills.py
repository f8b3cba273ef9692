"""A batch that is killed and run again: every scan is there once and whole."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import scipy.io

from tests.jobs.batch.shared import QUICK, column, finish, shell, start, wait_for, write_scan
from tests.results import differences
from tests.stacks import low_rank
from usdenoise.system.lock import locked


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight scans in two folders and three containers."""
    folder = tmp_path_factory.mktemp("kills") / "scans"
    for number in range(4):
        write_scan(folder / f"day1/scan{number}.h5", number)
    (folder / "day2").mkdir()
    for number in range(4, 6):
        stack = low_rank((24, 12, 10), seed=number)
        np.save(folder / f"day2/scan{number}.npy", stack)
        scipy.io.savemat(folder / f"day2/scan{number + 2}.mat", {"IQ": stack.transpose(1, 2, 0)})
    return folder


@pytest.fixture(scope="module")
def undisturbed(scans: Path) -> tuple[Path, float]:
    """The results of a batch that is left alone, and its duration in s."""
    out, began = scans.parent / "undisturbed", time.monotonic()
    assert shell("batch", scans, "-o", out, *QUICK, "--jobs", 2).returncode == 0
    return out, time.monotonic() - began


def begun(seconds: float, *command: Any) -> "tuple[subprocess.Popen[str], list[psutil.Process]]":
    """A batch at a random moment of its work, and the processes of its scans."""
    process = start(*command)
    batch = psutil.Process(process.pid)
    wait_for(lambda: process.poll() is not None or bool(batch.children()))
    time.sleep(random.uniform(0, seconds))
    return process, batch.children() if process.poll() is None else []


@pytest.mark.parametrize("whom", ["batch", "all"])
def test_killed_at_five_moments_and_run_again(
    whom: str, scans: Path, undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    whole, seconds = undisturbed
    out = tmp_path / "out"
    command = ("batch", scans, "-o", out, *QUICK, "--jobs", 2, "-q")
    n_done = [0]
    for _ in range(5):
        process, children = begun(seconds / 2, *command)
        process.kill()
        for child in children if whom == "all" else []:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        finish(process)
        # The processes of a killed batch end by themselves.
        assert psutil.wait_procs(children, 20)[1] == []
        n_done.append(len(list(out.rglob("*_report.json"))))
    assert n_done == sorted(n_done)
    assert shell(*command).returncode == 0
    statuses = list(column(out, "status").values())
    assert sorted(statuses) == ["done"] * (8 - n_done[-1]) + ["skipped"] * n_done[-1]
    assert differences(whole, out) == []


def test_scan_that_does_not_stop_ends_with_its_batch(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import time; time.sleep(60)")
    (tmp_path / "lock").touch()
    program = (
        "import os, signal, sys; from pathlib import Path; from usdenoise.jobs.batch import _complete\n"
        "from usdenoise.jobs.scan_process import Scan, run_scan\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.environ['PYTHONPATH'] = sys.argv[1]\n"
        "scan = Scan(Path('scan.npy'), 'scan.npy', Path('scan'))\n"
        "run_scan(scan, _complete(None), Path(sys.argv[1], 'lock'))"
    )
    batch = psutil.Popen([sys.executable, "-c", program, tmp_path])
    wait_for(lambda: bool(batch.children()))
    scans = batch.children()
    batch.kill()
    assert psutil.wait_procs([*scans, batch], 20)[1] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_and_run_again(
    number: int, code: int, scans: Path, undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    whole, seconds = undisturbed
    out = tmp_path / "out"
    command = ("batch", scans, "-o", out, *QUICK, "--jobs", 2)
    process, children = begun(seconds / 2, *command)
    # The Ctrl-C of a terminal goes to the whole process group.
    os.killpg(process.pid, number)
    done = finish(process)
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr
    assert psutil.wait_procs(children, 0)[1] == []
    reports = {path.parent.name for path in out.rglob("*_report.json")}
    table = {Path(scan).stem for scan, status in column(out, "status").items() if status == "done"}
    assert table == reports
    assert list(out.rglob(".*")) == []
    assert shell(*command).returncode == 0
    assert differences(whole, out) == []


def test_two_commands_do_not_write_to_one_folder(scans: Path, tmp_path: Path) -> None:
    with locked(tmp_path / "out"):
        for command in ("batch", "session"):
            done = shell(command, scans / "day1", "-o", tmp_path / "out")
            assert (done.returncode, done.stdout) == (1, "")
            assert "another batch or session" in done.stderr
        assert len(list((tmp_path / "out").iterdir())) == 1
