"""Folders and files that a user may not read, and those that may be read again."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.batch.shared import QUICK, column, powerless, shell, write_scan
from tests.cli.shared import cli
from tests.formats import layouts
from tests.programs import python

DENIED = r"cannot be read \((\S+: )?Permission denied\); check the (path|permissions)"


NAMES = ("closed", "closed/a.h5", "listed", "listed/a.h5", "listed/z.zarr")
PARTS = {
    "h5py": "x.h5",
    "ConfUSIus": "x.zarr/iq/c/0/0/0/0",
    "AUTC in parts": "bf0part000.dat",
    "EchoFrame": "ScanParameters.mat",
}


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
    again = cli("batch", scans, "-o", tmp_path / "out", *QUICK)
    assert again.exit_code == 0, again.stdout
    assert set(column(tmp_path / "out", "status").values()) == {"done", "skipped"}


# One process that gave up its rights runs many commands: each would import the same libraries.
COMMANDS = """
import json, sys
from tests.cli.shared import cli
results = [cli(*line) for line in json.loads(sys.argv[1])]
print(json.dumps([(result.exit_code, result.stdout, result.stderr) for result in results]))
"""


def refused(lines: list[list[str]]) -> None:
    """Run commands without root's rights: each ends with one sentence that names the path, and writes nothing."""
    done = python(COMMANDS, json.dumps(lines), before=powerless)
    assert done.returncode == 0, done.stderr
    for line, (code, out, error) in zip(lines, json.loads(done.stdout), strict=True):
        assert (code, out) == (1, ""), line
        assert re.fullmatch(rf"usdenoise: \S+ {DENIED}\n", error), error
        assert "-o" not in line or not Path(line[line.index("-o") + 1]).exists()


@pytest.mark.parametrize("command", ["run", "info", "compare"])
def test_a_path_that_may_not_be_read_is_one_sentence(command: str, scans: Path, tmp_path: Path) -> None:
    out = [] if command == "info" else ["-o", str(tmp_path / "out")]
    refused([[command, str(scans / name), *out] for name in NAMES])


def test_scans_that_may_not_be_read_are_failed_rows_where_they_are_named(scans: Path, tmp_path: Path) -> None:
    paths = [scans / name for name in NAMES]
    process = shell("batch", *paths, "-o", tmp_path / "out", *QUICK, before=powerless)
    assert process.returncode == 1
    assert set(column(tmp_path / "out", "failure").values()) == {"unreadable"}


def test_a_part_that_may_not_be_read_is_one_sentence(tmp_path: Path) -> None:
    lines = []
    for number, (layout, part) in enumerate(PARTS.items()):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        path = layouts.LAYOUTS[layout].write(folder)
        (folder / part).chmod(0)
        lines.append(["run", str(path), "-o", str(tmp_path / "out"), *QUICK])
    refused(lines)


def test_results_that_may_not_be_looked_at_are_a_failed_row(tmp_path: Path) -> None:
    for number in (1, 2):
        write_scan(tmp_path / f"scans/scan{number}.h5", number)
    out = tmp_path / "out"
    command: Any = ("batch", tmp_path / "scans", "-o", out, *QUICK)
    assert cli(*command).exit_code == 0
    (out / "scan1").chmod(0)
    try:
        process = shell(*command, before=powerless)
    finally:
        (out / "scan1").chmod(0o755)
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert column(out, "failure") == {"scan1.h5": "output", "scan2.h5": ""}
    assert re.search(r"the folder \S+scan1 cannot be written; choose another one with -o", process.stdout)
    assert cli(*command).exit_code == 0
