"""Writing files that MATLAB's load opens: version 5 through scipy.io, 7.3 through h5py."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

V5_LIMIT_BYTES = (1 << 31) - (1 << 20)
"""Largest variable of a version 5 file, less room for its header."""


def write(path: Path, variables: Mapping[str, NDArray[Any] | str]) -> None:
    """Write variables to a file that MATLAB's load opens: version 5 where each fits, otherwise 7.3."""
    largest = max(value.nbytes for value in variables.values() if not isinstance(value, str))
    if largest <= V5_LIMIT_BYTES:
        from scipy.io import savemat

        # The name is temporary and has no suffix to add to.
        savemat(str(path), dict(variables), appendmat=False, oned_as="column")
    else:
        write_v73(path, variables)


def write_v73(path: Path, variables: Mapping[str, NDArray[Any] | str]) -> None:
    """Write a MATLAB 7.3 file: HDF5 with a user block, axes reversed, complex as {real, imag}."""
    with path.open("w+b") as whole, h5py.File(whole, "w", userblock_size=512) as file:
        for name, value in variables.items():
            if isinstance(value, str):
                data: NDArray[Any] = np.frombuffer(value.encode("utf-16-le"), np.uint16).reshape(-1, 1)
                dataset = file.create_dataset(name, data=data)
                dataset.attrs["MATLAB_int_decode"] = np.int32(2)
                kind = "char"
            else:
                dataset = _write_reversed(file, name, value if value.ndim > 1 else value[:, None])
                kind = {"f4": "single", "f8": "double"}.get(value.real.dtype.str[1:], value.dtype.name)
            dataset.attrs["MATLAB_class"] = np.bytes_(kind)
    text = b"MATLAB 7.3 MAT-file, Platform: any, Created by: usdenoise HDF5 schema 1.00 ."
    with path.open("r+b") as raw:
        raw.write(text.ljust(116) + bytes(8) + struct.pack("<H", 0x0200) + b"IM")


def _write_reversed(file: h5py.File, name: str, value: NDArray[Any]) -> h5py.Dataset:
    reverse = value.transpose()
    if not np.iscomplexobj(value):
        return file.create_dataset(name, data=reverse)
    member = value.real.dtype
    pair = np.dtype([("real", member), ("imag", member)])
    dataset = file.create_dataset(name, shape=reverse.shape, dtype=pair)
    slabs = max(1, (32 << 20) // max(1, reverse[0].nbytes))
    for start in range(0, len(reverse), slabs):
        dataset[start : start + slabs] = np.ascontiguousarray(reverse[start : start + slabs]).view(pair)
    return dataset
