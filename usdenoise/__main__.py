"""The program: ``usdenoise``, and ``python -m usdenoise``."""

import gc
import os
import signal

OBJECTS_A_COLLECTION = 10_000
"""New objects after which Python looks for reference cycles: 700 by default, at which importing takes a tenth longer."""


def main() -> None:
    """Run the command line."""
    # While modules are imported there is nothing to clean up: Ctrl-C ends the process without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(OBJECTS_A_COLLECTION)
    # Nothing is shown on a screen, and a name that matplotlib does not know would be an error.
    os.environ["MPLBACKEND"] = "agg"
    from usdenoise.cli import main as command_line

    try:
        command_line()
    finally:
        # At exit Python would look for cycles among the objects of all modules, which takes 0.2 s.
        gc.freeze()


if __name__ == "__main__":
    main()
