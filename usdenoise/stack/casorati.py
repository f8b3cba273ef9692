"""The Casorati matrix of a stack: one row for each pixel, one column for each frame."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.linalg.row_blocks import block_rows, row_blocks, row_squared_norms
from usdenoise.stack.acquisition import Acquisition, canonical_axes, spatial_order
from usdenoise.stack.bit_mask import pack, packed_width, unpack
from usdenoise.stack.precision import checked_conversion

Result = TypeVar("Result")

BLOCK_ENTRIES = 1 << 19
"""Entries of a row block in which unobserved entries are looked for."""


def casorati(acquisition: Acquisition, dtype: Any = None) -> NDArray[Any]:
    """Return the Casorati matrix of an acquisition.

    Pixels are numbered in the order z, x, y (the last fastest), whatever the order of the axes in the stack. So
    the same acquisition in another file layout gives the same matrix.

    Parameters
    ----------
    acquisition : Acquisition
        The stack.
    dtype : dtype, optional
        Type of the result; by default the stack's.

    Returns
    -------
    (n_pixels, n_frames) array, C-contiguous
        A view of the stack where its memory is already in this order, otherwise a copy.

    Raises
    ------
    InputError
        If a finite value is beyond the range of `dtype`.
    """
    ordered = spatial_order(acquisition.iq, acquisition.axes, canonical_axes(acquisition.axes))
    with checked_conversion(ordered, dtype, acquisition.name):
        return np.ascontiguousarray(ordered.reshape(-1, acquisition.n_frames), dtype=dtype)


def from_casorati(matrix: NDArray[Any], like: Acquisition) -> NDArray[Any]:
    """Return a view of an (n_pixels, n_frames) matrix as a stack in the axis order and shape of `like`."""
    canonical = canonical_axes(like.axes)
    return spatial_order(matrix.reshape(like.shape_in(canonical)), canonical, like.axes)


def image_from_pixels(values: NDArray[Any], like: Acquisition) -> NDArray[Any]:
    """Return a view of n_pixels values as an image in the spatial axis order and shape of `like`."""
    canonical = canonical_axes(like.spatial_axes)
    return spatial_order(values.reshape(like.shape_in(canonical)), canonical, like.spatial_axes)


@dataclass(frozen=True)
class CasoratiMatrix:
    """A Casorati matrix, which of its entries are observed, and the executor that works through its rows.

    Attributes
    ----------
    values : (n_pixels, n_frames) array
        Contiguous along the rows, finite everywhere, 0 where an entry is unobserved.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the observed entries (see :mod:`usdenoise.stack.bit_mask`); None when all are observed.
    executor : Executor
        Maps functions over row blocks.
    left_out : (n_frames,) boolean array or None
        Frames that count nowhere: their values are 0 once :func:`usdenoise.frames.bad_frames.leave_out` has
        seen them. None, the default, when there are none.
    """

    values: NDArray[Any]
    observed: NDArray[np.uint8] | None
    executor: Executor
    left_out: NDArray[np.bool_] | None = None

    @property
    def n_pixels(self) -> int:
        """Number of rows."""
        return int(self.values.shape[0])

    @property
    def n_frames(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n_pixels, n_frames)."""
        return self.n_pixels, self.n_frames

    @property
    def used(self) -> NDArray[np.bool_] | None:
        """Frames that are not left out; None when all are used."""
        return None if self.left_out is None else ~self.left_out

    @property
    def n_used_frames(self) -> int:
        """Number of columns that are not left out."""
        return self.n_frames - (0 if self.left_out is None else int(np.count_nonzero(self.left_out)))

    @property
    def used_shape(self) -> tuple[int, int]:
        """Shape without the frames that are left out."""
        return self.n_pixels, self.n_used_frames

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        return self.values.dtype

    @property
    def is_complete(self) -> bool:
        """Whether every entry is observed."""
        return self.observed is None

    def observed_mask(self, rows: slice | NDArray[Any]) -> NDArray[np.bool_] | None:
        """Return the mask of the observed entries of some rows, None when every entry is observed.

        Entries of frames that are left out count as observed: they are zeros that a model of zeros fits.
        """
        if self.observed is None:
            return None
        mask = unpack(self.observed[rows], self.n_frames)
        return mask if self.left_out is None else mask | self.left_out

    def sampled_bits(self) -> NDArray[np.uint8] | None:
        """Return the bit mask of the entries that may be sampled: observed, and not in a frame that is left out."""
        if self.left_out is None:
            return self.observed
        used = pack(~self.left_out[None])
        if self.observed is None:
            return np.broadcast_to(used, (self.n_pixels, used.shape[1]))
        return self.observed & used

    def map_row_blocks(self, function: Callable[[slice], Result]) -> Iterator[Result]:
        """Yield the result of a function for each row block, in order."""
        return self.executor.map(function, block_rows(self.shape))

    def rows(self, rows: slice | NDArray[np.intp]) -> "CasoratiMatrix":
        """Return the matrix of some rows: a view for a slice, a copy for an array of row numbers."""
        observed = None if self.observed is None else self.observed[rows]
        return replace(self, values=self.values[rows], observed=observed)

    def largest_part(self) -> float:
        """Return the largest magnitude of a real or imaginary part."""
        parts = self.values.view(self.values.real.dtype)
        return max(float(parts.max()), -float(parts.min()))

    def in_memory(self) -> "CasoratiMatrix":
        """Return the matrix with its values in the memory of this process, where they are."""
        return self


@singledispatch
def filtered_stack(matrix: CasoratiMatrix, like: Acquisition) -> NDArray[Any]:
    """Return the values of a matrix as a stack in the axis order and shape of `like`; a view."""
    return from_casorati(matrix.values, like)


@dataclass(frozen=True)
class EntryCheck:
    """A Casorati matrix, and the number of unobserved entries and the energy that a first pass found.

    Attributes
    ----------
    matrix : CasoratiMatrix
        The entries, 0 where they were not finite.
    n_unobserved : int
        Number of entries that were NaN or infinite.
    energy : (n_pixels,) float64 array
        Sum of |x|^2 over the observed entries of each row; infinite where that exceeds the precision.
    """

    matrix: CasoratiMatrix
    n_unobserved: int
    energy: NDArray[np.float64]


def check_entries(values: NDArray[Any], executor: Executor) -> EntryCheck:
    """Set the entries of a matrix that are not finite to 0, in place, and say which they were.

    Parameters
    ----------
    values : (n_pixels, n_frames) array
        Changed in place.
    executor : Executor
        Maps over the row blocks.
    """
    n_rows, n_frames = values.shape

    @np.errstate(over="ignore", invalid="ignore")
    def check(rows: slice) -> tuple[NDArray[np.uint8] | None, int, NDArray[np.float64]]:
        block = values[rows]
        # NaN and infinities show in the sums, so a finite block is read only once.
        energy = row_squared_norms(block)
        if np.isfinite(energy).all():
            return None, 0, energy
        finite = np.isfinite(block)
        n_missing = int(finite.size - np.count_nonzero(finite))
        if n_missing == 0:
            return None, 0, energy
        block[~finite] = 0
        return pack(finite), n_missing, row_squared_norms(block)

    observed: NDArray[np.uint8] | None = None
    n_unobserved, energies = 0, []
    blocks = list(row_blocks(n_rows, max(1, BLOCK_ENTRIES // n_frames)))
    for rows, (bits, missing, energy) in zip(blocks, executor.map(check, blocks), strict=True):
        n_unobserved += missing
        energies.append(energy)
        if bits is not None:
            if observed is None:
                observed = np.full((n_rows, packed_width(n_frames)), 255, np.uint8)
            observed[rows] = bits
    return EntryCheck(CasoratiMatrix(values, observed, executor), n_unobserved, np.concatenate(energies))
