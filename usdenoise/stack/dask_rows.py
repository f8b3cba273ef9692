"""The rows of a Dask array: each pass is a map over its chunks, and rows are gathered when they are asked for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.gapped_rows import fit_gapped_rows
from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.linalg.low_rank import Product
from usdenoise.linalg.row_blocks import row_blocks
from usdenoise.stack import chunk_functions
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.bit_mask import kept_bits, pack
from usdenoise.stack.chunk_grid import ChunkGrid
from usdenoise.stack.rows import ArrayRows, Rows

_FITTED_ROWS = 1024
"""Rows whose masks are unpacked at a time."""


@dataclass(frozen=True)
class DaskRows(Rows):
    """The rows of a Dask array.

    Attributes
    ----------
    grid : ChunkGrid
        The chunks, in which NaN marks unobserved entries.
    observed, executor, excluded
        As for :class:`usdenoise.stack.rows.Rows`; the executor is for the work on gathered rows.
    largest : float
        Largest magnitude of a real or imaginary part of the data.
    gathered : list of (row numbers, values)
        Sets of rows that were gathered. They are kept, so that no chunk is made again for them.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from usdenoise import Acquisition
    >>> from usdenoise.linalg.executor import ThreadExecutor
    >>> stack = Acquisition(da.ones((9, 10, 5), chunks=(3, 5, 5)), "tzx")
    >>> rows, energy = check_chunks(stack, np.float64, ThreadExecutor(1), [np.arange(0, 50, 2)])
    >>> rest, power, lags = rows.subtract((np.ones((50, 1)), np.full((1, 9), 0.5)), n_lags=2)
    >>> float(energy[0]), float(power[0])
    (9.0, 0.25)
    """

    is_in_memory: ClassVar[bool] = False

    grid: ChunkGrid
    observed: NDArray[np.uint8] | None
    executor: Executor
    excluded: NDArray[np.bool_] | None = None
    largest: float = np.nan
    gathered: list[tuple[NDArray[np.intp], NDArray[Any]]] = field(
        default_factory=list, repr=False, compare=False
    )

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n_pixels, n_frames)."""
        return sum(map(len, self.grid.pixels)), int(self.grid.edges[-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        return self.grid.dtype

    def take(self, rows: slice | NDArray[np.intp]) -> ArrayRows:
        """Return some rows in memory, gathered if they are not yet; the values are read only."""
        values = self._gathered(np.arange(self.n_pixels)[rows])
        observed = None if self.observed is None else self.observed[rows]
        if observed is not None:
            values = np.where(np.isfinite(values), values, 0)
        if self.excluded is not None:
            values = np.where(self.excluded, 0, values)
        return ArrayRows(values, observed, self.executor, self.excluded)

    def crop(self, shape: tuple[int, ...], part: tuple[slice, ...]) -> NDArray[Any]:
        """Return a part of the image in all frames; its rows are not kept. See :meth:`Rows.crop`."""
        numbers = np.arange(self.n_pixels).reshape(shape)[part]
        values = self.take(numbers.ravel()).values
        for place, (gathered, _) in enumerate(self.gathered):
            if np.array_equal(gathered, numbers.ravel()):
                del self.gathered[place]
                break
        return values.reshape(*numbers.shape, self.n_frames)

    def largest_part(self) -> float:
        """Return the largest magnitude of a real or imaginary part."""
        return self.largest

    def exclude(self, frames: NDArray[np.bool_]) -> tuple[Self, NDArray[np.float64]]:
        """Return the matrix whose passes exclude some frames, and the energy that is left; see :meth:`Rows.exclude`."""
        rest = replace(self, excluded=frames)
        energies = self.grid.map(chunk_functions.energy, lambda group, part: (rest._excluded_in(part),))
        return rest, self._by_row(energies.sums_over_frames())

    def fit(
        self, right: NDArray[Any], ridge: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Fit every row to orthonormal columns; see :meth:`Rows.fit`."""
        parts = self.grid.by_frames(right)
        projected = self.grid.map(
            chunk_functions.project, lambda group, part: (parts[part], self._excluded_in(part))
        )
        left = self._by_row(projected.sums_over_frames()).astype(self.dtype)
        for rows in row_blocks(self.n_pixels, _FITTED_ROWS):
            fit_gapped_rows(left[rows], self.observed_mask(rows), right, ridge)
        return left, gram(left)

    def fit_and_moments(
        self, right: NDArray[Any], ridge: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Fit every row, and sum up the moments in a second pass; see :meth:`Rows.fit_and_moments`."""
        left, squares = self.fit(right, ridge)
        groups, parts = self.grid.by_pixels(left), self.grid.by_frames(right)
        moments = self.grid.map(
            chunk_functions.moments,
            lambda group, part: (groups[group], parts[part], self._excluded_in(part)),
        )
        return left, squares, np.concatenate(moments.sums_over_pixels(), axis=1)

    def lag_sums(self, n_lags: int, minus: Product, rows: NDArray[np.intp]) -> LagSums:
        """Return the lagged products of some rows of M - A B^H. Those of all rows are made: a chunk is made as a whole."""
        grid = _subtracted(self.grid, minus)
        return self._measured(grid, grid, n_lags)[1].rows(rows)

    def measure(self, n_lags: int) -> tuple[NDArray[np.float64], LagSums]:
        """Return the mean power and the lagged products of each row; see :meth:`Rows.measure`."""
        return self._measured(self.grid, self.grid, n_lags)

    def third_difference_sums(self) -> NDArray[np.float64]:
        """Return the sum of the squared third differences over time of each row."""
        before = self.grid.with_last_frames(3)
        sums = self.grid.map(
            chunk_functions.third_differences, lambda group, part: (before[group][part],)
        ).sums_over_frames()
        return self._by_row(sums)

    def subtract(
        self, product: Product, n_lags: int, further: Product | None = None, in_halves: bool = True
    ) -> tuple[Self, NDArray[np.float64], LagSums]:
        """Return M - A B^H, to be made again when it is needed, and measure it; see :meth:`Rows.subtract`."""
        grid = _subtracted(self.grid, product)
        lagged = grid if further is None else _subtracted(grid, further)
        return self._with_grid(grid), *self._measured(grid, lagged, n_lags)

    def fill(self, product: Product, keep_observed: bool = True) -> tuple[Self, NDArray[np.float64]]:
        """Return the matrix with A B^H where entries are unobserved; see :meth:`Rows.fill`."""
        grid = self.grid
        groups, parts = grid.by_pixels(product[0]), grid.by_frames(product[1].T)
        filled = grid.map(
            chunk_functions.filled,
            lambda group, part: (groups[group], parts[part], keep_observed, self._excluded_in(part)),
        )
        energies = filled.map(chunk_functions.energy, lambda group, part: (self._excluded_in(part),))
        power = self._by_row(energies.sums_over_frames()) / self.n_used_frames
        return self._with_grid(filled), power

    def keep(self, pixels: NDArray[np.intp]) -> Self:
        """Return the matrix of some rows, and what was gathered of them; see :meth:`Rows.keep`."""
        gathered = []
        for numbers, block in self.gathered:
            here = np.isin(numbers, pixels)
            gathered.append((np.searchsorted(pixels, numbers[here]), block[here]))
        observed = kept_bits(self.observed, pixels, self.n_frames)
        return replace(self, grid=self.grid.keep(pixels), observed=observed, gathered=gathered)

    def put_back(self, kept: Self, pixels: NDArray[np.intp]) -> Self:
        """Return the matrix with its other rows again; see :meth:`Rows.put_back`."""
        whole = self._with_grid(self.grid.put_back(kept.grid, pixels))
        return replace(whole, excluded=kept.excluded)

    def as_stack(self, like: Acquisition) -> Any:
        """Return a Dask array in the axis order and the chunks of `like`; nothing is made yet."""
        return self.grid.as_array(like)

    def _with_grid(self, grid: ChunkGrid) -> Self:
        return replace(self, grid=grid, gathered=[])

    def _excluded_in(self, part: int) -> NDArray[np.bool_] | None:
        """Return the excluded frames of a part of the frames; None where none is."""
        if self.excluded is None:
            return None
        excluded = self.excluded[self.grid.frames(part)]
        return excluded if excluded.any() else None

    def _by_row(self, groups: list[NDArray[Any]]) -> NDArray[Any]:
        """Return values of each group's pixels in the order of the rows."""
        values = np.empty((self.n_pixels, *groups[0].shape[1:]), groups[0].dtype)
        for pixels, group in zip(self.grid.pixels, groups, strict=True):
            values[pixels] = group
        return values

    def _measured(
        self, grid: ChunkGrid, lagged: ChunkGrid, n_lags: int
    ) -> tuple[NDArray[np.float64], LagSums]:
        """Return the mean power of the chunks of one grid, and the lagged products of those of another."""
        before = lagged.with_last_frames(max(n_lags - 1, 0))

        def arguments(group: int, part: int) -> tuple[Any, ...]:
            start = int(grid.edges[part])
            return before[group][part], grid.chunks[group][part], start, self.n_frames, n_lags, self.excluded

        made = lagged.map(chunk_functions.measure_chunk, arguments)
        energies, lags = zip(*made.sums_over_frames(chunk_functions.add_measured), strict=True)
        sums, counts = (
            np.stack([self._by_row([values[half] for values in each]) for half in range(2)])
            for each in (
                [group.sums for group in lags],
                [np.broadcast_to(group.counts, group.sums.shape) for group in lags],
            )
        )
        return self._by_row(list(energies)) / self.n_used_frames, LagSums(sums, counts)

    def _gathered(self, wanted: NDArray[np.intp]) -> NDArray[Any]:
        """Return the values of some rows, with NaN for unobserved entries."""
        for numbers, block in self.gathered:
            # Exactly what was gathered is not copied: it can be hundreds of megabytes.
            if np.array_equal(numbers, wanted):
                return block
        known = np.concatenate([np.empty(0, np.intp), *(numbers for numbers, _ in self.gathered)])
        missing = np.setdiff1d(wanted, known)
        if len(missing):
            for _ in self._gather([missing], chunk_functions.pick):
                pass
        values = np.empty((len(wanted), self.n_frames), self.dtype)
        for numbers, block in self.gathered:
            common = np.isin(wanted, numbers)
            values[common] = block[np.searchsorted(numbers, wanted[common])]
        return values

    def _gather(
        self,
        sets: Sequence[NDArray[np.intp]],
        function: Callable[[NDArray[Any], NDArray[np.intp]], tuple[Any, ...]],
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Gather and keep sets of rows in one pass; yield the group of pixels of each chunk, and what it gives besides.

        Parameters
        ----------
        sets : sequence of arrays
            Row numbers, each set increasing.
        function : callable
            Takes a chunk and the places of rows in it; returns these rows, and anything else.
        """
        blocks = [np.empty((len(rows), self.n_frames), self.dtype) for rows in sets]
        wanted = np.unique(np.concatenate(sets))
        places = [np.flatnonzero(np.isin(group, wanted)) for group in self.grid.pixels]
        made = self.grid.map(function, lambda group, part: (places[group],))
        for group, part, (values, *found) in made.make([len(rows) for rows in places]):
            numbers = self.grid.pixels[group][places[group]]
            for rows, block in zip(sets, blocks, strict=True):
                common = np.isin(numbers, rows)
                block[np.searchsorted(rows, numbers[common]), self.grid.frames(part)] = values[common]
            yield group, tuple(found)
        self.gathered.extend(zip(sets, blocks, strict=True))


def check_chunks(
    stack: Acquisition, dtype: Any, executor: Executor, gathered: Sequence[NDArray[np.intp]]
) -> tuple[DaskRows, NDArray[np.float64]]:
    """Return the rows of a stack that is a Dask array, and their energy, after a first pass over all chunks.

    Parameters
    ----------
    stack : Acquisition
        The stack.
    dtype : dtype
        Type of the entries.
    executor : Executor
        For the work on gathered rows.
    gathered : sequence of arrays
        Sets of row numbers, each increasing, that are gathered in this pass. Others are gathered when they are taken.

    Returns
    -------
    rows : DaskRows
        The rows.
    energy : (n_pixels,) float64 array
        Sum of |x|^2 over the observed entries of each row.

    Raises
    ------
    InputError
        If a finite value is beyond the range of `dtype`.
    """
    grid = ChunkGrid.from_stack(stack, dtype)
    rows = DaskRows(grid, None, executor)
    energy, missing, largest = np.zeros(rows.n_pixels), np.zeros(rows.n_pixels, np.int64), 0.0
    for group, (row_energy, unobserved, most) in rows._gather(gathered, chunk_functions.look):
        energy[grid.pixels[group]] += row_energy
        missing[grid.pixels[group]] += unobserved
        largest = max(largest, most)
    observed = _observed_bits(grid, rows.shape, missing) if missing.any() else None
    return replace(rows, observed=observed, largest=largest), energy


def _subtracted(grid: ChunkGrid, product: Product) -> ChunkGrid:
    groups, parts = grid.by_pixels(product[0]), grid.by_frames(product[1].T)
    return grid.map(chunk_functions.subtracted, lambda group, part: (groups[group], parts[part]))


def _observed_bits(grid: ChunkGrid, shape: tuple[int, int], missing: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the bit mask of the observed entries; only groups with unobserved entries are looked at again."""
    bits = pack(np.ones((1, shape[1]), bool)).repeat(shape[0], axis=0)
    gappy = grid.select([group for group, pixels in enumerate(grid.pixels) if missing[pixels].any()])
    masks = gappy.map(np.isfinite, lambda group, part: ())
    parts: list[NDArray[np.bool_]] = []
    for group, part, observed in masks.make([len(pixels) for pixels in gappy.pixels]):
        parts.append(observed)
        if part == gappy.n_parts - 1:
            bits[gappy.pixels[group]] = pack(np.concatenate(parts, axis=1))
            parts = []
    return bits
