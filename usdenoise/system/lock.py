"""The lock of an output folder: one batch or session at a time writes to it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from usdenoise.errors import OutputError, check_path

LOCK = ".usdenoise.lock"
"""Name of the locked file."""


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Lock an output folder until the context ends, and create the folder if it does not exist.

    The kernel releases the lock when this process ends, also by SIGKILL.

    Parameters
    ----------
    folder : Path
        The folder.

    Yields
    ------
    Path
        The locked file, which exists as long as the folder is locked.

    Raises
    ------
    OutputError
        If another process holds the lock, or the folder cannot be created or written.
    """
    check_path(folder, OutputError)
    path = folder / LOCK
    created = [
        folder_path for folder_path in (folder, *folder.absolute().parents) if not folder_path.exists()
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise OutputError(
            f"the folder {folder} cannot be created or written ({error.strerror})",
            remedy="choose another output folder",
        ) from error
    with file:
        # The previous holder may have removed the file after it was opened here.
        if not _lock(file.fileno()) or os.fstat(file.fileno()).st_nlink == 0:
            raise OutputError(
                f"another batch or session is writing to the folder {folder}",
                remedy="wait until it has ended, or choose another output folder",
            )
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)
            # A folder that contains results stays.
            with suppress(OSError):
                for folder_path in created:
                    folder_path.rmdir()


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A file system without locks: results are committed as a whole in any case.
        return True
    return True
