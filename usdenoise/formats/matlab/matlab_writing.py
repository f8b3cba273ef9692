"""Writing of files that MATLAB's load opens: version 5 through scipy.io, 7.3 through h5py."""

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.formats.hdf5.hdf5_writing import create_file, write_values
from usdenoise.formats.layout import chunk_shape
from usdenoise.stack.file_stack import FileStack

V5_LIMIT_BYTES = (1 << 31) - (1 << 20)
"""Largest variable of a version 5 file: its 2 GiB less 1 MiB for the header."""


_LONGEST_NAME = 63
"""Most characters of a name in MATLAB."""


def write_matlab(path: Path, variables: Mapping[str, Any], compress: bool = False) -> list[str]:
    """Write a file that MATLAB's load opens: version 5 if every variable is in memory and fits into it, otherwise 7.3.

    A slash in a name makes a struct with that field. A character that MATLAB does not allow in a name becomes an
    underscore. Cells, sparse arrays, empty arrays and arrays of structs are left out of a file of version 7.3.

    Parameters
    ----------
    path : Path
        The file to write.
    variables : mapping
        Name -> array, text, or another value that scipy writes.
    compress : bool, default False
        Whether the variables are compressed.

    Returns
    -------
    list of str
        Names of the variables that are left out.
    """
    named = {"/".join(_plain(part) for part in name.split("/")): value for name, value in variables.items()}
    sizes: dict[str, int] = {}
    for name, value in named.items():
        variable = name.split("/")[0]
        sizes[variable] = sizes.get(variable, 0) + (
            2 * len(value) if isinstance(value, str) else getattr(value, "nbytes", 0)
        )
    is_lazy = any(isinstance(value, FileStack) for value in named.values())
    if is_lazy or max(sizes.values()) > V5_LIMIT_BYTES:
        plain = {name: value for name, value in named.items() if _is_plain(value)}
        write_v73(path, plain, compress)
        return [name for name in named if name not in plain]
    from scipy.io import savemat

    nested: dict[str, Any] = {}
    for name, value in named.items():
        *structs, last = name.split("/")
        place = nested
        for struct_name in structs:
            place = place.setdefault(struct_name, {})
        place[last] = value
    # The file is written under a temporary name, to which savemat would add .mat.
    savemat(
        str(path), nested, appendmat=False, oned_as="column", do_compression=compress, long_field_names=True
    )
    return []


def write_v73(path: Path, variables: Mapping[str, NDArray[Any] | str], compress: bool = False) -> None:
    """Write a MATLAB 7.3 file: HDF5 with a user block, reversed axes, and complex numbers as {real, imag}.

    Parameters
    ----------
    path : Path
        The file to write.
    variables : mapping
        Name -> array or text. Each part of a name must be a name that MATLAB allows.
    compress : bool, default False
        Whether arrays of three axes or more are compressed.
    """
    with create_file(path, user_block_bytes=512) as file:
        for name, value in variables.items():
            if isinstance(value, str):
                data: NDArray[Any] = np.frombuffer(value.encode("utf-16-le"), np.uint16).reshape(-1, 1)
                dataset = file.create_dataset(name, data=data)
                dataset.attrs["MATLAB_int_decode"] = np.int32(2)
                kind = "char"
            else:
                logical = value.dtype.kind == "b"
                value = value.view(np.uint8) if logical else value
                dataset = _write_reversed(file, name, value if value.ndim > 1 else value[:, None], compress)
                kind = (
                    "logical"
                    if logical
                    else {"f4": "single", "f8": "double"}.get(value.real.dtype.str[1:], value.dtype.name)
                )
            dataset.attrs["MATLAB_class"] = np.bytes_(kind)
            if kind == "logical":
                dataset.attrs["MATLAB_int_decode"] = np.int32(1)
            group = dataset.parent
            while group != file["/"]:
                group.attrs["MATLAB_class"] = np.bytes_("struct")
                group = group.parent
    text = b"MATLAB 7.3 MAT-file, Platform: any, Created by: usdenoise HDF5 schema 1.00 ."
    with path.open("r+b") as raw:
        raw.write(text.ljust(116) + bytes(8) + struct.pack("<H", 0x0200) + b"IM")


def _write_reversed(file: h5py.File, name: str, value: NDArray[Any], compress: bool) -> h5py.Dataset:
    reverse = value.transpose()
    member = value.real.dtype
    dtype = np.dtype([("real", member), ("imag", member)]) if np.iscomplexobj(value) else member
    axes = "zxy"[: value.ndim - 1] + "t"
    dataset = file.create_dataset(
        name,
        shape=reverse.shape,
        dtype=dtype,
        chunks=chunk_shape(reverse.shape, axes[::-1], dtype.itemsize) if value.ndim > 2 else None,
        compression="gzip" if compress and value.ndim > 2 else None,
    )
    write_values(dataset, reverse)
    return dataset


def _is_plain(value: Any) -> bool:
    """Return whether a value is text, or an array of numbers that is not empty."""
    return isinstance(value, str) or (
        isinstance(value, np.ndarray | FileStack) and value.dtype.kind in "fciub" and value.size > 0
    )


def _plain(name: str) -> str:
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return (plain if plain[:1].isalpha() else f"x{plain}")[:_LONGEST_NAME]
