"""Acquisitions in folders, by the names of files and folders."""

import os
import re
from collections.abc import Container, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

SUFFIXES = (".h5", ".hdf5", ".mat", ".uff", ".npy", ".npz")
"""Endings of the names by which acquisitions are found in a folder. The format is then taken from the content."""

ICONEUS, ICONEUS_HEADER = ".raw", ".hraw"
"""Endings of the two files of an IQ recording of an Iconeus scanner."""

_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")


def is_by_name(path: Path) -> bool:
    """Return whether the name of a file is one of an acquisition, by which files of a folder are chosen."""
    return path.suffix.lower() in SUFFIXES or is_iconeus(path)


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
    return tuple(_natural(part) for part in PurePath(name).parts), name


def _natural(part: str) -> tuple[str | int, ...]:
    # Text and digits alternate, text first, so that text is only compared with text and numbers with numbers.
    pieces = re.split(r"([0-9]+)", part)
    return tuple(int(piece) if i % 2 else piece.casefold() for i, piece in enumerate(pieces))


def acquisition_files(
    folder: Path, output: Path, patterns: Sequence[str], known: Container[str] = ()
) -> Iterator[Path]:
    """Yield the acquisitions in a folder and its subfolders, but hidden ones, links to folders, results and `output`.

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
    unreadable: list[Path] = []
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
        for path in (Path(parent, name) for name in whole):
            if _is_wanted(path, folder, patterns, is_folder=True):
                yield path
        for name in files:
            if os.path.join(parent, name) not in known and _is_wanted(Path(parent, name), folder, patterns):
                yield Path(parent, name)
    # An unreadable folder is yielded itself, so that it fails with its reason.
    yield from (path for path in unreadable if str(path) not in known)


def _is_wanted(path: Path, folder: Path, patterns: Sequence[str], is_folder: bool = False) -> bool:
    """Return whether a file, or an acquisition folder, is one of :func:`acquisition_files`, with the same parameters."""
    if path.name.startswith(".") or _is_result(path, folder):
        return False
    if not patterns:
        return is_folder or is_by_name(path)
    below = str(path.relative_to(folder))
    return any(fnmatchcase(below if "/" in pattern else path.name, pattern) for pattern in patterns)


def _is_result(path: Path, folder: Path) -> bool:
    """Return whether an earlier run wrote a file: results of a scan, or stacks of a batch outside a `folder` of stacks."""
    above = path.parent
    if above.name == STACKS and above != folder and (above.parent / BATCH_RECORD).exists():
        return True
    stem, mark, _ = path.stem.rpartition("_sequence" if path.stem.endswith("_sequence") else "_denoised")
    return bool(mark) and os.path.exists(path.with_name(f"{stem}_report.json"))
