"""A lock that admits one batch at a time to a folder."""

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TextIO

from usdenoise.batch.plan import BatchFile
from usdenoise.errors import OutputError, check_path


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _open_locked(folder / BatchFile.LOCK)
    except OSError as error:
        raise OutputError(
            f"the folder {folder} cannot be made, written or locked ({error.strerror}); choose another one with -o"
        ) from error
    with file:
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / BatchFile.LOCK).unlink()


def _open_locked(path: Path) -> TextIO:
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The holder before may have removed the file after it was opened here.
        if os.fstat(file.fileno()).st_nlink == 0:
            raise BlockingIOError
        file.truncate(0)
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        file.write(f", process {os.getpid()} on {platform.node()} since {since}")
        file.flush()
    except BlockingIOError:
        file.seek(0)
        with file:
            raise OutputError(
                f"the folder {path.parent} is held by another batch{file.read()}; wait until it has ended, or choose "
                "another folder with -o"
            ) from None
    except OSError:
        file.close()
        raise
    return file
