"""Locks of output folders: one batch or session at a time writes to a folder, and one command to the results of a name."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from usdenoise.errors import OutputError, check_path

LOCK = ".usdenoise.lock"
"""Name of the locked file."""

PARTIAL = ".usdenoise-partial-"
"""Beginning of the names of temporary folders, and of locked files for results: of killed processes, both are leftovers."""

WAIT_S = 0.2
"""Seconds to wait for a lock: another process holds it for a moment while it looks whether its holder has ended."""

_RETRY_S = 0.02
"""Seconds between two tries."""


@contextmanager
def locked(folder: Path, name: str = "") -> Iterator[Path]:
    """Lock an output folder until the context ends, and create the folder if it does not exist.

    The kernel releases the lock when this process ends, also by SIGKILL.

    Parameters
    ----------
    folder : Path
        The folder.
    name : str
        Beginning of the names of results, which then are locked, and not the folder: other results may be written to it
        side by side. By default the folder is locked for batches and sessions.

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
    path = folder / (f"{PARTIAL}{name}.lock" if name else LOCK)
    created = [
        folder_path for folder_path in (folder, *folder.absolute().parents) if not folder_path.exists()
    ]
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # The file of a killed process of another user can be locked, but not opened for writing.
            is_theirs = path.exists() and not os.access(path, os.W_OK)
            descriptor = os.open(path, os.O_RDONLY if is_theirs else os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            # Another process may have removed the folder after it was created here.
            if isinstance(error, FileNotFoundError) and time.monotonic() < deadline:
                continue
            raise OutputError(
                f"the folder {folder} cannot be written ({error.strerror})",
                remedy="choose another output folder",
            ) from error
        # The previous holder may have removed the file after it was opened here.
        if lock(descriptor) is not False and os.fstat(descriptor).st_nlink:
            break
        os.close(descriptor)
        if time.monotonic() > deadline:
            who = f"run or session of '{name}'" if name else "batch or session"
            raise OutputError(
                f"another {who} is writing to the folder {folder}",
                remedy="wait until it has ended, or choose another output folder",
            )
        time.sleep(_RETRY_S)
    try:
        yield path
    finally:
        # A batch that is interrupted removes its file, and another one may have made a new one.
        if os.fstat(descriptor).st_nlink:
            with suppress(OSError):
                path.unlink()
        os.close(descriptor)
        # A folder that contains results stays.
        with suppress(OSError):
            for folder_path in created:
                folder_path.rmdir()


def lock(descriptor: int) -> bool | None:
    """Lock an open file or folder until it is closed, or its process ends.

    Returns
    -------
    bool or None
        Whether it is locked; False if another process holds it. None on a file system without locks: results are
        committed as a whole in any case.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
