"""Input files: the acquisitions in folders, by their names, and the state of each: size, modification time and digest."""

import filecmp
import hashlib
import json
import os
import re
from collections.abc import Container, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from usdenoise.errors import InputError

SUFFIXES = (".h5", ".hdf5", ".mat", ".uff", ".npy", ".npz")
"""Endings of the names by which acquisitions are found in a folder. The format is then taken from the content."""

ICONEUS, ICONEUS_HEADER = ".raw", ".hraw"
"""Endings of the two files of an IQ recording of an Iconeus scanner."""

_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")


def is_iconeus(path: Path) -> bool:
    """Return whether a file is an IQ recording of an Iconeus scanner: its header is beside it."""
    return path.suffix.lower() == ICONEUS and os.path.isfile(header_path(path))


def header_path(path: Path) -> Path:
    """Return the path of the header of an Iconeus recording."""
    return path.with_suffix(ICONEUS_HEADER.upper() if path.suffix.isupper() else ICONEUS_HEADER)


def is_zarr(path: Path) -> bool:
    """Check whether a path is the folder of a Zarr group or array."""
    # A path that may not be looked at is none; Path.is_file would raise.
    return any(os.path.isfile(path / mark) for mark in _ZARR_MARKS)


BATCH_RECORD, STACKS = "batch.json", "stacks"
"""Record of a batch, and the folder beside it for the filtered stacks alone."""


def natural_key(name: str) -> tuple[tuple[tuple[str | int, ...], ...], str]:
    """Return the sort key that puts scan2 before scan10 and keeps the files of a folder together."""
    # Text and digits alternate, text first, so that text is only compared with text and numbers with numbers.
    parts = [re.split(r"([0-9]+)", part) for part in PurePath(name).parts]
    keys = [
        tuple(int(piece) if i % 2 else piece.casefold() for i, piece in enumerate(pieces)) for pieces in parts
    ]
    return tuple(keys), name


def acquisition_files(
    folder: Path, output: Path, patterns: Sequence[str], known: Container[str] = ()
) -> list[Path]:
    """Return the acquisitions in a folder and its subfolders, but hidden ones, links to folders, results and `output`.

    They are in natural order, as by :func:`natural_key`.

    Parameters
    ----------
    folder : Path
        The folder.
    output : Path
        A folder to skip.
    patterns : sequence of str
        Shell patterns for the names of files, or for their paths below the folder where a pattern has a slash. By default,
        files are chosen by the suffixes of the known formats.
    known : container of str
        Paths to skip; by default none.
    """
    found, unreadable = list[Path](), list[Path]()
    results = os.path.realpath(output)
    for parent, folders, files in os.walk(folder, onerror=lambda e: unreadable.append(Path(e.filename))):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and os.path.join(parent, name) not in known
            and os.path.realpath(os.path.join(parent, name)) != results
        ]
        whole = [name for name in folders if is_zarr(Path(parent, name))]
        folders[:] = [name for name in folders if name not in whole]
        unknown = [name for name in files if os.path.join(parent, name) not in known]
        for name, is_folder in [*((name, True) for name in whole), *((name, False) for name in unknown)]:
            if _is_wanted(Path(parent, name), folder, patterns, is_folder):
                found.append(Path(parent, name))
    # An unreadable folder is among them itself, so that it fails with its reason.
    found += [path for path in unreadable if str(path) not in known]
    return sorted(found, key=lambda path: natural_key(str(path)))


def _is_wanted(path: Path, folder: Path, patterns: Sequence[str], is_folder: bool) -> bool:
    """Return whether a file, or an acquisition folder, is one of :func:`acquisition_files`, with the same parameters."""
    if path.name.startswith(".") or _is_result(path, folder):
        return False
    if not patterns:
        # An archive is listed, so that the reason why it is not read is given, unless what was in it is beside it.
        inner = path.with_name(re.sub(r"(\.(zip|tar|gz|tgz))+$", "", path.name, flags=re.IGNORECASE))
        is_archive = inner.suffix.lower() in (*SUFFIXES, ".zarr") and not os.path.lexists(inner)
        return is_folder or path.suffix.lower() in SUFFIXES or is_iconeus(path) or is_archive
    below = str(path.relative_to(folder))
    return any(fnmatchcase(below if "/" in pattern else path.name, pattern) for pattern in patterns)


def _is_result(path: Path, folder: Path) -> bool:
    """Return whether an earlier run wrote a file: results of a scan, or stacks of a batch outside a `folder` of stacks."""
    between = [folder / above for above in path.relative_to(folder).parents][:-1]
    if any(above.name == STACKS and (above.parent / BATCH_RECORD).exists() for above in between):
        return True
    stem, mark, _ = path.stem.rpartition("_sequence" if path.stem.endswith("_sequence") else "_denoised")
    return bool(mark) and os.path.exists(path.with_name(f"{stem}_report.json"))


FEW_BYTES = 1 << 14
"""Bytes in the middle and at the end of a file by which different files are told apart."""

STATE = ("bytes", "mtime_ns")
"""Names of the values that change when a file of an input changes."""


def size_on_disk(path: Path) -> int | None:
    """Return the bytes of a file, or of all files in a folder; None if the path cannot be read."""
    state = file_state(path)
    return None if state is None else state["bytes"]


def files_of_report(report: Path) -> list[Path]:
    """Return the files that a report names and that are as its command left them; none if it cannot be read.

    They are in its folder, have the recorded size, and are not newer than the report, which was written last.
    """
    try:
        newest, recorded = report.stat().st_mtime_ns, json.loads(report.read_bytes())
        paths = {key: report.parent / Path(recorded["output"][key]).name for key in recorded["output_bytes"]}
        return [
            path
            for key, path in paths.items()
            if size_on_disk(path) == recorded["output_bytes"][key] and path.lstat().st_mtime_ns <= newest
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def file_state(path: Path) -> dict[str, int] | None:
    """Return the state of a file, or of all files in a folder; None if it cannot be read.

    A different state shows that a file has changed.

    Parameters
    ----------
    path : Path
        File or folder.

    Returns
    -------
    dict or None
        "bytes", the size of all files; "mtime_ns", the latest modification time.
    """
    try:
        statuses = [file.stat() for file in _files_of(path)]
    except OSError:
        return None
    times = [status.st_mtime_ns for status in statuses]
    return {"bytes": sum(status.st_size for status in statuses), "mtime_ns": max(times, default=0)}


def check_unchanged(path: Path, state: Mapping[str, int]) -> None:
    """Check that a file, or a folder, has not changed since it had a state of :func:`file_state`.

    Raises
    ------
    InputError
        If it has.
    """
    if file_state(path) != state:
        raise InputError(f"{path} changed while it was read; run again when no program writes to it")


class KnownContents:
    """The contents of files, or folders, that were seen: finds copies among them.

    Few bytes of each file are read, and all bytes only if these and the sizes are the same.
    """

    def __init__(self) -> None:
        self._paths: dict[tuple[object, ...], list[Path]] = {}

    def copy_of(self, path: Path) -> Path | None:
        """Return an earlier file with the same content under another name, and remember this one; None if there is none.

        A file that cannot be read has no copy.
        """
        try:
            files = _files_of(path)
            largest = max(files, key=lambda file: file.stat().st_size)
            sizes = ((file.relative_to(path).as_posix(), file.stat().st_size) for file in files)
            # Bytes from the middle and the end: headers are the same in files of one shape.
            size, few = largest.stat().st_size, b""
            with largest.open("rb") as file:
                for start in (size // 2, max(size - FEW_BYTES, 0)):
                    file.seek(start)
                    few += file.read(FEW_BYTES)
            key = (*sizes, hashlib.sha256(few).digest())
            others = [other for other in self._paths.setdefault(key, []) if other != path]
            self._paths[key] = [*others, path]
            for other in others:
                pairs = zip(files, _files_of(other), strict=True)
                if all(filecmp.cmp(mine, theirs, shallow=False) for mine, theirs in pairs):
                    return other
            return None
        except (OSError, ValueError):
            return None


def is_same_state(state: Mapping[str, int], recorded: Mapping[str, object]) -> bool:
    """Check whether a state of :func:`file_state` is the one that was recorded."""
    return all(state[name] == recorded.get(name) for name in STATE)


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file, or the digest of the names and digests of the files in a folder.

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
        for file in _files_of(path):
            # The names are relative to the folder, so that the digest stays the same when the folder is moved.
            whole.update(os.fsencode(f"{file.relative_to(path).as_posix()} {_digest(file)}\n"))
        return whole.hexdigest()
    except OSError as error:
        raise InputError(f"{path} became unreadable ({error.strerror}); check the disk") from error


def _files_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
