"""The help pages: groups, columns, examples that run, and defaults that are true."""

import os
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.programs import python
from usdenoise.cli import main
from usdenoise.cli.main import COMMANDS
from usdenoise.cli.option_groups import GroupedCommand, GroupedOption
from usdenoise.options.declaration import Group

SAMPLE = Path(__file__).parents[2] / "sample_data/phantom.h5"
ESTIMATOR = {
    "method", "sampling", "seed", "refit", "preset", "init", "ridge", "patience", "iterations", "decay", "damping", "step",
    "alpha", "precision",
}  # fmt: skip


def command(name: str) -> GroupedCommand:
    found = main.get_command(click.Context(main), name)
    assert isinstance(found, GroupedCommand)
    return found


def page(*names: str, columns: int = 80) -> str:
    result = CliRunner().invoke(main, [*names, "--help"], terminal_width=columns)
    assert result.exit_code == 0
    return result.stdout


def sections(text: str) -> dict[str, list[str]]:
    """Lines of a help page below each heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            heading = line.removesuffix(":")
        elif line:
            found.setdefault(heading, []).append(line)
    return found


EXAMPLES = [line for name in COMMANDS for line, _ in command(name).examples]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_below_its_heading(name: str) -> None:
    options = [
        option
        for option in command(name).params
        if isinstance(option, click.Option) and not (name == "session" and option.hidden)
    ]
    shown = sections(page(name))
    for option in options:
        assert isinstance(option, GroupedOption), option.name
        lines = shown[option.group.value]
        assert sum(option.opts[-1] in line[: 2 + 25].replace(",", " ").split() for line in lines) == 1, (
            option.name
        )
    assert sum(line.startswith("  -") for lines in shown.values() for line in lines) == len(options)


@pytest.mark.parametrize("name", ["run", "batch"])
def test_all_options_of_the_estimator_come_under_the_last_heading(name: str) -> None:
    assert list(Group)[-1] is Group.ESTIMATOR
    assert list(sections(page(name)))[-2:] == ["Estimator", "Examples"]
    found = {
        option.name for option in command(name).params if getattr(option, "group", None) is Group.ESTIMATOR
    }
    assert found == ESTIMATOR


def test_the_rank_and_the_cutoffs_say_how_they_depend_on_each_other() -> None:
    cutoffs = " ".join(" ".join(sections(page("run"))["Cutoffs"]).split())
    rank, low, high = re.split("--(?:low|high)-cutoff [a-z]+[|]", cutoffs)
    assert "as many as --low-cutoff removes, and with --high-cutoff rank those that are kept" in rank
    assert "at most as many as --rank" in low
    assert "rank keeps those that --rank estimates" in high
    estimator = " ".join(" ".join(sections(page("run"))["Estimator"]).split())
    assert "It matters with --refit none" in estimator


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("name", COMMANDS)
def test_texts_begin_next_to_their_options_and_fit(name: str, columns: int) -> None:
    text = page(name, columns=columns)
    assert max(map(len, text.splitlines())) <= columns
    options = [line for line in text.splitlines() if line.startswith("  -")]
    starts = {len(line) - len(line.lstrip()[line.lstrip().index("  ") :].lstrip()) for line in options}
    assert len(starts) == 1
    assert starts.pop() <= 30


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_with_examples(name: str) -> None:
    assert 2 <= len(command(name).examples) <= 3
    lines = [text for line, comment in command(name).examples for text in (f"  # {comment}", f"  {line}")]
    assert page(name).splitlines()[-len(lines) :] == lines
    assert all(line.startswith(f"usdenoise {name}") for line, _ in command(name).examples)


def test_the_program_itself_has_examples_and_knows_h() -> None:
    assert "usdenoise run scan.h5" in "\n".join(sections(page())["Examples"])
    assert CliRunner().invoke(main, ["-h"]).stdout == page()


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_parse(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, name, *arguments = shlex.split(line)
    context = command(name).make_context(name, arguments)
    assert not context.args


@pytest.mark.usefixtures("no_pictures")
def test_cheap_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scans").mkdir()
    for place in ("scan.h5", "scans/scan.h5"):
        shutil.copy(SAMPLE, tmp_path / place)
    monkeypatch.chdir(tmp_path)
    cheap = [
        line
        for line in EXAMPLES
        if not any(
            word in line for word in ("--window", "compare", "batch", "reproduce ", "phantom.h5", "session ")
        )
    ]
    dry = [line for line in EXAMPLES if "--dry-run" in line]
    assert len(cheap) >= 4
    for line in [*cheap, *dry]:
        run(line.replace("-o out", "-o cutoff"))
    assert {"scan-usdenoise", "cutoff", "small.h5"} <= set(os.listdir())


def run(line: str) -> None:
    result = CliRunner().invoke(main, shlex.split(line)[1:])
    assert result.exit_code == 0, (line, result.stderr)


HELP = """
import sys
from click.testing import CliRunner
from usdenoise.cli import main

for command in sys.argv[1:]:
    assert "Usage: " in CliRunner().invoke(main, [*command.split(), "--help"]).stdout
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_help_imports_nothing_heavy() -> None:
    imported = set(python(HELP, "", *COMMANDS).stdout.split())
    assert "click" in imported
    assert not imported & {"numpy", "scipy", "h5py", "matplotlib", "numba", "imageio", "rich"}
