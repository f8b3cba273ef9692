"""The help pages: few options, groups, columns, examples that run, and nothing heavy imported."""

import os
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.programs import python
from usdenoise.cli import main
from usdenoise.cli.flags import GroupedCommand, GroupedOption
from usdenoise.cli.main import COMMANDS
from usdenoise.options import DenoiseOptions
from usdenoise.options.declaration import Group

SAMPLE = Path(__file__).parents[2] / "sample_data/phantom.h5"
MOST_OPTIONS = {"run": 34, "batch": 32, "session": 38}


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


def shown_options(name: str) -> list[click.Option]:
    return [option for option in command(name).params if isinstance(option, click.Option)]


EXAMPLES = [line for name in COMMANDS for line, _ in command(name).examples]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_below_its_heading(name: str) -> None:
    options = shown_options(name)
    shown = sections(page(name))
    for option in options:
        assert isinstance(option, GroupedOption), option.name
        lines = shown[option.group.value]
        assert sum(option.opts[-1] in line[:27].replace(",", " ").split() for line in lines) == 1, option.name


@pytest.mark.parametrize("name", ["run", "session", "batch"])
def test_a_command_has_few_options(name: str) -> None:
    assert len(shown_options(name)) <= MOST_OPTIONS[name]


def test_the_keys_of_the_estimator_are_listed_with_their_defaults() -> None:
    keys = {
        name: entry for name, entry in DenoiseOptions.declared.items() if entry.group is Group.ESTIMATOR_KEYS
    }
    lines = sections(page("run"))[Group.ESTIMATOR_KEYS.value]
    assert [line.split("=")[0].strip() for line in lines if "=" in line[:27]] == list(keys)
    text = " ".join(" ".join(lines).split())
    assert all(f"[default: {entry.default_text}]" in text for entry in keys.values() if entry.default_text)


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("name", COMMANDS)
def test_texts_begin_next_to_their_options_and_fit(name: str, columns: int) -> None:
    text = page(name, columns=columns)
    assert max(map(len, text.splitlines())) <= columns
    below_headings = [line for heading, lines in sections(text).items() if heading for line in lines]
    options = [line for line in below_headings if line.startswith("  -")]
    starts = {len(line) - len(line.lstrip()[line.lstrip().index("  ") :].lstrip()) for line in options}
    assert len(starts) == 1
    assert starts.pop() <= 32


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_with_examples(name: str) -> None:
    lines = [text for line, comment in command(name).examples for text in (f"  # {comment}", f"  {line}")]
    assert len(lines) >= 4
    assert page(name).splitlines()[-len(lines) :] == lines


def test_the_short_flag_shows_the_same_page() -> None:
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
    slow = ("compare", "batch", "reproduce ", "phantom.h5", "session ", "blocks")
    cheap = [line for line in EXAMPLES if not any(word in line for word in slow) or "--dry-run" in line]
    assert len(cheap) >= 6
    for line in cheap:
        result = CliRunner().invoke(main, shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.stderr)
    assert {"scan-usdenoise", "small.h5"} <= set(os.listdir())


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
