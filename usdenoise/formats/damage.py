"""Damaged files: whatever the libraries raise on them becomes one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from usdenoise.errors import InputError, UsdenoiseError


@contextmanager
def guard(path: Path, what: str) -> Iterator[None]:
    """Turn what a library raises on a damaged file into the sentence that a path is `what`; our own errors pass.

    Raises
    ------
    InputError
        With that sentence.
    """
    try:
        yield
    except (UsdenoiseError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{path} {what}") from error
