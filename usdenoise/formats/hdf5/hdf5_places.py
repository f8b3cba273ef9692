"""Where the HDF5 library looks for the other files that a file names.

The library has no function that says which file it takes, so its rules are repeated here: those of external links and
virtual sources in H5Pset_elink_prefix and H5Pset_virtual_prefix, those of external storage in H5Pset_efile_prefix of
its reference manual.
"""

import os
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import h5py

SAME_FILE = "."
"""Name by which a virtual dataset means the file that it is in."""

_ORIGIN = "${ORIGIN}"


class Kind(StrEnum):
    """Ways to name another file, each with the variable of the environment that holds folders to look in."""

    LINK = "HDF5_EXT_PREFIX"
    """An external link."""
    VIRTUAL = "HDF5_VDS_PREFIX"
    """A source of a virtual dataset."""
    STORAGE = "HDF5_EXTFILE_PREFIX"
    """A file of plain numbers."""


def places(name: str, file: h5py.File, kind: Kind) -> list[Path]:
    """Return the places in which the library looks for a file, in its order.

    Parameters
    ----------
    name : str
        The name of the file.
    file : h5py.File
        The open file that names it.
    kind : Kind
        How it is named.
    """
    folder = Path(os.getcwd(), os.path.dirname(file.filename))
    prefixes = [
        str(folder) + prefix.removeprefix(_ORIGIN) if prefix.startswith(_ORIGIN) else prefix
        for prefix in os.environ.get(kind, "").split(":")
        if prefix
    ]
    if kind is Kind.STORAGE:
        return [Path(os.getcwd(), *prefixes[:1], name)]
    # An absolute name that leads nowhere is looked for by its last part.
    first = [Path(name)] if os.path.isabs(name) else []
    tail = os.path.basename(name) if first else name
    folders = [*prefixes, folder, ".", os.path.dirname(os.path.realpath(file.filename))]
    return list(dict.fromkeys([*first, *(Path(os.getcwd(), place, tail) for place in folders)]))


def first_file(candidates: list[Path]) -> Path | None:
    """Return the first of some places that is a file; None if there is none."""
    # Path.is_file raises an error below a folder that may not be read, in which the library finds nothing either.
    return next((place for place in candidates if os.path.isfile(place)), None)


def is_numbered(name: str) -> bool:
    """Check whether the name of a source holds %b, for which the library puts 0, 1, 2, … while such files exist."""
    return "%b" in name.replace("%%", "")


def with_number(name: str, number: int) -> str:
    """Return the name of a source with a number in the place of %b, and % in the place of %%."""
    return re.sub("%[b%]", lambda found: str(number) if found[0] == "%b" else "%", name)


def numbered_sources(name: str, file: h5py.File) -> Iterator[str]:
    """Yield the names of the sources that exist, and the first one that does not.

    Parameters
    ----------
    name : str
        Name of the sources, with %b.
    file : h5py.File
        The open file that names them.
    """
    number = 0
    while True:
        source = with_number(name, number)
        yield source
        if first_file(places(source, file, Kind.VIRTUAL)) is None:
            return
        number += 1


def highest_number(name: str, file: h5py.File) -> int:
    """Return the highest number of the sources that exist, -1 if there are none or %b is in the name of a folder.

    Parameters
    ----------
    name : str
        Name of the sources, with %b.
    file : h5py.File
        The open file that names them.
    """
    pieces = re.split("(%[b%])", os.path.basename(name))
    special = {"%b": "([0-9]+)", "%%": "%"}
    pattern = re.compile("".join(special.get(piece, re.escape(piece)) for piece in pieces))
    highest = -1
    for place in places(with_number(name, 0), file, Kind.VIRTUAL):
        if place.parent.is_dir():
            found = [pattern.fullmatch(entry) for entry in os.listdir(place.parent)]
            highest = max([highest, *(int(one[1]) for one in found if one and pattern.groups)])
    return highest
