"""What the shell completes: commands, options and the values of options."""

import pytest

from tests.programs import python


def completed(*words: str) -> list[str]:
    """What the program offers bash for the last word."""
    program = "import sys; sys.argv[0] = 'usdenoise'; from usdenoise.__main__ import main; main()"
    line = {"COMP_WORDS": " ".join(("usdenoise", *words)), "COMP_CWORD": str(len(words))}
    done = python(program, _USDENOISE_COMPLETE="bash_complete", **line)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ru",), ["run"]),
        (("run", "--low-c"), ["--low-cutoff"]),
        (("run", "--method", "e"), ["eta-decay"]),
        (("run", "--low-cutoff", ""), ["auto"]),
        (("run", "--high-cutoff", ""), ["rank", "none"]),
        (("run", "--rank", "a"), ["auto"]),
        (("run", "--ridge", ""), ["auto"]),
        (("run", "--products", "power,v"), ["power,velocity"]),
        (
            ("run", "--products", "power,"),
            ["power,blood", "power,directional", "power,signed", "power,velocity"],
        ),
        (("run", "--movie", ""), ["gif", "mp4"]),
        (("compare", "-m", "rs"), ["rsvd"]),
        (("reproduce", "al"), ["all"]),
    ],
)
def test_values_are_completed(words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(*words) == expected
