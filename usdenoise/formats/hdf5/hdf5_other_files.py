"""The other files that an HDF5 file is read from: where they are looked for, and all of them.

The HDF5 library has no function that says which file it takes. Names are looked for here as it does without prefixes in
the environment; with prefixes, and for numbered files, only the library knows, so that they need --allow-external.
"""

import glob
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import h5py

from usdenoise.formats.hdf5.hdf5_items import datasets, follow
from usdenoise.formats.input_files import OtherFiles

SAME_FILE = "."
"""Name by which a virtual dataset means the file that it is in."""

_PREFIXES = ("HDF5_VDS_PREFIX", "HDF5_EXT_PREFIX", "HDF5_EXTFILE_PREFIX")


def add_other_files(
    file: h5py.File, found: Iterable[h5py.Dataset], dataset: str | None, others: OtherFiles
) -> None:
    """Add the files from which the values in an HDF5 file are read, apart from the file itself.

    These are the sources of its virtual datasets, the files of plain numbers, those that the sources name in turn,
    and the files to which external links on the way to `dataset` lead. A place at which the library looks in vain
    is among them, because a file there would be read.

    Parameters
    ----------
    file : h5py.File
        The open file.
    found : iterable of h5py.Dataset
        Its datasets.
    dataset : str or None
        Name of the stack that the user gave; None for none.
    others : OtherFiles
        Gets the files.
    """
    with ExitStack() as opened:
        search = _Search(others, opened)
        for item in found:
            search.add_storage(item)
        if dataset is not None:
            search.add_linked(file["/"], dataset)


def sources(dataset: h5py.Dataset) -> dict[tuple[str, str], list[Any]]:
    """Return what is mapped to a virtual dataset, by the file and the dataset of each source as they are written there."""
    found: dict[tuple[str, str], list[Any]] = {}
    for part in dataset.virtual_sources():
        found.setdefault((part.file_name, part.dset_name), []).append(part)
    return found


def has_unknown_place(*names: str) -> bool:
    """Check whether files are numbered (%b in a name) or found by a prefix in the environment."""
    return any(map(is_numbered, names)) or any(os.environ.get(prefix) for prefix in _PREFIXES)


def is_numbered(name: str) -> bool:
    """Check whether the name of a source holds %b, for which the library puts 0, 1, 2, … while such files exist."""
    return "%b" in name.replace("%%", "")


def unescaped(name: str) -> str:
    """Return the name of a source without numbers, in which %% means %."""
    return name.replace("%%", "%")


def places(name: str, file: h5py.File) -> list[Path]:
    """Return the places in which the library looks for a virtual source or a linked file, in its order.

    Parameters
    ----------
    name : str
        The name of the file.
    file : h5py.File
        The open file that names it.
    """
    above, own = Path(os.getcwd(), file.filename).parent, Path(os.path.realpath(file.filename)).parent
    if os.path.isabs(name):
        # An absolute name that leads nowhere is looked for by its last part.
        tail = os.path.basename(name)
        return list(dict.fromkeys([Path(name), above / tail, Path(os.getcwd(), tail), own / tail]))
    return list(dict.fromkeys([above / name, Path(os.getcwd(), name), own / name]))


def raw_place(name: str) -> Path:
    """Return the place in which the library looks for a file of plain numbers."""
    return Path(os.getcwd(), name)


def first_file(candidates: Iterable[Path]) -> Path | None:
    """Return the first of some places that is a file; None if there is none."""
    # Path.is_file raises an error below a folder that may not be read, in which the library finds nothing either.
    return next((place for place in candidates if os.path.isfile(place)), None)


class _Search:
    """Search of the files that datasets are read from, also through links and in turn.

    Parameters
    ----------
    others : OtherFiles
        Gets the files.
    opened : ExitStack
        Closes the files that are opened on the way.
    """

    def __init__(self, others: OtherFiles, opened: ExitStack) -> None:
        self._others, self._opened = others, opened
        self._seen: set[Any] = set()

    def add_storage(self, dataset: h5py.Dataset) -> None:
        """Add the files in which the values of a dataset are stored."""
        for file_name, dataset_name in sources(dataset) if dataset.is_virtual else ():
            self._add_source(dataset.file, file_name, dataset_name)
        for name, _, _ in dataset.external or ():
            self._add([raw_place(name)], name)

    def add_linked(self, group: h5py.Group, name: str) -> None:
        """Add the files to which external links on the way to an item lead, and those of the item itself."""
        item = follow(group, name, self._across)
        if isinstance(item, h5py.Dataset):
            self.add_storage(item)

    def _add_source(self, file: h5py.File, file_name: str, dataset_name: str) -> None:
        if file_name == SAME_FILE:
            self._add_dataset(file, Path(file.filename), dataset_name)
        elif has_unknown_place(file_name, dataset_name):
            self._others.need_permission(file_name)
            pattern = glob.escape(unescaped(file_name)).replace("%b", "*")
            self._others.add(Path(name) for place in places(pattern, file) for name in glob.glob(str(place)))
        elif place := self._add(places(unescaped(file_name), file), file_name):
            # A source that is no HDF5 file is refused where the stack is read.
            with suppress(OSError):
                source = self._opened.enter_context(h5py.File(place, "r"))
                self._add_dataset(source, place, dataset_name)

    def _add_dataset(self, file: h5py.File, place: Path, name: str) -> None:
        if (place, name) not in self._seen:
            self._seen.add((place, name))
            self.add_linked(file["/"], unescaped(name))

    def _across(self, group: h5py.Group, link: h5py.ExternalLink, n_links: int) -> Any:
        place = self._add(places(link.filename, group.file), link.filename)
        if place is None:
            return None
        file = self._opened.enter_context(h5py.File(place, "r"))
        # Metadata are taken from the neighbours of the stack.
        if place not in self._seen:
            self._seen.add(place)
            for item in datasets(file).values():
                self.add_storage(item)
        return follow(file["/"], link.path, self._across, n_links)

    def _add(self, candidates: list[Path], name: str) -> Path | None:
        """Add the places up to the first that is a file, and return that one."""
        if has_unknown_place():
            self._others.need_permission(name)
        place = first_file(candidates)
        self._others.add(candidates if place is None else candidates[: candidates.index(place) + 1])
        return place
