"""The program: ``usdenoise``, and ``python -m usdenoise``."""

import atexit
import io
import os
import sys
from contextlib import redirect_stderr, suppress

from usdenoise.system.signals import end_at_once_when_told


def main() -> None:
    """Run the command line. Until a command runs, a signal ends the process at once, with one sentence."""
    end_at_once_when_told()
    from usdenoise.cli import main as command_line

    try:
        command_line()
    except SystemExit as end:
        if isinstance(end.code, int) and end.code != 0:
            _end(end.code)
        raise


def _end(code: int) -> None:
    """End the process without the end of the interpreter.

    A thread that still draws a picture would crash there: the interpreter ends it within the C++ code.
    """
    # The reason has been said. Functions that fail here for want of memory would add a traceback.
    with redirect_stderr(io.StringIO()), suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
