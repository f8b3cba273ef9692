"""Errors name options as data: every placeholder of a remedy is an option of a command."""

import ast
from pathlib import Path
from string import Formatter

import click
import pytest

from usdenoise.cli import main
from usdenoise.cli.main import COMMANDS
from usdenoise.options import FLAGS

PACKAGE = Path(__file__).parents[2] / "usdenoise"


ERRORS = ("InputError", "OptionError", "OutputError", "DivergedError")


@pytest.fixture(scope="module")
def known_flags() -> set[str]:
    """Flags of all commands."""
    context = click.Context(main)
    commands = [main.get_command(context, name) for name in COMMANDS]
    parameters = [parameter for command in commands if command is not None for parameter in command.params]
    return {flag for parameter in parameters for flag in parameter.opts}


def test_placeholders_are_options_of_a_command(known_flags: set[str]) -> None:
    remedies = [
        (path, keyword.value.value)
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ERRORS
        for keyword in call.keywords
        if keyword.arg == "remedy" and isinstance(keyword.value, ast.Constant)
    ]
    assert len(remedies) > 50
    for path, remedy in remedies:
        for _, name, _, _ in Formatter().parse(remedy):
            assert name is None or FLAGS[name].split(" ")[0] in known_flags, (path, name)
