"""Files of zea (github.com/tue-bmd/zea): beamformed data with I and Q along the last axis.

In newer files data/beamformed_data is a group of the values and the position of each pixel. In older files it is a
dataset with the values alone.
"""

from collections.abc import Callable, Mapping
from typing import Any

import h5py
import numpy as np

from usdenoise.files.contents import Found, Stack
from usdenoise.files.hdf5_arrays import member, stored_array
from usdenoise.files.hdf5_metadata import nearby, small_number
from usdenoise.files.stored import paired, without_axes
from usdenoise.stack.geometry import pitch

CONTAINER = "zea (HDF5)"
_NEW, _OLD = "data/beamformed_data/values", "data/beamformed_data"
_COORDINATES = "data/beamformed_data/coordinates"
_XYZ = {"x": 0, "y": 1, "z": 2}


def stacks(
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
        As for :func:`usdenoise.files.uff.stacks`.

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


def _grid_scales(file: h5py.File, axes: str) -> dict[str, tuple[Any, str]]:
    scales: dict[str, tuple[Any, str]] = {}
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
        edge: list[Any] = [0] * (len(coordinates.shape) - 1)
        edge[n_leading + index] = slice(None)
        step = pitch(coordinates[(*edge, _XYZ[letter])], 1e3)
        if step is None:
            return None
        spacing[letter] = step
    return spacing
