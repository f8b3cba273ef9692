"""Damaged and unreadable files: any error that a library raises on one becomes an error message of one sentence."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from usdenoise.errors import InputError, UnreadableError, UsdenoiseError, is_out_of_memory


def check_kind(path: Path) -> None:
    """Check that a path is not a pipe, socket or device, on which reading could wait forever.

    Raises
    ------
    InputError
        If it is one. A path that does not exist passes.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(
            f"{path} is a pipe, a socket or a device; write its content to a file, and give that"
        )


@contextmanager
def guard(path: Path, action: str) -> Iterator[None]:
    """Turn any error that a library raises on a damaged file into an InputError.

    Errors of usdenoise itself and a lack of memory pass unchanged.

    Parameters
    ----------
    path : Path
        The file, with which the message begins.
    action : str
        Rest of the message: the damage of the file, and the remedy.

    Raises
    ------
    InputError
        If the library raised an error.
    UnreadableError
        If the permissions do not let the file be read.
    """
    try:
        yield
    except UsdenoiseError:
        raise
    except PermissionError as error:
        raise unreadable(path, error) from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise InputError(f"{path} {action}") from error


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into an UnreadableError.

    A lack of memory passes unchanged.

    Parameters
    ----------
    path : Path
        The file or folder that is read in the context, with which the message begins.

    Raises
    ------
    UnreadableError
        If the operating system refused to read it, or a file in it.
    """
    try:
        yield
    except OSError as error:
        if is_out_of_memory(error):
            raise
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> UnreadableError:
    """Return the error with the reason of the operating system for an unreadable file, or a file in that folder."""
    reason = str(error) if error.errno is None else os.strerror(error.errno)
    if error.filename is not None and Path(os.fsdecode(error.filename)) != path:
        reason = f"{os.path.basename(os.fsdecode(error.filename))}: {reason}"
    remedy = "check the permissions" if isinstance(error, PermissionError) else "check the path and the disk"
    return UnreadableError(f"{path} cannot be read ({reason}); {remedy}")
