"""Writing of files that MATLAB's load opens, with the other variables of the input, through scipy.io or h5py (7.3)."""

import io
import re
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import is_out_of_memory
from usdenoise.files.contents import RESULTS_AND_TRUTH
from usdenoise.files.hdf5_arrays import Item, datasets, items
from usdenoise.files.hdf5_writing import create_file, write_values
from usdenoise.files.layout import chunk_shape
from usdenoise.files.matlab_reading import HEADER_BYTES, cells, elements
from usdenoise.system.text import distinct_names

Variable: TypeAlias = NDArray[Any] | str
"""Value of a variable of MATLAB, also of a cell or a struct."""

_PIECE_BYTES = 1 << 20
_SUBSYSTEM = "__function_workspace__"
"""Name that scipy gives to the element with the content of objects and function handles."""

_SUBSYSTEM_OFFSET = 116
"""Byte of the header of version 5 that holds the position of that element."""


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
                for done in range(0, element.n_bytes, _PIECE_BYTES):
                    new.write(old.read(min(_PIECE_BYTES, element.n_bytes - done)))
                if name == _SUBSYSTEM:
                    new.seek(_SUBSYSTEM_OFFSET)
                    new.write(struct.pack("=Q", start))
    return []


def other_fields(path: Path, name: str, replaced: Collection[str]) -> tuple[dict[str, Variable], list[str]]:
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

    fields: dict[str, Variable] = {}
    lost: list[str] = []

    def add(name: str, value: NDArray[Any]) -> None:
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
    """Copy the variables of a file of version 7.3 that the result does not have.

    Parameters
    ----------
    source : h5py.File
        The input.
    target : h5py.File
        The result, with its own variables.
    replaced : collection of str
        Names of the arrays of the stack, which are not copied; if one is a cell or an array of structs, its elements are
        not copied, either.

    Returns
    -------
    list of str
        Names of the variables that could not be copied.
    """
    skipped, joined, in_cells = {*replaced}, set[str](), cells(source, datasets(source))
    for name in in_cells.keys() & replaced:
        skipped |= {part.name.strip("/") for part in in_cells[name][1]}
        joined.add(name.rpartition("/")[0])
    lost = _copy_items(source["/"], target["/"], skipped)

    def point_to_the_copy(name: str, item: Item) -> None:
        # A cell array
        if isinstance(item, h5py.Dataset) and h5py.check_ref_dtype(item.dtype) is h5py.Reference:
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
    for item in items(source, source):
        name = item.name.strip("/")
        if name in skipped or _is_own_variable(name):
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


def _is_own_variable(name: str) -> bool:
    """Return whether a variable is of an earlier run of usdenoise."""
    return name[:1] != "#" and f"{name}/".startswith((*RESULTS_AND_TRUTH, "usdenoise"))


V5_LIMIT_BYTES = (1 << 31) - (1 << 20)
"""Largest variable of a version 5 file: its 2 GiB less 1 MiB for the header."""


_LONGEST_VARIABLE = 63
"""Most characters of a name in MATLAB."""


def write_matlab(
    path: Path, variables: Mapping[str, Variable], source: Path | None = None, replaced: Collection[str] = ()
) -> list[str]:
    """Write a file that MATLAB's load opens, with the other variables of another one.

    The file has the version of `source`. It is of version 7.3 where a variable is not in memory, or too large for version 5.
    A slash in a name makes a struct with that field. A character that MATLAB does not allow in a name becomes an
    underscore; names that would become the same are numbered.

    Parameters
    ----------
    path : Path
        The file to write.
    variables : mapping
        Name -> array, or text.
    source : Path, optional
        A MATLAB file whose variables are copied.
    replaced : collection of str
        Names of the variables of `source` that are not copied, besides those that `variables` has, too.

    Returns
    -------
    list of str
        Names of the variables of `source` that could not be copied.
    """
    from scipy.io import savemat, whosmat

    named = {place: variables[name] for name, place in _matlab_names(variables).items()}
    replaced = {*replaced, *named}
    if source is not None and h5py.is_hdf5(source):
        return write_v73(path, named, source, replaced)
    # Neither what is replaced, nor results of an earlier run
    held = [] if source is None else whosmat(str(source))
    others = [name for name, _, _ in held if name not in replaced and not _is_own_variable(name)]
    sizes: Counter[str] = Counter()
    for name, value in named.items():
        sizes[name.split("/")[0]] += 2 * len(value) if isinstance(value, str) else value.nbytes
    if max(sizes.values()) > V5_LIMIT_BYTES:
        write_v73(path, named)
        return others
    lost: list[str] = []
    if source is not None:
        for struct_name in {name.split("/")[0] for name in replaced if "/" in name}.intersection(others):
            others.remove(struct_name)
            fields, lost_fields = other_fields(source, struct_name, replaced)
            named |= fields
            lost += lost_fields
    nested: dict[str, Any] = {}
    for name, value in named.items():
        *structs, last = name.split("/")
        nesting = nested
        for struct_name in structs:
            nesting = nesting.setdefault(struct_name, {})
        nesting[last] = value
    # The file is written under a temporary name, to which savemat would add .mat.
    savemat(str(path), nested, appendmat=False, oned_as="column", long_field_names=True)
    return lost if source is None else lost + append_variables_of_v5(path, source, others)


def write_v73(
    path: Path, variables: Mapping[str, Variable], source: Path | None = None, replaced: Collection[str] = ()
) -> list[str]:
    """Write a MATLAB 7.3 file: HDF5 with a user block, reversed axes, and complex numbers as {real, imag}.

    Parameters
    ----------
    path : Path
        The file to write.
    variables : mapping
        Name -> array or text. Each part of a name must be a name that MATLAB allows.
    source : Path, optional
        A file of version 7.3 whose variables are copied.
    replaced : collection of str
        Names of the variables of `source` that are not copied.

    Returns
    -------
    list of str
        Names of the variables of `source` that could not be copied.
    """
    lost: list[str] = []
    with create_file(path, user_block=512) as file:
        for name, value in variables.items():
            dataset = _write_variable(file, name, value)
            group = dataset.parent
            while group != file["/"]:
                group.attrs["MATLAB_class"] = np.bytes_("struct")
                group = group.parent
        if source is not None:
            with h5py.File(source, "r") as old:
                lost = copy_variables_of_v73(old, file, replaced)
    text = b"MATLAB 7.3 MAT-file, Platform: any, Created by: usdenoise HDF5 schema 1.00 ."
    with path.open("r+b") as raw:
        raw.write(text.ljust(116) + bytes(8) + struct.pack("<H", 0x0200) + b"IM")
    return lost


def _write_variable(file: h5py.File, name: str, value: Variable) -> h5py.Dataset:
    if isinstance(value, str):
        codes = np.frombuffer(value.encode("utf-16-le"), np.uint16).reshape(-1, 1)
        dataset = file.create_dataset(name, data=codes)
        dataset.attrs["MATLAB_int_decode"] = np.int32(2)
        kind = "char"
    else:
        reverse = (value if value.ndim > 1 else value[:, None]).transpose()
        member = value.real.dtype
        dtype = np.dtype([("real", member), ("imag", member)]) if np.iscomplexobj(value) else member
        axes = ("zxy"[: reverse.ndim - 1] + "t")[::-1]
        is_chunked = reverse.ndim > 2
        chunks = chunk_shape(reverse.shape, axes, dtype.itemsize) if is_chunked else None
        dataset = file.create_dataset(name, shape=reverse.shape, dtype=dtype, chunks=chunks)
        write_values(dataset, reverse)
        kind = {"f4": "single", "f8": "double"}.get(member.str[1:], member.name)
    dataset.attrs["MATLAB_class"] = np.bytes_(kind)
    return dataset


def _matlab_names(names: Iterable[str]) -> dict[str, str]:
    """Return a distinct name for each name, every part of which MATLAB allows."""
    parts = {name: name.split("/") for name in names}
    fields: dict[str, list[str]] = {}
    for name in parts:
        for depth, part in enumerate(parts[name]):
            fields.setdefault("/".join(parts[name][:depth]), []).append(part)

    def allowed(name: str) -> str:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        return (plain if plain[:1].isalpha() else f"x{plain}")[:_LONGEST_VARIABLE]

    plain = {struct_name: distinct_names(inside, allowed, key=str) for struct_name, inside in fields.items()}
    return {
        name: "/".join(plain["/".join(parts[name][:depth])][part] for depth, part in enumerate(parts[name]))
        for name in parts
    }
