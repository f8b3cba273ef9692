"""The program: ``usdenoise``, and ``python -m usdenoise``."""

import signal


def main() -> None:
    """Run the command line."""
    # While modules are imported there is nothing to clean up: Ctrl-C ends the process without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from usdenoise.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
