"""The other variables of a MATLAB file, copied into a result as they are: structs such as UF and PData, and arrays."""

import io
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from usdenoise.errors import is_out_of_memory
from usdenoise.files.choice import RESULTS_AND_TRUTH
from usdenoise.files.hdf5.hdf5_items import items
from usdenoise.files.matlab.matlab_elements import HEADER_BYTES, elements
from usdenoise.files.matlab.matlab_v73 import elements_of

_PIECE_BYTES = 1 << 20
_SUBSYSTEM = "__function_workspace__"
"""Name that scipy gives to the element with the content of objects and function handles."""

_SUBSYSTEM_OFFSET = 116
"""Byte of the header of version 5 that holds the position of that element."""


def other_variables_of_v5(source: Path, replaced: Collection[str]) -> list[str]:
    """Return the names of the variables of a file of version 5 that are not replaced, nor results of an earlier run."""
    from scipy.io import whosmat

    return [name for name, _, _ in whosmat(str(source)) if name not in replaced and not _is_result(name)]


def append_variables_of_v5(path: Path, source: Path, names: Collection[str]) -> list[str]:
    """Append variables of a file of version 5 to another one, byte for byte.

    Parameters
    ----------
    path : Path
        The result, a finished file of version 5.
    source : Path
        The input.
    names : collection of str
        Names of the variables.

    Returns
    -------
    list of str
        Names of the variables that could not be copied: all of them where the files have different byte orders.
    """
    from scipy.io import whosmat

    with source.open("rb") as old, path.open("r+b") as new:
        if old.read(HEADER_BYTES)[-2:] != new.read(HEADER_BYTES)[-2:]:
            return [*names]
        for (name, _, _), element in zip(whosmat(str(source)), elements(source), strict=True):
            if name in names:
                start = new.seek(0, io.SEEK_END)
                old.seek(element.start)
                _copy_bytes(old, new, element.n_bytes)
                if name == _SUBSYSTEM:
                    new.seek(_SUBSYSTEM_OFFSET)
                    new.write(struct.pack("=Q", start))
    return []


def _copy_bytes(source: BinaryIO, target: BinaryIO, count: int) -> None:
    while count > 0:
        piece = source.read(min(count, _PIECE_BYTES))
        target.write(piece)
        count -= len(piece) or count


def other_fields(path: Path, name: str, replaced: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a struct of version 5 apart from the stack in it, and the names of those that are lost.

    Parameters
    ----------
    path : Path
        The input.
    name : str
        Name of the struct.
    replaced : collection of str
        Names of the arrays of the stack, such as Bf/IQ.

    Returns
    -------
    found : dict
        Name, such as Bf/gain -> value.
    lost : list of str
        Names of fields that scipy cannot write.
    """
    from scipy.io import loadmat, savemat

    fields: dict[str, Any] = {}
    lost: list[str] = []

    def add(name: str, value: Any) -> None:
        if name in replaced:
            return
        if any(one.startswith(f"{name}/") for one in replaced):
            # Elements of an array of structs that were joined make one struct, whose other fields are cells.
            for field in value.dtype.names or ():
                add(f"{name}/{field}", value[field].reshape(-1)[0] if value.size == 1 else value[field])
            lost.extend([] if value.dtype.names else [name])
            return
        try:
            if value.dtype.kind not in "fciub":
                savemat(io.BytesIO(), {"value": value}, long_field_names=True)
            fields[name] = value
        except Exception as error:
            # scipy raises errors of many types on a value that it can only read, such as a function handle.
            if is_out_of_memory(error):
                raise
            lost.append(name)

    add(name, loadmat(str(path), variable_names=[name])[name])
    return fields, lost


def copy_variables_of_v73(source: h5py.File, target: h5py.File, replaced: Collection[str]) -> list[str]:
    """Copy the variables of a file of version 7.3 into another one that does not have them.

    Parameters
    ----------
    source : h5py.File
        The input.
    target : h5py.File
        The result, with its own variables.
    replaced : collection of str
        Names of the arrays of the stack. They are not copied, nor the elements of such a cell or array of structs.

    Returns
    -------
    list of str
        Names of the damaged variables.
    """
    skipped, joined = {*replaced}, set[str]()
    for name in replaced:
        inner = {element.name.strip("/") for element in elements_of(source, name)}
        skipped |= inner
        joined |= {name.rpartition("/")[0]} if inner else set()
    lost = _copy_items(source["/"], target["/"], skipped)

    def point_to_the_copy(name: str, item: Any) -> None:
        if _is_cell(item):
            references = source[name][()]
            for index, reference in enumerate(references.flat):
                copied = target.get(source[reference].name) if reference else None
                references.flat[index] = h5py.Reference() if copied is None else copied.ref
            item[...] = references
            if name.rpartition("/")[0] in joined:
                # Beside the joined stack, the other fields of an array of structs are cells of one struct.
                item.attrs["MATLAB_class"] = np.bytes_("cell")

    target.visititems(point_to_the_copy)
    return lost


def _copy_items(source: h5py.Group, target: h5py.Group, skipped: Collection[str]) -> list[str]:
    lost = []
    for item in items(source):
        name = item.name.strip("/")
        if name in skipped or _is_result(name):
            continue
        if any(one.startswith(f"{name}/") for one in skipped):
            if not isinstance(item, h5py.Group):
                lost.append(name)
                continue
            group = target.require_group(name)
            for key in item.attrs:
                group.attrs.create(key, item.attrs[key], dtype=item.attrs.get_id(key).dtype)
            lost += _copy_items(item, target, skipped)
        elif name not in target:
            try:
                source.copy(item, target, name)
            except (OSError, RuntimeError) as error:
                # An error with a number is of the disk, others are of the library on a damaged variable.
                if getattr(error, "errno", None) is not None:
                    raise
                lost.append(name)
    return lost


def _is_cell(item: Any) -> bool:
    return isinstance(item, h5py.Dataset) and h5py.check_ref_dtype(item.dtype) is h5py.Reference


def _is_result(name: str) -> bool:
    """Return whether a variable is of an earlier run of usdenoise."""
    return name[:1] != "#" and f"{name}/".startswith((*RESULTS_AND_TRUTH, "usdenoise"))
