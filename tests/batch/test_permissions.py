"""Folders and files that a user may not read, and those that may be read again."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.batch.shared import QUICK, column, powerless, shell, write_scan
from tests.batch.test_faults import only_ones
from tests.formats import layouts

DENIED = r"cannot be read \((\S+: )?Permission denied\); check the (path|permissions)"


@pytest.fixture
def scans(tmp_path: Path) -> Iterator[Path]:
    """A scan that may be read, a folder that may not be listed, and one whose files may not be opened."""
    folder = tmp_path / "scans"
    write_scan(folder / "open.h5")
    modes = {"closed": 0o000, "listed": 0o444}
    for name, mode in modes.items():
        write_scan(folder / name / "a.h5", 1)
        write_scan(folder / name / "deep/b.h5", 2)
        # What would be the result of an earlier run.
        write_scan(folder / name / "x_denoised.h5", 3)
        (folder / name / "groups").mkdir()
        layouts.confusius()(folder / name / "groups").rename(folder / name / "z.zarr")
        (folder / name / "groups").rmdir()
        (folder / name).chmod(mode)
    yield folder
    for name in modes:
        (folder / name).chmod(0o755)


def test_folders_that_may_not_be_read_are_failed_rows(scans: Path, tmp_path: Path) -> None:
    process = shell("batch", scans, "-o", tmp_path / "out", *QUICK, before=powerless)
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert column(tmp_path / "out", "failure") == {
        "closed": "unreadable",
        "listed/a.h5": "unreadable",
        "listed/deep": "unreadable",
        "listed/x_denoised.h5": "unreadable",
        "listed/z.zarr": "unreadable",
        "open.h5": "",
    }
    failed = [line for line in process.stdout.splitlines() if line.startswith("failed")]
    assert len(failed) == 5
    assert all(re.search(f"{DENIED}$", line) for line in failed), failed
    # A permission that is given changes neither the size nor the time of a file.
    for name in ("closed", "listed"):
        (scans / name).chmod(0o755)
    again = shell("batch", scans, "-o", tmp_path / "out", *QUICK, before=powerless)
    assert again.returncode == 0, again.stdout
    assert set(column(tmp_path / "out", "status").values()) == {"done", "skipped"}


@pytest.mark.parametrize("command", ["run", "info", "batch", "compare"])
@pytest.mark.parametrize("name", ["closed", "closed/a.h5", "listed", "listed/a.h5", "listed/z.zarr"])
def test_a_path_that_may_not_be_read_is_one_sentence(
    name: str, command: str, scans: Path, tmp_path: Path
) -> None:
    out = () if command == "info" else ("-o", tmp_path / "out")
    process = shell(command, scans / name, *out, before=powerless)
    if command == "batch":
        assert process.returncode == 1
        assert set(column(tmp_path / "out", "failure").values()) == {"unreadable"}
    else:
        only_ones(process, 1, rf"\S+{name} {DENIED}")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("layout", "part"),
    [
        ("h5py", "x.h5"),
        ("ConfUSIus", "x.zarr/iq/c/0/0/0/0"),
        ("AUTC in parts", "bf0part000.dat"),
        ("EchoFrame", "ScanParameters.mat"),
    ],
)
def test_a_part_that_may_not_be_read_is_one_sentence(layout: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = layouts.LAYOUTS[layout].write(tmp_path / "in")
    (tmp_path / "in" / part).chmod(0)
    process = shell("run", path, "-o", tmp_path / "out", *QUICK, before=powerless)
    only_ones(process, 1, rf"\S+ {DENIED}")
    assert not (tmp_path / "out").exists()


def test_results_that_may_not_be_looked_at_are_a_failed_row(tmp_path: Path) -> None:
    for number in (1, 2):
        write_scan(tmp_path / f"scans/scan{number}.h5", number)
    out = tmp_path / "out"
    command: Any = ("batch", tmp_path / "scans", "-o", out, *QUICK)
    assert shell(*command).returncode == 0
    (out / "scan1").chmod(0)
    try:
        process = shell(*command, before=powerless)
    finally:
        (out / "scan1").chmod(0o755)
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert column(out, "failure") == {"scan1.h5": "output", "scan2.h5": ""}
    assert re.search(r"the folder \S+scan1 cannot be written; choose another one with -o", process.stdout)
    assert shell(*command).returncode == 0
