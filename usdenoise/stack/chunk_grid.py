"""The chunks of a Dask array as a grid: groups of pixels by parts of the frames."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack import chunk_functions
from usdenoise.stack.acquisition import Acquisition, canonical_axes

FETCHED_BYTES = 96 << 20
"""Bytes of gathered rows that workers hold at a time, all together."""

SUMMED_AT_ONCE = 4
"""Chunks whose sums are added in one step."""

Delayed = Any
"""A value that the scheduler will make."""


@dataclass(frozen=True)
class ChunkGrid:
    """The chunks of a stack, each an (n, n_t) array that is made when it is needed.

    Attributes
    ----------
    pixels : tuple of (n,) arrays
        Numbers of the pixels of each group, as rows of the Casorati matrix.
    edges : (n_parts + 1,) int64 array
        First frame of each part of the frames, and the number of frames.
    chunks : tuple of tuples
        chunks[g][c] is the chunk of group g and part c, not yet made.
    dtype : numpy.dtype
        Type of the entries.
    """

    pixels: tuple[NDArray[np.intp], ...]
    edges: NDArray[np.int64]
    chunks: tuple[tuple[Delayed, ...], ...]
    dtype: np.dtype[Any]

    @classmethod
    def from_stack(cls, stack: Acquisition, dtype: Any) -> Self:
        """Return the chunks of a stack that is a Dask array.

        Parameters
        ----------
        stack : Acquisition
            The stack.
        dtype : dtype
            Type of the entries.
        """
        array: Any = stack.iq
        order = _order(stack)
        as_rows = _delayed(chunk_functions.as_rows)
        made = array.to_delayed().transpose(order)
        chunks = [
            tuple(as_rows(chunk, order, np.dtype(dtype), stack.name) for chunk in row)
            for row in made.reshape(-1, made.shape[-1])
        ]
        sizes = [array.chunks[axis] for axis in order]
        return cls(_pixel_groups(sizes[:-1]), _edges(sizes[-1]), tuple(chunks), np.dtype(dtype))

    @property
    def n_parts(self) -> int:
        """Number of parts of the frames."""
        return len(self.edges) - 1

    def frames(self, part: int) -> slice:
        """Return the frames of a part."""
        return slice(int(self.edges[part]), int(self.edges[part + 1]))

    def select(self, groups: Sequence[int]) -> Self:
        """Return the grid of some groups of pixels."""
        pixels, chunks = zip(*((self.pixels[group], self.chunks[group]) for group in groups), strict=True)
        return replace(self, pixels=pixels, chunks=chunks)

    def keep(self, pixels: NDArray[np.intp]) -> Self:
        """Return the grid of some pixels, numbered anew; a group without any is left out."""
        places = [np.flatnonzero(np.isin(own, pixels)) for own in self.pixels]
        groups = [group for group, here in enumerate(places) if len(here)]
        kept = self.select(groups).map(chunk_functions.take, lambda group, part: (places[groups[group]],))
        numbers = tuple(np.searchsorted(pixels, self.pixels[group][places[group]]) for group in groups)
        return replace(kept, pixels=numbers)

    def put_back(self, kept: Self, pixels: NDArray[np.intp]) -> Self:
        """Return the grid of all pixels with the chunks that :meth:`keep` returned, changed since, and 0 in the others."""
        placed = _delayed(chunk_functions.placed)
        rest, empty = iter(kept.chunks), [np.empty((0, n), self.dtype) for n in np.diff(self.edges)]
        chunks = []
        for own in self.pixels:
            here = np.flatnonzero(np.isin(own, pixels))
            row = next(rest) if len(here) else empty
            chunks.append(tuple(placed(chunk, here, len(own)) for chunk in row))
        return replace(self, chunks=tuple(chunks))

    def map(self, function: Callable[..., Any], arguments: Callable[[int, int], tuple[Any, ...]]) -> Self:
        """Return the grid of what a function makes of each chunk and the arguments for its group and part."""
        task = _delayed(function)
        return replace(
            self,
            chunks=tuple(
                tuple(task(chunk, *arguments(group, part)) for part, chunk in enumerate(row))
                for group, row in enumerate(self.chunks)
            ),
        )

    def with_last_frames(self, count: int) -> list[list[Delayed | None]]:
        """Return the last `count` frames before each chunk; None where there are none, or none are asked for."""
        task = _delayed(chunk_functions.last_frames)
        before: list[list[Delayed | None]] = []
        for row in self.chunks:
            last: list[Delayed | None] = [None]
            for part, chunk in enumerate(row[:-1] if count else ()):
                enough = self.edges[part + 1] - self.edges[part] >= count
                last.append(task(None if enough else last[-1], chunk, count))
            before.append(last if count else [None] * len(row))
        return before

    def sums_over_frames(self, add: Callable[[list[Any]], Any] = chunk_functions.add) -> list[Any]:
        """Make the chunks, and return their sum over the frames for each group.

        Parameters
        ----------
        add : callable
            Returns the sum of a list; by default that of arrays in double precision.
        """
        return compute([_tree(add, row) for row in self.chunks])

    def sums_over_pixels(self) -> list[Any]:
        """Make the chunks, and return their sum over the groups for each part."""
        return compute([_tree(chunk_functions.add, column) for column in zip(*self.chunks, strict=True)])

    def make(self, n_rows: Sequence[int]) -> Iterator[tuple[int, int, Any]]:
        """Make the chunks, and yield the group, the part and the chunk of each.

        Parameters
        ----------
        n_rows : sequence of int
            Number of rows of the chunks of each group, about.
        """
        places = list(np.ndindex(len(self.chunks), self.n_parts))
        chunks = [self.chunks[group][part] for group, part in places]
        sizes = np.outer(n_rows, np.diff(self.edges)).ravel() * self.dtype.itemsize
        for (group, part), made in zip(places, _few_at_a_time(chunks, sizes), strict=True):
            yield group, part, made

    def by_pixels(self, values: NDArray[Any]) -> list[Delayed]:
        """Return the rows of each group of pixels of an (n_pixels, k) array, for the tasks of all its chunks."""
        return [_constant(values[pixels]) for pixels in self.pixels]

    def by_frames(self, values: NDArray[Any]) -> list[Delayed]:
        """Return the rows of each part of the frames of an (n_frames, k) array, for the tasks of all its chunks."""
        return [_constant(np.ascontiguousarray(values[self.frames(part)])) for part in range(self.n_parts)]

    def as_array(self, like: Acquisition) -> Any:
        """Return the chunks as a Dask array in the axis order and the chunks of a stack; nothing is made yet."""
        import dask.array as da

        source: Any = like.iq
        order = _order(like)
        as_chunk = _delayed(chunk_functions.as_chunk)
        sizes = [source.chunks[axis] for axis in order]
        places = np.empty([len(along) for along in sizes], object)
        for index in np.ndindex(*places.shape):
            shape = tuple(along[i] for along, i in zip(sizes, index, strict=True))
            group = int(np.ravel_multi_index(index[:-1], places.shape[:-1]))
            own = tuple(shape[axis] for axis in np.argsort(order))
            chunk = as_chunk(self.chunks[group][index[-1]], shape, order)
            places[index] = da.from_delayed(chunk, own, self.dtype)
        return da.block(places.transpose(np.argsort(order)).tolist())


def fetch(array: Any, target: NDArray[Any]) -> None:
    """Make a Dask array, a few chunks at a time, and copy it into an array.

    Parameters
    ----------
    array : dask.array.Array
        The array.
    target : array of the same shape
        Receives the values.
    """
    places = list(np.ndindex(*array.numblocks))
    delayed, edges = array.to_delayed(), [_edges(sizes) for sizes in array.chunks]
    spans = [
        tuple(slice(int(edge[i]), int(edge[i + 1])) for edge, i in zip(edges, place, strict=True))
        for place in places
    ]
    sizes = np.array([target[span].nbytes for span in spans])
    for span, values in zip(spans, _few_at_a_time([delayed[place] for place in places], sizes), strict=True):
        target[span] = values


def _few_at_a_time(values: Sequence[Delayed], sizes: NDArray[np.int64]) -> Iterator[Any]:
    """Make values a few at a time, and yield them: those that wait to be fetched take memory of the workers.

    Parameters
    ----------
    values : sequence
        The values.
    sizes : array
        Bytes of each, about.
    """
    batch = np.cumsum(sizes) // FETCHED_BYTES
    for number in np.unique(batch):
        yield from compute([values[i] for i in np.flatnonzero(batch == number).tolist()])


def _tree(add: Callable[[list[Any]], Any], values: Sequence[Delayed]) -> Delayed:
    """Return the sum of values, a few at a time, so that a worker need not hold all of them."""
    task = _delayed(add)
    while len(values) > 1:
        values = [
            task(list(values[start : start + SUMMED_AT_ONCE]))
            for start in range(0, len(values), SUMMED_AT_ONCE)
        ]
    return values[0]


def compute(values: Sequence[Delayed]) -> list[Any]:
    """Make values on the scheduler that is active."""
    import dask

    # The factors of a pass travel with its tasks: megabytes are nothing to be warned about.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")
        return list(dask.compute(*values))


def _constant(values: NDArray[Any]) -> Delayed:
    """Return values as a task of their own, so that they travel once, and not with every task that needs them."""
    import dask

    return dask.delayed(values, pure=False, traverse=False)


def _delayed(function: Callable[..., Any]) -> Callable[..., Delayed]:
    import dask

    made: Callable[..., Delayed] = dask.delayed(function, pure=False)
    return made


def _order(stack: Acquisition) -> tuple[int, ...]:
    return tuple(stack.axes.index(letter) for letter in canonical_axes(stack.axes))


def _edges(sizes: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _pixel_groups(sizes: Sequence[Sequence[int]]) -> tuple[NDArray[np.intp], ...]:
    edges = [_edges(along) for along in sizes]
    shape = [int(along[-1]) for along in edges]
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    groups = []
    for index in np.ndindex(*(len(along) for along in sizes)):
        part = tuple(slice(edge[i], edge[i + 1]) for edge, i in zip(edges, index, strict=True))
        groups.append(numbers[part].ravel())
    return tuple(groups)
