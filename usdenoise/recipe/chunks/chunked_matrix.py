"""The Casorati matrix of a stack in chunks: rows are gathered when they are asked for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.recipe.chunks.chunk_functions import pick
from usdenoise.recipe.chunks.chunk_grid import ChunkGrid
from usdenoise.stack.casorati import CasoratiMatrix


class ChunkedRows:
    """Rows of a matrix in chunks: an index of rows gathers them.

    Rows that were gathered once are kept. NaN marks unobserved entries.

    Parameters
    ----------
    grid : ChunkGrid
        The chunks.
    """

    def __init__(self, grid: ChunkGrid) -> None:
        self.grid = grid
        self.shape = sum(len(group) for group in grid.pixels), int(grid.edges[-1])
        self.dtype = grid.dtype
        self._kept: list[tuple[NDArray[np.intp], NDArray[Any]]] = []

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.shape[0] * self.shape[1]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        wanted = np.arange(self.shape[0])[rows]
        for numbers, block in self._kept:
            # Exactly what was gathered is not copied: it can be hundreds of megabytes.
            if np.array_equal(numbers, wanted):
                return block
        known = np.concatenate([np.empty(0, np.intp), *(numbers for numbers, _ in self._kept)])
        missing = np.setdiff1d(wanted, known)
        if len(missing):
            for _ in self.gather([missing], pick, _itself):
                pass
        values = np.empty((len(wanted), self.shape[1]), self.dtype)
        for numbers, block in self._kept:
            common = np.isin(wanted, numbers)
            values[common] = block[np.searchsorted(numbers, wanted[common])]
        return values

    def gather(
        self,
        sets: Sequence[NDArray[np.intp]],
        function: Callable[[NDArray[Any], NDArray[np.intp]], Any],
        picked: Callable[[Any], NDArray[Any]],
    ) -> Iterator[tuple[int, Any]]:
        """Gather and keep sets of rows by a function of all chunks; yield what it makes of each, with its group of pixels.

        Parameters
        ----------
        sets : sequence of arrays
            Row numbers, each set increasing.
        function : callable
            Takes a chunk and the places of the rows in it.
        picked : callable
            Returns the values of the rows in what the function returned.
        """
        blocks = [np.empty((len(rows), self.shape[1]), self.dtype) for rows in sets]
        every = np.unique(np.concatenate(sets))
        local = [np.flatnonzero(np.isin(group, every)) for group in self.grid.pixels]
        made = self.grid.map(function, lambda group, part: (local[group],))
        for group, part, result in made.each([len(some) for some in local]):
            numbers, values = self.grid.pixels[group][local[group]], picked(result)
            for rows, block in zip(sets, blocks, strict=True):
                common = np.isin(numbers, rows)
                block[np.searchsorted(rows, numbers[common]), self.grid.frames(part)] = values[common]
            yield group, result
        self._kept += zip(sets, blocks, strict=True)

    def forget(self, rows: NDArray[np.intp]) -> None:
        """Release a set of rows that is not needed any more, once."""
        for place, (numbers, _) in enumerate(self._kept):
            if np.array_equal(numbers, rows):
                del self._kept[place]
                return


def _itself(values: NDArray[Any]) -> NDArray[Any]:
    return values


@dataclass(frozen=True)
class ChunkedMatrix(CasoratiMatrix):
    """A Casorati matrix in chunks.

    Attributes
    ----------
    values : ChunkedRows
        The rows.
    largest : float
        Largest magnitude of a real or imaginary part of the data.
    """

    values: Any
    largest: float = np.nan

    @property
    def grid(self) -> ChunkGrid:
        """The chunks."""
        grid: ChunkGrid = self.values.grid
        return grid

    def rows(self, rows: slice | NDArray[np.intp]) -> CasoratiMatrix:
        """Return the matrix of some rows in memory; the matrix itself if all of them are asked for."""
        if isinstance(rows, slice) and rows.indices(self.n_pixels) == (0, self.n_pixels, 1):
            return self
        return self.in_memory(rows)

    def in_memory(self, rows: slice | NDArray[np.intp] = slice(None)) -> CasoratiMatrix:
        """Return the matrix of some rows, by default all, in memory; the values are read only."""
        values = self.values[rows]
        observed = None if self.observed is None else self.observed[rows]
        if observed is not None:
            values = np.where(np.isfinite(values), values, 0)
        if self.left_out is not None:
            values = np.where(self.left_out, 0, values)
        return CasoratiMatrix(values, observed, self.executor, self.left_out)

    def largest_part(self) -> float:
        """Return the largest magnitude of a real or imaginary part."""
        return self.largest

    def of_part(self, part: int) -> NDArray[np.bool_] | None:
        """Return the frames of a part of the frames that are left out; None where none is."""
        if self.left_out is None:
            return None
        left_out = self.left_out[self.grid.frames(part)]
        return left_out if left_out.any() else None
