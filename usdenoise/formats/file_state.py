"""The state of the files of an input on disk: their sizes, modification times and digests."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from usdenoise.errors import InputError
from usdenoise.formats.input_files import entries

STATE = ("bytes", "mtime_ns", "files")
"""Names of the values that change when a file of an input changes."""


def size_on_disk(path: Path) -> int | None:
    """Return the bytes of a file, or of all files in a folder; None if the path cannot be read."""
    try:
        if path.is_dir():
            return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
        return path.stat().st_size
    except OSError:
        return None


def recorded_files(report: Mapping[str, Any], folder: Path) -> dict[Path, int]:
    """Return the files of a report but the report itself, in the folder where they are now, with their bytes."""
    return {folder / Path(report["output"][key]).name: size for key, size in report["output_bytes"].items()}


def files_of_report(report: Path) -> list[Path]:
    """Return the files that a report names and that are as its command left them; none if it cannot be read.

    They are in its folder, have the size that it says, and are not newer than the report, which was written last.
    """
    try:
        newest = report.stat().st_mtime_ns
        files = recorded_files(json.loads(report.read_bytes()), report.parent)
        return [
            place for place, size in files.items() if size_on_disk(place) == size and _is_older(place, newest)
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _is_older(place: Path, newest: int) -> bool:
    """Check that a file, or all in a folder, is not newer, and that nobody put a link in its place."""
    parts = [place, *place.rglob("*")]
    return not place.is_symlink() and all(part.lstat().st_mtime_ns <= newest for part in parts)


def file_state(path: Path) -> dict[str, Any] | None:
    """Return the state of the file of an input, or of all files in its folder; None if it cannot be read.

    A different state shows that a file has changed, has come or has gone.

    Parameters
    ----------
    path : Path
        File or folder of the input.

    Returns
    -------
    dict or None
        "bytes", the size of all files; "mtime_ns", the latest modification time; "files", a digest of the names,
        sizes and times of all files.
    """
    n_bytes, newest, lines = 0, 0, hashlib.sha256()
    try:
        for name, place in _files(path):
            status = place.stat()
            n_bytes, newest = n_bytes + status.st_size, max(newest, status.st_mtime_ns)
            lines.update(os.fsencode(f"{name} {status.st_size} {status.st_mtime_ns}\n"))
    except OSError:
        return None
    return {"bytes": n_bytes, "mtime_ns": newest, "files": lines.hexdigest()}


def is_same_state(state: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Check whether a state of :func:`file_state` is the one that was recorded."""
    return all(state[name] == recorded.get(name) for name in STATE)


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file, or that of the names and digests of the files in a folder.

    Parameters
    ----------
    path : Path
        File or folder of the input.

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    try:
        if not path.is_dir():
            return _digest(path)
        whole = hashlib.sha256()
        for name, place in _files(path):
            whole.update(os.fsencode(f"{name} {_digest(place)}\n"))
        return whole.hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read any more ({error.strerror}); check the disk") from error


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each file of an input; the names stay the same when the input is moved."""
    if path.is_dir():
        for place in sorted(Path(entry.path) for entry in entries(path) if entry.is_file()):
            yield place.relative_to(path).as_posix(), place
    else:
        yield "", path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
