"""Reading of HDF5 files of h5py users, MATLAB 7.3, usdenoise, and two toolboxes: USTB and zea.

USTB's Ultrasound File Format (UFF, www.ustb.no): groups of the class uff.beamformed_data. In h5py the axes are frame, wave,
channel and pixel. The pixels are numbered down the columns of the image: z is the fast axis.

zea (github.com/tue-bmd/zea): I and Q are along the last axis. In newer files data/beamformed_data is a group of the values
and the position of each pixel. In older files it is a dataset with the values alone.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from usdenoise.errors import UnreadableError
from usdenoise.files import matlab_reading
from usdenoise.files.contents import Contents, Stack, arranged, describe_array, first_bytes, stacks_of
from usdenoise.files.hdf5_arrays import check_readable, datasets, item_at, items, member, stored_array
from usdenoise.files.hdf5_metadata import nearby, numbers, small_number, text_attribute
from usdenoise.files.stored import StoredArray, joined, paired, reversed_axes, split_axis, without_axes
from usdenoise.options import ReadOptions
from usdenoise.stack.geometry import pitch
from usdenoise.stack.labels import Found

_SIGNATURE = b"\x89HDF\r\n\x1a\n"

DAMAGED = "is truncated or corrupt: the HDF5 library could not read it; copy or write it again"

CACHE_BYTES = 16 << 20
"""Chunks that HDF5 holds uncompressed: windows next to each other have frames of the same ones. With its default of 1 MiB in
version 1 it holds none that is larger, and the sample of 46 windows of 60 frames, in chunks of 100, took 4.4 s instead of
2.4 s."""


def opened(path: Path) -> h5py.File:
    """Open an HDF5 file to read it.

    On a damaged file h5py raises errors of many types, now or later, while it is read: OSError, KeyError, TypeError,
    UnicodeError.

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
    with ExitStack() as files:
        file = files.enter_context(opened(path))
        contents = _contents(file, read_options.n_axes)
        return replace(contents, close=files.pop_all().close)


def _contents(file: h5py.File, n_axes: int | None) -> Contents:
    """Return the contents of an open file; `n_axes` is the number of axes that the user named, or None."""
    by_path = datasets(file)
    # MATLAB reverses the axes, and time is the last of them.
    is_matlab = matlab_reading.is_matlab(file)
    time_last = True if is_matlab else None
    every: dict[str, str] = {}
    # Datasets, and what their elements make, by their full names; and the dataset that each has its metadata near.
    arrays: dict[str, StoredArray] = {}
    near = dict(by_path)

    def array_of(dataset: h5py.Dataset) -> StoredArray:
        array = stored_array(dataset)
        return reversed_axes(array) if is_matlab else array

    def metadata(name: str, n_axes: int = 0) -> Found:
        return nearby(file, near[name], by_path.values())

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
    special: list[Stack] = []
    for name, (array, parts) in matlab_reading.cells(file, by_path if is_matlab else {}).items():
        every[name] = describe_array(array)
        arrays[name] = array
        is_cell = name in by_path and matlab_reading.special_class(by_path[name]) == "cell"
        near[name] = parts[0]
        layout = f"cell of {len(parts)}" if is_cell else f"array of {len(parts)} structs"
        special.append(Stack(name, array, layout, time_last, partial(metadata, name)))
    container, used = "MATLAB 7.3 (HDF5)" if is_matlab else "HDF5", set[str]()
    for toolbox, stacks_in in TOOLBOXES.items():
        of_toolbox, used = stacks_in(file, by_path)
        if of_toolbox:
            container = toolbox
            special += of_toolbox
            break

    def look_up(name: str) -> Stack | None:
        """Return the stack at the end of a soft or external link; None if there is no dataset, or a listed one."""
        item = item_at(file, name)
        if not isinstance(item, h5py.Dataset) or name in every:
            return None
        linked_metadata = partial(nearby, file, item, by_path.values())
        return arranged(Stack(name, array_of(item), "", time_last, linked_metadata), n_axes)

    first = [stack for one in special if (stack := arranged(one, n_axes)) is not None]
    others = {name: array for name, array in arrays.items() if name not in used}
    # The arrays of these stacks are only taken as parts of a pair.
    done = used | {stack.name for stack in first}
    stacks = (*first, *stacks_of(others, n_axes, metadata, time_last, done=done))
    return Contents(container, stacks, every, arrays, look_up)


def uff_stacks(file: h5py.File, by_path: Mapping[str, h5py.Dataset]) -> tuple[list[Stack], set[str]]:
    """Return the beamformed data of a UFF file as stacks.

    Parameters
    ----------
    file : h5py.File
        The open file.
    by_path : mapping
        Full name -> dataset.

    Returns
    -------
    stacks : list
        One for each group of beamformed data; empty if the file is not a UFF file.
    names : set of str
        Full names of the datasets in these stacks.
    """
    found: list[Stack] = []
    names: set[str] = set()
    for group in items(file):
        if not isinstance(group, h5py.Group) or text_attribute(group, "class") != "uff.beamformed_data":
            continue
        data = member(group, "data")
        apart = isinstance(data, h5py.Group)
        parts: list[Any] = [member(data, "real"), member(data, "imag")] if apart else [data]
        x, z = (numbers(member(group, f"scan/{name}_axis")) for name in "xz")
        if not all(isinstance(part, h5py.Dataset) for part in parts) or x is None or z is None:
            continue
        arrays = [stored_array(part) for part in parts]
        array = joined(arrays[0], arrays[1]) if len(arrays) == 2 else arrays[0]
        # MATLAB drops axes of length 1 at the end, so the axes of waves and channels may be missing.
        pixels = [axis for axis, n in enumerate(array.shape) if n == len(x) * len(z)]
        others = [axis for axis, n in enumerate(array.shape) if n == 1 and axis not in (0, *pixels[-1:])]
        if not pixels or pixels[-1] == 0 or len(array.shape) - len(others) != 2:
            continue
        # Without the others, the axis of pixels follows the one of frames.
        array = split_axis(without_axes(array, others), (len(x), len(z)))
        # The usual search near the dataset would use the frame rate of the display instead of the acquisition.
        metadata = partial(_uff_metadata, group)
        found.append(Stack(group.name.strip("/"), array, "UFF beamformed data", None, metadata))
        names |= {part.name.strip("/") for part in parts}
    return found, names


def _uff_metadata(group: h5py.Group) -> Found:
    group_path = group.name.strip("/")
    entries: dict[str, tuple[object, str]] = {"axes": ("txz", "layout of UFF")}
    axes = {name: numbers(member(group, f"scan/{name}_axis")) for name in "xz"}
    spacing = {name: None if axis is None else pitch(axis, 1e3) for name, axis in axes.items()}
    if all(spacing.values()):
        entries["spacing_mm"] = (spacing, f"dataset {group_path}/scan/x_axis and z_axis in m")
    speeds = ("sound_speed", "sequence/sound_speed", "sequence/sequence_0001/sound_speed")
    entries |= _first_number(group, "center_frequency_hz", ("pulse/center_frequency", "modulation_frequency"))
    entries |= _first_number(group, "sound_speed_m_s", speeds)
    return entries | _first_number(group, "display_frame_rate", ("frame_rate",))


def _first_number(group: h5py.Group, key: str, names: Iterable[str]) -> dict[str, tuple[object, str]]:
    """Return the first number, other than 0, of some datasets as the entry of a scale."""
    for name in names:
        if value := small_number(member(group, name)):
            return {key: (value, f"dataset {f'{group.name}/{name}'.strip('/')}")}
    return {}


_NEW, _OLD = "data/beamformed_data/values", "data/beamformed_data"
_COORDINATES = "data/beamformed_data/coordinates"


def zea_stacks(file: h5py.File, by_path: Mapping[str, h5py.Dataset]) -> tuple[list[Stack], set[str]]:
    """Return the beamformed data of a zea file as a stack.

    The axes are frame, z, x[, y] and channel. Two channels are I and Q, one is RF.

    Parameters
    ----------
    file : h5py.File
        The open file.
    by_path : mapping
        Full name -> dataset.

    Returns
    -------
    stacks : list
        The one stack; empty if the file is not a zea file.
    names : set of str
        Full names of the datasets that are not a stack by themselves.
    """
    name = _NEW if _NEW in by_path else _OLD
    dataset = by_path.get(name)
    if dataset is None or dataset.dtype.kind not in "fiu" or len(dataset.shape) not in (4, 5):
        return [], set()
    array = stored_array(dataset)
    if array.shape[-1] not in (1, 2) or 0 in array.shape:
        return [], set()
    array = paired(array, -1) if array.shape[-1] == 2 else without_axes(array, [len(array.shape) - 1])
    axes = "tzxy"[: len(array.shape)]
    if len(axes) == 4 and array.shape[3] == 1:
        array, axes = without_axes(array, [3]), "tzx"
    layout = "I and Q along the last axis" if dataset.shape[-1] == 2 else "RF along the last axis"
    known = {"axes": (axes, "layout of zea"), **_grid_scales(file, axes)}

    def metadata() -> Found:
        others = nearby(file, dataset, by_path.values()).items()
        return {**known, **{name: value for name, value in others if name not in ("axes", "unit")}}

    return [Stack(name, array, layout, None, metadata)], {_NEW, _OLD, _COORDINATES}


def _grid_scales(file: h5py.File, axes: str) -> dict[str, tuple[object, str]]:
    scales: dict[str, tuple[object, str]] = {}
    coordinates = member(file, _COORDINATES)
    if isinstance(coordinates, h5py.Dataset) and (spacing := _spacing(coordinates, axes.replace("t", ""))):
        scales["spacing_mm"] = (spacing, f"dataset {_COORDINATES} in m")
    for key, name in (("center_frequency_hz", "center_frequency"), ("sound_speed_m_s", "sound_speed")):
        scales |= _first_number(file, key, (f"scan/{name}", f"settings/{name}"))
    for group in ("scan", "settings"):
        transmits = member(file, f"{group}/time_to_next_transmit")
        if isinstance(transmits, h5py.Dataset) and transmits.ndim == 2 and transmits.size:
            check_readable(transmits)
            seconds = float(np.sum(transmits[0], dtype=np.float64))
            if seconds > 0:
                rate = float(f"{1 / seconds:.7g}")
                scales["frame_rate_hz"] = (rate, f"dataset {group}/time_to_next_transmit")
    return scales


def _spacing(coordinates: h5py.Dataset, spatial: str) -> dict[str, float | None]:
    """Return the pixel pitch in mm along each spatial axis, from the positions along the edges of the grid; or nothing."""
    n_leading = coordinates.ndim - 1 - len(spatial)
    if n_leading < 0 or coordinates.shape[-1] != 3 or coordinates.dtype.kind != "f" or 0 in coordinates.shape:
        return {}
    check_readable(coordinates)
    spacing = {}
    for axis, letter in enumerate(spatial, n_leading):
        edge: list[int | slice] = [0] * (coordinates.ndim - 1)
        edge[axis] = slice(None)
        spacing[letter] = pitch(coordinates[(*edge, "xyz".index(letter))], 1e3)
    return spacing if all(spacing.values()) else {}


TOOLBOXES = {"USTB UFF (HDF5)": uff_stacks, "zea (HDF5)": zea_stacks}
"""Container in words -> function that returns its stacks, none for other files, and the names of the datasets in them."""
