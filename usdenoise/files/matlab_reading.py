"""Reading of MATLAB files: before 7.3 through scipy.io, and what is specific to MATLAB in 7.3, which is HDF5."""

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from usdenoise.errors import InputError, is_out_of_memory
from usdenoise.files.contents import (
    MAX_METADATA_ITEMS,
    MAX_TEXT,
    STRUCTS,
    Contents,
    Stack,
    check_compression,
    describe_array,
    first_bytes,
    known_first,
    stacks_of,
)
from usdenoise.files.hdf5_arrays import UNREADABLE, Item, items, member, stored_array
from usdenoise.files.input_files import FEW_BYTES
from usdenoise.files.stored import (
    Dtype,
    StoredArray,
    complex_dtype,
    concatenated,
    from_array,
    loaded_when_read,
    rearranged,
    reversed_axes,
)
from usdenoise.linalg.array_library import Numbers
from usdenoise.options import ReadOptions
from usdenoise.stack.geometry import shape_text
from usdenoise.stack.labels import Found
from usdenoise.stack.metadata import is_known, scale_numbers

HEADER_BYTES = 128
_MATRIX, _COMPRESSED = 14, 15
_COMPLEX_FLAG = 0x08


@dataclass(frozen=True)
class Element:
    """A variable in its file.

    Attributes
    ----------
    start : int
        First byte.
    n_bytes : int
        Number of bytes, including the tag.
    is_complex : bool
        Whether its values are complex.
    """

    start: int
    n_bytes: int
    is_complex: bool


def elements(path: Path) -> list[Element]:
    """Return the variables of a file, in its order; none for a file of version 4.

    Raises
    ------
    ValueError
        If a tag is damaged, or the file ends within a variable.
    """
    arrays, n_bytes = [], 0
    end = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
        # scipy takes a file as version 4 if one of its first 4 bytes is zero, whatever its header contains.
        if 0 in header[:4]:
            return []
        order = "<" if header[126:128] == b"IM" else ">"
        start = HEADER_BYTES
        while start + 8 <= end:
            file.seek(start)
            kind, length = struct.unpack(order + "II", file.read(8))
            if kind not in (_MATRIX, _COMPRESSED) or start + 8 + length > end:
                raise ValueError(f"element of type {kind} and {length} bytes")
            head = file.read(min(length, 256))
            if kind == _COMPRESSED:
                head = zlib.decompressobj().decompress(head, 24)
                n_bytes += struct.unpack_from(order + "I", head, 4)[0]
                head = head[8:]
            (flags,) = struct.unpack_from(order + "I", head, 8)
            arrays.append(Element(start, 8 + length, bool(flags >> 8 & _COMPLEX_FLAG)))
            start += 8 + length
    # SciPy decompresses all arrays to read their names. A constant one beside a stack is little more.
    check_compression("all content", path, n_bytes, end)
    return arrays


NUMERIC_CLASSES = {"double": "f8", "single": "f4", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8"}
NUMERIC_CLASSES |= {"uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8"}
"""Class of an array of numbers in MATLAB -> type of its values."""

MOST_CELLS = 4096
"""Most elements of a cell or struct that is searched for a stack."""


def blocks(arrays: Sequence[StoredArray]) -> StoredArray | None:
    """Concatenate blocks of frames along their last axis, which is time.

    Of several elements, one with two axes is a single frame, and the inner axes of length 1 behind the first two
    are dropped. Numbers and vectors, such as the time of each block, are not frames.

    Parameters
    ----------
    arrays : sequence of StoredArray
        Elements of the cell, or of one field of an array of structs, with their axes in MATLAB's order.

    Returns
    -------
    StoredArray or None
        None if there is no element, if one is not numeric or a vector, if they differ in more than their numbers of
        frames, or if fewer than 3 axes are left.
    """
    if not arrays or any(array.dtype.kind not in "fciu" for array in arrays):
        return None
    if len(arrays) == 1:
        return arrays[0]
    frames_of = []
    for array in arrays:
        # MATLAB drops axes of length 1 at the end itself. An inner one belongs to another loop of the acquisition.
        last = len(array.shape) - 1
        kept = [axis for axis, n in enumerate(array.shape) if n != 1 or axis < 2 or axis == last]
        if len(kept) < 2 or (len(kept) == 2 and min(array.shape) == 1):
            return None
        frames_of.append(rearranged(array, [*kept, None] if len(kept) == 2 else kept))
    if len({array.shape[:-1] for array in frames_of}) != 1 or len(frames_of[0].shape) < 3:
        return None
    return concatenated(frames_of, -1)


MOST_NESTED = 8
"""Most structs within each other in the elements of a cell that are searched for a stack."""


def is_matlab(file: h5py.File) -> bool:
    """Check whether a file is laid out as MATLAB writes it: axes are reversed, and structs are groups."""
    return file.userblock_size >= 128 or any("MATLAB_class" in item.attrs for item in items(file))


def special_class(dataset: h5py.Dataset) -> str | None:
    """Return the MATLAB class of a variable that is not an array of numbers, such as cell or "double without elements".

    None for an array of numbers, and if no class can be read.
    """
    try:
        if "MATLAB_class" not in dataset.attrs:
            return None
        kind = bytes(dataset.attrs["MATLAB_class"]).decode("ascii", errors="replace")
        if "MATLAB_empty" in dataset.attrs:
            return f"{kind} without elements"
    except UNREADABLE:
        return None
    plain = kind in NUMERIC_CLASSES and "MATLAB_object_decode" not in dataset.attrs
    return None if plain else kind


def cells(
    file: h5py.File, datasets: Mapping[str, h5py.Dataset]
) -> dict[str, tuple[StoredArray, tuple[h5py.Dataset, ...]]]:
    """Return the cells and arrays of structs of a file of MATLAB whose elements can be concatenated.

    Returns
    -------
    dict
        Full name, such as IQ or block/IQ -> the whole array with its axes in MATLAB's order, and its parts in the order of
        time.
    """
    cell_arrays: dict[str, tuple[StoredArray, tuple[h5py.Dataset, ...]]] = {}

    def add(name: str, elements: Sequence[Item | None]) -> None:
        if all(isinstance(element, h5py.Group) for element in elements):
            # A damaged file may have a group within itself.
            for key in elements[0] if elements[0] and name.count("/") < MOST_NESTED else ():
                add(f"{name}/{key}", [member(element, key) for element in elements])
            return
        arrays = [
            reversed_axes(stored_array(element))
            for element in elements
            # An element without a name is in no group, so its storage has not been checked.
            if isinstance(element, h5py.Dataset) and element.name and special_class(element) is None
        ]
        whole = blocks(arrays) if len(arrays) == len(elements) else None
        if whole is not None:
            cell_arrays[name] = (whole, tuple(elements))

    for name, dataset in datasets.items():
        # Types that NumPy does not have may be elsewhere
        if name.startswith("#refs#") or not 0 < (dataset.size or 0) <= MOST_CELLS:
            continue
        if h5py.check_ref_dtype(dataset.dtype) is not h5py.Reference:
            continue
        # MATLAB gives no class to the fields of an array of structs.
        if special_class(dataset) in ("cell", None):
            # In MATLAB's order; an element that the file does not have is None.
            references = dataset[()].transpose().reshape(-1, order="F")
            add(name, [file[reference] if reference else None for reference in references])
    return cell_arrays


DAMAGED = "is truncated or corrupt: it cannot be read as a MATLAB file; copy or write it again"


def read_matlab(path: Path, read_options: ReadOptions) -> Contents | None:
    """Open a MATLAB file of version 4 to 7 and list its contents; return None for a file of another format.

    A variable is read whole when its values are first needed. The content of cells and structs is only known once
    they are read. They are read if no plain variable can be the stack, or if the user names one of them.

    Parameters
    ----------
    path : Path
        The file.
    read_options : ReadOptions
        Reading options.

    Raises
    ------
    InputError
        If the file is truncated or corrupt.
    """
    head = first_bytes(path)
    if head[:10] != b"MATLAB 5.0" and (path.suffix.lower() != ".mat" or len(head) < HEADER_BYTES):
        return None
    from scipy.io import whosmat

    in_file = elements(path)
    arrays: dict[str, StoredArray] = {}
    every, nested = {}, []
    for position, (name, shape, kind) in enumerate(whosmat(str(path))):
        every[name] = f"{len(shape)}-D {kind} ({shape_text(shape)})"
        if kind in NUMERIC_CLASSES:
            dtype = np.dtype(NUMERIC_CLASSES[kind])
            if position < len(in_file) and in_file[position].is_complex:
                dtype = complex_dtype(dtype)
            arrays[name] = _variable(path, name, tuple(shape), dtype)
        elif kind in ("cell", "struct") and 0 < int(np.prod(shape, dtype=object)) <= MOST_CELLS:
            nested.append(name)

    def stacks_in(arrays: Mapping[str, StoredArray], layout: str) -> tuple[Stack, ...]:
        return stacks_of(arrays, read_options.n_axes, lambda name, n_axes: _scales_beside(path), True, layout)

    stacks = stacks_in(arrays, "")
    inner: dict[str, StoredArray] = {}
    if not stacks:
        inner = _inside(path, nested)
        every |= {name: describe_array(array) for name, array in inner.items()}
        stacks = stacks_in(inner, "within a cell or struct")

    def look_up(name: str) -> Stack | None:
        if name.split("/")[0] not in nested or inner:
            return None
        nested_stacks = stacks_in(_inside(path, nested), "within a cell or struct")
        return next((one for one in nested_stacks if one.name == name), None)

    return Contents("MATLAB before 7.3", stacks, every, arrays, look_up, is_read_whole=True)


def _variable(path: Path, name: str, shape: tuple[int, ...], dtype: Dtype) -> StoredArray:
    def load() -> Numbers:
        from scipy.io import loadmat

        values: Numbers = loadmat(str(path), variable_names=[name])[name]
        if values.shape != shape:
            raise InputError(
                f"'{name}' in {path} is corrupt: its header and its data disagree; write it again"
            )
        return values

    return loaded_when_read(shape, dtype, load)


def _inside(path: Path, names: list[str]) -> dict[str, StoredArray]:
    """Return the arrays of numbers in the named cells and structs: path of the array, such as UF/IQ -> array."""
    from scipy.io import loadmat

    if not names:
        return {}
    variables = loadmat(str(path), variable_names=names)
    arrays: dict[str, StoredArray] = {}

    def add(name: str, values: list[Any]) -> None:
        """Add a variable, or what the elements of a cell or of an array of structs have under one name."""
        parts = [np.asarray(value) for value in values]
        if len(parts) == 1 and parts[0].dtype == object:
            parts = [np.asarray(element) for element in parts[0].reshape(-1, order="F")]
        if parts and all(part.dtype.names for part in parts):
            for member in parts[0].dtype.names or ():
                if all(member in (part.dtype.names or ()) for part in parts):
                    fields = [part[member].reshape(-1, order="F") for part in parts]
                    add(f"{name}/{member}", [field for part in fields for field in part])
        elif (whole := blocks([from_array(part) for part in parts])) is not None:
            arrays[name] = whole

    for name in names:
        add(name, [variables.get(name)])
    return arrays


def _scales_beside(path: Path) -> Found:
    """Return the fields of the structs UF and PData (PALA) and of small structs, and the small variables of the file."""
    from scipy.io import loadmat, whosmat

    entries: dict[str, tuple[object, str]] = {}
    in_file = elements(path)
    small = (
        name
        for position, (name, shape, kind) in enumerate(whosmat(str(path)))
        # A cell is none.
        if int(np.prod(shape, dtype=object)) <= {"char": MAX_TEXT, "cell": -1}.get(kind, MAX_METADATA_ITEMS)
        and (kind != "struct" or name in STRUCTS or in_file[position].n_bytes <= FEW_BYTES)
    )
    for name in known_first(small):
        try:
            value = loadmat(str(path), variable_names=[name], squeeze_me=True).get(name)
        except Exception as error:
            # scipy cannot read some variables of other programs, such as sparse truth values of Octave.
            if is_out_of_memory(error) or is_known(name) or name in STRUCTS:
                raise
            continue
        if isinstance(value, np.ndarray) and value.dtype.names:
            for member in value.dtype.names if value.size == 1 else ():
                if name in STRUCTS or scale_numbers(value[member][()]):
                    key = member if name in STRUCTS else f"{name}/{member}"
                    entries[key] = (value[member][()], f"variable {name}.{member}")
        else:
            entries[name] = (str(value) if np.asarray(value).dtype.kind == "U" else value, f"variable {name}")
    return entries
