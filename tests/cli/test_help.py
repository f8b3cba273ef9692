"""What the shell completes, and the help pages: options in their groups, columns, examples that run, no slow import."""

import os
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from tests.programs import python
from usdenoise.cli import main
from usdenoise.cli.flags import GroupedCommand, GroupedOption
from usdenoise.cli.main import COMMANDS
from usdenoise.options import DenoiseOptions, PhantomSettings
from usdenoise.options.declaration import Group, flag


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
def test_options_are_below_their_headings_and_texts_fit(name: str) -> None:
    for columns in (100, 80):
        text = page(name, columns=columns)
        assert max(map(len, text.splitlines())) <= columns
        shown = sections(text)
        lines = [line for heading, lines in shown.items() if heading for line in lines]
        starts = {
            len(line) - len(line.lstrip()[line.lstrip().index("  ") :].lstrip())
            for line in lines
            if line.startswith("  -")
        }
        assert len(starts) == 1
        assert starts.pop() <= 32
    for option in command(name).params:
        if isinstance(option, click.Option) and not option.hidden:
            assert isinstance(option, GroupedOption), option.name
            is_often = option.opts[-1] in command(name).often
            lines = shown["Often used" if is_often else option.group.value]
            assert sum(option.opts[-1] in line[:27].replace(",", " ").split() for line in lines) == 1
    # Options of every day come first, in the order of the command.
    often = command(name).often
    if often:
        assert next(heading for heading in shown if heading not in ("", "Usage")) == "Often used"
        flags = [re.findall(r"--[\w-]+", line)[0] for line in shown["Often used"] if line.startswith("  -")]
        assert flags == list(often)
    assert len(command(name).examples) >= 2
    assert "\n  " + command(name).examples[-1][0] in text


def test_every_option_and_key_is_in_the_help_with_its_default() -> None:
    text = page("run")
    for name, option in DenoiseOptions.declared.items():
        start = rf"^ +(?:(?:-\w, )?{flag(name)} |{name}=)"
        found = re.search(rf"{start}(.*?)(?=^  \S|^\S|\Z)", text, re.MULTILINE | re.DOTALL)
        assert found is not None, f"{name} is not in run --help"
        entry = " ".join(found[1].split())
        if option.default is False:
            assert "[default:" not in entry
        elif option.default is not None:
            assert f"[default: {option.default}]" in entry
        for choice in option.choices:
            assert re.search(rf"\b{re.escape(choice)}\b", entry)
    keys = [name for name, entry in DenoiseOptions.declared.items() if entry.group is Group.ESTIMATOR_KEYS]
    lines = sections(text)[Group.ESTIMATOR_KEYS.value]
    assert [line.split("=")[0].strip() for line in lines if "=" in line[:27]] == keys
    listed = re.findall(r"^  (\w+)=", page("simulate").split("Keys of --set:")[1], re.MULTILINE)
    assert listed == [name for name, entry in PhantomSettings.declared.items() if " " in entry.flag]


def test_the_short_flag_shows_the_same_page() -> None:
    assert CliRunner().invoke(main, ["-h"]).stdout == page()


def test_examples_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in EXAMPLES:
        _, name, *arguments = shlex.split(line)
        assert not command(name).make_context(name, arguments).args, line


@pytest.mark.usefixtures("no_pictures")
def test_cheap_examples_run(phantom_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scans").mkdir()
    for place in ("scan.h5", "scans/scan.h5"):
        shutil.copy(phantom_file, tmp_path / place)
    monkeypatch.chdir(tmp_path)
    costly = ("compare", "batch", "reproduce ", "simulate", "session ", "blocks", "model")
    cheap = [line for line in EXAMPLES if not any(word in line for word in costly) or "--dry-run" in line]
    assert len(cheap) >= 6
    for line in cheap:
        result = CliRunner().invoke(main, shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.stderr)
    assert {"scan-usdenoise", "out", "more"} <= set(os.listdir())


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


VARIABLE = "_USDENOISE_COMPLETE"


def test_bash_is_answered() -> None:
    program = "import sys; sys.argv[0] = 'usdenoise'; from usdenoise.__main__ import main; main()"
    done = python(program, COMP_WORDS="usdenoise ru", COMP_CWORD="1", **{VARIABLE: "bash_complete"})
    assert done.stdout == "plain,run\n"


@pytest.mark.parametrize(("words", "expected"), [
    (("run", "--low-c"), ["--low-cutoff"]),
    (("run", "--method", "e"), ["eta-decay"]),
    (("run", "--estimator", "p"), ["patience=", "precision="]),
    (("run", "--products", "power,v"), ["power,velocity"]),
    (("session", "--movie", ""), ["gif"]),
])  # fmt: skip
def test_values_are_completed(words: tuple[str, ...], expected: list[str]) -> None:
    *before, last = words
    found = BashComplete(main, {}, "usdenoise", VARIABLE).get_completions(before, last)
    assert [item.value for item in found] == expected
