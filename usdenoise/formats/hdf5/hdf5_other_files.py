"""The other files that an HDF5 file is read from."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
from h5py import h5d, h5g, h5l, h5o

from usdenoise.formats.hdf5.hdf5_items import UNREADABLE, follow
from usdenoise.formats.hdf5.hdf5_places import (
    SAME_FILE,
    Kind,
    first_file,
    is_numbered,
    numbered_sources,
    places,
    with_number,
)
from usdenoise.formats.hdf5.hdf5_storage import sources


def other_files(file: h5py.File, dataset: str | None) -> list[Path]:
    """Return the files from which the values in an HDF5 file are read, apart from the file itself.

    These are the sources of its virtual datasets, the files of plain numbers, those that the sources name in turn,
    and the files to which external links on the way to `dataset` lead. A place at which the library looks in vain
    is among them, because a file there would be read.

    Parameters
    ----------
    file : h5py.File
        The open file.
    dataset : str or None
        Name of the stack that the user gave; None for none.
    """
    with ExitStack() as opened:
        search = _Search(opened)
        search.add_all_storage(file)
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

    def add_all_storage(self, file: h5py.File) -> None:
        """Add the files in which the values of the datasets of a file are stored."""
        for dataset in _dataset_ids(file):
            self._add_storage(dataset)

    def _add_storage(self, dataset: h5d.DatasetID) -> None:
        properties = dataset.get_create_plist()
        if properties.get_layout() == h5d.VIRTUAL:
            named = h5py.Dataset(dataset)
            for file_name, dataset_name in sources(named):
                self._add_source(named.file, file_name, dataset_name)
        elif properties.get_external_count():
            named = h5py.Dataset(dataset)
            for name, _, _ in named.external:
                self._add_places(places(name, named.file, Kind.STORAGE))

    def add_linked(self, group: h5py.Group, name: str) -> None:
        """Add the files to which external links on the way to an item lead, and those of the item itself."""
        item = follow(group, name, self._across)
        if isinstance(item, h5py.Dataset):
            self._add_storage(item.id)

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
            self.add_all_storage(file)
        return follow(file["/"], link.path, self._across, n_links)

    def _add_places(self, candidates: list[Path]) -> Path | None:
        place = first_file(candidates)
        until = len(candidates) if place is None else candidates.index(place) + 1
        self.found.update(dict.fromkeys(candidates[:until]))
        return place


def _dataset_ids(file: h5py.File) -> Iterator[h5d.DatasetID]:
    """Yield the datasets that :func:`usdenoise.formats.hdf5.hdf5_items.datasets` returns.

    Every file is searched before it is read, and an object of h5py for each item doubles the time.
    """
    seen = set()
    waiting = [file["/"].id]
    while waiting:
        group = waiting.pop()
        for name in group:
            try:
                if group.links.get_info(name).type != h5l.TYPE_HARD:
                    continue
                about = h5o.get_info(group, name)
                if about.addr in seen:
                    continue
                seen.add(about.addr)
                if about.type == h5o.TYPE_GROUP:
                    waiting.append(h5g.open(group, name))
                elif about.type == h5o.TYPE_DATASET:
                    yield h5d.open(group, name)
            except UNREADABLE:
                continue
