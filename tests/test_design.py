"""The design holds: who may import whom, style, types, and options that are declared once."""

import re
import subprocess
import sys
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from usdenoise.cli import main
from usdenoise.pipeline.options import CHOICES, DenoiseOptions, flag

ROOT = Path(__file__).parents[1]


def tool(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).parent / name
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize(
    "command",
    [("lint-imports",), ("ruff", "check"), ("ruff", "format", "--check"), ("mypy",)],
    ids=" ".join,
)
def test_checks_pass(command: tuple[str, ...]) -> None:
    done = tool(*command)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def run_help() -> str:
    result = CliRunner().invoke(main, ["run", "--help"])
    assert result.exit_code == 0
    return result.stdout


def entry(run_help: str, name: str) -> str:
    """What --help says on one option, in one line."""
    found = re.search(rf"^ +(?:-\w, )?{flag(name)} (.*?)(?=^ +-|\Z)", run_help, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{flag(name)} is not in run --help"
    return " ".join(found[1].split())


@pytest.mark.parametrize("field", fields(DenoiseOptions), ids=lambda field: field.name)
def test_every_option_has_a_flag_that_shows_its_default(field: Field[Any], run_help: str) -> None:
    name, default = field.name, field.default
    text = entry(run_help, name)
    if default is None:
        assert "[default:" not in text
    else:
        assert f"[default: {default}]" in text
    for choice in CHOICES.get(name, ()):
        assert re.search(rf"[\[|]{re.escape(choice)}[\]|]", text)


SHARED = (
    "dataset", "axes", "frames", "frame-rate", "spacing", "preset", "dynamic-range", "db-factor", "overwrite",
    "json", "quiet", "verbose", "output",
)  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_every_shared_option_of_the_contract_is_there(name: str, run_help: str) -> None:
    assert f"--{name}" in run_help


def test_no_file_is_a_design_question() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in (ROOT / "usdenoise").rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 400
    }
    assert long == {}
