"""Options from a file: flags take precedence, and wrong files are wrong usage."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.shared import cli, report_of
from tests.jobs.batch.shared import write_scan
from usdenoise.files.bids import read_events

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """A small stack in a folder of its own."""
    return write_scan(tmp_path / "scans/x.h5")


def parameters(scan: Path, text: str, *arguments: Any) -> dict[str, Any]:
    """The effective options of a run with a configuration file, by its report."""
    place = scan.parents[1] / "study.toml"
    place.write_text(text)
    folder = ("-o", scan.parents[1] / "out", "--overwrite")
    report = report_of("run", scan, *folder, "-q", "--config", place, *arguments)
    return {**report["parameters"], **report["requested"]["output"], **report["input"]}


FILES: dict[tuple[str, ...], dict[str, Any]] = {
    ('rank = 4\nspacing = [0.1, 0.2]\nestimator = ["sampling=0.75"]',): {
        "rank": 4, "sampling": 0.75, "spacing_mm": {"z": 0.1, "x": 0.2},
    },
    ("rank = 4\nlow-cutoff = 2", "--rank=3"): {"rank": 3, "low_cutoff": 2},
    ('low-cutoff = 1\nestimator = "alpha=100"', "--estimator=step=0.25"): {"step": 0.25, "alpha": None},
    ('preset = "paper"\nrank = 2\nestimator = "alpha=1e3"',): {"rank": 2, "alpha": 1e3, "iterations": 30},
    ("seed = 3\nrank = 7", "--preset=paper", "--rank=2"): {"rank": 2, "seed": 3, "iterations": 30},
    ("no-stack = true\nrank = 3",): {"rank": 3, "stack": False},
}  # fmt: skip
"""Content of a file, and flags -> options of the run."""


def test_flags_take_precedence_over_files_and_later_files_over_earlier_ones(scan, tmp_path):
    # A file that is not named is not used.
    (scan.parent / "usdenoise.toml").write_text("nonsense = 4\n")
    (tmp_path / "other.toml").write_text("rank = 6\n")
    both = ("rank = 5\nlow-cutoff = 1\n", f"--config={tmp_path / 'other.toml'}")
    for (text, *flags), expected in {**FILES, both: {"rank": 6, "low_cutoff": 1}}.items():
        found = parameters(scan, text, *flags)
        assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_the_byte_order_mark_of_windows_is_no_part_of_a_file(encoding, scan, tmp_path):
    config, events = tmp_path / "c.toml", tmp_path / "events.tsv"
    config.write_bytes('rank = 4\r\npattern = "*.raw"\r\n'.encode(encoding))
    (scan.parent / "y.raw").touch()
    command = ("batch", scan.parent, "-o", tmp_path / "out", "--dry-run", "--config", config)
    assert "y.raw" in cli(*command).stdout
    events.write_bytes("onset\tduration\r\n3.0\t2.0\r\n".encode(encoding))
    assert [(event.onset, event.duration) for event in read_events(events)[0]] == [(3, 2)]


def test_a_batch_reads_the_file(scan: Path, tmp_path: Path) -> None:
    (scan.parent / "y.raw").touch()
    config = tmp_path / "c.toml"
    command = ("batch", scan.parent, "-o", tmp_path / "out", "--dry-run", "--config", config)
    config.write_text('rank = 4\nlow-cutoff = 2\npattern = ["*.h5", "*.mat"]\n')
    assert "y.raw" not in cli(*command).stdout
    config.write_text('pattern = "*.raw"\n')
    assert "y.raw" in cli(*command).stdout
    config.write_text("jobs = 0\n")
    assert cli(*command).exit_code == 2


def test_a_wrong_or_missing_file_is_wrong_usage(scan: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    wrong = {
        "low_cutof = 3": "low-cutoff", "config = 'other.toml'": "config", "[run]\nrank = 3": "run", "rank = 'some'": "some",
        "estimator = 'haste=3'": "haste", "rank = {a = 1}": "--rank", "rank = ": "TOML", "rank = 3\n\x00": "TOML",
        "\udcff": "TOML",
    }  # fmt: skip
    for text, says in wrong.items():
        config.write_text(text, errors="surrogateescape")
        result = cli("run", scan, "-o", tmp_path / "out", "--config", config)
        assert (result.exit_code, result.stdout) == (2, "")
        assert says in result.stderr
    absent = cli("run", scan, "--config", "absent.toml")
    assert absent.exit_code == 2
    assert "absent.toml" in absent.stderr
    assert not (tmp_path / "out").exists()
