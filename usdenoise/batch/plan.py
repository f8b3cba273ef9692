"""Which scans a batch has, in which order, and where the results of each go."""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from usdenoise.formats.containers import SUFFIXES, is_acquisition_folder

TABLE, RECORD, SHEET, LOCK = "batch.csv", "batch.json", "contact_sheet.png", ".usdenoise-batch.lock"


@dataclass(frozen=True)
class Scan:
    """One acquisition of a batch.

    Attributes
    ----------
    path : Path
        As reached from what was given.
    name : str
        Its path below the deepest folder that holds everything that was given.
    folder : Path
        Where its results go.
    """

    path: Path
    name: str
    folder: Path

    @property
    def report(self) -> Path:
        """The record of its results, which is written last."""
        return self.folder / f"{self.path.stem}_report.json"


def find_scans(paths: Sequence[Path], output: Path, patterns: Sequence[str] = ()) -> list[Scan]:
    """The scans below some paths, each once, in natural order.

    A folder is searched with all its subfolders, except hidden ones, links to folders, and `output`; one that
    is an acquisition itself (Zarr, AUTC) is a scan, and results of earlier runs are left out. The tree below
    the deepest folder that holds all `paths` is mirrored under `output`, with a folder for each scan, called
    as the file without its suffix. Where several files of one folder differ in the suffix alone, the first
    in natural order has that name and the others have theirs with "-" and the suffix, as in x and x-mat.

    Parameters
    ----------
    paths : sequence of Path
        Files, which are always taken, and folders. A path that does not exist is taken for a file.
    output : Path
        The folder of all results.
    patterns : sequence of str
        Shell patterns for the names of files in folders; one with a slash is held against the path below the
        folder. By default the suffixes of the formats decide.
    """
    found: dict[str, Path] = {}
    roots = []
    for path in paths:
        whole = os.path.abspath(path)
        search = path.is_dir() and not is_acquisition_folder(path)
        roots.append(whole if search else os.path.dirname(whole))
        for file in _files(path, output, patterns) if search else [path]:
            found.setdefault(os.path.abspath(file), file)
    if not found:
        return []
    root = os.path.commonpath(roots)
    names = {os.path.relpath(whole, root): path for whole, path in found.items()}
    ordered = sorted(names, key=natural_key)
    folders = _folders(ordered)
    return [Scan(names[name], name, output / folder) for name, folder in zip(ordered, folders, strict=True)]


def natural_key(name: str) -> tuple[tuple[tuple[str | int, ...], ...], str]:
    """Sort key of a path by which scan2 comes before scan10, and folders keep their files together."""
    return tuple(_natural(part) for part in PurePath(name).parts), name


def _natural(part: str) -> tuple[str | int, ...]:
    # Text and digits take turns, text first: like stands against like.
    pieces = re.split(r"([0-9]+)", part)
    return tuple(int(piece) if i % 2 else piece.casefold() for i, piece in enumerate(pieces))


def _files(folder: Path, output: Path, patterns: Sequence[str]) -> Iterator[Path]:
    unreadable: list[Path] = []
    results = os.path.realpath(output)
    for place, folders, files in os.walk(folder, onerror=lambda e: unreadable.append(Path(e.filename))):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and os.path.realpath(os.path.join(place, name)) != results
        ]
        whole = [name for name in folders if is_acquisition_folder(Path(place, name))]
        folders[:] = [name for name in folders if name not in whole]
        for path in (Path(place, name) for name in whole):
            if not _is_result(path) and (not patterns or _is_wanted(path, folder, patterns)):
                yield path
        for name in files:
            path = Path(place, name)
            if _is_wanted(path, folder, patterns) and not _is_result(path):
                yield path
    # They fail as scans do, each with its reason.
    yield from unreadable


def _is_wanted(path: Path, folder: Path, patterns: Sequence[str]) -> bool:
    if path.name.startswith("."):
        return False
    if not patterns:
        return path.suffix.lower() in SUFFIXES
    below = str(path.relative_to(folder))
    return any(fnmatchcase(below if "/" in pattern else path.name, pattern) for pattern in patterns)


def _is_result(path: Path) -> bool:
    stem, mark, _ = path.stem.rpartition("_denoised")
    return bool(mark) and path.with_name(f"{stem}_report.json").exists()


def _folders(names: Iterable[str]) -> list[PurePath]:
    taken = {TABLE, RECORD, SHEET, LOCK}
    folders = []
    for name in names:
        path = PurePath(name)
        plain = path.with_name(path.stem)
        spelt = path.with_name(f"{path.stem}-{path.suffix[1:]}")
        numbered = (spelt.with_name(f"{spelt.name}-{number}") for number in range(2, len(taken) + 3))
        folder = next(place for place in (plain, spelt, *numbered) if _alike(place) not in taken)
        taken.add(_alike(folder))
        folders.append(folder)
    return folders


def _alike(path: PurePath) -> str:
    """The same for names that some file systems do not tell apart."""
    return unicodedata.normalize("NFC", str(path)).casefold()
