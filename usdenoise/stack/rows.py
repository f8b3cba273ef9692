"""The rows of a Casorati matrix: what the recipe asks of them, and the rows of a NumPy array.

The recipe works on :class:`Rows` and does not know where they are. :class:`ArrayRows` are those of an array in memory,
:class:`usdenoise.stack.dask_rows.DaskRows` those of a Dask array. Their methods are passes over the matrix; they know
nothing of tissue and blood.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.gapped_rows import fit_gapped_rows
from usdenoise.linalg.gram_matrices import gram
from usdenoise.linalg.lag_sums import LagSums
from usdenoise.linalg.low_rank import Product
from usdenoise.linalg.row_blocks import block_rows, row_blocks, row_squared_norms, third_difference_norms
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.bit_mask import kept_bits, pack, packed_width, unpack
from usdenoise.stack.casorati import from_casorati
from usdenoise.stack.sampling import spread_rows

Result = TypeVar("Result")

THIRD_DIFFERENCE_GAIN = 20
"""Power of the third differences of white noise over its own: the sum of the squares of 1, 3, 3 and 1."""

BLOCK_ENTRIES = 1 << 19
"""Entries of a row block in which unobserved entries are looked for."""


class Rows(ABC):
    """A Casorati matrix M, (n_pixels, n_frames), of which some entries may be unobserved and some frames excluded.

    Attributes
    ----------
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the observed entries (see :mod:`usdenoise.stack.bit_mask`); None when all are observed.
    executor : Executor
        Maps functions over row blocks.
    excluded : (n_frames,) boolean array or None
        Frames that take no part in any pass, as if their entries were 0. None when there are none.
    is_in_memory : bool
        Whether any part of the rows can be looked at without gathering it first.
    """

    observed: NDArray[np.uint8] | None
    executor: Executor
    excluded: NDArray[np.bool_] | None
    is_in_memory: ClassVar[bool] = True

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Shape (n_pixels, n_frames)."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""

    @abstractmethod
    def take(self, rows: slice | NDArray[np.intp]) -> "ArrayRows":
        """Return some rows in memory: a view for a slice of an array, otherwise values that are read only."""

    @abstractmethod
    def crop(self, shape: tuple[int, ...], part: tuple[slice, ...]) -> Any:
        """Return a part of the image in all frames, (pixels along each axis..., n_frames), to be read only.

        An index of it, one slice an axis, gives what np.asarray makes an array.

        Parameters
        ----------
        shape : tuple of int
            Pixels along each spatial axis, in the order of the rows.
        part : tuple of slice
            The part, one slice an axis.
        """

    @abstractmethod
    def largest_part(self) -> float:
        """Return the largest magnitude of a real or imaginary part."""

    @abstractmethod
    def exclude(self, frames: NDArray[np.bool_]) -> tuple[Self, NDArray[np.float64]]:
        """Return the matrix without some frames, and the energy that is left in each row.

        Their values in an array become 0.
        """

    @abstractmethod
    def fit(
        self, right: NDArray[Any], ridge: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Fit every row to orthonormal columns V: U = argmin |M - U V^H| over the observed entries, in one pass.

        Parameters
        ----------
        right : (n_frames, r) array
            V.
        ridge : (r,) float64 array, optional
            Weights of the squared coefficients of rows with unobserved entries; by default the rounding level.

        Returns
        -------
        left : (n_pixels, r) array
            U, which is M V where every entry is observed.
        squares : (r, r) array
            U^H U in double precision.
        """

    @abstractmethod
    def fit_and_moments(
        self, right: NDArray[Any], ridge: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Fit every row as :meth:`fit` does, and return U, U^H U and the moments.

        Returns
        -------
        left, squares
            As for :meth:`fit`.
        moments : (r, n_frames) array
            U^H M in double precision, with U V^H for unobserved entries.
        """

    @abstractmethod
    def lag_sums(self, n_lags: int, minus: Product, rows: NDArray[np.intp]) -> LagSums:
        """Return the lagged products of some rows of M - A B^H; M stays as it is.

        Parameters
        ----------
        n_lags : int
            Number of lags, lag 0 included.
        minus : pair of arrays
            A and B^H.
        rows : array of row numbers
            The rows.
        """

    @abstractmethod
    def measure(self, n_lags: int) -> tuple[NDArray[np.float64], LagSums]:
        """Return the mean power over the frames of each row, and the lagged products, in one pass."""

    @abstractmethod
    def third_difference_sums(self) -> NDArray[np.float64]:
        """Return the sum of the squared third differences over time of each row."""

    def fast_power(self) -> NDArray[np.float64]:
        """Return the power of the third differences over time of each row, relative to that of white noise.

        It is the power of the noise in a row: slow tissue is not in it, and blood hardly more than in proportion.
        """
        return self.third_difference_sums() / (THIRD_DIFFERENCE_GAIN * max(self.n_frames - 3, 1))

    @abstractmethod
    def subtract(
        self, product: Product, n_lags: int, further: Product | None = None, in_halves: bool = True
    ) -> tuple[Self, NDArray[np.float64], LagSums]:
        """Take A B^H out of the matrix, and measure what is left in the same pass.

        Parameters
        ----------
        product : pair of arrays
            A and B^H. The values of an array change in place.
        n_lags : int
            Number of lags, lag 0 included; 0 for none.
        further : pair of arrays, optional
            C and D^H, which are taken out before the lagged products are measured, and stay in the matrix.
        in_halves : bool
            Whether the lagged products are wanted of each half of the frames, as by default, or of both together.

        Returns
        -------
        rest : Rows
            M - A B^H, 0 where an entry is unobserved.
        power : (n_pixels,) float64 array
            Its mean power over the frames.
        lags : LagSums
            The lagged products of M - A B^H - C D^H.
        """

    @abstractmethod
    def fill(self, product: Product, keep_observed: bool = True) -> tuple[Self, NDArray[np.float64]]:
        """Set the unobserved entries and the excluded frames to A B^H.

        Parameters
        ----------
        product : pair of arrays
            A and B^H.
        keep_observed : bool
            Whether the observed entries stay, as by default; otherwise the whole matrix becomes A B^H.

        Returns
        -------
        filled : Rows
            The matrix; the values of an array change in place.
        power : (n_pixels,) float64 array
            Its mean power over the frames that are not excluded.
        """

    @abstractmethod
    def keep(self, pixels: NDArray[np.intp]) -> Self:
        """Return the matrix of some rows, numbered anew; :meth:`put_back` brings the others back.

        The values of an array move to its beginning, and those of the other rows are lost.

        Parameters
        ----------
        pixels : array of row numbers, increasing
            The rows.
        """

    @abstractmethod
    def put_back(self, kept: Self, pixels: NDArray[np.intp]) -> Self:
        """Return the matrix with the rows that :meth:`keep` returned for `pixels`, changed since, and 0 in the others.

        It excludes the frames that those exclude.
        """

    @abstractmethod
    def as_stack(self, like: Acquisition) -> Any:
        """Return the values as a stack in the axis order and shape of `like`: a view, or a Dask array."""

    @property
    def n_pixels(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def n_frames(self) -> int:
        """Number of columns."""
        return self.shape[1]

    @property
    def used(self) -> NDArray[np.bool_] | None:
        """Frames that are not excluded; None when all are used."""
        return None if self.excluded is None else ~self.excluded

    @property
    def n_used_frames(self) -> int:
        """Number of frames that are not excluded."""
        return self.n_frames - (0 if self.excluded is None else int(np.count_nonzero(self.excluded)))

    @property
    def used_shape(self) -> tuple[int, int]:
        """Shape without the excluded frames."""
        return self.n_pixels, self.n_used_frames

    @property
    def is_complete(self) -> bool:
        """Whether every entry is observed."""
        return self.observed is None

    @property
    def n_unobserved(self) -> int:
        """Number of unobserved entries, also those in excluded frames."""
        return self.n_pixels * self.n_frames - self._n_observed(np.ones(self.n_frames, bool))

    @property
    def n_used(self) -> int:
        """Number of observed entries in frames that are not excluded."""
        return self._n_observed(np.ones(self.n_frames, bool) if self.excluded is None else ~self.excluded)

    @property
    def n_unused(self) -> int:
        """Number of entries that are unobserved or in an excluded frame."""
        return self.n_pixels * self.n_frames - self.n_used

    def _n_observed(self, frames: NDArray[np.bool_]) -> int:
        if self.observed is None:
            return self.n_pixels * int(np.count_nonzero(frames))
        # Bits beyond the last frame may be set.
        return int(np.bitwise_count(self.observed & pack(frames[None])).sum(dtype=np.int64))

    def observed_mask(self, rows: slice | NDArray[Any]) -> NDArray[np.bool_] | None:
        """Return the mask of the observed entries of some rows, None when every entry is observed.

        Entries of excluded frames count as observed: they are zeros that a model of zeros fits.
        """
        if self.observed is None:
            return None
        mask = unpack(self.observed[rows], self.n_frames)
        return mask if self.excluded is None else mask | self.excluded

    def sampled_bits(self) -> NDArray[np.uint8] | None:
        """Return the bit mask of the entries that may be sampled: observed, and not in an excluded frame."""
        if self.excluded is None:
            return self.observed
        used = pack(~self.excluded[None])
        if self.observed is None:
            return np.broadcast_to(used, (self.n_pixels, used.shape[1]))
        return self.observed & used

    def pick(self, rows: NDArray[np.intp]) -> "ArrayRows":
        """Return some rows, increasing, to be read only; those of an array are copied when they are asked for."""
        return self.take(rows)

    def spread(self, n_wanted: int) -> "Rows":
        """Return at least so many rows, spread over the image, to be read only; the matrix itself where it has no more."""
        numbers = spread_rows(self.n_pixels, n_wanted)
        return self if len(numbers) == self.n_pixels else self.pick(numbers)


@dataclass(frozen=True, eq=False)
class PickedRows:
    """Some rows of an array, (n, n_frames), which are copied when they are asked for: all at once may take much memory.

    Attributes
    ----------
    values : (n_pixels, n_frames) array
        The array.
    numbers : (n,) array of row numbers
        The rows.

    Examples
    --------
    >>> PickedRows(np.arange(12).reshape(4, 3), np.array([0, 2, 3]))[1:, :2].tolist()
    [[6, 7], [9, 10]]
    """

    values: NDArray[Any]
    numbers: NDArray[np.intp]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, n_frames)."""
        return len(self.numbers), self.values.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        return self.values.dtype

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Copy rows, or a pair of rows and columns; the columns are a slice."""
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        return self.values[self.numbers[rows], columns]


@dataclass(frozen=True)
class ArrayRows(Rows):
    """The rows of an array in memory.

    Attributes
    ----------
    values : (n_pixels, n_frames) array
        Contiguous along the rows, finite everywhere, 0 where an entry is unobserved and in excluded frames.
    observed, executor, excluded
        As for :class:`Rows`.

    Examples
    --------
    >>> import numpy as np
    >>> from usdenoise.linalg.executor import ThreadExecutor
    >>> rows = ArrayRows(np.ones((50, 9)), None, ThreadExecutor(1))
    >>> rest, power, lags = rows.subtract((np.ones((50, 1)), np.full((1, 9), 0.5)), n_lags=2)
    >>> float(power[0]), lags.mean(slice(None), 9)[0].round(3).tolist()
    (0.25, [0.25, 0.222])
    """

    values: NDArray[Any]
    observed: NDArray[np.uint8] | None
    executor: Executor
    excluded: NDArray[np.bool_] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n_pixels, n_frames)."""
        return int(self.values.shape[0]), int(self.values.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        return self.values.dtype

    def take(self, rows: slice | NDArray[np.intp]) -> "ArrayRows":
        """Return some rows: a view for a slice, a copy for an array of row numbers."""
        observed = None if self.observed is None else self.observed[rows]
        return replace(self, values=self.values[rows], observed=observed)

    def pick(self, rows: NDArray[np.intp]) -> "ArrayRows":
        """Return some rows without a copy of them; see :meth:`Rows.pick`."""
        observed = None if self.observed is None else self.observed[rows]
        picked: Any = PickedRows(self.values, rows)
        return replace(self, values=picked, observed=observed)

    def crop(self, shape: tuple[int, ...], part: tuple[slice, ...]) -> Any:
        """Return a view of a part of the image in all frames; see :meth:`Rows.crop`."""
        return self.values.reshape(*shape, self.n_frames)[part]

    def largest_part(self) -> float:
        """Return the largest magnitude of a real or imaginary part."""
        parts = (self.values[rows].view(self.values.dtype.char.lower()) for rows in block_rows(self.shape))
        return max(max(float(part.max()), -float(part.min())) for part in parts)

    def exclude(self, frames: NDArray[np.bool_]) -> tuple[Self, NDArray[np.float64]]:
        """Set some frames to 0, in place; see :meth:`Rows.exclude`."""
        columns, energy = np.flatnonzero(frames), np.zeros(self.n_pixels)

        def clear(rows: slice) -> None:
            block = self.values[rows]
            block[:, columns] = 0
            energy[rows] = row_squared_norms(block)
            self._store(rows, block)

        for _ in self._map(clear):
            pass
        return replace(self, excluded=frames), energy

    def fit(
        self, right: NDArray[Any], ridge: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Fit every row to orthonormal columns; see :meth:`Rows.fit`."""
        left = np.empty((self.n_pixels, right.shape[1]), self.dtype)

        def fitted(rows: slice) -> NDArray[Any]:
            left[rows] = self._fit_block(rows, self.values[rows], right, ridge)
            return gram(left[rows])

        squares: Any = sum(self._map(fitted))
        return left, squares

    def fit_and_moments(
        self, right: NDArray[Any], ridge: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Fit every row, and sum up the moments in the same pass; see :meth:`Rows.fit_and_moments`."""
        wide = np.result_type(self.dtype, np.float64)
        left = np.empty((self.n_pixels, right.shape[1]), self.dtype)

        def moment(rows: slice) -> tuple[NDArray[Any], NDArray[Any]]:
            block, observed = self.values[rows], self.observed_mask(rows)
            left[rows] = self._fit_block(rows, block, right, ridge)
            if observed is not None:
                block = np.where(observed, block, left[rows] @ right.conj().T)
            # (U^H M)^H is M^H U; this order reads the block along its rows.
            return left[rows].conj().T @ block, gram(left[rows])

        moments: Any = np.zeros((right.shape[1], self.n_frames), wide)
        squares: Any = 0.0
        for part, square in self._map(moment):
            moments += part
            squares = squares + square
        return left, squares, moments

    def lag_sums(self, n_lags: int, minus: Product, rows: NDArray[np.intp]) -> LagSums:
        """Return the lagged products of some rows of M - A B^H; see :meth:`Rows.lag_sums`."""
        factor, factor_h = minus

        def lags(part: slice) -> LagSums:
            some = rows[part]
            block = self.values[some]
            block -= factor[some] @ factor_h
            return self._block_lags(some, block, n_lags)

        return LagSums.joined(self.executor.map(lags, block_rows((len(rows), self.n_frames))))

    def measure(self, n_lags: int) -> tuple[NDArray[np.float64], LagSums]:
        """Return the mean power and the lagged products of each row; see :meth:`Rows.measure`."""
        return _joined(self._map(lambda rows: self._measure_block(rows, self.values[rows], n_lags)))

    def third_difference_sums(self) -> NDArray[np.float64]:
        """Return the sum of the squared third differences over time of each row."""
        return np.concatenate(list(self._map(lambda rows: third_difference_norms(self.values[rows]))))

    def subtract(
        self, product: Product, n_lags: int, further: Product | None = None, in_halves: bool = True
    ) -> tuple[Self, NDArray[np.float64], LagSums]:
        """Take A B^H out in place, and measure what is left; see :meth:`Rows.subtract`."""
        factor, factor_h = product

        def subtracted(rows: slice) -> tuple[NDArray[np.float64], LagSums]:
            block = self.values[rows]
            block -= factor[rows] @ factor_h
            power, lags = self._measure_block(rows, block, n_lags if further is None else 0, in_halves)
            self._store(rows, block)
            if further is None:
                return power, lags
            return power, self._block_lags(rows, block - further[0][rows] @ further[1], n_lags, in_halves)

        return self, *_joined(self._map(subtracted))

    def fill(self, product: Product, keep_observed: bool = True) -> tuple[Self, NDArray[np.float64]]:
        """Set the unobserved entries and the excluded frames to A B^H, in place; see :meth:`Rows.fill`."""
        factor, factor_h = product
        excluded = self.excluded

        def filled(rows: slice) -> NDArray[np.float64]:
            block, observed = self.values[rows], self.observed_mask(rows)
            if not keep_observed:
                np.matmul(factor[rows], factor_h, out=block)
            elif observed is not None and not observed.all():
                block[~observed] = (factor[rows] @ factor_h)[~observed]
            if excluded is not None:
                block[:, excluded] = 0
            power = row_squared_norms(block) / self.n_used_frames
            if excluded is not None:
                block[:, excluded] = factor[rows] @ factor_h[:, excluded]
            self._store(rows, block)
            return power

        return self, np.concatenate(list(self._map(filled)))

    def keep(self, pixels: NDArray[np.intp]) -> Self:
        """Move some rows to the beginning of the array, in place; see :meth:`Rows.keep`."""
        for rows in block_rows((len(pixels), self.n_frames)):
            self.values[rows] = self.values[pixels[rows]]
        observed = kept_bits(self.observed, pixels, self.n_frames)
        return replace(self, values=self.values[: len(pixels)], observed=observed)

    def put_back(self, kept: Self, pixels: NDArray[np.intp]) -> Self:
        """Move rows back to their places, in place; see :meth:`Rows.put_back`."""
        # From the last one on: a row moves to a place behind it, whose row has moved already.
        for rows in reversed(block_rows(kept.shape)):
            self.values[pixels[rows]] = kept.values[rows].copy()
        self.values[np.setdiff1d(np.arange(self.n_pixels), pixels)] = 0
        return replace(self, excluded=kept.excluded)

    def as_stack(self, like: Acquisition) -> Any:
        """Return a view of the values as a stack in the axis order and shape of `like`."""
        return from_casorati(self.values, like)

    def _map(self, function: Callable[[slice], Result]) -> Iterator[Result]:
        return self.executor.map(function, block_rows(self.shape))

    def _store(self, rows: slice, block: NDArray[Any]) -> None:
        """Keep the changes of a block of the values, which is a view of an array."""

    def _fit_block(
        self, rows: slice, block: NDArray[Any], right: NDArray[Any], ridge: NDArray[np.float64] | None
    ) -> NDArray[Any]:
        projected: NDArray[Any] = block @ right
        return fit_gapped_rows(projected, self.observed_mask(rows), right, ridge)

    def _measure_block(
        self, rows: slice, block: NDArray[Any], n_lags: int, in_halves: bool = True
    ) -> tuple[NDArray[np.float64], LagSums]:
        lags = self._block_lags(rows, block, n_lags, in_halves)
        return row_squared_norms(block) / self.n_used_frames, lags

    def _block_lags(
        self, rows: slice | NDArray[np.intp], block: NDArray[Any], n_lags: int, in_halves: bool = True
    ) -> LagSums:
        """Return the lagged products of values of some rows; those that are not observed or excluded are set to 0."""
        if self.excluded is not None:
            block[:, self.excluded] = 0
        observed = self.observed_mask(rows)
        if observed is not None and observed.all():
            observed = None
        if observed is not None:
            block[~observed] = 0
        return LagSums.from_rows(block, observed, n_lags, self.used, in_halves)


def _joined(
    blocks: Iterator[tuple[NDArray[np.float64], LagSums]],
) -> tuple[NDArray[np.float64], LagSums]:
    powers, lags = zip(*blocks, strict=True)
    return np.concatenate(powers), LagSums.joined(lags)


def check_entries(rows: ArrayRows) -> tuple[ArrayRows, NDArray[np.float64]]:
    """Return the rows with their mask, and their energy; entries that are not finite are unobserved, and set to 0.

    Parameters
    ----------
    rows : ArrayRows
        Rows without a mask. Their values change in place.

    Returns
    -------
    rows : ArrayRows
        The rows.
    energy : (n_pixels,) float64 array
        Sum of |x|^2 over the observed entries of each row; infinite where that exceeds the precision.
    """
    n_rows, n_frames = rows.shape

    @np.errstate(over="ignore", invalid="ignore")
    def check(part: slice) -> tuple[NDArray[np.uint8] | None, NDArray[np.float64]]:
        block = rows.values[part]
        # NaN and infinities show in the sums, so a finite block is read only once.
        energy = row_squared_norms(block)
        if np.isfinite(energy).all():
            return None, energy
        finite = np.isfinite(block)
        if finite.all():
            return None, energy
        block[~finite] = 0
        rows._store(part, block)
        return pack(finite), row_squared_norms(block)

    observed: NDArray[np.uint8] | None = None
    energies = []
    blocks = list(row_blocks(n_rows, max(1, BLOCK_ENTRIES // n_frames)))
    for part, (bits, energy) in zip(blocks, rows.executor.map(check, blocks), strict=True):
        energies.append(energy)
        if bits is not None:
            if observed is None:
                observed = np.full((n_rows, packed_width(n_frames)), 255, np.uint8)
            observed[part] = bits
    return replace(rows, observed=observed), np.concatenate(energies)
