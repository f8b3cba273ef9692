"""Output folders: a set of result files appears complete or not at all."""

import os
import re
import shutil
from collections.abc import Container
from pathlib import Path
from types import TracebackType
from typing import Self

from usdenoise.errors import OutputError, check_path
from usdenoise.system.signals import uninterrupted

_TEMPORARY = re.compile(r"\.\d+-partial-(.+)", re.DOTALL)


class OutputFolder:
    """A folder in which a set of files appears at once.

    Each file is written under a temporary name in the same folder, and :meth:`commit` renames all of them.
    Leaving the context without a commit removes the files, and leaving it with an error also removes the
    folders that were made for them, if they are empty.

    The file that is reserved last is the record of the others. An old record is removed before any other file
    is replaced, and the new one is renamed last. A record therefore never describes files other than those in
    its folder.

    Parameters
    ----------
    folder : Path
        Folder of the files; it is made if it does not exist.
    overwrite : bool
        Whether existing files may be replaced; False by default.

    Raises
    ------
    OutputError
        On entering, if the folder cannot be made or written to. On leaving, if an OSError ended the context.
    """

    def __init__(self, folder: Path, overwrite: bool = False) -> None:
        self.folder = folder
        self.overwrite = overwrite
        self._mark = folder / f".{os.getpid()}-partial-mark"
        self._made: list[Path] = []
        self._waiting: dict[Path, Path] = {}

    def __enter__(self) -> Self:
        check_path(self.folder, OutputError)
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
            # If another process made the folder and then fails, it must not find the folder empty and remove
            # it.
            self._mark.touch()
        except OSError as error:
            raise OutputError(
                f"the folder {self.folder} cannot be written ({error.strerror}); choose another one with -o"
            ) from error
        return self

    def reserve(self, name: str) -> Path:
        """Return the temporary path of the file that :meth:`commit` will call `name`.

        Raises
        ------
        OutputError
            If a file of that name exists and `overwrite` is False, or the name holds a NUL character.
        """
        check_path(name, OutputError)
        final = self.folder / name
        if final.exists() and not self.overwrite:
            raise OutputError(f"{final} exists; give --overwrite to replace it, or another folder with -o")
        waiting = self.folder / f".{os.getpid()}-partial-{name}"
        self._waiting[final] = waiting
        return waiting

    def release(self, name: str) -> None:
        """Cancel the reservation of `name`, and remove its temporary file."""
        self._waiting.pop(self.folder / name).unlink(missing_ok=True)

    @property
    def finals(self) -> list[Path]:
        """Final paths of the reserved files, in the order of their reservation."""
        return list(self._waiting)

    def commit(self) -> None:
        """Rename all reserved files to their final names."""
        with uninterrupted():
            if len(self._waiting) > 1:
                self.finals[-1].unlink(missing_ok=True)
            for final, waiting in self._waiting.items():
                if final.is_dir():
                    # os.replace cannot replace a folder that holds files.
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

    No running process may be writing to the folder.

    Parameters
    ----------
    folder : Path
        Folder of the files; nothing happens if it does not exist.
    names : container of str, optional
        Final names of the files whose temporary files are removed; by default all.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        found = _TEMPORARY.fullmatch(path.name)
        if found is not None and (names is None or found[1] in names):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
