"""The other variables of a MATLAB file, which come along into the result: structs such as UF and PData, and arrays."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.formats.choice import RESULTS_AND_TRUTH
from usdenoise.formats.hdf5.hdf5_expansion import BoundedReader
from usdenoise.formats.hdf5.hdf5_items import items
from usdenoise.formats.known_formats import is_hdf5
from usdenoise.formats.matlab.matlab_cells import NUMERIC_CLASSES
from usdenoise.formats.matlab.matlab_tags import check_tags

CARRIED_BYTES = 64 << 20
"""Most bytes of all variables together that come along. Those that are too many are left out, whole."""

_NUMERIC = (*NUMERIC_CLASSES, "logical")
_PLAIN = (*_NUMERIC, "char", "struct", "cell", "sparse")
_DEEPEST = 8


def carried_variables(path: Path, taken: Collection[str]) -> dict[str, Any]:
    """Return the variables of a MATLAB file that a result does not have itself.

    Variables that cannot be read, and those that do not fit into CARRIED_BYTES, are left out.

    Parameters
    ----------
    path : Path
        The input file.
    taken : collection of str
        Names of the variables of the result; a slash separates a struct and its field.

    Returns
    -------
    dict
        Name -> value: an array, text, an array of objects for a cell, or a record array for an array of structs. A
        struct is flattened to one name for each field, such as UF/FrameRateUF.
    """
    found: dict[str, Any] = {}
    left = CARRIED_BYTES
    variables = _variables_of_v73(path) if is_hdf5(path) else _variables_of_v5(path)
    structs = {name.split("/")[0] for name in taken if "/" in name}
    try:
        for name, n_bytes, read in variables:
            # MATLAB's own variables begin with an underscore, which no variable of a user can.
            old = (name + "/").startswith((*RESULTS_AND_TRUTH, "usdenoise", "_"))
            own = old or name in taken
            if own or n_bytes > left:
                continue
            # scipy and h5py raise errors of many types on a damaged variable.
            with suppress(Exception):
                flat = dict(_flattened(name, read(), 0))
                left -= n_bytes
                # Of the struct that holds the stack, the other fields come along.
                found |= {
                    key: value for key, value in flat.items() if name not in structs or not _is_in(key, taken)
                }
    except Exception:
        # The stack has been read; what cannot be read here was not needed for it.
        return found
    return found


def _is_in(key: str, taken: Collection[str]) -> bool:
    return any(key == name or key.startswith(f"{name}/") for name in taken)


def _flattened(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    is_struct = isinstance(value, np.ndarray) and value.dtype.names and value.size == 1
    if is_struct and type(value) is np.ndarray and depth < _DEEPEST:
        record = value.reshape(-1)[0]
        value = {member: record[member] for member in value.dtype.names}
    if isinstance(value, dict):
        for member, inner in value.items():
            yield from _flattened(f"{name}/{member}", inner, depth + 1)
    elif isinstance(value, np.ndarray) and value.dtype.kind == "U" and value.size <= 1:
        yield name, str(value.reshape(-1)[0]) if value.size else ""
    elif _is_writable(value):
        yield name, value


def _is_writable(value: Any) -> bool:
    """Return whether scipy writes a value: objects and functions of MATLAB it only reads."""
    from scipy.io.matlab import MatlabFunction, MatlabObject, MatlabOpaque

    if isinstance(value, MatlabFunction | MatlabObject | MatlabOpaque):
        return False
    if isinstance(value, np.ndarray) and value.dtype.names:
        return all(_is_writable(value[member]) for member in value.dtype.names)
    if isinstance(value, np.ndarray) and value.dtype == object:
        return all(_is_writable(inner) for inner in value.reshape(-1))
    return True


def _variables_of_v5(path: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield name, size and reader of each variable of a file before version 7.3."""
    from scipy.io import whosmat

    tags, kinds = check_tags(path), whosmat(str(path))
    for place, (name, shape, kind) in enumerate(kinds):
        size = tags[place][1] if len(tags) == len(kinds) else 16 * int(np.prod(shape, dtype=object))
        if kind in _PLAIN:
            dtype = bool if kind == "logical" else None
            yield name, size, partial(_loaded, path, name, dtype)


def _loaded(path: Path, name: str, dtype: Any) -> Any:
    from scipy.io import loadmat

    value = loadmat(str(path), variable_names=[name])[name]
    # scipy gives truth values as whole numbers.
    return value if dtype is None else value.astype(dtype)


def _variables_of_v73(path: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield name, size and reader of each variable of a file of version 7.3."""
    with h5py.File(path, "r") as file:
        for item in items(file["/"]):
            name = item.name.strip("/")
            if not name.startswith("#"):
                yield name, _bytes_of(item, 0), partial(_value, item, 0)


def _bytes_of(item: Any, depth: int) -> int:
    """Return the bytes of a variable of version 7.3 with all that is in it."""
    if depth > _DEEPEST:
        return CARRIED_BYTES + 1
    if isinstance(item, h5py.Group):
        return sum(_bytes_of(inner, depth + 1) for inner in items(item))
    if not isinstance(item, h5py.Dataset) or item.is_virtual or item.external:
        return CARRIED_BYTES + 1
    if h5py.check_ref_dtype(item.dtype) is h5py.Reference:
        return sum(_bytes_of(inner, depth + 1) for inner in _elements(item).reshape(-1))
    return int(item.nbytes)


def _elements(item: h5py.Dataset) -> NDArray[np.object_]:
    """Return the items in a cell, in MATLAB's order of axes."""
    if (item.size or 0) > 4096:
        raise ValueError("a cell of many elements")
    references = BoundedReader(item).whole().transpose()
    found = np.empty(references.shape, object)
    for place in np.ndindex(references.shape):
        found[place] = item.file[references[place]]
    return found


def _value(item: Any, depth: int) -> Any:
    """Return a variable of version 7.3 in the types of scipy.io."""
    if isinstance(item, h5py.Group):
        fields = {}
        for inner in items(item):
            # A field that cannot be read stays behind alone.
            with suppress(Exception):
                fields[inner.name.rsplit("/", 1)[-1]] = _value(inner, depth + 1)
        return fields
    kind = bytes(item.attrs.get("MATLAB_class", b"")).decode("ascii", errors="replace")
    if "MATLAB_empty" in item.attrs:
        return "" if kind == "char" else np.empty((0, 0))
    if kind == "cell":
        cell = _elements(item)
        for place in np.ndindex(cell.shape):
            cell[place] = _value(cell[place], depth + 1)
        return cell
    if kind not in (*_NUMERIC, "char"):
        raise ValueError(f"a {kind} of MATLAB")
    values = np.asarray(BoundedReader(item).whole()).transpose()
    if kind == "char":
        return values.reshape(-1, order="F").astype("<u2").tobytes().decode("utf-16-le", errors="replace")
    if values.dtype.names == ("real", "imag"):
        return values["real"] + 1j * values["imag"].astype(np.result_type(values["imag"], np.complex64))
    return values.astype(bool) if kind == "logical" else values
