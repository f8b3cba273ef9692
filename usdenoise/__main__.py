"""The program: ``usdenoise``, and ``python -m usdenoise``."""

from usdenoise.system.signals import end_at_once_when_told


def main() -> None:
    """Run the command line. Until a command runs, a signal ends the process at once, with one sentence."""
    end_at_once_when_told()
    from usdenoise.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
