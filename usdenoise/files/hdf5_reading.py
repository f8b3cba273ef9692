"""Reading of HDF5 files of h5py users, MATLAB 7.3, UFF, zea and usdenoise."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import h5py

from usdenoise.errors import UnreadableError
from usdenoise.files import matlab_reading
from usdenoise.files.contents import (
    Contents,
    Stack,
    StackFields,
    arranged,
    describe_array,
    first_bytes,
    guard,
    stacks_of,
)
from usdenoise.files.hdf5_arrays import (
    check_links,
    check_stored,
    datasets,
    member,
    member_note,
    stored_array,
)
from usdenoise.files.hdf5_metadata import nearby
from usdenoise.files.hdf5_toolboxes import TOOLBOXES
from usdenoise.files.stored import StoredArray, reversed_axes
from usdenoise.options import ReadOptions
from usdenoise.stack.geometry import form_of

_SIGNATURE = b"\x89HDF\r\n\x1a\n"

DAMAGED = "is truncated or corrupt: the HDF5 library could not read it; copy or write it again"

CACHE_BYTES = 16 << 20
"""Chunks that HDF5 holds uncompressed: windows next to each other have frames of the same ones. With its default of 1 MiB in
version 1 it holds none that is larger, and the sample of 46 windows of 60 frames, in chunks of 100, took 4.4 s instead of
2.4 s."""


def _opened(path: Path) -> h5py.File:
    """Open an HDF5 file to read it.

    Raises
    ------
    UnreadableError
        If another program writes to it.
    """
    try:
        return h5py.File(path, "r", rdcc_nbytes=CACHE_BYTES)
    except OSError as error:
        # The number of the error differs between systems.
        if "unable to lock file" in str(error):
            problem = "is open for writing in another program"
            remedy = "close it there, or set HDF5_USE_FILE_LOCKING=FALSE to read it as it is"
        elif "already open for write" in str(error):
            problem = "is open for writing in another program, or its writer stopped without closing it"
            remedy = "close it there, or mark it as closed with h5clear -s"
        else:
            raise
        raise UnreadableError(f"{path} {problem}", remedy=remedy) from error


@contextmanager
def open_file(path: Path) -> Iterator[h5py.File]:
    """Open an HDF5 file for a context that does nothing but read it.

    Raises
    ------
    InputError
        If the file is truncated or corrupt. The damage may show when it is opened or later, while it is read.
    """
    # On a damaged file h5py raises errors of many types: OSError, KeyError, TypeError, UnicodeError.
    with guard(path, DAMAGED), _opened(path) as file:
        yield file


def read_hdf5(path: Path, read_options: ReadOptions) -> Contents | None:
    """Open an HDF5 file and list its contents; return None for a file of another format.

    Parameters
    ----------
    path : Path
        The file.
    read_options : ReadOptions
        Reading options.

    Raises
    ------
    InputError
        If the file is truncated or corrupt, or another program writes to it.
    """
    head = first_bytes(path)
    if not any(head[offset : offset + 8] == _SIGNATURE for offset in (0, 512, 1024, 2048, 4096)):
        return None
    file = _opened(path)
    try:
        return replace(_contents(file, read_options.n_axes), close=file.close)
    except BaseException:
        file.close()
        raise


def _contents(file: h5py.File, n_axes: int | None) -> Contents:
    """Return the contents of an open file; `n_axes` is the number of axes that the user named, or None."""
    by_path = datasets(file)
    # MATLAB reverses the axes, and time is the last of them.
    is_matlab = matlab_reading.is_matlab(file)
    every: dict[str, str] = {}
    # Datasets, and what their elements make, by their full names; and the datasets in which each is stored.
    arrays: dict[str, StoredArray] = {}
    stored_in: dict[str, tuple[h5py.Dataset, ...]] = {name: (each,) for name, each in by_path.items()}

    def array_of(dataset: h5py.Dataset) -> StoredArray:
        array = stored_array(dataset)
        return reversed_axes(array) if is_matlab else array

    def stack(
        name: str, array: StoredArray, parts: tuple[h5py.Dataset, ...], **more: Unpack[StackFields]
    ) -> Stack | None:
        """Return an array that is stored in some datasets as a stack, or None; metadata is near the first of them."""

        def check() -> None:
            for part in parts:
                check_stored(part)

        fields: StackFields = {"metadata": lambda: nearby(file, parts[0]), **more}
        fields |= {"time_last": True if is_matlab else None, "check": check}
        return arranged(name, array, n_axes, **fields)

    for name, dataset in by_path.items():
        try:
            array = array_of(dataset)
        except (TypeError, ValueError):
            every[name] = f"{len(dataset.shape or ())}-D of a type that NumPy does not support"
            continue
        kind = matlab_reading.special_class(dataset)
        every[name] = f"a MATLAB {kind}" if kind else describe_array(array)
        if not kind:
            arrays[name] = array
    found: list[Stack | None] = []
    for name, (array, parts) in matlab_reading.cells(file, by_path).items():
        every[name] = describe_array(array)
        arrays[name], stored_in[name] = array, parts
        is_cell = name in by_path and matlab_reading.special_class(by_path[name]) == "cell"
        layout = f"cell of {len(parts)}" if is_cell else f"array of {len(parts)} structs"
        found.append(stack(name, array, parts, layout=layout))
    container, used = "MATLAB 7.3 (HDF5)" if is_matlab else "HDF5", set[str]()
    for toolbox, stacks_in in TOOLBOXES.items():
        special, used = stacks_in(file, by_path, stack)
        if special:
            container = toolbox
            found += special
            break

    def other_stack(name: str, array: StoredArray, parts: tuple[str, ...], layout: str) -> Stack | None:
        sources = tuple(dataset for part in parts for dataset in stored_in[part])
        assumptions = member_note(sources[0]) if len(parts) == 1 else ()
        return stack(name, array, sources, layout=layout, assumptions=assumptions, form=form_of(parts))

    def look_up(name: str) -> Stack | None:
        """Return the stack at the end of a soft or external link; None if there is no dataset, or a listed one."""
        item = member(file, name)
        if item is None:
            check_links(file, name)
        if not isinstance(item, h5py.Dataset) or name in every:
            return None
        return stack(name, array_of(item), (item,))

    first = [one for one in found if one is not None]
    others = {name: array for name, array in arrays.items() if name not in used}
    # The arrays of these stacks are only taken as parts of a pair.
    done = used | {one.name for one in first}
    return Contents(container, (*first, *stacks_of(others, other_stack, done)), every, look_up)
