"""The command line, the only package that prints. Outside, `main` is imported."""

from usdenoise.cli.main import main

__all__ = ["main"]
