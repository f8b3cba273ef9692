"""A lock that admits one batch at a time to a folder."""

import fcntl
import json
import os
import platform
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Self

from usdenoise.batch.plan import BatchFile
from usdenoise.errors import OutputError, check_path
from usdenoise.system.signals import uninterrupted


class FolderLock:
    """A lock on the folder of a batch's results, which makes the folder where it does not exist.

    Entering the context locks nothing: an interruption on the way into it would leave the lock file behind. So the
    lock is acquired inside the context, whose end releases it.

    The kernel releases the lock when this process ends, however it ends. So the lock of a dead batch never
    blocks the next one. The lock file names the process, the host and the time of locking.

    Parameters
    ----------
    folder : Path
        Folder of the batch's results.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        return self

    def acquire(self) -> None:
        """Lock the folder.

        Raises
        ------
        OutputError
            If another batch holds the folder, or the folder cannot be made or locked.
        """
        check_path(self.folder, OutputError)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with uninterrupted():
                self._descriptor = _acquire(self.folder / BatchFile.LOCK)
        except OSError as error:
            raise OutputError(
                f"the folder {self.folder} cannot be made, written or locked ({error.strerror}); "
                "choose another one with -o"
            ) from error

    def __exit__(self, *error: object) -> None:
        if self._descriptor is None:
            return
        with uninterrupted():
            with suppress(OSError):
                (self.folder / BatchFile.LOCK).unlink()
            os.close(self._descriptor)
            self._descriptor = None


def _acquire(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder may have removed the file between open and flock.
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                holder = {
                    "pid": os.getpid(),
                    "host": platform.node(),
                    "since": datetime.now().astimezone().isoformat(timespec="seconds"),
                }
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(holder).encode(), 0)
                return descriptor
        except BlockingIOError:
            holder_text = _holder(path)
            os.close(descriptor)
            raise OutputError(
                f"the folder {path.parent} is held by another batch{holder_text}; wait until it has ended, "
                "or choose another folder with -o"
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f", process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
