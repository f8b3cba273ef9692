"""A lock that admits one batch at a time to a folder."""

import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from usdenoise.batch.plan import BatchFile
from usdenoise.errors import OutputError, check_path


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Lock a folder until the block ends, and make the folder where it does not exist.

    The kernel releases the lock when this process ends, however it ends. So the lock of a dead batch never
    blocks the next one. The lock file names the process, the host and the time of locking.

    Parameters
    ----------
    folder : Path
        Folder of the batch's results.

    Raises
    ------
    OutputError
        If another batch holds the folder, or the folder cannot be made or locked.
    """
    check_path(folder, OutputError)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _acquire(folder / BatchFile.LOCK)
    except OSError as error:
        raise OutputError(
            f"the folder {folder} cannot be made, written or locked ({error.strerror}); "
            "choose another one with -o"
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / BatchFile.LOCK).unlink()
        os.close(descriptor)


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
