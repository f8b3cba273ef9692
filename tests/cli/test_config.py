"""Options from a file: flags win over it, and wrong files are wrong usage."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shared import cli
from tests.jobs.batch.shared import write_scan

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """A small stack in a folder of its own."""
    return write_scan(tmp_path / "scans/x.h5")


def parameters(scan: Path, text: str, *arguments: Any) -> dict[str, Any]:
    """The effective options of a run with a configuration file, by its report."""
    place = scan.parents[1] / "study.toml"
    place.write_text(text)
    result = cli(
        "run",
        scan,
        "-o",
        scan.parents[1] / "out",
        "--overwrite",
        "--json",
        "-q",
        "--config",
        place,
        *arguments,
    )
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    return {**report["parameters"], **report["requested"]["output"], **report["input"]}


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        (
            'rank = 4\nlow_cutoff = 2\nspacing = [0.1, 0.2]\nestimator = ["sampling=0.75", "iterations=2"]',
            (),
            {
                "rank": 4,
                "low_cutoff": 2,
                "sampling": 0.75,
                "iterations": 2,
                "spacing_mm": {"z": 0.1, "x": 0.2},
            },
        ),
        ("rank = 4\nlow-cutoff = 2", ("--rank", 3), {"rank": 3, "low_cutoff": 2}),
        (
            'low-cutoff = 1\nestimator = "alpha=100"',
            ("--estimator", "step=0.25"),
            {"step": 0.25, "alpha": None},
        ),
        (
            'preset = "paper"\nrank = 2\nestimator = "alpha=1e3"',
            (),
            {"rank": 2, "alpha": 1e3, "iterations": 30},
        ),
        ("seed = 3\nrank = 7", ("--preset", "paper", "--rank", 2), {"rank": 2, "seed": 3, "iterations": 30}),
        ("no-stack = true\nrank = 3", (), {"rank": 3, "stack": False}),
    ],
)
def test_flags_win_over_the_file(
    text: str, flags: tuple[Any, ...], expected: dict[str, Any], scan: Path
) -> None:
    found = parameters(scan, text, *flags)
    assert {name: found[name] for name in expected} == expected


def test_of_several_files_the_last_one_wins(scan: Path, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("rank = 6\n")
    found = parameters(scan, "rank = 5\nlow-cutoff = 1\n", "--config", tmp_path / "other.toml")
    assert (found["rank"], found["low_cutoff"]) == (6, 1)


def test_no_file_is_used_that_is_not_named(scan: Path) -> None:
    (scan.parent / "usdenoise.toml").write_text("nonsense = 4\n")
    assert parameters(scan, "", "--rank", 3)["rank"] == 3


def test_a_batch_takes_the_file(scan: Path, tmp_path: Path) -> None:
    (scan.parent / "y.raw").touch()
    config = tmp_path / "c.toml"
    command = ("batch", scan.parent, "-o", tmp_path / "out", "--dry-run", "--config", config)
    config.write_text('rank = 4\nlow-cutoff = 2\npattern = ["*.h5", "*.mat"]\n')
    assert "y.raw" not in cli(*command).stdout
    config.write_text('pattern = "*.raw"\n')
    assert "y.raw" in cli(*command).stdout
    config.write_text("jobs = 0\n")
    assert cli(*command).exit_code == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("low_cutof = 3", "low-cutoff"),
        ("config = 'other.toml'", "config"),
        ("[run]\nrank = 3", "run"),
        ("rank = 'some'", "some"),
        ("method = 'magic'", "magic"),
        ("estimator = 'haste=3'", "haste"),
        ("rank = {a = 1}", "--rank"),
        ("rank = ", "TOML"),
        ("rank = 3\n\x00", "TOML"),
        ("\udcff", "TOML"),
    ],
    ids=lambda value: value[:30],
)
def test_a_bad_file_is_wrong_usage(text: str, says: str, scan: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(text, errors="surrogateescape")
    result = cli("run", scan, "-o", tmp_path / "out", "--config", config)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there_is_wrong_usage(scan: Path) -> None:
    result = cli("run", scan, "--config", "absent.toml")
    assert result.exit_code == 2
    assert "absent.toml" in result.stderr
