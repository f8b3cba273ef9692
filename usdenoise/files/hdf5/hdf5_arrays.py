"""Datasets of HDF5 as arrays, with compounds of two numbers as complex numbers."""

from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.files.stored import Index, StoredArray, complex_dtype

COMPLEX_MEMBERS = (("r", "i"), ("re", "im"), ("real", "imag"), ("i", "q"))
"""Lower-case names of the two members of a compound that are known as real and imaginary part."""


def stored_array(dataset: h5py.Dataset) -> StoredArray:
    """Return a dataset as an array; a compound of two equal numbers becomes a complex number."""
    dtype = np.dtype(dataset.dtype)
    order = _member_order(dtype)

    def read_stored(index: Index) -> NDArray[Any]:
        return np.asarray(dataset[index])

    if order is None:
        return StoredArray(
            dataset.shape or (),
            dtype,
            read_stored,
            chunks=dataset.chunks,
            fill=lambda index, out: dataset.read_direct(out, index),
        )
    value_dtype = complex_dtype(dtype[order[0]])
    if dtype == np.dtype([(name, value_dtype.type().real.dtype) for name in order]):
        # The pairs are complex numbers as they are.
        return StoredArray(
            dataset.shape or (),
            value_dtype,
            lambda index: read_stored(index).view(value_dtype),
            chunks=dataset.chunks,
            fill=lambda index, out: dataset.read_direct(out.view(dtype), index),
        )

    def read(index: Index) -> NDArray[Any]:
        pairs = read_stored(index)
        values = np.empty(pairs.shape, value_dtype)
        values.real, values.imag = pairs[order[0]], pairs[order[1]]
        return values

    return StoredArray(dataset.shape or (), value_dtype, read, chunks=dataset.chunks)


def _member_order(dtype: np.dtype[Any]) -> tuple[str, str] | None:
    """Return the names of the real and the imaginary member of a compound; None if it is not a complex number."""
    if not dtype.names or len(dtype.names) != 2:
        return None
    first, second = dtype.names
    if dtype[first] != dtype[second] or dtype[first].kind not in "fiu" or dtype[first].shape:
        return None
    swapped = (second.lower(), first.lower()) in COMPLEX_MEMBERS
    return (second, first) if swapped else (first, second)


def member_note(dataset: h5py.Dataset) -> tuple[str, ...]:
    """Return a sentence if the names of the members do not identify the real part; otherwise none."""
    names = dataset.dtype.names
    order = _member_order(dataset.dtype) if names else None
    if order is None or tuple(name.lower() for name in order) in COMPLEX_MEMBERS:
        return ()
    return (
        f"the members {order[0]} and {order[1]} of '{dataset.name.strip('/')}' are read as the real and the "
        "imaginary part; if they are not, pick another dataset",
    )
