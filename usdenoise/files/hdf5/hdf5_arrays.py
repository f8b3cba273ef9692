"""Datasets of HDF5 as arrays, with compounds of two numbers as complex numbers."""

from functools import partial
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.files.hdf5.hdf5_items import UNREADABLE
from usdenoise.files.hdf5.hdf5_storage import written_entries
from usdenoise.files.stored import Index, StoredArray, complex_dtype, unpacked

PACKING = ("_FillValue", "missing_value", "scale_factor", "add_offset")
"""Attributes by which NetCDF packs numbers: the entries that are missing, a factor, and an offset."""

COMPLEX_MEMBERS = (("r", "i"), ("re", "im"), ("real", "imag"), ("i", "q"))
"""Lower-case names of the two members of a compound that are known as real and imaginary part."""


def stored_array(dataset: h5py.Dataset) -> StoredArray:
    """Return a dataset as an array of unpacked numbers; a compound of two equal numbers becomes a complex number."""
    array = _as_stored(dataset)
    if array.dtype.kind not in "fciu":
        return array
    missing, scale, offset = _packing(dataset, array.dtype)
    return unpacked(array, missing, scale, offset) if missing or (scale, offset) != (1, 0) else array


def _as_stored(dataset: h5py.Dataset) -> StoredArray:
    """Return a dataset as an array of the numbers that it holds."""
    dtype = np.dtype(dataset.dtype)
    order = _member_order(dtype)
    written = partial(written_entries, dataset) if dataset.chunks is not None else None

    def read_stored(index: Index) -> NDArray[Any]:
        return np.asarray(dataset[index])

    if order is None:
        return StoredArray(
            dataset.shape or (),
            dtype,
            read_stored,
            chunks=dataset.chunks,
            fill=lambda index, out: dataset.read_direct(out, index),
            written=written,
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
            written=written,
        )

    def read(index: Index) -> NDArray[Any]:
        pairs = read_stored(index)
        values = np.empty(pairs.shape, value_dtype)
        values.real, values.imag = pairs[order[0]], pairs[order[1]]
        return values

    return StoredArray(dataset.shape or (), value_dtype, read, chunks=dataset.chunks, written=written)


def _packing(dataset: h5py.Dataset, dtype: np.dtype[Any]) -> tuple[list[Any], float, float]:
    """Return the values of missing entries, the factor and the offset of a dataset whose entries have a type."""
    numbers: dict[str, Any] = {}
    try:
        if dataset.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED:
            # The library returns it for chunks that were never written.
            numbers["own"] = np.asarray(dataset.fillvalue)
        for name in PACKING:
            # Values of variable length are not numbers.
            if name in dataset.attrs and not dataset.attrs.get_id(name).dtype.hasobject:
                numbers[name] = np.asarray(dataset.attrs[name])
    except UNREADABLE:
        return [], 1.0, 0.0
    numbers = {name: value.reshape(-1)[0] for name, value in numbers.items() if value.size == 1}
    scale, offset = (
        float(value) if np.asarray(value).dtype.kind in "fiu" and np.isfinite(value) else default
        for value, default in ((numbers.pop("scale_factor", 1), 1.0), (numbers.pop("add_offset", 0), 0.0))
    )
    missing = []
    for name, value in numbers.items():
        if order := _member_order(value.dtype):
            value = complex(value[order[0]], value[order[1]])
        elif dtype.kind == "c" and value.dtype.kind in "fiu":
            value = complex(value, value)
        kinds = "fiuc" if dtype.kind == "c" else "fiu"
        # A fill value of 0 may also be the usual one.
        if np.asarray(value).dtype.kind in kinds and not np.isnan(value) and (name != "own" or value != 0):
            missing.append(value)
    return [dtype.type(value) if dtype.kind in "fc" else value for value in missing], scale or 1.0, offset


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
