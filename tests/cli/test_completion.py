"""What the shell completes: commands, options and the values of options."""

import pytest
from click.shell_completion import BashComplete

from tests.programs import python
from usdenoise.cli import main

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
