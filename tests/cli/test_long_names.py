"""Names of inputs near the 255 bytes of a file system: the names of the results are shortened, or the cause is named."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cli.shared import cli, refused
from tests.jobs.batch.shared import write_scan
from usdenoise.errors import OutputError
from usdenoise.files.output_folder import OutputFolder

pytestmark = pytest.mark.usefixtures("no_pictures")

STEM = "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 126
"""252 bytes, with which no ending of a result fits."""


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Two scans whose names differ at the end."""
    for number in range(2):
        write_scan(tmp_path / "in/x.h5").rename(tmp_path / f"in/{STEM[:-1]}{number}.h5")
    return tmp_path / "in"


def test_long_names_are_shortened_by_every_command(scans, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, other = sorted(scans.iterdir())
    commands = [
        ("run", one, "--low-cutoff", 1, "--rank", 3),
        ("run", one, "-o", "out", "--low-cutoff", 1, "--rank", 3),
        ("run", other, "-o", "out", "--low-cutoff", 1, "--rank", 3),
        ("session", one, "--window", 10, "-o", "session", "--low-cutoff", 1, "--stacks"),
        ("compare", one, "-m", "svd"),
    ]
    for command in commands:
        done = cli(*command, "-q")
        assert done.exit_code == 0, done.stderr
    reports = list(Path("out").glob("*_report.json"))
    assert {json.loads(report.read_text())["input"]["path"] for report in reports} == {str(one), str(other)}
    assert max(len(os.fsencode(path.name)) for path in tmp_path.rglob("*") if path.is_file()) <= 255
    batch = ("batch", scans, "-o", "batch", "--low-cutoff", 1, "--rank", 3, "--flat", "-q")
    for _ in range(2):
        done = cli(*batch)
        assert done.exit_code == 0, done.stderr
    assert len(list(Path("batch/stacks").iterdir())) == 2
    assert "skip" in cli(*batch[:-1], "--dry-run").stdout


def test_the_cause_is_named_where_nothing_can_be_shortened(scans: Path, tmp_path: Path) -> None:
    path = shutil.copy(next(scans.iterdir()), tmp_path / "x.h5")
    refused(cli("run", path, "-o", tmp_path / ("a" * 256)), r"File name too long\); shorten the names")
    with (
        pytest.raises(OutputError, match=r"_power.png is longer than the 255 bytes .* shorten the name"),
        OutputFolder(tmp_path) as outputs,
    ):
        outputs.reserve(f"{STEM}_power.png")
