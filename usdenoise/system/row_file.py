"""A matrix in a file without a name, for one that is larger than memory: its rows are read and written in long pieces."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import IO, Any, Self
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OutputError

_ZEROS_BYTES = 1 << 22
"""Bytes that are written at a time where a file cannot be made long otherwise."""

_UNSYNCED_BYTES = 64 << 20
"""Bytes that are written before they are brought to the disk: until then they take memory, which a control group counts."""

_GROUP_BYTES = 8 << 20
"""Size of the rows that are put into order together when a file was filled by columns."""


@dataclass
class RawFile:
    """A file without a name: nothing is left of it when the process ends, however it ends.

    Attributes
    ----------
    descriptor : int
        The file.
    is_dropped : bool
        Whether the pages that were read or written are not left to the cache of the system: a cache that is too small for
        the file only costs time.
    read, written : int
        Bytes that were read and written so far.
    """

    descriptor: int
    is_dropped: bool
    read: int = 0
    written: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)
    _unsynced: int = 0

    @classmethod
    def create(cls, folder: Path, size: int, is_dropped: bool) -> Self:
        """Create the file, whose bytes may be anything.

        Its whole size is taken on the disk at once, so that a full disk is told before anything is read.

        Raises
        ------
        OutputError
            If the disk has no room.
        """
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            try:
                _take_room(file, size)
            except OSError as error:
                raise OutputError(
                    f"the stack takes {size / 2**30:.3g} GiB, more than the memory, and {folder} has no "
                    f"room for it ({error.strerror})",
                    remedy="choose an output folder on another disk, or raise {memory}",
                ) from error
            made = cls(os.dup(file.fileno()), is_dropped)
        finalize(made, os.close, made.descriptor)
        return made

    def fill(self, target: NDArray[Any], place: int, is_last: bool = True) -> None:
        """Read the bytes from a place on into an array; `is_last` where they will not be read again soon."""
        into: Any = target.reshape(-1).view(np.uint8)
        done = 0
        while done < len(into):
            done += os.preadv(self.descriptor, [into[done:]], place + done)
        if is_last:
            self._drop(place, done)
        with self._lock:
            self.read += done

    def announce(self, place: int, size: int) -> None:
        """Let the system begin to read bytes that will be asked for."""
        with suppress(AttributeError, OSError):
            os.posix_fadvise(self.descriptor, place, size, os.POSIX_FADV_WILLNEED)

    def write(self, source: NDArray[Any], place: int) -> None:
        """Write the bytes of an array from a place on."""
        left: Any = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        done = 0
        while done < len(left):
            done += os.pwritev(self.descriptor, [left[done:]], place + done)
        with self._lock:
            self.written += done
            self._unsynced += done
            is_due = self.is_dropped and self._unsynced >= _UNSYNCED_BYTES
            if is_due:
                self._unsynced = 0
        if is_due:
            os.fsync(self.descriptor)
            self._drop(0, 0)

    def _drop(self, place: int, size: int) -> None:
        # Not every system can.
        with suppress(AttributeError, OSError):
            if self.is_dropped:
                os.posix_fadvise(self.descriptor, place, size, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True, eq=False)
class RowFile:
    """Rows of a matrix in a file, (n_rows, n_columns), one after the other; an index gives an array of its own.

    Attributes
    ----------
    raw : RawFile
        The file.
    n_columns : int
        Columns of the matrix.
    dtype : numpy.dtype
        Type of the entries.
    numbers : (n,) array of row numbers
        The rows that this object stands for, increasing.
    held_bytes : int
        Size up to which some rows are kept in memory instead (see :meth:`select`).

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     raw = RawFile.create(Path(folder), 4 * 3 * 8, is_dropped=False)
    >>> rows = RowFile(raw, 3, np.dtype(float), np.arange(4), 0)
    >>> rows[1:3] = [[1, 2, 3], [4, 5, 6]]
    >>> rows.select(np.array([0, 2]))[1:, :2].tolist()
    [[4.0, 5.0]]
    """

    raw: RawFile
    n_columns: int
    dtype: np.dtype[Any]
    numbers: NDArray[np.intp]
    held_bytes: int

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, n_columns)."""
        return len(self.numbers), self.n_columns

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.n_columns * self.dtype.itemsize

    def select(self, rows: slice | NDArray[np.intp], held: bool = True) -> "RowFile | NDArray[Any]":
        """Return some rows, increasing, of which nothing is read yet; an array of few of them if they may be `held`."""
        some = replace(self, numbers=self.numbers[rows])
        return some[:] if held and len(some.numbers) * self.row_bytes <= self.held_bytes else some

    def __getitem__(self, index: Any) -> Any:
        """Read rows, or a pair of rows and columns; the columns are a slice."""
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        numbers: NDArray[np.intp] = self.numbers[rows]
        wanted = range(*columns.indices(self.n_columns))
        first, stop = wanted.start, max(wanted.start, wanted[-1] + 1 if wanted else 0)
        is_whole = stop - first == self.n_columns
        values = np.empty((len(numbers), stop - first), self.dtype)
        runs = list(_runs(numbers) if is_whole else map(_single, range(len(numbers))))
        places = [int(numbers[run.start]) * self.row_bytes + first * self.dtype.itemsize for run in runs]
        for run, place in zip(runs, places, strict=True):
            self.raw.announce(place, values[run].nbytes)
        for run, place in zip(runs, places, strict=True):
            self.raw.fill(values[run], place, is_last=is_whole)
        return values[:, :: wanted.step]

    def __setitem__(self, rows: slice | NDArray[np.intp], values: Any) -> None:
        """Write rows."""
        numbers = self.numbers[rows]
        values = np.broadcast_to(np.asarray(values, self.dtype), (len(numbers), self.n_columns))
        for run in _runs(numbers):
            self.raw.write(values[run], int(numbers[run.start]) * self.row_bytes)


class ColumnFilling:
    """The filling of a matrix in a file by columns: whole rows come to exist in the end.

    A group of consecutive rows has its place in the file from the beginning. What comes of it is put there piece after
    piece, and :meth:`settled` puts each group into the order of its rows. So everything is written in long pieces.

    Parameters
    ----------
    rows : RowFile
        All rows of the file.
    edges : (n_parts + 1,) array of column numbers
        First column of each part of the columns that is filled at once, and the number of columns.
    """

    def __init__(self, rows: RowFile, edges: NDArray[np.int64]) -> None:
        self._rows, self._edges = rows, edges
        self.numbers, self.dtype = rows.numbers, rows.dtype
        self._group = max(1, _GROUP_BYTES // rows.row_bytes)

    def __setitem__(self, index: tuple[NDArray[np.intp], slice], values: NDArray[Any]) -> None:
        """Write some rows, increasing, of a part of the columns."""
        numbers, columns = index
        values = values.astype(self.dtype, copy=False)
        for run in _runs(numbers):
            first, stop = int(numbers[run.start]), int(numbers[run.stop - 1]) + 1
            for start in range(first // self._group * self._group, stop, self._group):
                n_rows = min(self._group, len(self.numbers) - start)
                low, high = max(first, start), min(stop, start + n_rows)
                before = start * self._rows.n_columns + columns.start * n_rows
                place = before + (low - start) * (columns.stop - columns.start)
                piece = values[run.start + low - first : run.start + high - first]
                self._rows.raw.write(piece, place * self.dtype.itemsize)

    def settled(self) -> RowFile:
        """Return the rows, after all columns were filled."""
        for start in range(0, len(self.numbers), self._group) if len(self._edges) > 2 else ():
            rows = slice(start, start + self._group)
            group = self._rows[rows]
            parts = np.split(group.reshape(-1), self._edges[1:-1] * len(group))
            self._rows[rows] = np.concatenate([part.reshape(len(group), -1) for part in parts], axis=1)
        return self._rows


def _single(row: int) -> slice:
    return slice(row, row + 1)


def _runs(numbers: NDArray[np.intp]) -> Iterator[slice]:
    """Yield the places of consecutive numbers."""
    if not len(numbers):
        return
    cuts = (np.flatnonzero(np.diff(numbers) > 1) + 1).tolist()
    yield from map(slice, [0, *cuts], [*cuts, len(numbers)])


def _take_room(file: IO[bytes], size: int) -> None:
    """Make an empty file this long, with all of its bytes on the disk."""
    try:
        os.posix_fallocate(file.fileno(), 0, size)
        return
    except AttributeError:
        # macOS does not have it.
        pass
    except OSError as error:
        # Nor have some file systems.
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
    zeros, done = bytes(_ZEROS_BYTES), 0
    while done < size:
        done += file.write(zeros[: size - done])
