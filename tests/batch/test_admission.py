"""How much memory a scan wants, what there is, and when one more fits."""

import os
import resource
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from tests.batch.shared import ARGUMENTS, Told, write_scan
from usdenoise.batch import run_batch
from usdenoise.batch.executors import Admission
from usdenoise.jobs.memory_check import expected_bytes
from usdenoise.system import memory

pytestmark = pytest.mark.usefixtures("no_pictures")

IDLE = 256 << 20


def test_two_stacks_in_working_precision_over_an_idle_job(tmp_path: Path) -> None:
    path = write_scan(tmp_path / "x.h5", shape=(24, 12, 10))
    assert expected_bytes(path, {}, "single") == IDLE + 2 * 8 * 24 * 12 * 10
    assert expected_bytes(path, {}, "double") == IDLE + 2 * 16 * 24 * 12 * 10
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": np.random.default_rng(0).standard_normal((5, 6, 7))})
    assert expected_bytes(tmp_path / "x.mat", {}, "single") == IDLE + 2 * 8 * 5 * 6 * 7


def test_of_an_unreadable_file_that_of_an_idle_job(tmp_path: Path) -> None:
    assert expected_bytes(tmp_path / "absent.h5", {}, "single") == IDLE


def test_what_a_process_has_taken() -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert peak / 4 < memory.resident_bytes(os.getpid()) <= peak * 1.05
    assert memory.resident_bytes(2**22 + 1) == 0


@pytest.mark.parametrize(
    ("needed", "expected", "taken", "fits"),
    [(60, 50, 10, True), (61, 50, 10, False), (100, 50, 70, True), (101, 50, 70, False), (900, 50, 0, True)],
)
def test_what_is_promised_to_others_is_not_there(
    needed: int, expected: int, taken: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 100)
    monkeypatch.setattr(memory, "resident_bytes", lambda pid: taken)
    admission = Admission()
    # One that is alone may always try; one that holds nothing has ended.
    assert admission.admits(1, expected)
    assert admission.admits(2, needed) is fits


def test_one_at_a_time_where_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 0)
    for name in ("one", "other"):
        write_scan(tmp_path / f"scans/{name}.h5")
    watcher = Told()
    report = run_batch(tmp_path / "scans", tmp_path / "out", arguments=ARGUMENTS, jobs=2, watcher=watcher)
    assert report.all_done
    # Those of the second scan come after those of the first.
    assert len([name for name, _ in groupby(scan.name for scan, _ in watcher.told("progress"))]) == 2
