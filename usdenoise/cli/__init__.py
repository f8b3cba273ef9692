"""The command line, the only room of the package that prints."""

from usdenoise.cli.main import main

__all__ = ["main"]
