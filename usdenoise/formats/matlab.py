"""MATLAB files before 7.3, read and written through scipy.io; and 7.3 files, written through h5py."""

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.description import Candidate, is_stack, shape_text
from usdenoise.formats.matlab_tags import check_tags

V5_LIMIT_BYTES = (1 << 31) - (1 << 20)
"""Largest variable of a version 5 file, less room for its header."""

_NUMERIC = {"double": "f8", "single": "f4", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8"}
_NUMERIC |= {"uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8"}
# A byte of a zlib stream expands to at most this many.
_MAX_EXPANSION = 1032


def survey(path: Path) -> tuple[list[Candidate], dict[str, str]]:
    """The candidates of a version 4 to 7 file, and a word on every variable.

    Raises
    ------
    InputError
        If the file is truncated or corrupt.
    """
    from scipy.io import whosmat

    with _guard(path):
        check_tags(path)
        variables = whosmat(str(path))
    candidates, every = [], {}
    for name, shape, kind in variables:
        every[name] = f"{len(shape)}-D {kind} ({shape_text(shape)})"
        if kind in _NUMERIC and is_stack(shape, np.dtype(_NUMERIC[kind])):
            candidates.append(Candidate(name, tuple(shape), kind))
    return candidates, every


def read_variable(path: Path, candidate: Candidate) -> NDArray[Any]:
    """A variable of a version 4 to 7 file.

    Raises
    ------
    InputError
        If the header claims more than the file can hold, or the file is truncated or corrupt.
    """
    from scipy.io import loadmat

    claimed = int(np.prod(candidate.shape, dtype=object)) * np.dtype(_NUMERIC[candidate.dtype]).itemsize
    if claimed > path.stat().st_size * _MAX_EXPANSION:
        raise InputError(
            f"'{candidate.name}' in {path} claims {claimed} bytes {shape_text(candidate.shape)}, more than the "
            f"file of {path.stat().st_size} bytes can hold; it is corrupt: write it anew"
        )
    with _guard(path):
        values: NDArray[Any] = loadmat(str(path), variable_names=[candidate.name])[candidate.name]
    if values.shape != candidate.shape:
        raise InputError(
            f"'{candidate.name}' in {path} is corrupt: its header and its data disagree; write it anew"
        )
    return values


def nearby_metadata(path: Path) -> Mapping[str, tuple[Any, str]]:
    """Fields of the struct UF (PALA), and numeric scalars of the file."""
    from scipy.io import loadmat, whosmat

    found: dict[str, tuple[Any, str]] = {}
    with _guard(path):
        small = [name for name, shape, _ in whosmat(str(path)) if int(np.prod(shape, dtype=object)) <= 4]
        values = (
            loadmat(str(path), variable_names=small, squeeze_me=True, struct_as_record=True) if small else {}
        )
    for name in small:
        value = values.get(name)
        if isinstance(value, np.ndarray) and value.dtype.names:
            for member in value.dtype.names if name == "UF" else ():
                found[member] = (value[member][()], f"variable {name}.{member}")
        else:
            found[name] = (str(value) if np.asarray(value).dtype.kind == "U" else value, f"variable {name}")
    return found


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


@contextmanager
def _guard(path: Path) -> Iterator[None]:
    """Turn whatever scipy.io raises on a damaged file into one sentence."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise InputError(
            f"{path} is truncated or corrupt: it cannot be read as a MATLAB file; copy or write it anew"
        ) from error
