"""Damaged files: any error that a library raises on one becomes an error message of one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from usdenoise.errors import InputError, UsdenoiseError

MAX_EXPANSION = 1032
"""Most bytes that one byte of a zlib stream can expand to; echoes stay far below it with any compressor."""

LIKELY_EXPANSION, HARMLESS_BYTES = 100, 128 << 20
"""Bytes that one byte of a file may stand for if it claims more than HARMLESS_BYTES. Echoes are noise in their last
digits, and stay below 10; a stack of which nine tenths are zero stays below 100."""


def claims_too_much(claimed: int, held: int) -> bool:
    """Return whether a file claims more than it can be trusted to hold.

    Parameters
    ----------
    claimed : int
        Bytes that the header claims.
    held : int
        Bytes that the file has for them, which may be compressed.
    """
    likely = HARMLESS_BYTES if claimed <= HARMLESS_BYTES else held * LIKELY_EXPANSION
    return claimed > min(likely, held * MAX_EXPANSION)


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
