"""Arrays that are plain numbers in a file, read in parts.

The file is read and not mapped to memory. A mapped file that another program truncates ends the process with SIGBUS,
before any file or lock can be put in order; a read that ends early is an error like any other.
"""

import math
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.stored import Index, StoredArray, reversed_axes

PART_BYTES = 4 << 20
"""Most bytes that are read at a time into memory of their own, to be thinned out there."""

SKIPPED_BYTES = 16 << 10
"""Smallest part of the file that is worth skipping. Python takes about as long for a read as for copying this part."""


def in_file(
    path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool = False
) -> StoredArray:
    """Return an array whose values are consecutive bytes of a file.

    Parameters
    ----------
    path : Path
        The file. It is opened for every slab, so that an acquisition may have more files than a process may open.
    offset : int
        Byte of the file at which the values begin.
    shape : tuple of int
        Shape of the array.
    dtype : numpy.dtype
        Type of the values.
    fortran : bool
        Whether the first axis is the fastest in the file; False by default.
    """
    if fortran and len(shape) > 1:
        return reversed_axes(in_file(path, offset, shape[::-1], dtype))

    def read(index: Index) -> NDArray[Any]:
        values = np.empty([len(range(part.start, part.stop, part.step)) for part in index], dtype)
        if values.size:
            with path.open("rb", buffering=0) as file:
                _Reading(path, file, shape, dtype.itemsize).fill(values, index, offset)
        return values

    return StoredArray(shape, dtype, read)


class _Reading:
    """The reading of one slab of an array.

    Parameters
    ----------
    path : Path
        Path of the file, for the message.
    file : FileIO
        The open file.
    shape : tuple of int
        Shape of the array in the file.
    itemsize : int
        Bytes of a value.
    """

    def __init__(self, path: Path, file: FileIO, shape: tuple[int, ...], itemsize: int) -> None:
        self._path = path
        self._file = file
        self._shape = shape
        # Bytes from one index to the next along each axis.
        self._steps = [math.prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape))]

    def fill(self, values: NDArray[Any], index: Index, position: int, axis: int = 0) -> None:
        """Fill an array, contiguous in memory, with the values of an index.

        Parameters
        ----------
        values : array
            Where the values go; its axes are those of the file from `axis` on.
        index : tuple of slice
            One slice for each axis of `values`.
        position : int
            Byte of the file at which the part of the axes from `axis` on begins.
        axis : int
            First of the axes of the file that are still to be gone through.
        """
        along, step = index[0], self._steps[axis]
        within = self._shape[axis + 1 :]
        inner_is_whole = all(part == slice(0, n, 1) for part, n in zip(index[1:], within, strict=True))
        if along.step == 1 and inner_is_whole:
            self._read(values.reshape(-1).view(np.uint8).data, position + along.start * step)
        elif within and step >= SKIPPED_BYTES:
            for place, number in enumerate(range(along.start, along.stop, along.step)):
                self.fill(values[place], index[1:], position + number * step, axis + 1)
        else:
            self._thin_out(values, index, position, axis)

    def _thin_out(self, values: NDArray[Any], index: Index, position: int, axis: int) -> None:
        """Read all bytes from the first to the last value of an index, in parts, and keep the values."""
        along, step = index[0], self._steps[axis]
        within = self._shape[axis + 1 :]
        count = max(1, PART_BYTES // (step * along.step))
        for first in range(0, len(values), count):
            last = min(first + count, len(values))
            start, stop = along.start + first * along.step, along.start + (last - 1) * along.step + 1
            part = np.empty((stop - start, *within), values.dtype)
            self._read(part.reshape(-1).view(np.uint8).data, position + start * step)
            values[first:last] = part[(slice(None, None, along.step), *index[1:])]

    def _read(self, memory: memoryview, position: int) -> None:
        self._file.seek(position)
        done = 0
        while done < len(memory):
            got = self._file.readinto(memory[done:])
            if not got:
                raise InputError(
                    f"{self._path} became shorter while it was read: it ends before byte "
                    f"{position + len(memory)}; run again when nothing writes to it any more"
                )
            done += got
