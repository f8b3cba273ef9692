"""Whole files: results that appear complete or not at all, and the digest of an input."""

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from usdenoise.errors import InputError, OutputError


class OutputFolder:
    """A folder in which a set of files appears at once.

    Each file is written under a temporary name in the same folder; `commit` renames them. Leaving the
    context without it removes them, and the folders that were made for them and are empty.

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
        for final, waiting in self._waiting.items():
            os.replace(waiting, final)
        self._waiting = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for waiting in self._waiting.values():
            waiting.unlink(missing_ok=True)
        for folder in self._made if kind is not None else []:
            if folder.exists() and not any(folder.iterdir()):
                folder.rmdir()
        if isinstance(error, OSError):
            raise OutputError(
                f"the results could not be written to {self.folder} ({error.strerror or error}); "
                "free some space or choose another folder with -o"
            ) from error


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 digest of a file.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read any more ({error.strerror}); check the disk") from error
