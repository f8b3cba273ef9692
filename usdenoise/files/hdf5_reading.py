"""Reading of HDF5 files of h5py users, MATLAB 7.3, UFF, zea and usdenoise."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from usdenoise.errors import UnreadableError
from usdenoise.files import matlab_reading, uff, zea
from usdenoise.files.contents import Contents, Stack, arranged, describe_array, guard, stacks_of
from usdenoise.files.hdf5_arrays import (
    check_links,
    check_stored,
    datasets,
    member,
    member_note,
    stored_array,
)
from usdenoise.files.hdf5_metadata import nearby
from usdenoise.files.stored import StoredArray, reversed_axes
from usdenoise.options.job_options import ReadOptions
from usdenoise.stack.geometry import form_of

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


@contextmanager
def open_contents(path: Path, read_options: ReadOptions) -> Iterator[Contents]:
    """Open an HDF5 file and list its contents.

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
    with _opened(path) as file:
        yield _contents(_Survey(file, datasets(file), read_options.n_axes))


class _Survey:
    """Datasets of an open file, each once.

    Parameters
    ----------
    file : h5py.File
        The open file.
    found : mapping
        Full name -> dataset.
    n_axes : int or None
        Number of axes that the user named.

    Attributes
    ----------
    is_matlab : bool
        Whether MATLAB wrote the file, so that its axes are reversed and time is the last of them.
    every : dict
        Full name -> type and shape of the dataset in words.
    arrays : dict
        Full name -> array, for the datasets that can be read as one, and for what their elements make.
    parts : dict
        Full name of such an array -> the datasets in which it is stored.
    """

    def __init__(self, file: h5py.File, by_path: Mapping[str, h5py.Dataset], n_axes: int | None) -> None:
        self.file, self.found, self._n_axes = file, by_path, n_axes
        self.is_matlab = matlab_reading.is_matlab(file)
        self.every: dict[str, str] = {}
        self.arrays: dict[str, StoredArray] = {}
        self.parts: dict[str, tuple[h5py.Dataset, ...]] = {name: (each,) for name, each in by_path.items()}
        for name, dataset in by_path.items():
            try:
                array = self.array(dataset)
            except (TypeError, ValueError):
                self.every[name] = f"{len(dataset.shape or ())}-D of a type that NumPy does not support"
                continue
            kind = matlab_reading.special_class(dataset)
            self.every[name] = f"a MATLAB {kind}" if kind else describe_array(array)
            if not kind:
                self.arrays[name] = array

    def array(self, dataset: h5py.Dataset) -> StoredArray:
        """Return a dataset as an array with its axes in the order of the software that wrote it."""
        array = stored_array(dataset)
        return reversed_axes(array) if self.is_matlab else array

    def stack(
        self, name: str, array: StoredArray, parts: tuple[h5py.Dataset, ...], **more: Any
    ) -> Stack | None:
        """Return an array as a stack, or None if it cannot be one.

        Parameters
        ----------
        name : str
            Name of the stack.
        array : StoredArray
            Values of the stack.
        parts : tuple of h5py.Dataset
            Datasets in which the values are stored. Metadata is read at the first of them.
        **more
            Further fields of :class:`Stack`.
        """

        def check() -> None:
            for part in parts:
                check_stored(part)

        more.setdefault("metadata", lambda: nearby(self.file, parts[0]))
        time_last = True if self.is_matlab else None
        return arranged(name, array, self._n_axes, time_last=time_last, check=check, **more)

    def look_up(self, name: str) -> Stack | None:
        """Return the stack at the end of a soft or external link; None if there is no dataset, or a listed one."""
        item = member(self.file, name)
        if item is None:
            check_links(self.file, name)
        if not isinstance(item, h5py.Dataset) or name in self.every:
            return None
        return self.stack(name, self.array(item), (item,))


def _contents(survey: _Survey) -> Contents:
    cells = _cell_stacks(survey)
    container, special, names = _toolbox_stacks(survey)
    first = [stack for stack in (*cells, *special) if stack is not None]
    stacks = (*first, *_other_stacks(survey, names, names | {stack.name for stack in first}))
    return Contents(container, stacks, survey.every, survey.look_up)


def _cell_stacks(survey: _Survey) -> list[Stack | None]:
    """Return the cells of MATLAB as stacks, and list them among the arrays of the file."""
    stacks = []
    for name, (array, parts) in matlab_reading.cells(survey.file, survey.found).items():
        survey.every[name] = describe_array(array)
        survey.arrays[name], survey.parts[name] = array, parts
        is_cell = name in survey.found and matlab_reading.special_class(survey.found[name]) == "cell"
        layout = f"cell of {len(parts)}" if is_cell else f"array of {len(parts)} structs"
        stacks.append(survey.stack(name, array, parts, layout=layout))
    return stacks


def _toolbox_stacks(survey: _Survey) -> tuple[str, list[Stack | None], set[str]]:
    """Return the container, the stacks in the layout of UFF or zea, and the names of the datasets in them."""
    for toolbox in (uff, zea):
        stacks, names = toolbox.stacks(survey.file, survey.found, survey.stack)
        if stacks:
            return toolbox.CONTAINER, stacks, names
    return "MATLAB 7.3 (HDF5)" if survey.is_matlab else "HDF5", [], set()


def _other_stacks(survey: _Survey, names: set[str], done: set[str]) -> tuple[Stack, ...]:
    """Return the stacks of all arrays except `names`; those in `done` are only taken as parts of a pair."""

    def make(name: str, array: StoredArray, parts: tuple[str, ...], layout: str) -> Stack | None:
        sources = tuple(dataset for part in parts for dataset in survey.parts[part])
        assumptions = member_note(sources[0]) if len(parts) == 1 else ()
        return survey.stack(name, array, sources, layout=layout, assumptions=assumptions, form=form_of(parts))

    arrays = {name: array for name, array in survey.arrays.items() if name not in names}
    return stacks_of(arrays, make, done)
