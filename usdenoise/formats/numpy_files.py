"""Reading of NumPy's .npy and .npz files. Pickled objects are never loaded."""

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.contents import (
    MAX_METADATA_ITEMS,
    NPZ,
    Contents,
    Stack,
    arranged,
    describe_array,
    stacks_of,
)
from usdenoise.formats.file_values import in_file
from usdenoise.formats.input_files import OtherFiles
from usdenoise.formats.stored import StoredArray, loaded_when_read, shape_text
from usdenoise.options.reading_options import ReadOptions

DAMAGED = "is truncated or corrupt: it cannot be read as a NumPy file; copy or write it again"


@contextmanager
def open_npy(path: Path, how: ReadOptions, others: OtherFiles) -> Iterator[Contents]:
    """Open a .npy file, whose one array is read only where it is used.

    An array of pickled objects is listed, but is no stack.

    Parameters
    ----------
    path : Path
        The file.
    how : ReadOptions
        Reading options.
    others : OtherFiles
        Gets the other files that the acquisition is read from.

    Raises
    ------
    InputError
        If the file is damaged, or holds less than its header claims.
    """
    with path.open("rb") as file:
        shape, fortran, dtype = _header(file)
        offset = file.tell()
    every = {"iq": _in_words(shape, dtype)}
    stack: Stack | None = None
    if not dtype.hasobject and not dtype.names:
        _check_size(path, shape, dtype, path.stat().st_size - offset)
        if math.prod(shape):
            stack = arranged("iq", in_file(path, offset, shape, dtype, fortran), how.n_axes)
    yield Contents("NumPy .npy", () if stack is None else (stack,), every)


@contextmanager
def open_npz(path: Path, how: ReadOptions, others: OtherFiles) -> Iterator[Contents]:
    """Open a .npz file and list its arrays, one a member. Arrays of at most 4 values are metadata.

    Parameters
    ----------
    path : Path
        The file.
    how : ReadOptions
        Reading options.
    others : OtherFiles
        Gets the other files that the acquisition is read from.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    with zipfile.ZipFile(path) as archive:
        every: dict[str, str] = {}
        arrays: dict[str, StoredArray] = {}
        small: dict[str, tuple[Any, str]] = {}
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name == member.filename:
                continue
            with archive.open(member) as file:
                shape, _, dtype = _header(file)
            every[name] = _in_words(shape, dtype)
            if dtype.hasobject or dtype.names:
                continue
            arrays[name] = array = _member(archive, member, shape, dtype)
            if 0 < math.prod(shape) <= MAX_METADATA_ITEMS:
                values = array.read((slice(None),) * len(shape))
                text = str(values) if values.dtype.kind == "U" and values.ndim == 0 else values
                small[name] = (text, f"array {name}")

        def make(name: str, array: StoredArray, parts: tuple[str, ...], layout: str) -> Stack | None:
            return arranged(name, array, how.n_axes, layout=layout, metadata=lambda: small)

        yield Contents(NPZ, stacks_of(arrays, make, small), every)


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if any(n < 0 for n in shape):
        raise ValueError("a negative length")
    return shape, fortran, dtype


def _member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> StoredArray:
    def load() -> NDArray[Any]:
        with archive.open(member) as file:
            values: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return values

    return loaded_when_read(shape, dtype, load)


def _check_size(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], held: int) -> None:
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > held:
        raise InputError(
            f"the array in {path} claims {claimed} bytes {shape_text(shape)}, but the file holds {held}, "
            "so it is truncated or corrupt; write it again"
        )


def _in_words(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    if dtype.hasobject:
        return f"{len(shape)}-D pickled objects"
    return describe_array(StoredArray(shape, dtype, lambda index: np.empty(0)))
