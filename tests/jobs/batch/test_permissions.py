"""Folders and files that a user may not read, and those that may be read again."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shared import cli
from tests.files import layouts
from tests.jobs.batch.shared import QUICK, column, powerless, results, shell, write_scan
from tests.programs import python

DENIED = r"\S+ cannot be read \((\S+: )?Permission denied\); check the (path|permissions)"
NAMES = ("closed", "closed/a.h5", "listed", "listed/a.h5", "listed/z.zarr")
PARTS = {
    "h5py": "x.h5",
    "ConfUSIus": "x.zarr/iq/c/0/0/0/0",
}


@pytest.fixture
def scans(tmp_path: Path) -> Iterator[Path]:
    """A scan that may be read, a folder that may not be listed, and one whose files may not be opened."""
    folder = tmp_path / "scans"
    write_scan(folder / "open.h5")
    closed, listed = folder / "closed", folder / "listed"
    write_scan(closed / "a.h5", 1)
    write_scan(listed / "a.h5", 1)
    write_scan(listed / "deep/b.h5", 2)
    # What would be the result of an earlier run.
    write_scan(listed / "x_denoised.h5", 3)
    layouts.confusius()(tmp_path).rename(listed / "z.zarr")
    closed.chmod(0o000)
    listed.chmod(0o444)
    yield folder
    for path in (closed, listed):
        path.chmod(0o755)


def test_folders_that_may_not_be_read_are_failed_rows(scans: Path, tmp_path: Path) -> None:
    process = shell("batch", scans, "-o", tmp_path / "out", *QUICK, before=powerless)
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert column(tmp_path / "out", "status") == {
        "closed": "failed",
        "listed/a.h5": "failed",
        "listed/deep": "failed",
        "listed/x_denoised.h5": "failed",
        "listed/z.zarr": "failed",
        "open.h5": "done",
    }
    failed = [line for line in process.stdout.splitlines() if line.startswith("failed")]
    assert len(failed) == 5
    assert all(re.search(f" {DENIED}$", line) for line in failed), failed
    # A permission that is given changes neither the size nor the time of a file.
    for name in ("closed", "listed"):
        (scans / name).chmod(0o755)
    again = cli("batch", scans, "-o", tmp_path / "out", *QUICK, "--dry-run").stdout.splitlines()
    assert [line.split()[0] for line in again] == ["run"] * 5 + ["skip"]


# One process that gave up its rights runs many commands: each would import the same libraries.
COMMANDS = """
import json, sys
from tests.cli.shared import cli
results = [cli(*line) for line in json.loads(sys.argv[1])]
print(json.dumps([(result.exit_code, result.stdout, result.stderr) for result in results]))
"""


def refused(lines: list[list[str]], sentence: str = DENIED) -> None:
    """Run commands without root's rights: each ends with such a sentence that names the path."""
    done = python(COMMANDS, json.dumps(lines), before=powerless)
    assert done.returncode == 0, done.stderr
    for line, (code, out, error) in zip(lines, json.loads(done.stdout), strict=True):
        assert (code, out) == (1, ""), line
        assert re.fullmatch(rf"usdenoise: {sentence}\n", error), error


def test_a_path_that_may_not_be_read_is_one_sentence(scans: Path, tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "out")]
    commands = (("run", out), ("info", []), ("compare", out))
    refused([[command, str(scans / name), *more] for command, more in commands for name in NAMES])
    assert not (tmp_path / "out").exists()


def test_scans_that_may_not_be_read_are_failed_rows_where_they_are_named(scans: Path, tmp_path: Path) -> None:
    paths = [scans / name for name in NAMES]
    process = shell("batch", *paths, "-o", tmp_path / "out", *QUICK, before=powerless)
    assert process.returncode == 1
    assert set(column(tmp_path / "out", "status").values()) == {"failed"}


def test_a_part_that_may_not_be_read_is_one_sentence(tmp_path: Path) -> None:
    lines = []
    for number, (layout, part) in enumerate(PARTS.items()):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        path = layouts.LAYOUTS[layout].write(folder)
        (folder / part).chmod(0)
        lines.append(["run", str(path), "-o", str(tmp_path / "out"), *QUICK])
    refused(lines)
    assert not (tmp_path / "out").exists()


def test_an_output_that_may_not_be_written_is_one_sentence(tmp_path: Path) -> None:
    scan, out = write_scan(tmp_path / "scan.h5"), tmp_path / "out"
    out.mkdir(mode=0o555)
    places = [(command, place) for command in ("run", "batch") for place in (out, out / "below")]
    refused(
        [[command, str(scan), "-o", str(place), *QUICK] for command, place in places],
        r"the folder \S+ cannot be (created|written).*",
    )
    assert list(out.iterdir()) == []


def test_results_that_may_not_be_looked_at_or_replaced_are_a_failed_row(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command: Any = ("batch", write_scan(tmp_path / "scan1.h5"), "-o", out, *QUICK)
    assert cli(*command).exit_code == 0
    before = {name: (out / name).read_bytes() for name in results(["scan1"])}
    for mode, more in ((0o000, ()), (0o555, ("--seed", 9))):
        (out / "scan1").chmod(mode)
        try:
            process = shell(*command, *more, before=powerless)
        finally:
            (out / "scan1").chmod(0o755)
        assert process.returncode == 1
        assert "Traceback" not in process.stderr
        assert column(out, "status") == {"scan1.h5": "failed"}
    assert {name: (out / name).read_bytes() for name in before} == before
