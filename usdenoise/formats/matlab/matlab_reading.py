"""MATLAB files before 7.3, read through scipy.io."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.formats.contents import Contents, Found, Stack, arranged, describe_array, pair_parts
from usdenoise.formats.damage import guard
from usdenoise.formats.description import shape_text
from usdenoise.formats.matlab.matlab_cells import blocks
from usdenoise.formats.matlab.matlab_tags import check_tags
from usdenoise.formats.output_folder import MAX_EXPANSION
from usdenoise.formats.stored import StoredArray, complex_dtype, from_array, loaded_when_read

_NUMERIC = {"double": "f8", "single": "f4", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8"}
_NUMERIC |= {"uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8"}
_MOST_CELLS = 4096
_MAX_METADATA_ITEMS, _MAX_TEXT = 4, 64
_STRUCTS = ("UF", "PData")
_DAMAGED = "is truncated or corrupt: it cannot be read as a MATLAB file; copy or write it anew"


@contextmanager
def open_contents(path: Path, n_axes: int | None) -> Iterator[Contents]:
    """What a version 4 to 7 file offers.

    Variables are read whole, when their values are first needed. Cells and structs have to be read to
    know what is in them; that is done where no plain variable can be the stack, or when one is asked for.

    Parameters
    ----------
    path : Path
        The file.
    n_axes : int or None
        Number of axes that the user named.

    Raises
    ------
    InputError
        If it is truncated or corrupt.
    """
    from scipy.io import whosmat

    with guard(path, _DAMAGED):
        is_complex = check_tags(path)
        variables = whosmat(str(path))
    arrays: dict[str, StoredArray] = {}
    every, nested = {}, []
    for place, (name, shape, kind) in enumerate(variables):
        every[name] = f"{len(shape)}-D {kind} ({shape_text(shape)})"
        if kind in _NUMERIC:
            dtype = np.dtype(_NUMERIC[kind])
            if place < len(is_complex) and is_complex[place]:
                dtype = complex_dtype(dtype)
            arrays[name] = _variable(path, name, tuple(shape), dtype)
        elif kind in ("cell", "struct") and 0 < int(np.prod(shape, dtype=object)) <= _MOST_CELLS:
            nested.append(name)

    def stack(name: str, array: StoredArray, **more: Any) -> Stack | None:
        return arranged(
            name,
            array,
            n_axes,
            time_last=True,
            metadata=lambda carried: _nearby(path),
            check=lambda: _check_claim(path, name, array),
            **more,
        )

    def scale(lower: str) -> float | None:
        match = [array for name, array in arrays.items() if name.lower() == lower]
        return float(match[0].read((slice(0, 1, 1),) * 2).item()) if match else None

    def stacks_of(arrays: Mapping[str, StoredArray], layout: str) -> list[Stack]:
        pairs = pair_parts(arrays, scale)
        used = {part for *_, parts in pairs for part in parts}
        made = [stack(name, array, layout=how) for name, array, how, _ in pairs]
        made += [stack(name, array, layout=layout) for name, array in arrays.items() if name not in used]
        return [one for one in made if one is not None]

    stacks = stacks_of(arrays, "")
    inner: dict[str, StoredArray] = {}
    if not stacks:
        inner = _inside(path, nested)
        every |= {name: describe_array(array) for name, array in inner.items()}
        stacks = stacks_of(inner, "within a cell or struct")

    def look_up(name: str) -> Stack | None:
        if name.split("/")[0] not in nested or inner:
            return None
        found = stacks_of(_inside(path, nested), "within a cell or struct")
        return next((one for one in found if one.name == name), None)

    def find(name: str) -> tuple[StoredArray, Found] | None:
        array = arrays.get(name)
        if array is None and name.split("/")[0] in nested:
            array = _inside(path, nested).get(name)
        return None if array is None else (array, _nearby(path))

    yield Contents("MATLAB before 7.3", tuple(stacks), every, look_up, find)


def _variable(path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> StoredArray:
    def load() -> NDArray[Any]:
        from scipy.io import loadmat

        _check_claim(path, name, StoredArray(shape, dtype, lambda index: np.empty(0)))
        with guard(path, _DAMAGED):
            values: NDArray[Any] = loadmat(str(path), variable_names=[name])[name]
        if values.shape != shape:
            raise InputError(
                f"'{name}' in {path} is corrupt: its header and its data disagree; write it anew"
            )
        return values

    return loaded_when_read(shape, dtype, load)


def _check_claim(path: Path, name: str, array: StoredArray) -> None:
    held = path.stat().st_size
    if array.nbytes > held * MAX_EXPANSION:
        raise InputError(
            f"'{name}' in {path} claims {array.nbytes} bytes {shape_text(array.shape)}, more than the "
            f"file of {held} bytes can hold; it is corrupt: write it anew"
        )


def _inside(path: Path, names: list[str]) -> dict[str, StoredArray]:
    """The arrays of numbers in cells and structs, by their places."""
    from scipy.io import loadmat

    if not names:
        return {}
    with guard(path, _DAMAGED):
        variables = loadmat(str(path), variable_names=names)
    found: dict[str, StoredArray] = {}

    def add(name: str, value: Any) -> None:
        if not isinstance(value, np.ndarray):
            return
        if value.dtype.names and value.size == 1:
            for member in value.dtype.names:
                add(f"{name}/{member}", value[member].reshape(-1)[0])
        elif value.dtype == object:
            elements = [np.asarray(element) for element in value.reshape(-1, order="F")]
            whole = blocks([from_array(element) for element in elements])
            if whole is not None:
                found[name] = whole
        elif value.dtype.kind in "fciu":
            found[name] = from_array(value)

    for name in names:
        add(name, variables.get(name))
    return found


def _nearby(path: Path) -> Found:
    """Fields of the structs UF and PData (PALA), and numeric scalars of the file."""
    from scipy.io import loadmat, whosmat

    found: dict[str, tuple[Any, str]] = {}
    with guard(path, _DAMAGED):
        small = [
            name
            for name, shape, kind in whosmat(str(path))
            if int(np.prod(shape, dtype=object)) <= (_MAX_TEXT if kind == "char" else _MAX_METADATA_ITEMS)
            and (kind not in ("cell", "struct") or name in _STRUCTS)
        ]
        values = (
            loadmat(str(path), variable_names=small, squeeze_me=True, struct_as_record=True) if small else {}
        )
    for name in small:
        value = values.get(name)
        if isinstance(value, np.ndarray) and value.dtype.names:
            for member in value.dtype.names if value.size == 1 else ():
                found[member] = (value[member][()], f"variable {name}.{member}")
        else:
            found[name] = (str(value) if np.asarray(value).dtype.kind == "U" else value, f"variable {name}")
    return found
