"""The end of the process: nothing that was printed is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import python

PROGRAM = """
import atexit, os, sys
from usdenoise import __main__, cli

def command():
    print("printed")
    sys.exit(int(sys.argv[1]))

atexit.register(os.write, 2, b"registered\\n")
cli.main = command
__main__.main()
print("not reached")
"""


@pytest.mark.parametrize("code", [0, 1, 3])
def test_output_and_exit_functions_are_not_lost(code: int) -> None:
    done = python(PROGRAM, code)
    assert (done.returncode, done.stdout, done.stderr) == (code, "printed\n", "registered\n")


def test_output_that_cannot_be_written_is_a_failure() -> None:
    # Otherwise the program would fail where it prints.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", PROGRAM, "0"]
    with Path("/dev/full").open("w") as full:
        how = {"stdout": full, "stderr": subprocess.PIPE, "env": buffered}
        done = subprocess.run(command, text=True, **how)
    assert done.returncode == 120
    assert "No space left on device" in done.stderr
