"""The files of an acquisition."""

import os
from collections.abc import Iterator
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
