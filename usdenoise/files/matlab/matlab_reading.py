"""Reading of MATLAB files before 7.3 through scipy.io."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, is_out_of_memory
from usdenoise.files.contents import (
    MATLAB_5,
    MAX_METADATA_ITEMS,
    MAX_TEXT,
    STRUCTS,
    Contents,
    Found,
    Stack,
    arranged,
    describe_array,
    stacks_of,
)
from usdenoise.files.matlab.matlab_cells import MOST_CELLS, NUMERIC_CLASSES, blocks
from usdenoise.files.matlab.matlab_elements import elements
from usdenoise.files.stored import StoredArray, complex_dtype, from_array, loaded_when_read
from usdenoise.options.reading_options import ReadOptions
from usdenoise.stack.geometry import form_of, shape_text
from usdenoise.stack.metadata import is_known

DAMAGED = "is truncated or corrupt: it cannot be read as a MATLAB file; copy or write it again"


@contextmanager
def open_contents(path: Path, read_options: ReadOptions) -> Iterator[Contents]:
    """Open a MATLAB file of version 4 to 7 and list its contents.

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

    def stacks_in(arrays: Mapping[str, StoredArray], position: str) -> tuple[Stack, ...]:
        def stack(name: str, array: StoredArray, parts: tuple[str, ...], layout: str) -> Stack | None:
            return arranged(
                name,
                array,
                read_options.n_axes,
                time_last=True,
                metadata=lambda: _nearby(path),
                layout=layout or position,
                form=form_of(parts),
            )

        return stacks_of(arrays, stack)

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

    yield Contents(MATLAB_5, stacks, every, look_up)


def _variable(path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> StoredArray:
    def load() -> NDArray[Any]:
        from scipy.io import loadmat

        values: NDArray[Any] = loadmat(str(path), variable_names=[name])[name]
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


def _nearby(path: Path) -> Found:
    """Return the fields of the structs UF and PData (PALA), and the small variables of the file."""
    from scipy.io import loadmat, whosmat

    entries: dict[str, tuple[Any, str]] = {}
    small = [
        name
        for name, shape, kind in whosmat(str(path))
        if int(np.prod(shape, dtype=object)) <= (MAX_TEXT if kind == "char" else MAX_METADATA_ITEMS)
        and (kind not in ("cell", "struct") or name in STRUCTS)
    ]
    for name in small:
        try:
            value = loadmat(str(path), variable_names=[name], squeeze_me=True).get(name)
        except Exception as error:
            # scipy cannot read some variables of other programs, such as sparse truth values of Octave.
            if is_out_of_memory(error) or is_known(name) or name in STRUCTS:
                raise
            continue
        if isinstance(value, np.ndarray) and value.dtype.names:
            for member in value.dtype.names if value.size == 1 else ():
                entries[member] = (value[member][()], f"variable {name}.{member}")
        else:
            entries[name] = (str(value) if np.asarray(value).dtype.kind == "U" else value, f"variable {name}")
    return entries
