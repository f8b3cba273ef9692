"""Damaged files: any error that a library raises on one becomes an error message of one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from usdenoise.errors import InputError, UsdenoiseError

MAX_EXPANSION = 1032
"""Most bytes that one byte of a zlib stream can expand to; echoes stay far below it with any compressor."""


@contextmanager
def guard(path: Path, what: str) -> Iterator[None]:
    """Turn any error that a library raises on a damaged file into an InputError.

    Errors of usdenoise itself and a lack of memory pass unchanged.

    Parameters
    ----------
    path : Path
        The file, with which the message begins.
    what : str
        Rest of the message: what is wrong with the file, and what to do.

    Raises
    ------
    InputError
        If the library raised an error.
    """
    try:
        yield
    except (UsdenoiseError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{path} {what}") from error
