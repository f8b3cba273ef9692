"""Temporary files of a writer: their names, the lock that shows that the writer lives, and their removal."""

import fcntl
import hashlib
import os
import platform
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TEMPORARY = re.compile(r"\.([0-9a-f]+)-partial-.+", re.DOTALL)

_ABANDONED_S = 24 * 3600.0
"""Age in s after which files count as abandoned where no lock can tell: a stack is written within minutes."""


class PartialFiles:
    """The temporary files of one writer in a folder.

    All of their names begin with a token that no other writer has. One of them, the mark, is locked until the
    writer ends, however it ends. The mark is made first and removed last, so a file without one has no writer.

    Parameters
    ----------
    folder : Path
        Existing folder of the files.

    Raises
    ------
    OSError
        If the mark cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        while True:
            self._token = _host() + secrets.token_hex(4)
            mark = self.place("mark")
            try:
                self._lock = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                continue
            # Another writer may have taken the new mark for that of a dead one before it is locked.
            if _try_lock(self._lock) is not False and mark.exists():
                return
            os.close(self._lock)
            mark.unlink(missing_ok=True)

    def place(self, name: str) -> Path:
        """Return the temporary path of a file."""
        return _place(self._folder, self._token, name)

    def end(self) -> None:
        """Remove the files and the mark, and unlock it; :func:`remove_leftovers` finds what cannot be removed."""
        with suppress(OSError):
            _remove_all(self._folder, self._token)
        os.close(self._lock)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder in the system's folder of temporary files, and remove it when the context ends.

    If the process is killed, the next one that needs such a folder removes it.
    """
    place = Path(tempfile.gettempdir())
    remove_leftovers(place)
    files = PartialFiles(place)
    try:
        folder = files.place("usdenoise")
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        files.end()


def remove_leftovers(folder: Path) -> bool:
    """Remove the temporary files that killed processes left in a folder.

    Files of a writer that lives are kept: its lock shows it. Where the mark is from another host, or the file system
    has no locks, files are kept until none of them has changed for a day. A folder that cannot be read is left
    alone.

    Parameters
    ----------
    folder : Path
        Folder of the files; nothing happens if it does not exist.

    Returns
    -------
    bool
        Whether there were temporary files, of whatever writer.
    """
    tokens: set[str] = set()
    with suppress(OSError):
        found = [_TEMPORARY.fullmatch(name) for name in os.listdir(folder)]
        tokens = {match[1] for match in found if match is not None}
    for token in tokens:
        # In a folder of several users, those of others cannot be removed.
        with suppress(OSError):
            _remove_if_dead(folder, token)
    return bool(tokens)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_if_dead(folder: Path, token: str) -> None:
    try:
        lock = os.open(_place(folder, token, "mark"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        _remove_all(folder, token)
        return
    try:
        locked = _try_lock(lock)
        # A lock may be unknown to other hosts. So it decides only about the processes of this one.
        certain = locked is True and token.startswith(_host())
        if certain or (locked is not False and _age_s(folder, token) > _ABANDONED_S):
            _remove_all(folder, token)
    finally:
        os.close(lock)


def _host() -> str:
    """Return the beginning of the tokens of this host's writers: in the name it is there as soon as the mark is."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _try_lock(descriptor: int) -> bool | None:
    """Lock an open file, and return whether it could be locked; None on a file system without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove_all(folder: Path, token: str) -> None:
    for path in _files(folder, token):
        remove(path)
    _place(folder, token, "mark").unlink(missing_ok=True)


def _age_s(folder: Path, token: str) -> float:
    newest = max(path.lstat().st_mtime for path in [*_files(folder, token), _place(folder, token, "mark")])
    return time.time() - newest


def _files(folder: Path, token: str) -> list[Path]:
    """Return the temporary files of a token without the mark."""
    start, mark = f".{token}-partial-", f".{token}-partial-mark"
    return [folder / name for name in os.listdir(folder) if name.startswith(start) and name != mark]


def _place(folder: Path, token: str, name: str) -> Path:
    return folder / f".{token}-partial-{name}"
