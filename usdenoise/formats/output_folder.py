"""Output folders: a set of result files appears complete or not at all."""

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from usdenoise.errors import OutputError, check_path
from usdenoise.formats.partial_files import PartialFiles, remove_leftovers
from usdenoise.formats.zarr.zarr_writing import is_our_group
from usdenoise.system.signals import uninterrupted

_COMMITTING = threading.Lock()
"""Held while files get their final names: of two threads that write the same files, one does so after the other."""


class OutputFolder:
    """A folder in which a set of files appears at once.

    Each file is written under a temporary name in the same folder, and :meth:`commit` renames all of them.
    Leaving the context without a commit removes the files, and leaving it with an error also removes the
    folders that were made for them, if they are empty.

    The file that is reserved last is the record of the others. An old record is removed before any other file
    is replaced, and the new one is renamed last. A record therefore never describes files other than those in
    its folder.

    On entering, the temporary files that killed processes left in the folder are removed.

    With `overwrite`, an existing file is replaced. A folder is replaced only if it is a Zarr group that usdenoise
    wrote. A link is replaced itself, and what it points to stays.

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
        self._partial: PartialFiles | None = None
        self._made: list[Path] = []
        self._waiting: dict[Path, Path] = {}

    def __enter__(self) -> Self:
        check_path(self.folder, OutputError)
        try:
            with uninterrupted():
                self._enter()
        # A signal that was delayed is raised after the mark is made, and before the context begins.
        except BaseException:
            self._leave(failed=True)
            raise
        return self

    def _enter(self) -> None:
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
        remove_leftovers(self.folder)
        try:
            # If another process made the folder and then fails, the mark keeps it from removing the folder as empty.
            self._partial = PartialFiles(self.folder)
        except OSError as error:
            raise OutputError(
                f"the folder {self.folder} cannot be written ({error.strerror}); choose another one with -o"
            ) from error

    def reserve(self, name: str) -> Path:
        """Return the temporary path of the file that :meth:`commit` will call `name`.

        Raises
        ------
        OutputError
            If a file of that name exists and `overwrite` is False, it is a folder that usdenoise did not write, or the
            name holds a NUL character.
        """
        check_path(name, OutputError)
        final = self.folder / name
        self._check_replaceable(final)
        self._waiting[final] = self._place(name)
        return self._waiting[final]

    def release(self, name: str) -> None:
        """Cancel the reservation of `name`, and remove its temporary file."""
        self._waiting.pop(self.folder / name).unlink(missing_ok=True)

    @property
    def finals(self) -> list[Path]:
        """Final paths of the reserved files, in the order of their reservation."""
        return list(self._waiting)

    def commit(self, earlier: Iterable[Path] = ()) -> None:
        """Rename all reserved files to their final names, and remove what is left of the results that they replace.

        Parameters
        ----------
        earlier : iterable of Path
            Files of the earlier results, from :func:`usdenoise.formats.file_state.files_of_report`; by default none. Those
            that are not replaced go last: a process that is killed leaves whole results.

        Raises
        ------
        OutputError
            If a final name has been taken since its reservation, as :meth:`reserve` says. Nothing is replaced then.
        """
        with uninterrupted(), _COMMITTING:
            for final in self._waiting:
                self._check_replaceable(final)
            if len(self._waiting) > 1:
                self.finals[-1].unlink(missing_ok=True)
            for final, waiting in self._waiting.items():
                # os.replace puts no folder in the place of a file, a link, or a folder that holds files.
                if os.path.lexists(final) and (final.is_dir() or waiting.is_dir()):
                    self._put_away(final)
                os.replace(waiting, final)
            with suppress(OSError):
                for place in set(earlier) - set(self._waiting):
                    self._put_away(place)
            self._waiting = {}

    def _put_away(self, final: Path) -> None:
        """Give a file or a folder a temporary name, under which it is removed at the end."""
        os.replace(final, self._place(f"{final.name}.old"))

    def _check_replaceable(self, final: Path) -> None:
        if not os.path.lexists(final):
            return
        if not self.overwrite:
            raise OutputError(f"{final} exists; give --overwrite to replace it, or another folder with -o")
        if final.is_dir() and not final.is_symlink() and not is_our_group(final):
            raise OutputError(
                f"{final} is a folder that usdenoise did not write, so it is not replaced; move it away, or choose "
                "another folder with -o"
            )

    def _place(self, name: str) -> Path:
        if self._partial is None:
            raise RuntimeError("an output folder takes files only within its context")
        return self._partial.place(name)

    def _leave(self, failed: bool) -> None:
        with uninterrupted():
            if self._partial is not None:
                self._partial.end()
                self._partial = None
            # A folder that holds files stays.
            for folder in self._made if failed else []:
                with suppress(OSError):
                    folder.rmdir()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(failed=kind is not None)
        if isinstance(error, OSError):
            raise OutputError(
                f"the results could not be written to {self.folder} ({error.strerror or error}); "
                "free some space or choose another folder with -o"
            ) from error
