"""The rows of a matrix in a file: those of an array, read and written a row block at a time."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.acquisition import Acquisition, canonical_axes
from usdenoise.stack.bit_mask import kept_bits
from usdenoise.stack.file_stack import FileStack
from usdenoise.stack.rows import ArrayRows
from usdenoise.system.row_file import RowFile


@dataclass(frozen=True)
class FileRows(ArrayRows):
    """The rows of a :class:`usdenoise.system.row_file.RowFile`, whose passes are those of the rows of an array.

    So the results are the same to the last bit. A thread holds a row block at a time.
    """

    values: Any

    def take(self, rows: slice | NDArray[np.intp]) -> ArrayRows:
        """Return some rows: in memory where they are few, otherwise to be read block by block."""
        values = self.values.select(rows)
        kind = FileRows if isinstance(values, RowFile) else ArrayRows
        observed = None if self.observed is None else self.observed[rows]
        return kind(values, observed, self.executor, self.excluded)

    def pick(self, rows: NDArray[np.intp]) -> ArrayRows:
        """Return some rows; see :meth:`Rows.pick`."""
        return self.take(rows)

    def crop(self, shape: tuple[int, ...], part: tuple[slice, ...]) -> FileStack:
        """Return a part of the image in all frames, of which nothing is read yet; see :meth:`Rows.crop`."""
        return FileStack.of(self.values, (*shape, self.n_frames))[part]

    def keep(self, pixels: NDArray[np.intp]) -> Self:
        """Return some rows, which stay where they are; see :meth:`Rows.keep`."""
        observed = kept_bits(self.observed, pixels, self.n_frames)
        return replace(self, values=self.values.select(pixels, held=False), observed=observed)

    def put_back(self, kept: Self, pixels: NDArray[np.intp]) -> Self:
        """Set the other rows to 0; see :meth:`Rows.put_back`."""
        self.values[np.setdiff1d(np.arange(self.n_pixels), pixels)] = 0
        return replace(self, excluded=kept.excluded)

    def as_stack(self, like: Acquisition) -> FileStack:
        """Return the values as a stack in the axis order and shape of `like`, to be read when it is asked for."""
        canonical = canonical_axes(like.axes)
        stack = FileStack.of(self.values, like.shape_in(canonical))
        return stack.transpose([canonical.index(letter) for letter in like.axes])

    def _store(self, rows: slice, block: NDArray[Any]) -> None:
        self.values[rows] = block
