"""Whole files: results that appear complete or not at all, and the digest of an input."""

import os
import re
import shutil
from collections.abc import Container
from pathlib import Path
from types import TracebackType
from typing import Self

from usdenoise.errors import OutputError
from usdenoise.system.signals import uninterrupted

_TEMPORARY = re.compile(r"\.\d+-partial-(.+)", re.DOTALL)

MAX_EXPANSION = 1032
"""A byte of a zlib stream expands to at most this many; echoes never come near that with any compressor."""


class OutputFolder:
    """A folder in which a set of files appears at once.

    Each file is written under a temporary name in the same folder; `commit` renames them. Leaving the
    context without it removes them, and the folders that were made for them and are empty. The file that is
    reserved last is the record of the others: an old one goes before any of them is replaced, the new one
    comes after all of them, so that a record never stands beside files that it does not describe.

    Parameters
    ----------
    folder : Path
        Made where it does not exist.
    overwrite : bool
        Whether files that exist may be replaced.
    """

    def __init__(self, folder: Path, overwrite: bool = False) -> None:
        self.folder = folder
        self.overwrite = overwrite
        self._mark = folder / f".{os.getpid()}-partial-mark"
        self._made: list[Path] = []
        self._waiting: dict[Path, Path] = {}

    def __enter__(self) -> Self:
        try:
            above = [self.folder, *self.folder.absolute().parents]
            self._made = [folder for folder in above if not folder.exists()]
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"the folder {self.folder} cannot be made ({error.strerror}); choose another one with -o"
            ) from error
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise OutputError(f"the folder {self.folder} cannot be written; choose another one with -o")
        try:
            # Another process that made the folder, and fails, must not find it empty and take it away.
            self._mark.touch()
        except OSError as error:
            raise OutputError(
                f"the folder {self.folder} cannot be written ({error.strerror}); choose another one with -o"
            ) from error
        return self

    def reserve(self, name: str) -> Path:
        """Temporary path for the file that is to be called `name`.

        Raises
        ------
        OutputError
            If the file exists and may not be replaced.
        """
        final = self.folder / name
        if final.exists() and not self.overwrite:
            raise OutputError(f"{final} exists; give --overwrite to replace it, or another folder with -o")
        waiting = self.folder / f".{os.getpid()}-partial-{name}"
        self._waiting[final] = waiting
        return waiting

    def release(self, name: str) -> None:
        """Give up a name that was reserved."""
        self._waiting.pop(self.folder / name).unlink(missing_ok=True)

    @property
    def finals(self) -> list[Path]:
        """The names that the files will have, in the order in which they were reserved."""
        return list(self._waiting)

    def commit(self) -> None:
        """Give all files their names."""
        with uninterrupted():
            if len(self._waiting) > 1:
                self.finals[-1].unlink(missing_ok=True)
            for final, waiting in self._waiting.items():
                if final.is_dir():
                    # A folder is not replaced by renaming over it.
                    old = self.folder / f".{os.getpid()}-partial-{final.name}.old"
                    os.replace(final, old)
                    os.replace(waiting, final)
                    shutil.rmtree(old)
                else:
                    os.replace(waiting, final)
            self._waiting = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with uninterrupted():
            for waiting in (self._mark, *self._waiting.values()):
                if waiting.is_dir():
                    shutil.rmtree(waiting)
                else:
                    waiting.unlink(missing_ok=True)
            for folder in self._made if kind is not None else []:
                if folder.exists() and not any(folder.iterdir()):
                    folder.rmdir()
        if isinstance(error, OSError):
            raise OutputError(
                f"the results could not be written to {self.folder} ({error.strerror or error}); "
                "free some space or choose another folder with -o"
            ) from error


def remove_leftovers(folder: Path, names: Container[str] | None = None) -> None:
    """Remove the temporary files that killed processes left in a folder.

    Only for a folder that no living process writes to.

    Parameters
    ----------
    folder : Path
        Need not exist.
    names : container of str, optional
        The final names whose temporary files are removed; by default all.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        found = _TEMPORARY.fullmatch(path.name)
        if found is not None and (names is None or found[1] in names):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
