"""Options from a file: flags win over it, unknown keys are refused, and what holds is on record."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.batch.shared import write_scan
from tests.cli.shared import cli

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """A small stack in a folder of its own."""
    return write_scan(tmp_path / "scans/x.h5")


def parameters(scan: Path, *arguments: Any) -> dict[str, Any]:
    """The effective options of a run, by its report."""
    result = cli("run", scan, "-o", scan.parents[1] / "out", "--overwrite", "--json", "-q", *arguments)
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    return {**report["parameters"], **report["requested"]["display"], **report["input"]}


def test_a_file_beside_the_scan_is_found_and_said(scan: Path) -> None:
    place = scan.parent / "usdenoise.toml"
    place.write_text("rank = 4\nlow-cutoff = 2\nsampling = 0.75\nspacing = [0.1, 0.2]\ndb_factor = 20\n")
    result = cli("run", scan, "-o", scan.parents[1] / "out")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == f"note: options are taken from {place}"
    found = parameters(scan)
    assert (found["rank"], found["low_cutoff"], found["sampling"], found["db_factor"]) == (4, 2, 0.75, 20.0)
    assert found["spacing_mm"] == {"z": 0.1, "x": 0.2}


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("rank = 4\nlow-cutoff = 2", ("--rank", 3), {"rank": 3, "low_cutoff": 2}),
        ("rank = 3\nlow-cutoff = 1\nalpha = 100.0", (), {"alpha": 100}),
        # A flag wins over its rival.
        ("rank = 3\nlow-cutoff = 1\nalpha = 100.0", ("--step", 0.25), {"step": 0.25, "alpha": None}),
        # A preset as a flag wins over what it sets, and one in the file gives way to its other lines.
        (
            "sampling = 0.9\nseed = 3\nrank = 7\niterations = 2",
            ("--preset", "paper", "--rank", 2, "--alpha", 1000),
            {"rank": 2, "sampling": 0.5, "seed": 3, "iterations": 30},
        ),
        (
            'preset = "paper"\nrank = 2\nalpha = 1e3',
            (),
            {"rank": 2, "alpha": 1e3, "iterations": 30, "db_factor": 20.0},
        ),
        ("rank = 5\ncutoff-figure = true", (), {"cutoff_figure": True}),
    ],
)
def test_flags_win_over_the_file(
    text: str, flags: tuple[Any, ...], expected: dict[str, Any], scan: Path
) -> None:
    (scan.parent / "usdenoise.toml").write_text(text)
    found = parameters(scan, *flags)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("command", ["run", "batch"])
def test_a_wrong_value_is_told_with_its_file(scan: Path, command: str) -> None:
    place = scan.parent / "usdenoise.toml"
    place.write_text("rank = 0\n")
    result = cli(command, scan, "-o", scan.parents[1] / "out")
    assert result.exit_code == 1
    note, error = result.stderr.splitlines()
    assert note == f"note: options are taken from {place}"
    assert error.startswith("usdenoise: --rank 0 must be at least 1")


def test_config_names_another_file(scan: Path, tmp_path: Path) -> None:
    (scan.parent / "usdenoise.toml").write_text("rank = 4\n")
    (tmp_path / "other.toml").write_text("[tool.usdenoise]\nrank = 5\nlow_cutoff = 1\n")
    assert parameters(scan, "--config", tmp_path / "other.toml")["rank"] == 5
    (tmp_path / "third.toml").write_text("rank = 6\n")
    both = parameters(scan, "--config", tmp_path / "other.toml", "--config", tmp_path / "third.toml")
    assert (both["rank"], both["low_cutoff"]) == (6, 1)


def test_a_table_of_a_project_beside_the_scan(scan: Path) -> None:
    project = scan.parent / "pyproject.toml"
    project.write_text('[project]\nname = "study"\n')
    assert parameters(scan, "--rank", 3)["rank"] == 3
    project.write_text('[project]\nname = "study"\n[tool.usdenoise]\nrank = 5\nlow-cutoff = 1\njobs = 2\n')
    # What only a batch has is no fault in a run.
    assert parameters(scan)["rank"] == 5
    (scan.parent / "usdenoise.toml").write_text("rank = 4\nlow-cutoff = 1\n")
    assert parameters(scan)["rank"] == 4


def test_a_batch_takes_the_file_of_its_folder(scan: Path) -> None:
    config = scan.parent / "usdenoise.toml"
    config.write_text('rank = 4\nlow-cutoff = 2\npattern = ["*.h5", "*.mat"]\n')
    (scan.parent / "y.raw").touch()
    done = cli("batch", scan.parent, "-o", scan.parents[1] / "out", "--dry-run")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == ["run          x.h5  (new)"]
    config.write_text('pattern = "*.raw"\n')
    assert "y.raw" in cli("batch", scan.parent, "-o", scan.parents[1] / "out", "--dry-run").stdout
    config.write_text("jobs = 0\n")
    assert cli("batch", scan.parent, "-o", scan.parents[1] / "out", "--dry-run").exit_code == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("low_cutof = 3", r"has the unknown option 'low_cutof'; did you mean 'low-cutoff'\?"),
        ("overwrite = true", "has the unknown option 'overwrite'"),
        ("[run]\nrank = 3", "has the unknown option 'run'"),
        ("rank = 'some'", "'some' is not auto or a whole number"),
        ("method = 'magic'", "magic"),
        ("rank = {a = 1}", "has a value for 'rank' that is neither text nor a number"),
        ("low-cutoff = 1\nlow_cutoff = 1", "has the option 'low-cutoff' twice"),
        ("rank = ", "is not a TOML file"),
        ("rank = 3\n\x00", "is not a TOML file"),
        ("rank = " + 9999 * "9", "is not a TOML file"),
        ("rank = " + 99999 * "[", "is not a TOML file (maximum recursion depth exceeded"),
        ("\udcff", "is not a TOML file"),
    ],
    ids=lambda value: value[:30],
)
def test_a_bad_file_is_wrong_usage(text: str, says: str, scan: Path) -> None:
    (scan.parent / "usdenoise.toml").write_text(text, errors="surrogateescape")
    result = cli("run", scan, "-o", scan.parents[1] / "out")
    assert (result.exit_code, result.stdout) == (2, "")
    assert says.replace("\\", "") in " ".join(result.stderr.split())
    assert not (scan.parents[1] / "out").exists()


OWN, PROJECT = ("usdenoise.toml", ""), ("pyproject.toml", "[tool.usdenoise]\n")


@pytest.mark.parametrize(
    ("command", "line", "file"),
    [
        ("run", "dask = '0'", OWN),
        ("batch", "dask = '0'", PROJECT),
    ],
)
def test_only_a_file_that_was_asked_for_reaches_beyond_the_scans(
    command: str, line: str, file: tuple[str, str], scan: Path
) -> None:
    name, table = file
    place, out = scan.parent / name, scan.parents[1] / "out"
    place.write_text(f"{table}{line}\n")
    result = cli(command, scan, "-o", out)
    flag = "--" + line.split(" ")[0].replace("_", "-")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == (
        f"Error: {place} sets {flag}, which only a file that --config names may do; give --config {place} if you trust "
        "it, or remove the line"
    )
    assert not out.exists()
    asked = cli(command, scan, "-o", out, "--config", place)
    assert asked.exit_code == ("dask" in line)
    assert "which only a file" not in asked.stderr


def test_a_pipe_is_read_if_somebody_writes_to_it(scan: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    result = cli("run", scan, "--config", pipe)
    assert result.exit_code == 2
    assert "pipe.toml cannot be read (nothing is in it)" in result.stderr
    # As a shell hands over the output of another command.
    reader, writer = os.pipe()
    os.write(writer, b"rank = 3\n")
    os.close(writer)
    assert parameters(scan, "--config", f"/dev/fd/{reader}")["rank"] == 3
    os.close(reader)
    assert parameters(scan, "--config", "/dev/null", "--rank", "4")["rank"] == 4
    assert "is not a TOML file" in cli("run", scan, "--config", "/dev/zero").stderr


def test_a_file_that_is_not_there_is_wrong_usage(scan: Path) -> None:
    result = cli("run", scan, "--config", "absent.toml")
    assert result.exit_code == 2
    assert (
        "absent.toml cannot be read (No such file or directory); check the path of --config" in result.stderr
    )
