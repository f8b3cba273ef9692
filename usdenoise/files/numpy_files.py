"""Reading of NumPy's .npy and .npz files. Pickled objects are never loaded."""

import io
import math
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from usdenoise.files.contents import (
    MAX_METADATA_ITEMS,
    NPZ,
    Contents,
    Stack,
    arranged,
    check_compression,
    describe_array,
    first_bytes,
    stacks_of,
)
from usdenoise.files.stored import (
    Dtype,
    StoredArray,
    loaded_when_read,
    member_note,
    member_order,
    of_pairs,
    pair_dtype,
)
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
    stack: Stack | None = None
    order = member_order(dtype)
    if math.prod(shape) and not dtype.hasobject and (order or not dtype.names):

        def mapped() -> Numbers:
            # The file is mapped again for each slab: pages that were read count as memory of this process. A file
            # that is shorter than its header claims is refused.
            values: Numbers = np.load(path, mmap_mode="r")
            return values

        mapped()
        array = StoredArray(
            shape,
            pair_dtype(dtype),
            lambda index: np.array(of_pairs(mapped()[index])),
            slow=len(shape) - 1 if is_fortran else 0,
            fill=None if order else lambda index, out: np.copyto(out, mapped()[index]),
        )
        stack = arranged("iq", array, read_options.n_axes, assumptions=member_note("iq", dtype))
    stacks = () if stack is None else (stack,)
    return Contents("NumPy .npy", stacks, {"iq": _in_words(shape, dtype)})


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
        every: dict[str, str] = {}
        arrays: dict[str, StoredArray] = {}
        small: dict[str, tuple[object, str]] = {}
        notes: dict[str, tuple[str, ...]] = {}
        stored: dict[str, int] = {}
        for member in archive.zip.namelist():
            name = member.removesuffix(".npy")
            if name == member:
                continue
            stored[name] = archive.zip.getinfo(member).compress_size
            with archive.zip.open(member) as file:
                shape, _, dtype = _header(file)
            every[name] = _in_words(shape, dtype)
            if dtype.hasobject or (dtype.names and not member_order(dtype)):
                continue
            notes[name] = member_note(name, dtype)
            arrays[name] = loaded_when_read(shape, pair_dtype(dtype), partial(_member, path, name))
            if 0 < math.prod(shape) <= MAX_METADATA_ITEMS:
                values = archive[name]
                text = str(values) if values.dtype.kind == "U" and values.ndim == 0 else values
                small[name] = (text, f"array {name}")

    def make(name: str, array: StoredArray, parts: tuple[str, ...], layout: str) -> Stack | None:
        assumptions = notes[parts[0]] if len(parts) == 1 else ()

        def check() -> None:
            for part in parts:
                n_bytes = math.prod(arrays[part].shape) * arrays[part].dtype.itemsize
                check_compression(f"'{part}'", path, n_bytes, stored[part])

        return arranged(
            name,
            array,
            read_options.n_axes,
            layout=layout,
            metadata=lambda: small,
            assumptions=assumptions,
            check=check,
        )

    return Contents(NPZ, stacks_of(arrays, make, small), every)


def _member(path: Path, name: str) -> Numbers:
    with np.load(path) as archive:
        return of_pairs(archive[name])


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
