"""Recognition of the format of a file by its first bytes, and the acquisitions in folders.

To read a new format, write a module whose function `open_contents` gives the :class:`usdenoise.files.contents.Contents` of
a file, and whose DAMAGED is the message on a file that cannot be read. Give it a line in :func:`opener`, a suffix in
SUFFIXES, and its name in the sentence on unknown content.
"""

import errno
import os
import re
from collections.abc import Container, Iterator, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path, PurePath

from usdenoise.errors import InputError, UnreadableError, check_path
from usdenoise.files.contents import Opener, check_kind, readable

SUFFIXES = (".h5", ".hdf5", ".mat", ".uff", ".npy", ".npz")
"""Endings of the names by which acquisitions are found in a folder. The format is then taken from the content."""

ICONEUS, ICONEUS_HEADER = ".raw", ".hraw"
"""Endings of the two files of an IQ recording of an Iconeus scanner."""

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")


def opener(path: Path) -> tuple[Opener, str]:
    """Return the function that opens a file or folder and lists its contents, and the message for a damaged one.

    Parameters
    ----------
    path : Path
        The file or folder.

    Returns
    -------
    open_contents : callable
        Takes the path and the :class:`ReadOptions`, and returns a context manager that gives the
        :class:`usdenoise.files.contents.Contents`.
    damaged : str
        Rest of the message on a file of this format that cannot be read, as for :func:`usdenoise.files.contents.guard`.

    Raises
    ------
    InputError
        If the path is missing, unreadable, or of no known format.
    """
    check_path(path)
    check_kind(path)
    if os.path.isdir(path):
        return _folder_opener(path)
    try:
        with path.open("rb") as file:
            head = file.read(4104)
    except OSError as error:
        reason = (
            "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        )
        raise UnreadableError(f"{path} {reason}; check the path") from error
    suffix = path.suffix.lower()
    if is_iconeus(path):
        return _load("iconeus")
    if suffix == ICONEUS_HEADER:
        raise InputError(f"{path} is the header of an Iconeus recording; give the {ICONEUS} file")
    if any(head[offset : offset + 8] == _HDF5_SIGNATURE for offset in (0, 512, 1024, 2048, 4096)):
        return _load("hdf5_reading")
    if head[:10] == b"MATLAB 5.0" or (suffix == ".mat" and len(head) >= 128):
        return _load("matlab_reading")
    if head[:6] == b"\x93NUMPY":
        return _load("numpy_files", "open_npy")
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06") and suffix != ".zip":
        return _load("numpy_files", "open_npz")
    if not head:
        raise InputError(f"{path} is empty; check how it was written")
    needed = f" (an Iconeus recording needs {header_path(path).name} beside it)" if suffix == ICONEUS else ""
    raise InputError(
        f"{path} has unknown content{needed}; usdenoise reads HDF5, MATLAB, UFF, zea, NumPy, Zarr and Iconeus IQ: "
        "check the path, or convert the stack to HDF5"
    )


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


def _folder_opener(path: Path) -> tuple[Opener, str]:
    with readable(path):
        if not os.access(path, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if is_zarr(path):
        return _load("zarr_files")
    raise InputError(
        f"{path} is a folder but not a Zarr group; use `usdenoise session` for the blocks of one recording, or "
        "`usdenoise batch` for scans"
    )


def _load(module: str, function: str = "open_contents") -> tuple[Opener, str]:
    format_module = import_module(f"usdenoise.files.{module}")
    return getattr(format_module, function), format_module.DAMAGED


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
