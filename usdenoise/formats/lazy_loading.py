"""Stacks that are read where they are needed: Dask arrays whose tasks open the file and read a part of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.contents import READ_WHOLE
from usdenoise.formats.layout import slab_shape, slabs
from usdenoise.formats.loading import Source, describe, open_stack
from usdenoise.formats.stored import Index
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.precision import checked_conversion

PART_BYTES = 24 << 20
"""Bytes of a part, about, unless a chunk of the file has more. A task takes three times as much memory."""


def load_lazily(path: str | Path, *, dtype: str | None = None, **options: Any) -> Acquisition:
    """Open an acquisition as a Dask array.

    Every process that makes parts of it opens the file by its absolute path: workers on other machines need the same
    file system.

    Parameters
    ----------
    path, dtype, **options
        As for :func:`usdenoise.formats.loading.load`.

    Returns
    -------
    Acquisition
        Its stack is a Dask array in whole chunks of the file, or in consecutive parts of a file without chunks.

    Raises
    ------
    InputError
        As for :func:`usdenoise.formats.loading.load`, and if the container cannot be read in parts.
    OptionError
        As for :func:`usdenoise.formats.loading.load`.
    """
    import dask.array as da

    path = Path(path).resolve()
    container = describe(path, **options).container
    if container in READ_WHOLE:
        raise InputError(
            f"a file of the kind {container} cannot be read in parts; save {path} as HDF5, MATLAB 7.3 or Zarr"
        )
    with open_stack(path, dtype=dtype, **options) as source:
        array, axes = source.stack.array, source.metadata.values["axes"]
        picked = [slice(0, n, 1) for n in array.shape]
        picked[axes.index("t")] = source.frames
        places = list(slabs(picked, slab_shape(array, axes, PART_BYTES // source.dtype.itemsize)))
        indices = {tuple(part.start for part in target): index for index, target in places}
        chunks = tuple(
            tuple(stop - start for start, stop in sorted({(t[axis].start, t[axis].stop) for _, t in places}))
            for axis in range(len(array.shape))
        )
        edges = [np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist() for sizes in chunks]

        def part(block_id: tuple[int, ...]) -> NDArray[Any]:
            index = indices[tuple(edge[number] for edge, number in zip(edges, block_id, strict=True))]
            return read_part(path, dtype, options, index)

        lazy = da.map_blocks(
            part, chunks=chunks, dtype=source.dtype, meta=np.empty((0,) * len(chunks), source.dtype)
        )
        return source.acquisition(lazy, source.frames)


def read_part(path: Path, dtype: str | None, options: Mapping[str, Any], index: Index) -> NDArray[Any]:
    """Return a part of a stack in a file.

    Parameters
    ----------
    path, dtype, options
        As for :func:`load_lazily`.
    index : tuple of slice
        The part: start, stop and a positive step for each axis, in the numbers of the file.
    """
    with open_stack(path, dtype=dtype, **options) as source:
        return _converted(source, source.stack.array.read(index))


def _converted(source: Source, values: NDArray[Any]) -> NDArray[Any]:
    with checked_conversion(values, source.dtype, source.stack.name):
        return values.astype(source.dtype, copy=False)
