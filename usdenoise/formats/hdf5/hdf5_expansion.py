"""Reading of HDF5 chunks that deflate could expand to more memory than they should take.

The deflate filter of the HDF5 library expands a chunk to its end, however large that is: 13 MB to 3 GB of zeros. Chunks
that could become large are expanded here instead, as far as their dataset allows.
"""

import math
import zlib
from collections.abc import Iterator
from itertools import product
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.damage import HARMLESS_BYTES, MAX_EXPANSION
from usdenoise.formats.layout import slabs
from usdenoise.formats.stored import Index

_SLACK_BYTES = 1 << 12
"""Bytes that the other filters of a chunk may add to its values: checksums and headers."""

Place = tuple[int, ...]
"""Index of the first entry of a chunk in its dataset."""


class BoundedReader:
    """Reader of a dataset, in which no chunk takes much more memory than its values.

    Parameters
    ----------
    dataset : h5py.Dataset
        The dataset.
    """

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset = dataset
        self._large: frozenset[Place] | None = None

    def __call__(self, index: Index) -> NDArray[Any]:
        """Return the entries of an index.

        Raises
        ------
        InputError
            If a chunk expands to more than its values.
        """
        large = self._large_chunks()
        if large and _has_known_filters(self._dataset):
            return self._assembled(index)
        for first in large.intersection(self._chunks(index)):
            _expanded(self._dataset, first)
        return np.asarray(self._dataset[index])

    def whole(self) -> Any:
        """Return all entries as the library reads them.

        Raises
        ------
        InputError
            If a chunk expands to more than its values.
        """
        for first in self._large_chunks():
            _expanded(self._dataset, first)
        return self._dataset[()]

    def _large_chunks(self) -> frozenset[Place]:
        if self._large is None:
            self._large = _large_chunks(self._dataset)
        return self._large

    def _chunks(self, index: Index) -> Iterator[Place]:
        lengths = zip(index, self._dataset.chunks or (), strict=False)
        return product(*(range(part.start // n * n, part.stop, n) for part, n in lengths))

    def _assembled(self, index: Index) -> NDArray[Any]:
        dataset = self._dataset
        values = np.empty([len(range(part.start, part.stop, part.step)) for part in index], dataset.dtype)
        for within, target in slabs(index, dataset.chunks):
            first = tuple(part.start // n * n for part, n in zip(within, dataset.chunks, strict=True))
            inner = (
                slice(part.start - start, part.stop - start, part.step)
                for part, start in zip(within, first, strict=True)
            )
            values[target] = _chunk_values(dataset, first)[tuple(inner)]
        return values


def _filters(dataset: h5py.Dataset) -> list[int]:
    settings = dataset.id.get_create_plist()
    return [settings.get_filter(place)[0] for place in range(settings.get_nfilters())]


def _large_chunks(dataset: h5py.Dataset) -> frozenset[Place]:
    """Return the chunks that deflate could expand to more than HARMLESS_BYTES."""
    if dataset.chunks is None or dataset.id.get_storage_size() * MAX_EXPANSION <= HARMLESS_BYTES:
        return frozenset()
    found = set()

    def note(chunk: Any) -> None:
        if chunk.size * MAX_EXPANSION > HARMLESS_BYTES:
            found.add(tuple(chunk.chunk_offset))

    if h5py.h5z.FILTER_DEFLATE in _filters(dataset):
        dataset.id.chunk_iter(note)
    return frozenset(found)


def _has_known_filters(dataset: h5py.Dataset) -> bool:
    """Return whether the values of an expanded chunk can be read here: their filters and their type are known."""
    known = ([h5py.h5z.FILTER_DEFLATE], [h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE])
    return _filters(dataset) in known and dataset.id.get_type() == h5py.h5t.py_create(dataset.dtype)


def _expanded(dataset: h5py.Dataset, first: Place) -> tuple[int, bytes]:
    """Return the mask of the filters that a chunk has not gone through, and the chunk without deflate."""
    n_bytes = math.prod(dataset.chunks) * dataset.dtype.itemsize
    skipped, packed = dataset.id.read_direct_chunk(first)
    if skipped >> _filters(dataset).index(h5py.h5z.FILTER_DEFLATE) & 1:
        return skipped, packed
    expanded = zlib.decompressobj().decompress(packed, n_bytes + _SLACK_BYTES)
    if len(expanded) == n_bytes + _SLACK_BYTES:
        raise InputError(
            f"a chunk of '{dataset.name.strip('/')}' in {dataset.file.filename} expands to more than its {n_bytes} "
            "bytes, so it is corrupt; write it again"
        )
    return skipped, expanded


def _chunk_values(dataset: h5py.Dataset, first: Place) -> NDArray[Any]:
    skipped, raw = _expanded(dataset, first)
    values: NDArray[Any] = np.frombuffer(raw, np.uint8)
    # Shuffle is the first of two filters. It stores the first bytes of all values, then the second ones, and so on.
    if len(_filters(dataset)) == 2 and not skipped & 1:
        values = np.ascontiguousarray(values.reshape(dataset.dtype.itemsize, -1).T).reshape(-1)
    chunk: NDArray[Any] = values.view(dataset.dtype).reshape(dataset.chunks)
    return chunk
