"""A lock that admits one batch at a time to a folder."""

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TextIO

from usdenoise.batch.plan import BatchFile
from usdenoise.errors import OutputError, check_path
from usdenoise.system.signals import uninterrupted


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder of a batch's results until the context ends, and make it where it does not exist.

    The kernel releases the lock when this process ends, however it ends. So the lock of a dead batch never
    blocks the next one. The lock file names the process, the host and the time of locking.

    Raises
    ------
    OutputError
        If another batch holds the folder, or the folder cannot be made or locked.
    """
    check_path(folder, OutputError)
    path, file = folder / BatchFile.LOCK, None
    try:
        # A signal waits until the file is known here, so that it is removed.
        with uninterrupted():
            file = _open_locked(path)
        yield
    finally:
        if file is not None:
            with file, suppress(OSError):
                path.unlink()


def _open_locked(path: Path) -> TextIO:
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            file = opened.enter_context(path.open("a+", encoding="utf-8"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _held(folder, file) from None
            # The holder before may have removed the file after it was opened here.
            if os.fstat(file.fileno()).st_nlink == 0:
                raise _held(folder, file)
            file.truncate(0)
            since = datetime.now().astimezone().isoformat(timespec="seconds")
            file.write(f", process {os.getpid()} on {platform.node()} since {since}")
            file.flush()
            opened.pop_all()
    except OSError as error:
        raise OutputError(
            f"the folder {folder} cannot be made, written or locked ({error.strerror}); choose another one with -o"
        ) from error
    return file


def _held(folder: Path, file: TextIO) -> OutputError:
    file.seek(0)
    holder = file.read()
    return OutputError(
        f"the folder {folder} is held by another batch{holder}; wait until it has ended, or choose another folder with -o"
    )
