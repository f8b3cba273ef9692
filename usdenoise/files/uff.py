"""USTB's Ultrasound File Format: groups of the class uff.beamformed_data.

(Layout: the USTB toolbox, www.ustb.no.) In h5py the axes are frame, wave, channel and pixel. The pixels are numbered
down the columns of the image: z is the fast axis.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import h5py

from usdenoise.files.contents import Found, Stack
from usdenoise.files.hdf5_arrays import items, member, stored_array
from usdenoise.files.hdf5_metadata import numbers, small_number, text_attribute
from usdenoise.files.stored import StoredArray, joined, split_axis, without_axes
from usdenoise.stack.geometry import pitch

CONTAINER = "USTB UFF (HDF5)"


def stacks(
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
    uff_stacks: list[Stack | None] = []
    names: set[str] = set()
    for group in items(file):
        if isinstance(group, h5py.Group) and text_attribute(group, "class") == "uff.beamformed_data":
            image = _image(group)
            if image is not None:
                array, parts = image
                # The usual search near the dataset would use the frame rate of the display instead of the acquisition.
                metadata = partial(_metadata, group)
                name = group.name.strip("/")
                uff_stacks.append(make(name, array, parts, layout="UFF beamformed data", metadata=metadata))
                names |= {part.name.strip("/") for part in parts}
    return uff_stacks, names


def _image(group: h5py.Group) -> tuple[StoredArray, tuple[h5py.Dataset, ...]] | None:
    data, scan = member(group, "data"), member(group, "scan")
    apart = isinstance(data, h5py.Group)
    parts = (member(data, "real"), member(data, "imag")) if apart else (data,)
    if not isinstance(scan, h5py.Group) or not all(isinstance(part, h5py.Dataset) for part in parts):
        return None
    axes = {name: numbers(member(scan, f"{name}_axis")) for name in "xz"}
    if any(axis is None for axis in axes.values()):
        return None
    arrays = [stored_array(part) for part in parts]
    array = joined(arrays[0], arrays[1]) if apart else arrays[0]
    n_x, n_z = len(axes["x"]), len(axes["z"])
    # MATLAB drops axes of length 1 at the end, so the axes of waves and channels may be missing.
    pixels = [axis for axis, n in enumerate(array.shape) if n == n_x * n_z]
    others = [axis for axis, n in enumerate(array.shape) if n == 1 and axis not in (0, *pixels[-1:])]
    if not pixels or pixels[-1] == 0 or len(array.shape) - len(others) != 2:
        return None
    array = split_axis(array, pixels[-1], (n_x, n_z))
    array = without_axes(array, others) if others else array
    return array, parts


def _metadata(group: h5py.Group) -> Found:
    group_path = group.name.strip("/")
    entries: dict[str, tuple[Any, str]] = {"axes": ("txz", "layout of UFF")}
    axes = {name: numbers(member(group, f"scan/{name}_axis")) for name in "xz"}
    spacing = {name: pitch(axis, 1e3) for name, axis in axes.items()}
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
