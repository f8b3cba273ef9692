"""The files that an acquisition is read from, and whether they are where they may be."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

from usdenoise.errors import InputError
from usdenoise.formats import autc
from usdenoise.formats.containers import is_hdf5, is_zarr, opener
from usdenoise.formats.contents import Contents
from usdenoise.formats.folder_walk import entries


def opened(
    path: Path, n_axes: int | None = None, dataset: str | None = None, allow_external: bool = False
) -> AbstractContextManager[Contents]:
    """Open a file or a folder and list its contents, if all files that it is read from are in its own folder.

    Parameters
    ----------
    path : Path
        The file or folder.
    n_axes : int or None
        Number of axes that the user named; None (the default) for none.
    dataset : str or None
        Name of the stack that the user gave; None (the default) for none.
    allow_external : bool
        Whether files outside the folder may be read; False by default.

    Raises
    ------
    InputError
        If the path is missing, unreadable or of no known format, or if the acquisition is read from a file outside
        its folder and that is not allowed.
    """
    open_contents = opener(path)
    if not allow_external:
        _check_inside(path, dataset)
    return open_contents(path, n_axes)


def other_files(path: Path, dataset: str | None = None) -> list[str]:
    """Return the files that an acquisition is read from, apart from the file itself or those in its folder.

    Parameters
    ----------
    path : Path
        File or folder of the acquisition.
    dataset : str or None
        Name of the stack that the user gave; None (the default) for none.

    Returns
    -------
    list of str
        Paths relative to the folder of `path` where they are below it, so that the acquisition can be moved, and
        absolute otherwise. Files that are missing and would be read if they were there are among them.

    Raises
    ------
    InputError
        If the acquisition is an HDF5 file that is truncated or corrupt.
    """
    folder = Path(os.path.abspath(path)).parent
    found = (Path(os.path.abspath(place)) for place in _other_files(path, dataset))
    return [
        place.relative_to(folder).as_posix() if place.is_relative_to(folder) else str(place)
        for place in found
    ]


def files_in(folder: Path) -> list[Path]:
    """Return the files of an acquisition that is a folder, in order; links are followed."""
    if is_zarr(folder):
        return sorted(Path(entry.path) for entry in entries(folder) if entry.is_file())
    return sorted(folder.glob(autc.PATTERN))


def _other_files(path: Path, dataset: str | None) -> list[Path]:
    if is_hdf5(path):
        # The library is loaded only for a file that needs it.
        from usdenoise.formats.hdf5 import hdf5_other_files

        return hdf5_other_files.other_files(path, dataset)
    if path.suffix.lower() == ".dat" and path.is_file():
        from usdenoise.formats import echoframe

        if opener(path) is echoframe.open_contents:
            parameters = path.parent / echoframe.PARAMETERS
            return [parameters, *_other_files(parameters, None)]
    return []


def _check_inside(path: Path, dataset: str | None) -> None:
    if path.is_dir():
        roots, others = [os.path.realpath(path)], _links(path)
    else:
        # A link to a file brings the folder of that file with it.
        roots = [os.path.realpath(path.parent), os.path.dirname(os.path.realpath(path))]
        others = _other_files(path, dataset)
    for place in others:
        real = Path(os.path.realpath(place))
        if os.path.exists(real) and not any(real.is_relative_to(root) for root in roots):
            raise InputError(
                f"{path} is read from {real} too, which is outside the folder {roots[0]}; give --allow-external if "
                "you trust both files"
            )


def _links(folder: Path) -> list[Path]:
    """Return the links among the files of an acquisition that is a folder, and those to its subfolders."""
    try:
        if is_zarr(folder):
            return [Path(entry.path) for entry in entries(folder) if entry.is_symlink()]
        return [place for place in files_in(folder) if place.is_symlink()]
    except OSError as error:
        raise InputError(
            f"{error.filename} in {folder} cannot be read ({error.strerror}); check its permissions"
        ) from error
