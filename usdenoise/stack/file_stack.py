"""A stack in a file without a name: an array whose values are read when they are asked for."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.system.row_file import ColumnFilling, RowFile


@dataclass(frozen=True, eq=False)
class FileStack:
    """A stack whose Casorati matrix is in a file. Indexing and transposing read nothing; np.asarray does.

    Attributes
    ----------
    rows : RowFile, or ColumnFilling until it is filled
        The Casorati matrix.
    whole : tuple of int
        Shape of the stack in the order z, x, y, t.
    chosen : tuple of (int or None, range)
        For each axis of the array its number in that order, and the entries of it that were chosen; None for an axis of
        length 1 that the stack does not have.
    dtype : numpy.dtype
        Type of the values.
    part : str
        "real" or "imag" for that part of the values; empty, the default, for the values.
    """

    rows: Any
    whole: tuple[int, ...]
    chosen: tuple[tuple[int | None, range], ...]
    dtype: np.dtype[Any]
    part: str = ""

    @classmethod
    def of(cls, rows: RowFile | ColumnFilling, whole: tuple[int, ...]) -> Self:
        """Return the stack of a Casorati matrix, (n_pixels, n_frames), in the order z, x, y, t."""
        return cls(rows, whole, tuple(enumerate(map(range, whole))), rows.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(len(entries) for _, entries in self.chosen)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.chosen)

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return self.size * self.dtype.itemsize

    @property
    def passes(self) -> float:
        """How often all of the file was read so far."""
        return float(self.rows.raw.read / (np.prod(self.whole) * self.rows.dtype.itemsize))

    @property
    def real(self) -> Self:
        """The real part."""
        return replace(self, dtype=np.empty(0, self.dtype).real.dtype, part="real")

    @property
    def imag(self) -> Self:
        """The imaginary part."""
        return replace(self.real, part="imag")

    def astype(self, dtype: Any, copy: bool = False) -> Self:
        """Return the array in another type."""
        return replace(self, dtype=np.dtype(dtype))

    def transpose(self, *order: Any) -> Self:
        """Return the array with its axes in another order, by default the reverse one."""
        numbers = range(self.ndim)[::-1] if not order else order if len(order) > 1 else order[0]
        return replace(self, chosen=tuple(self.chosen[axis] for axis in numbers))

    def __getitem__(self, index: Any) -> Self:
        """Choose entries by a slice for each of the first axes; None adds an axis."""
        chosen: list[tuple[int | None, range]] = []
        left = list(self.chosen)
        for item in index if isinstance(index, tuple) else (index,):
            if item is None:
                chosen.append((None, range(1)))
            else:
                axis, entries = left.pop(0)
                part: Any = entries[item]
                chosen.append((axis, part))
        return replace(self, chosen=(*chosen, *left))

    def __setitem__(self, index: tuple[slice, ...], values: NDArray[Any]) -> None:
        """Write a part; the values have the axes of the array."""
        place = self[index]
        axes = [axis for axis, _ in place.chosen if axis is not None]
        ordered = np.asarray(values).transpose(np.argsort(axes))
        self.rows[place._entries()] = ordered.reshape(-1, ordered.shape[-1])

    @property
    def letters(self) -> str:
        """A letter for each axis: "t" for that of the frames, "z" for the others."""
        return "".join("t" if axis == len(self.whole) - 1 else "z" for axis, _ in self.chosen)

    def filled(self) -> Self:
        """Return the stack after all of it was written."""
        return replace(self, rows=self.rows.settled())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Read the values."""
        axes = [axis for axis, _ in self.chosen if axis is not None]
        lengths = {axis: len(entries) for axis, entries in self.chosen}
        values = self.rows[self._entries()].reshape([lengths[axis] for axis in sorted(axes)])
        ordered = values.transpose(np.argsort(np.argsort(axes))).reshape(self.shape)
        own: NDArray[Any] = getattr(ordered, self.part) if self.part else ordered
        return own.astype(dtype or self.dtype, copy=False)

    def _entries(self) -> tuple[NDArray[np.intp], slice]:
        """Return the numbers of the rows and the columns that were chosen."""
        along = dict(self.chosen)
        *pixels, frames = (along[axis] for axis in range(len(self.whole)))
        numbers = np.arange(len(self.rows.numbers)).reshape(self.whole[:-1])[np.ix_(*pixels)].ravel()
        return numbers, slice(frames.start, frames.stop, frames.step)
