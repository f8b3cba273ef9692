"""The state of a file on disk: its size, modification time and digest."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from usdenoise.errors import InputError


def size_on_disk(path: Path) -> int | None:
    """Return the bytes of a file, or of all files in a folder; None if the path cannot be read."""
    try:
        if path.is_dir():
            return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
        return path.stat().st_size
    except OSError:
        return None


def file_state(path: Path) -> dict[str, int] | None:
    """Return the size ("bytes") and modification time ("mtime_ns") of a file; None if it cannot be read.

    A different state shows that the file has changed.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file, or of the files of a folder and their names.

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    try:
        if not path.is_dir():
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        whole = hashlib.sha256()
        for place in sorted(place for place in path.rglob("*") if place.is_file()):
            with place.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            whole.update(f"{place.relative_to(path).as_posix()} {digest}\n".encode())
        return whole.hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read any more ({error.strerror}); check the disk") from error


@contextmanager
def unchanged(path: Path) -> Iterator[dict[str, int]]:
    """Yield the state of a file, and check at the end of the context that the file has not changed.

    Raises
    ------
    InputError
        If the size or the modification time of the file changed within the context.
    """
    state = file_state(path)
    yield state or {}
    if file_state(path) != state:
        raise InputError(f"{path} changed while it was read; run again when nothing writes to it any more")
