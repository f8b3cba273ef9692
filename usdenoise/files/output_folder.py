"""Output folders: result files get their names when all of them are whole."""

import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from usdenoise.errors import OutputError, check_path
from usdenoise.files.zarr_files import is_our_group
from usdenoise.system.processes import PARTIAL, lock, uninterrupted, unwritable

_ABANDONED_S = 24 * 3600.0
"""Age in s from which a temporary folder belongs to a process that was killed, on a file system without locks: a stack is
written within minutes."""


MOST_BYTES = 255
"""Most bytes of the name of a file."""


class OutputFolder:
    """A folder in which a set of files gets its names at once.

    Each file is written into a temporary folder inside the folder, and :meth:`commit` moves all of them.
    Leaving the context removes the temporary folder. Leaving it with an error also removes the folders that were created
    for the files, if they are empty.

    The file that is reserved last is the record of the other files. An old record is removed before any other file
    is replaced, and the new record is moved last. A record therefore never describes files other than those in
    its folder. If the process is killed meanwhile, the next one that enters the folder moves the other files, and may
    replace all of them.

    With `overwrite`, an existing file is replaced. A folder is replaced only if it is a Zarr group that usdenoise
    wrote. A link is replaced itself, and the file that it points to stays.

    Parameters
    ----------
    folder : Path
        Folder of the files; it is created if it does not exist.
    overwrite : bool
        Whether existing files may be replaced; False by default.

    Raises
    ------
    OutputError
        On entering, if the folder cannot be created or written to. On leaving, if an OSError ended the context.
    """

    def __init__(self, folder: Path, overwrite: bool = False) -> None:
        self.folder = folder
        self.overwrite = overwrite
        self._temporary: Path | None = None
        self._held = -1
        self._new_folders: list[Path] = []
        self._reserved: dict[Path, Path] = {}
        # Files of a killed process that got their names now, which its user believes to be missing
        self._finished: set[Path] = set()

    def __enter__(self) -> Self:
        check_path(self.folder, OutputError)
        try:
            above = [self.folder, *self.folder.absolute().parents]
            self._new_folders = [folder for folder in above if not os.path.exists(folder)]
            self.folder.mkdir(parents=True, exist_ok=True)
            self._finished = remove_leftovers(self.folder)
            # Another process may take it for a leftover until it is locked.
            while self._temporary is None:
                temporary = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=self.folder))
                with suppress(FileNotFoundError):
                    self._held = os.open(temporary, os.O_RDONLY)
                    if lock(self._held) is not False and temporary.exists():
                        self._temporary = temporary
                    else:
                        os.close(self._held)
        except OSError as error:
            self._remove_new_folders()
            raise unwritable(self.folder, error) from error
        return self

    def reserve(self, name: str) -> Path:
        """Return the temporary path of the file that :meth:`commit` will call `name`.

        Raises
        ------
        OutputError
            If a file of that name exists and `overwrite` is False, it is a folder that usdenoise did not write, or the
            name contains a NUL character or is too long.
        """
        check_path(name, OutputError)
        if len(os.fsencode(name)) > MOST_BYTES:
            raise OutputError(
                f"the name {name} is longer than the {MOST_BYTES} bytes that file systems allow",
                remedy="shorten the name of the input or of the output",
            )
        final = self.folder / name
        self._check_replaceable(final)
        self._reserved[final] = self._temporary_path(name)
        return self._reserved[final]

    def release(self, name: str) -> None:
        """Cancel the reservation of `name`, and remove its temporary file."""
        self._reserved.pop(self.folder / name).unlink(missing_ok=True)

    @property
    def finals(self) -> list[Path]:
        """Final paths of the reserved files, in the order of their reservation."""
        return list(self._reserved)

    def commit(self, earlier: Iterable[Path] = ()) -> None:
        """Give all reserved files their final names, and remove the files of earlier results that they do not replace.

        Parameters
        ----------
        earlier : iterable of Path
            Files of the earlier results, from :func:`usdenoise.files.input_files.files_of_report`; by default none. Those
            that are not replaced are removed last: a process that is killed leaves whole results.

        Raises
        ------
        OutputError
            If a final name has been taken since its reservation, as for :meth:`reserve`. Nothing is replaced then.
        """
        with uninterrupted():
            for final in self._reserved:
                self._check_replaceable(final)
            names = [final.name for final in self._reserved]
            gone = [path.name for path in set(earlier) - set(self._reserved) if path.parent == self.folder]
            # From now on a process that is killed leaves the names, with which the next one finishes.
            plan = self._temporary_path(_PLAN)
            plan.with_suffix(".new").write_text(json.dumps([names, gone]))
            os.replace(plan.with_suffix(".new"), plan)
            _give_names(self.folder, plan.parent, names, gone)
            self._reserved = {}

    def _check_replaceable(self, final: Path) -> None:
        if not os.path.lexists(final):
            return
        check_new(final, self.overwrite or final in self._finished)
        if final.is_dir() and not final.is_symlink() and not is_our_group(final):
            raise OutputError(
                f"{final} is a folder that usdenoise did not write, so it is not replaced",
                remedy="move it away, or choose another output folder",
            )

    def _temporary_path(self, name: str) -> Path:
        if self._temporary is None:
            raise RuntimeError("an output folder takes files only within its context")
        return self._temporary / name

    def _remove_new_folders(self) -> None:
        # A folder that contains files stays.
        for folder in self._new_folders:
            with suppress(OSError):
                folder.rmdir()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with uninterrupted():
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
                os.close(self._held)
                self._temporary = None
            if kind is not None:
                self._remove_new_folders()
        if isinstance(error, OSError):
            if error.errno == errno.ENAMETOOLONG:
                raise unwritable(self.folder, error) from error
            raise OutputError(
                f"the results could not be written to {self.folder} ({error.strerror or error})",
                remedy="free some space or choose another output folder",
            ) from error


def check_new(path: Path, overwrite: bool) -> None:
    """Check that a file may be written, as by :meth:`OutputFolder.reserve`.

    Raises
    ------
    OutputError
        If it exists and may not be replaced.
    """
    if os.path.lexists(path) and not overwrite:
        raise OutputError(f"{path} exists", remedy="give {overwrite} to replace it, or another output folder")


def write_files(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    """Write files of some names and contents into a folder, all at once, whether or not they exist.

    Raises
    ------
    OutputError
        If a file cannot be written.
    """
    with OutputFolder(folder, overwrite=True) as outputs:
        for name, content in contents.items():
            outputs.reserve(name).write_bytes(content.encode() if isinstance(content, str) else content)
        outputs.commit()


_PLAN = ".names.json"
"""Name of the file in a temporary folder with the names that its files get, and those of earlier results that go."""


def _give_names(folder: Path, temporary: Path, names: Sequence[str], gone: Iterable[str]) -> None:
    """Move files to a folder, or go on with it, and remove files of earlier results.

    Parameters
    ----------
    folder, temporary : Path
        The folder, and the temporary folder in it.
    names : sequence of str
        Names of the files; the last one is the record of the others.
    gone : iterable of str
        Names of the files of earlier results.
    """

    def put_away(name: str) -> None:
        """Move a file or a folder into the temporary folder, with which it is removed."""
        os.replace(folder / name, Path(tempfile.mkdtemp(dir=temporary), name))

    if len(names) > 1 and os.path.lexists(temporary / names[-1]):
        (folder / names[-1]).unlink(missing_ok=True)
    for name in names:
        final, waiting = folder / name, temporary / name
        if os.path.lexists(waiting):
            # os.replace cannot put a folder in place of a file, a link, or a folder that contains files.
            if os.path.lexists(final) and (final.is_dir() or waiting.is_dir()):
                put_away(name)
            os.replace(waiting, final)
    for name in gone:
        with suppress(OSError):
            put_away(name)


def remove_leftovers(folder: Path, age_s: float = _ABANDONED_S) -> set[Path]:
    """Remove the temporary folders and locked files that killed processes left in a folder.

    A process that was killed while its files got their names is finished first.

    Parameters
    ----------
    folder : Path
        The folder; nothing happens if it does not exist.
    age_s : float
        Seconds without a change after which a temporary folder is removed on a file system without locks; a day by default.

    Returns
    -------
    set of Path
        Files that have their names now.
    """
    finished: set[Path] = set()
    for leftover in folder.glob(f"{PARTIAL}*"):
        # Files of other users cannot be removed.
        with suppress(OSError):
            held = os.open(leftover, os.O_RDONLY)
            try:
                is_free = lock(held)
                try:
                    names, gone = json.loads((leftover / _PLAN).read_bytes())
                except (OSError, ValueError):
                    # A crash of the system may leave a plan that is empty.
                    names, gone = [], []
                # Without locks, later results may be in the folder.
                if is_free and any(os.path.lexists(leftover / name) for name in names):
                    finished |= {folder / name for name in names}
                if is_free:
                    _give_names(folder, leftover, names, gone)
                if is_free is None and leftover.is_dir():
                    newest = max(path.lstat().st_mtime for path in [leftover, *leftover.rglob("*")])
                    is_free = time.time() - newest >= age_s
                if is_free:
                    remove(leftover)
            finally:
                os.close(held)
    return finished


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
