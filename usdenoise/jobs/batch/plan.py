"""The scans of a batch: which files, in which order, and the folder of each one's results."""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePath

from usdenoise.errors import check_path
from usdenoise.files.acquisition_files import BATCH_RECORD, STACKS, acquisition_files, natural_key
from usdenoise.files.known_formats import is_zarr
from usdenoise.files.output_folder import remove_leftovers
from usdenoise.system.names import alike


class BatchFile(StrEnum):
    """Files that a batch writes to the top of its folder."""

    TABLE = "batch.csv"
    RECORD = BATCH_RECORD
    INDEX = "index.html"
    STACKS = STACKS
    """Folder of the filtered stacks, under the names of their inputs."""


@dataclass(frozen=True)
class Scan:
    """One acquisition of a batch.

    Attributes
    ----------
    path : Path
        File of the acquisition, relative to the current folder if it was given so.
    name : str
        Path of the file below the deepest folder that holds all given paths.
    folder : Path
        Folder of the scan's results.
    """

    path: Path
    name: str
    folder: Path

    @property
    def report(self) -> Path:
        """Report of the scan, the last of its results to be written."""
        return self.folder / f"{self.path.stem}_report.json"

    def clear(self) -> None:
        """Remove what killed processes left in the folder, and the folder if nothing else is in it."""
        # On a file system without locks, no other batch writes here as long as this one does.
        remove_leftovers(self.folder, age_s=0)
        with suppress(OSError):
            self.folder.rmdir()


def find_scans(paths: Sequence[Path], output: Path, patterns: Sequence[str] = ()) -> list[Scan]:
    """Return the scans that some paths name or hold, each once, in natural order.

    A folder is searched with all its subfolders, except hidden ones, links to folders, and `output`. A folder
    that is an acquisition itself (Zarr) is one scan. Results of earlier runs are skipped.

    The tree below the deepest folder that holds all `paths` is mirrored under `output`. Each scan has a folder
    there with the name of its file without the suffix. Where files of one folder differ in the suffix alone,
    the first in natural order has that name. Other files append "-" and their suffix: x and x-mat.

    Parameters
    ----------
    paths : sequence of Path
        Files, which are always taken, and folders to search. A path that does not exist counts as a file.
    output : Path
        Folder of all results.
    patterns : sequence of str
        Shell patterns that the names of files in folders must match. A pattern with a slash is matched with the
        path below the folder. By default, files are chosen by the suffixes of the known formats.

    Returns
    -------
    list of Scan
        Scans in natural order, as by :func:`natural_key`. The list is empty if there are none.

    Raises
    ------
    InputError
        If a path holds a NUL character.
    """
    files: dict[str, Path] = {}
    roots = []
    for path in paths:
        check_path(path)
        whole = os.path.abspath(path)
        search = os.path.isdir(path) and not is_zarr(path)
        roots.append(whole if search else os.path.dirname(whole))
        for file in acquisition_files(path, output, patterns) if search else [path]:
            files.setdefault(os.path.abspath(file), file)
    if not files:
        return []
    root = os.path.commonpath(roots)
    # A folder that cannot be read is a scan itself, with a name like other scans.
    root = os.path.dirname(root) if root in files else root
    names = {os.path.relpath(whole, root): path for whole, path in files.items()}
    ordered = sorted(names, key=natural_key)
    folders = _folders(ordered)
    return [
        Scan(path=names[name], name=name, folder=output / folder)
        for name, folder in zip(ordered, folders, strict=True)
    ]


def _folders(names: Iterable[str]) -> list[PurePath]:
    used_names: set[str] = set(BatchFile)
    folders = []
    for name in names:
        path = PurePath(name)
        plain = path.with_name(path.stem)
        spelt = path.with_name(f"{path.stem}-{path.suffix[1:]}")
        numbered = (spelt.with_name(f"{spelt.name}-{number}") for number in range(2, len(used_names) + 3))
        folder = next(
            candidate for candidate in (plain, spelt, *numbered) if alike(str(candidate)) not in used_names
        )
        used_names.add(alike(str(folder)))
        folders.append(folder)
    return folders
