"""Beamformed data in HDF5 files of toolboxes: USTB's Ultrasound File Format (www.ustb.no) and zea (github.com/tue-bmd/zea).

UFF: groups of the class uff.beamformed_data. In h5py the axes are frame, wave, channel and pixel. The pixels are numbered
down the columns of the image: z is the fast axis.

zea: I and Q are along the last axis. In newer files data/beamformed_data is a group of the values and the position of each
pixel. In older files it is a dataset with the values alone.
"""

from collections.abc import Callable, Mapping
from functools import partial

import h5py
import numpy as np

from usdenoise.files.contents import Found, Stack
from usdenoise.files.hdf5_arrays import items, member, stored_array
from usdenoise.files.hdf5_metadata import nearby, numbers, small_number, text_attribute
from usdenoise.files.stored import StoredArray, joined, paired, split_axis, without_axes
from usdenoise.stack.geometry import pitch


def uff_stacks(
    file: h5py.File, datasets: Mapping[str, h5py.Dataset], make: Callable[..., Stack | None]
) -> tuple[list[Stack | None], set[str]]:
    """Return the beamformed data of a UFF file as stacks.

    Parameters
    ----------
    file : h5py.File
        The open file.
    datasets : mapping
        Full name -> dataset.
    make : callable
        Takes a name, an array, the datasets in which it is stored, and further fields of a stack; returns the
        stack, or None if the array cannot be one.

    Returns
    -------
    stacks : list
        One for each group of beamformed data; empty if the file is not a UFF file.
    names : set of str
        Full names of the datasets in these stacks.
    """
    found: list[Stack | None] = []
    names: set[str] = set()
    for group in items(file):
        if isinstance(group, h5py.Group) and text_attribute(group, "class") == "uff.beamformed_data":
            image = _uff_image(group)
            if image is not None:
                array, parts = image
                # The usual search near the dataset would use the frame rate of the display instead of the acquisition.
                metadata = partial(_uff_metadata, group)
                name = group.name.strip("/")
                found.append(make(name, array, parts, layout="UFF beamformed data", metadata=metadata))
                names |= {part.name.strip("/") for part in parts}
    return found, names


def _uff_image(group: h5py.Group) -> tuple[StoredArray, tuple[h5py.Dataset, ...]] | None:
    data, scan = member(group, "data"), member(group, "scan")
    apart = isinstance(data, h5py.Group)
    parts = (member(data, "real"), member(data, "imag")) if apart else (data,)
    if not isinstance(scan, h5py.Group) or not all(isinstance(part, h5py.Dataset) for part in parts):
        return None
    x, z = (numbers(member(scan, f"{name}_axis")) for name in "xz")
    if x is None or z is None:
        return None
    arrays = [stored_array(part) for part in parts]
    array = joined(arrays[0], arrays[1]) if apart else arrays[0]
    n_x, n_z = len(x), len(z)
    # MATLAB drops axes of length 1 at the end, so the axes of waves and channels may be missing.
    pixels = [axis for axis, n in enumerate(array.shape) if n == n_x * n_z]
    others = [axis for axis, n in enumerate(array.shape) if n == 1 and axis not in (0, *pixels[-1:])]
    if not pixels or pixels[-1] == 0 or len(array.shape) - len(others) != 2:
        return None
    array = split_axis(array, pixels[-1], (n_x, n_z))
    array = without_axes(array, others) if others else array
    return array, parts


def _uff_metadata(group: h5py.Group) -> Found:
    group_path = group.name.strip("/")
    entries: dict[str, tuple[object, str]] = {"axes": ("txz", "layout of UFF")}
    axes = {name: numbers(member(group, f"scan/{name}_axis")) for name in "xz"}
    spacing = {name: None if axis is None else pitch(axis, 1e3) for name, axis in axes.items()}
    if all(spacing.values()):
        entries["spacing_mm"] = (spacing, f"dataset {group_path}/scan/x_axis and z_axis in m")
    for key, names in (
        ("center_frequency_hz", ("pulse/center_frequency", "modulation_frequency")),
        ("sound_speed_m_s", ("sound_speed", "sequence/sound_speed", "sequence/sequence_0001/sound_speed")),
    ):
        for name in names:
            value = small_number(member(group, name))
            if value:
                entries.setdefault(key, (value, f"dataset {group_path}/{name}"))
    shown = small_number(member(group, "frame_rate"))
    if shown is not None:
        entries["display_frame_rate"] = (shown, f"dataset {group_path}/frame_rate")
    return entries


_NEW, _OLD = "data/beamformed_data/values", "data/beamformed_data"
_COORDINATES = "data/beamformed_data/coordinates"
_XYZ = {"x": 0, "y": 1, "z": 2}


def zea_stacks(
    file: h5py.File,
    datasets: Mapping[str, h5py.Dataset],
    make: Callable[..., Stack | None],
) -> tuple[list[Stack | None], set[str]]:
    """Return the beamformed data of a zea file as a stack.

    The axes are frame, z, x[, y] and channel. Two channels are I and Q, one is RF.

    Parameters
    ----------
    file : h5py.File
        The open file.
    datasets : mapping
        Full name -> dataset.
    make : callable
        As for :func:`uff_stacks`.

    Returns
    -------
    stacks : list
        The one stack; empty if the file is not a zea file.
    names : set of str
        Full names of the datasets that are not a stack by themselves.
    """
    name = _NEW if _NEW in datasets else _OLD
    dataset = datasets.get(name)
    if dataset is None or dataset.dtype.kind not in "fiu" or len(dataset.shape) not in (4, 5):
        return [], set()
    array = stored_array(dataset)
    if array.shape[-1] not in (1, 2):
        return [], set()
    array = paired(array, -1) if array.shape[-1] == 2 else without_axes(array, [len(array.shape) - 1])
    axes = "tzxy"[: len(array.shape)]
    if len(axes) == 4 and array.shape[3] == 1:
        array, axes = without_axes(array, [3]), "tzx"
    layout = "I and Q along the last axis" if dataset.shape[-1] == 2 else "RF along the last axis"
    known = {"axes": (axes, "layout of zea"), **_grid_scales(file, axes)}

    def metadata() -> Found:
        others = nearby(file, dataset).items()
        return {**known, **{name: value for name, value in others if name not in ("axes", "unit")}}

    stack = make(name, array, (dataset,), layout=layout, metadata=metadata)
    return ([], set()) if stack is None else ([stack], {_NEW, _OLD, _COORDINATES})


def _grid_scales(file: h5py.File, axes: str) -> dict[str, tuple[object, str]]:
    scales: dict[str, tuple[object, str]] = {}
    coordinates = member(file, _COORDINATES)
    if isinstance(coordinates, h5py.Dataset) and (spacing := _spacing(coordinates, axes)):
        scales["spacing_mm"] = (spacing, f"dataset {_COORDINATES} in m")
    for group in ("scan", "settings"):
        for key, name in (("center_frequency_hz", "center_frequency"), ("sound_speed_m_s", "sound_speed")):
            value = small_number(member(file, f"{group}/{name}"))
            if value is not None:
                scales.setdefault(key, (value, f"dataset {group}/{name}"))
        transmits = member(file, f"{group}/time_to_next_transmit")
        if isinstance(transmits, h5py.Dataset) and transmits.ndim == 2 and transmits.size:
            seconds = float(np.sum(transmits[0], dtype=np.float64))
            if seconds > 0:
                rate = float(f"{1 / seconds:.7g}")
                scales["frame_rate_hz"] = (rate, f"dataset {group}/time_to_next_transmit")
    return scales


def _spacing(coordinates: h5py.Dataset, axes: str) -> dict[str, float] | None:
    """Return the pixel pitch in mm along each spatial axis, from the positions along the edges of the grid."""
    spatial = axes.replace("t", "")
    if coordinates.shape[-1] != 3 or coordinates.dtype.kind != "f":
        return None
    n_leading = len(coordinates.shape) - 1 - len(spatial)
    if n_leading < 0 or 0 in coordinates.shape:
        return None
    spacing = {}
    for index, letter in enumerate(spatial):
        edge: list[int | slice] = [0] * (len(coordinates.shape) - 1)
        edge[n_leading + index] = slice(None)
        step = pitch(coordinates[(*edge, _XYZ[letter])], 1e3)
        if step is None:
            return None
        spacing[letter] = step
    return spacing


TOOLBOXES = {"USTB UFF (HDF5)": uff_stacks, "zea (HDF5)": zea_stacks}
"""Container in words -> function that returns its stacks, none for other files, and the names of the datasets in them."""
