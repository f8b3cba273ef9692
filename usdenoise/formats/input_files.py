"""The files that an acquisition is read from, and whether they are where they may be."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from usdenoise.errors import InputError


def check_kind(path: Path) -> None:
    """Check that a path is no pipe, socket or device, which could be waited for without end.

    Raises
    ------
    InputError
        If it is one. A path that does not exist passes.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(
            f"{path} is a pipe, a socket or a device; write its content to a file, and give that"
        )


class OtherFiles:
    """The files that an acquisition is read from, apart from the file itself or those in its folder.

    Files that are missing and would be read if they were there are among them. The reader of a format adds them before
    it reads anything from them.

    Parameters
    ----------
    path : Path
        File or folder of the acquisition.
    allow_external : bool
        Whether files outside the folder may be read.
    """

    def __init__(self, path: Path, allow_external: bool) -> None:
        self._path, self._allow_external = path, allow_external
        self._found: dict[str, None] = {}

    @property
    def names(self) -> list[str]:
        """Paths relative to the folder where they are below it, so that the acquisition can be moved, else absolute."""
        return list(self._found)

    def add(self, places: Iterable[Path]) -> None:
        """Add files, and check them."""
        places = list(places)
        folder = Path(os.path.abspath(self._path)).parent
        for place in places:
            whole = Path(os.path.abspath(place))
            name = whole.relative_to(folder).as_posix() if whole.is_relative_to(folder) else str(whole)
            self._found[name] = None
        self.check(places)

    def need_permission(self, name: str) -> None:
        """Check that files elsewhere are allowed, for a file whose place is not known before it is read."""
        if not self._allow_external:
            raise InputError(
                f"{self._path} is read from {name} too, which a number (%b) or a prefix in the environment puts in any "
                "place; give --allow-external if you trust both files"
            )

    def check(self, places: Iterable[Path]) -> None:
        """Check that files are files, and in the folder of the acquisition, unless files elsewhere are allowed.

        Files that do not exist pass. Of a folder these are the links in it, and what is no file.

        Raises
        ------
        InputError
            If a file outside the folder would be read and that is not allowed, or is a pipe, a socket or a device.
        """
        places = list(places)
        for place in places:
            check_kind(place)
        if self._allow_external:
            return
        path = self._path
        # A link to a file brings the folder of that file with it.
        folders = [path] if path.is_dir() else [path.parent, Path(os.path.realpath(path)).parent]
        roots = [os.path.realpath(folder) for folder in folders]
        for place in places:
            real = Path(os.path.realpath(place))
            if os.path.exists(real) and not any(real.is_relative_to(root) for root in roots):
                raise InputError(
                    f"{path} is read from {real} too, which is outside the folder {roots[0]}; give --allow-external "
                    "if you trust both files"
                )


def entries(folder: Path, above: tuple[str, ...] = ()) -> Iterator["os.DirEntry[str]"]:
    """Yield the files below a folder, and the links to folders; links are followed, but not in a circle.

    Parameters
    ----------
    folder : Path
        The folder.
    above : tuple of str
        Real paths of the folders on the way to this one; by default none.
    """
    real = os.path.realpath(folder)
    if real in above:
        return
    with os.scandir(folder) as found:
        for entry in found:
            is_folder = entry.is_dir()
            if not is_folder or entry.is_symlink():
                yield entry
            if is_folder:
                yield from entries(Path(entry.path), (*above, real))
