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
        if end.code is None or isinstance(end.code, int):
            _end(end.code or 0)
        raise


def _end(code: int) -> None:
    """End the process without the end of the interpreter, which takes a tenth of a second or more.

    A thread that still draws a picture would crash there: the interpreter ends it within the C++ code. The function
    returns only if a success could not be written: the interpreter says so.
    """
    # The reason has been said. Functions that fail here for want of memory would add a traceback.
    with redirect_stderr(io.StringIO()), suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            if code == 0:
                return
    os._exit(code)


if __name__ == "__main__":
    main()
