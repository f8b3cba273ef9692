"""The other variables of a MATLAB file, which come along into the result: structs such as UF and PData, and arrays."""

import io
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.formats.choice import RESULTS_AND_TRUTH
from usdenoise.formats.hdf5.hdf5_items import items
from usdenoise.formats.matlab.matlab_cells import NUMERIC_CLASSES
from usdenoise.formats.matlab.matlab_tags import check_tags

CARRIED_BYTES = 64 << 20
"""Most bytes of all variables together that come along. Those that are too many are left out, whole."""

_NUMERIC = (*NUMERIC_CLASSES, "logical")
_PLAIN = (*_NUMERIC, "char", "struct", "cell", "sparse")
_DEEPEST = 8


def carried_variables(path: Path, taken: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the variables of a MATLAB file that a result does not have itself, and the names of those that are lost.

    Lost are variables and fields that cannot be read or written, and those that do not fit into CARRIED_BYTES.

    Parameters
    ----------
    path : Path
        The input file.
    taken : collection of str
        Names of the variables of the result; a slash separates a struct and its field.

    Returns
    -------
    found : dict
        Name -> value: an array, text, an array of objects for a cell, or a record array for an array of structs. A
        struct is flattened to one name for each field, such as UF/FrameRateUF.
    lost : list of str
        Names of what is in the file, and not among them.
    """
    found: dict[str, Any] = {}
    lost: list[str] = []
    left = CARRIED_BYTES
    variables = _variables_of_v73(path) if h5py.is_hdf5(path) else _variables_of_v5(path)
    structs = {name.split("/")[0] for name in taken if "/" in name}
    # The stack has been read; what cannot be read here was not needed for it.
    with suppress(Exception):
        for name, n_bytes, read in variables:
            # MATLAB's own variables begin with an underscore, which no variable of a user can.
            old = (name + "/").startswith((*RESULTS_AND_TRUTH, "usdenoise", "_"))
            if old or name in taken:
                continue
            flat = None
            # scipy and h5py raise errors of many types on a damaged variable.
            with suppress(Exception):
                flat = list(_flattened(name, read(), 0)) if n_bytes <= left else None
            if flat is None:
                lost.append(name)
                continue
            left -= n_bytes
            for key, value in flat:
                # Of the struct that holds the stack, the other fields come along.
                if name in structs and any(f"{key}/".startswith(f"{own}/") for own in taken):
                    continue
                try:
                    found[key] = _writable(value)
                except Exception:
                    lost.append(key)
    return found, lost


def _flattened(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    is_struct = isinstance(value, np.ndarray) and value.dtype.names and value.size == 1
    if is_struct and type(value) is np.ndarray and depth < _DEEPEST:
        record = value.reshape(-1)[0]
        value = {member: record[member] for member in value.dtype.names}
    if isinstance(value, dict) and value:
        for member, inner in value.items():
            yield from _flattened(f"{name}/{member}", inner, depth + 1)
    elif isinstance(value, np.ndarray) and value.dtype.kind == "U" and value.size <= 1:
        yield name, str(value.reshape(-1)[0]) if value.size else ""
    else:
        yield name, value


def _writable(value: Any) -> Any:
    """Return a value as scipy writes it. What scipy only reads, such as functions of MATLAB, raises an error of any type."""
    from scipy.io import savemat

    if isinstance(value, np.ndarray) and value.dtype.kind in "fciub":
        return value
    made = _with_empty_structs(value)
    savemat(io.BytesIO(), {"value": made}, long_field_names=True)
    return made


def _with_empty_structs(value: Any) -> Any:
    """Return a value with structs without fields as scipy writes them, {}; it reads them as an array of one None."""
    from scipy.io.matlab import MatlabFunction, MatlabObject, MatlabOpaque

    if isinstance(value, MatlabFunction | MatlabObject | MatlabOpaque | Exception):
        raise ValueError("an object or a function of MATLAB, or a field that could not be read")
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.names:
        made = value.copy()
        for member in value.dtype.names:
            made[member] = _with_empty_structs(value[member])
        return made
    if value.dtype != object:
        return value
    if value.size == 1 and value.item() is None:
        return {}
    made = np.empty(value.shape, object)
    for place in np.ndindex(value.shape):
        made[place] = _with_empty_structs(value[place])
    return made


def _variables_of_v5(path: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield name, size and reader of each variable of a file before version 7.3."""
    from scipy.io import whosmat

    tags, kinds = check_tags(path), whosmat(str(path))
    for place, (name, shape, kind) in enumerate(kinds):
        size = tags[place][1] if len(tags) == len(kinds) else 16 * int(np.prod(shape, dtype=object))
        dtype = bool if kind == "logical" else None
        yield name, size if kind in _PLAIN else CARRIED_BYTES + 1, partial(_loaded, path, name, dtype)


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
                n_bytes = CARRIED_BYTES + 1
                with suppress(Exception):
                    n_bytes = _bytes_of(item, 0)
                yield name, n_bytes, partial(_value, item, 0)


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
    references = item[()].transpose()
    found = np.empty(references.shape, object)
    for place in np.ndindex(references.shape):
        found[place] = item.file[references[place]]
    return found


def _value(item: Any, depth: int) -> Any:
    """Return a variable of version 7.3 in the types of scipy.io."""
    if isinstance(item, h5py.Group) and "MATLAB_sparse" in item.attrs:
        return _sparse(item)
    if isinstance(item, h5py.Group):
        fields: dict[str, Any] = {}
        for inner in items(item):
            # A field that cannot be read stays behind alone.
            try:
                value = _value(inner, depth + 1)
            except Exception as error:
                value = error
            fields[inner.name.rsplit("/", 1)[-1]] = value
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
    values = _numbers(item)
    if kind == "char":
        return values.reshape(-1, order="F").astype("<u2").tobytes().decode("utf-16-le", errors="replace")
    return values.astype(bool) if kind == "logical" else values


def _numbers(item: h5py.Dataset) -> NDArray[Any]:
    values: NDArray[Any] = np.asarray(item[()]).transpose()
    if values.dtype.names == ("real", "imag"):
        return values["real"] + 1j * values["imag"].astype(np.result_type(values["imag"], np.complex64))
    return values


def _sparse(group: h5py.Group) -> Any:
    """Return a sparse matrix, which version 7.3 has as a group of its values, their rows, and the start of each column."""
    from scipy.sparse import csc_matrix

    parts = {item.name.rsplit("/", 1)[-1]: _numbers(item) for item in items(group)}
    values = parts.get("data", np.empty(0))
    if bytes(group.attrs["MATLAB_class"]) == b"logical":
        values = values.astype(bool)
    shape = (int(group.attrs["MATLAB_sparse"]), len(parts["jc"]) - 1)
    matrix = csc_matrix((values, parts.get("ir", np.empty(0, np.int64)), parts["jc"]), shape)
    matrix.check_format(full_check=True)
    return matrix
