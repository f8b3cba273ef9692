"""Folders and files that a user may not read, and those that may be read again."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shared import cli
from tests.files import layouts
from tests.jobs.batch.shared import QUICK, column, powerless, results, write_scan
from tests.programs import python

pytestmark = pytest.mark.usefixtures("no_pictures")

DENIED = r"\S+ cannot be read \((\S+: )?Permission denied\); check the (path|permissions)"
NAMES = ("closed", "closed/a.h5", "listed", "listed/a.h5", "listed/z.zarr")
PARTS = {"h5py": "x.h5", "ConfUSIus": "x.zarr/iq/c/0/0/0/0"}


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


# One process that gave up its rights runs many commands: each would import the same libraries.
COMMANDS = """
import json, sys
from tests.cli.shared import cli
from tests.jobs.batch.shared import scans_here
with scans_here():
    results = [cli(*line) for line in json.loads(sys.argv[1])]
print(json.dumps([(result.exit_code, result.stdout, result.stderr) for result in results]))
"""


def without_rights(*lines: Any) -> Any:
    """Exit code, stdout and stderr of commands without root's rights."""
    words = [[str(word) for word in line] for line in lines]
    done = python(COMMANDS, json.dumps(words), before=powerless)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert not [error for _, _, error in results if "Traceback" in error]
    return results


def check_refused(results: Any, sentence: str = DENIED) -> None:
    for code, out, error in results:
        assert (code, out) == (1, "")
        assert re.fullmatch(rf"usdenoise: {sentence}\n", error), error


def test_inputs_without_permission_are_an_error_or_a_failed_row(scans: Path, tmp_path: Path) -> None:
    out, named, single = tmp_path / "out", tmp_path / "named", ("-o", tmp_path / "single")
    commands = (("run", single), ("info", ()), ("compare", single))
    paths = [scans / name for name in NAMES]
    folder, of_named, *others = without_rights(
        ("batch", scans, "-o", out, *QUICK),
        ("batch", *paths, "-o", named, *QUICK),
        *((command, path, *more) for command, more in commands for path in paths),
    )
    assert folder[0] == of_named[0] == 1
    listed = [f"listed/{name}" for name in ("a.h5", "deep", "x_denoised.h5", "z.zarr")]
    assert column(out, "status") == {**dict.fromkeys(["closed", *listed], "failed"), "open.h5": "done"}
    failed = [line for line in folder[1].splitlines() if line.startswith("failed")]
    assert len(failed) == 5
    assert all(re.search(f" {DENIED}$", line) for line in failed), failed
    assert set(column(named, "status").values()) == {"failed"}
    check_refused(others)
    assert not (tmp_path / "single").exists()
    # A permission that is given changes neither the size nor the time of a file.
    for name in ("closed", "listed"):
        (scans / name).chmod(0o755)
    again = cli("batch", scans, "-o", out, *QUICK, "--dry-run").stdout.splitlines()
    assert [line.split()[0] for line in again] == ["run"] * 5 + ["skip"]


def test_parts_of_an_input_outputs_and_earlier_results_without_permission(tmp_path: Path) -> None:
    """They are refused, but results of a batch that may not be read or replaced are a failed row."""
    inputs: list[Any] = []
    for number, (layout, part) in enumerate(PARTS.items()):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        path = layouts.LAYOUTS[layout].write(folder)
        (folder / part).chmod(0)
        inputs.append(("run", path, "-o", tmp_path / "new", *QUICK))
    scan, closed = write_scan(tmp_path / "scan1.h5"), tmp_path / "closed"
    closed.mkdir(mode=0o555)
    places = [(name, scan, "-o", place) for name in ("run", "batch") for place in (closed, closed / "below")]
    outs = {tmp_path / "unread": (0o000, ()), tmp_path / "kept": (0o555, ("--seed", 9))}
    before, again = {}, []
    for out, (mode, more) in outs.items():
        assert cli("batch", scan, *QUICK, "-o", out).exit_code == 0
        before |= {out / name: (out / name).read_bytes() for name in results(["scan1"])}
        (out / "scan1").chmod(mode)
        again.append(("batch", scan, *QUICK, "-o", out, *more))
    try:
        found = without_rights(*inputs, *places, *again)
    finally:
        for out in outs:
            (out / "scan1").chmod(0o755)
    check_refused(found[: len(inputs)])
    check_refused(found[len(inputs) : -len(again)], r"the folder \S+ cannot be (created|written).*")
    assert not (tmp_path / "new").exists()
    assert list(closed.iterdir()) == []
    assert [code for code, *_ in found[-len(again) :]] == [1, 1]
    for out in outs:
        assert column(out, "status") == {"scan1.h5": "failed"}
    assert {path: path.read_bytes() for path in before} == before
