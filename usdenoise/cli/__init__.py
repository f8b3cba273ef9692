"""The command line: the only place that prints."""

from usdenoise.cli.main import main

__all__ = ["main"]
