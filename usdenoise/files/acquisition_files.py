"""Acquisitions in folders, in natural order."""

import os
import re
from collections.abc import Container, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from usdenoise.files.known_formats import is_by_name, is_zarr

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
