"""The files of an acquisition that is a folder with subfolders."""

import os
from collections.abc import Iterator
from pathlib import Path


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
