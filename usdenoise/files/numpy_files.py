"""Reading of NumPy's .npy and .npz files. Pickled objects are never loaded."""

import io
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from usdenoise.files.contents import (
    MAX_METADATA_ITEMS,
    Contents,
    Stack,
    arranged,
    check_compression,
    describe_array,
    first_bytes,
    stacks_of,
)
from usdenoise.files.stored import Dtype, StoredArray, loaded_when_read, with_pairs
from usdenoise.linalg.array_library import Numbers
from usdenoise.options import ReadOptions

DAMAGED = "is truncated or corrupt: it cannot be read as a NumPy file; copy or write it again"


def read_npy(path: Path, read_options: ReadOptions) -> Contents | None:
    """Open a .npy file, whose one array is read only where it is used; return None for a file of another format.

    An array of pickled objects is listed, but is not a stack.

    Parameters
    ----------
    path : Path
        The file.
    read_options : ReadOptions
        Reading options.

    Raises
    ------
    InputError
        If the file is damaged, or shorter than its header claims.
    """
    if not first_bytes(path).startswith(b"\x93NUMPY"):
        return None
    with path.open("rb") as file:
        shape, is_fortran, dtype = _header(file)
    every = {"iq": _in_words(shape, dtype)}
    if not math.prod(shape) or dtype.hasobject:
        return Contents("NumPy .npy", (), every)

    def mapped() -> Numbers:
        # The file is mapped again for each slab: pages that were read count as memory of this process. A file
        # that is shorter than its header claims is refused.
        values: Numbers = np.load(path, mmap_mode="r")
        return values

    mapped()
    array = StoredArray(
        shape,
        dtype,
        lambda index: np.array(mapped()[index]),
        slow=len(shape) - 1 if is_fortran else 0,
        fill=lambda index, out: np.copyto(out, mapped()[index]),
    )
    stack = arranged(Stack("iq", with_pairs(array, "iq")), read_options.n_axes)
    return Contents("NumPy .npy", () if stack is None else (stack,), every)


def read_npz(path: Path, read_options: ReadOptions) -> Contents | None:
    """Open a .npz file and list its arrays, one a member; return None for a file of another format.

    Arrays of at most 4 values are metadata.

    Parameters
    ----------
    path : Path
        The file.
    read_options : ReadOptions
        Reading options.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    if not first_bytes(path).startswith((b"PK\x03\x04", b"PK\x05\x06")) or path.suffix.lower() == ".zip":
        return None
    with np.load(path) as archive:
        if not any(member.endswith(".npy") for member in archive.zip.namelist()):
            return None
        every: dict[str, str] = {}
        arrays: dict[str, StoredArray] = {}
        small: dict[str, tuple[object, str]] = {}
        for member in archive.zip.namelist():
            name = member.removesuffix(".npy")
            if name == member:
                continue
            with archive.zip.open(member) as file:
                shape, _, dtype = _header(file)
            every[name] = _in_words(shape, dtype)
            array = with_pairs(loaded_when_read(shape, dtype, partial(_member, path, name)), name)
            if dtype.hasobject or array.dtype.names:
                continue
            n_bytes = math.prod(shape) * dtype.itemsize
            n_stored = archive.zip.getinfo(member).compress_size
            check = partial(check_compression, f"'{name}'", path, n_bytes, n_stored)
            arrays[name] = replace(array, check=check)
            if 0 < math.prod(shape) <= MAX_METADATA_ITEMS:
                values = archive[name]
                text = str(values) if values.dtype.kind == "U" and values.ndim == 0 else values
                small[name] = (text, f"array {name}")

    stacks = stacks_of(arrays, read_options.n_axes, lambda name, n_axes: small, done=small)
    return Contents("NumPy .npz", stacks, every, is_read_whole=True)


def _member(path: Path, name: str) -> Numbers:
    with np.load(path) as archive:
        values: Numbers = archive[name]
        return values


_MOST_HEADER = 1 << 16
"""Most bytes of the header of an array, which can claim 4 GiB."""


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, Dtype]:
    version = np.lib.format.read_magic(file)
    is_short = version == (1, 0)
    read = np.lib.format.read_array_header_1_0 if is_short else np.lib.format.read_array_header_2_0
    length = file.read(2 if is_short else 4)
    n_bytes = int.from_bytes(length, "little")
    if n_bytes > _MOST_HEADER:
        raise ValueError("a header of more bytes than any array needs")
    shape, is_fortran, dtype = read(io.BytesIO(length + file.read(n_bytes)))
    if any(n < 0 for n in shape):
        raise ValueError("a negative length")
    return shape, is_fortran, dtype


def _in_words(shape: tuple[int, ...], dtype: Dtype) -> str:
    if dtype.hasobject:
        return f"{len(shape)}-D pickled objects"
    return describe_array(StoredArray(shape, dtype, lambda index: np.empty(0)))
