"""Writing of files that MATLAB's load opens: version 5 through scipy.io, 7.3 through h5py."""

import re
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.files.hdf5.hdf5_writing import create_file, write_values
from usdenoise.files.layout import chunk_shape
from usdenoise.files.matlab.matlab_copies import (
    append_variables_of_v5,
    copy_variables_of_v73,
    other_fields,
    other_variables_of_v5,
)
from usdenoise.system.names import distinct_names

V5_LIMIT_BYTES = (1 << 31) - (1 << 20)
"""Largest variable of a version 5 file: its 2 GiB less 1 MiB for the header."""


_LONGEST_NAME = 63
"""Most characters of a name in MATLAB."""


def write_matlab(
    path: Path,
    variables: Mapping[str, Any],
    source: Path | None = None,
    replaced: Collection[str] = (),
) -> list[str]:
    """Write a file that MATLAB's load opens, with the other variables of another one.

    The file has the version of `source`. It is of version 7.3 where a variable is not in memory, or too large for version 5.
    A slash in a name makes a struct with that field. A character that MATLAB does not allow in a name becomes an
    underscore; names that would become the same are numbered.

    Parameters
    ----------
    path : Path
        The file to write.
    variables : mapping
        Name -> array, or text.
    source : Path, optional
        A MATLAB file whose variables are copied.
    replaced : collection of str
        Names of the variables of `source` that are not copied, besides those that `variables` has, too.

    Returns
    -------
    list of str
        Names of the variables of `source` that could not be copied.
    """
    named = {place: variables[name] for name, place in _matlab_names(variables).items()}
    replaced = {*replaced, *named}
    if source is not None and h5py.is_hdf5(source):
        return write_v73(path, named, source, replaced)
    other_variables = [] if source is None else other_variables_of_v5(source, replaced)
    if _is_too_large_for_v5(named):
        write_v73(path, named)
        return other_variables
    if source is None:
        _write_v5(path, named)
        return []
    lost: list[str] = []
    for struct_name in {name.split("/")[0] for name in replaced if "/" in name}.intersection(other_variables):
        other_variables.remove(struct_name)
        fields, lost_fields = other_fields(source, struct_name, replaced)
        named |= fields
        lost += lost_fields
    _write_v5(path, named)
    return lost + append_variables_of_v5(path, source, other_variables)


def _is_too_large_for_v5(named: Mapping[str, Any]) -> bool:
    sizes: Counter[str] = Counter()
    for name, value in named.items():
        sizes[name.split("/")[0]] += 2 * len(value) if isinstance(value, str) else value.nbytes
    return max(sizes.values()) > V5_LIMIT_BYTES


def _write_v5(path: Path, named: Mapping[str, Any]) -> None:
    from scipy.io import savemat

    nested: dict[str, Any] = {}
    for name, value in named.items():
        *structs, last = name.split("/")
        nesting = nested
        for struct_name in structs:
            nesting = nesting.setdefault(struct_name, {})
        nesting[last] = value
    # The file is written under a temporary name, to which savemat would add .mat.
    savemat(str(path), nested, appendmat=False, oned_as="column", long_field_names=True)


def write_v73(
    path: Path,
    variables: Mapping[str, Any],
    source: Path | None = None,
    replaced: Collection[str] = (),
) -> list[str]:
    """Write a MATLAB 7.3 file: HDF5 with a user block, reversed axes, and complex numbers as {real, imag}.

    Parameters
    ----------
    path : Path
        The file to write.
    variables : mapping
        Name -> array or text. Each part of a name must be a name that MATLAB allows.
    source : Path, optional
        A file of version 7.3 whose variables are copied.
    replaced : collection of str
        Names of the variables of `source` that are not copied.

    Returns
    -------
    list of str
        Names of the variables of `source` that could not be copied.
    """
    lost: list[str] = []
    with create_file(path, user_block_bytes=512) as file:
        for name, value in variables.items():
            dataset = _write_variable(file, name, value)
            group = dataset.parent
            while group != file["/"]:
                group.attrs["MATLAB_class"] = np.bytes_("struct")
                group = group.parent
        if source is not None:
            with h5py.File(source, "r") as old:
                lost = copy_variables_of_v73(old, file, replaced)
    text = b"MATLAB 7.3 MAT-file, Platform: any, Created by: usdenoise HDF5 schema 1.00 ."
    with path.open("r+b") as raw:
        raw.write(text.ljust(116) + bytes(8) + struct.pack("<H", 0x0200) + b"IM")
    return lost


def _write_variable(file: h5py.File, name: str, value: Any) -> h5py.Dataset:
    if isinstance(value, str):
        codes = np.frombuffer(value.encode("utf-16-le"), np.uint16).reshape(-1, 1)
        dataset = file.create_dataset(name, data=codes)
        dataset.attrs["MATLAB_int_decode"] = np.int32(2)
        kind = "char"
    else:
        dataset = _write_reversed(file, name, value if value.ndim > 1 else value[:, None])
        member = value.real.dtype
        kind = {"f4": "single", "f8": "double"}.get(member.str[1:], member.name)
    dataset.attrs["MATLAB_class"] = np.bytes_(kind)
    return dataset


def _write_reversed(file: h5py.File, name: str, value: NDArray[Any]) -> h5py.Dataset:
    reverse = value.transpose()
    member = value.real.dtype
    dtype = np.dtype([("real", member), ("imag", member)]) if np.iscomplexobj(value) else member
    axes = "zxy"[: value.ndim - 1] + "t"
    dataset = file.create_dataset(
        name,
        shape=reverse.shape,
        dtype=dtype,
        chunks=chunk_shape(reverse.shape, axes[::-1], dtype.itemsize) if value.ndim > 2 else None,
    )
    write_values(dataset, reverse)
    return dataset


def _matlab_names(names: Iterable[str]) -> dict[str, str]:
    """Return a distinct name for each name, every part of which MATLAB allows."""
    parts = {name: name.split("/") for name in names}
    fields: dict[str, list[str]] = {}
    for name in parts:
        for depth, part in enumerate(parts[name]):
            fields.setdefault("/".join(parts[name][:depth]), []).append(part)
    plain = {struct_name: distinct_names(inside, _plain, key=str) for struct_name, inside in fields.items()}
    return {
        name: "/".join(plain["/".join(parts[name][:depth])][part] for depth, part in enumerate(parts[name]))
        for name in parts
    }


def _plain(name: str) -> str:
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return (plain if plain[:1].isalpha() else f"x{plain}")[:_LONGEST_NAME]
