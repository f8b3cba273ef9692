"""The other files that an HDF5 file is read from."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py

from usdenoise.formats.hdf5.hdf5_items import datasets, follow
from usdenoise.formats.hdf5.hdf5_places import (
    SAME_FILE,
    Kind,
    first_file,
    is_numbered,
    numbered_sources,
    places,
    with_number,
)
from usdenoise.formats.hdf5.hdf5_reading import open_file
from usdenoise.formats.hdf5.hdf5_storage import sources


def other_files(path: Path, dataset: str | None = None) -> list[Path]:
    """Return the files from which the values in an HDF5 file are read, apart from the file itself.

    These are the sources of its virtual datasets, the files of plain numbers, those that the sources name in turn,
    and the files to which external links on the way to `dataset` lead. A place at which the library looks in vain
    is among them, because a file there would be read.

    Parameters
    ----------
    path : Path
        The file.
    dataset : str or None
        Name of the stack that the user gave; None (the default) for none.

    Raises
    ------
    InputError
        If the file is truncated or corrupt.
    """
    with open_file(path) as file, ExitStack() as opened:
        search = _Search(opened)
        for item in datasets(file).values():
            search.add_storage(item)
        if dataset is not None:
            search.add_linked(file["/"], dataset)
        return list(search.found)


class _Search:
    """The files that were found so far.

    Parameters
    ----------
    opened : ExitStack
        Closes the files that are opened on the way.
    """

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self._seen: set[Any] = set()
        self.found: dict[Path, None] = {}

    def add_storage(self, dataset: h5py.Dataset) -> None:
        """Add the files in which the values of a dataset are stored."""
        properties = dataset.id.get_create_plist()
        if properties.get_layout() == h5py.h5d.VIRTUAL:
            for file_name, dataset_name in sources(dataset):
                self._add_source(dataset.file, file_name, dataset_name)
        elif properties.get_external_count():
            for name, _, _ in dataset.external:
                self._add_places(places(name, dataset.file, Kind.STORAGE))

    def add_linked(self, group: h5py.Group, name: str) -> None:
        """Add the files to which external links on the way to an item lead, and those of the item itself."""
        item = follow(group, name, self._across)
        if isinstance(item, h5py.Dataset):
            self.add_storage(item)

    def _add_source(self, file: h5py.File, file_name: str, dataset_name: str) -> None:
        names = [with_number(file_name, 0)]
        if file_name != SAME_FILE and is_numbered(file_name):
            names = list(numbered_sources(file_name, file))
        for number, name in enumerate(names):
            inner = with_number(dataset_name, number)
            if file_name == SAME_FILE:
                place: Path | None = Path(file.filename)
            else:
                place = self._add_places(places(name, file, Kind.VIRTUAL))
            if place is None or (place, inner) in self._seen:
                continue
            self._seen.add((place, inner))
            try:
                with h5py.File(place, "r") as source:
                    self.add_linked(source["/"], inner)
            except OSError:
                # A source that is no HDF5 file is refused where the stack is read.
                continue

    def _across(self, group: h5py.Group, link: h5py.ExternalLink, n_links: int) -> Any:
        place = self._add_places(places(link.filename, group.file, Kind.LINK))
        if place is None:
            return None
        file = self._opened.enter_context(h5py.File(place, "r"))
        # Metadata are taken from the neighbours of the stack.
        if place not in self._seen:
            self._seen.add(place)
            for item in datasets(file).values():
                self.add_storage(item)
        return follow(file["/"], link.path, self._across, n_links)

    def _add_places(self, candidates: list[Path]) -> Path | None:
        place = first_file(candidates)
        until = len(candidates) if place is None else candidates.index(place) + 1
        self.found.update(dict.fromkeys(candidates[:until]))
        return place
