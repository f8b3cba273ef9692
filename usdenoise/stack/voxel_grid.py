"""The axes of a stack as ConfUSIus and xarray name them: dimensions, coordinates, and the place of the voxels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.coordinates import ATTRIBUTES, Coordinate
from usdenoise.stack.geometry import GriddedStack
from usdenoise.stack.labels import VOXELS, WORLD, Label, voxel_matrix

LONG_NAMES = {"t": "Time", "z": "Depth", "x": "Lateral", "y": "Elevation"}
"""Axis letter -> name of the axis in words."""

DIMENSIONS = {"t": "time", **{letter: name for name, letter in VOXELS.items()}}
"""Axis letter -> dimension in ConfUSIus."""


@dataclass(frozen=True, eq=False)
class Positions:
    """Positions along one axis, known or counted.

    Attributes
    ----------
    values : (n,) float64 array
        Positions in `unit`.
    unit : str
        "mm" or "s"; "pixel" or "frame" where the scale is not known.
    """

    values: NDArray[np.float64]
    unit: str

    @property
    def step(self) -> float | None:
        """Mean step from one position to the next; None for a single one."""
        n = len(self.values)
        return None if n < 2 else float(self.values[-1] - self.values[0]) / (n - 1)


def positions(stack: GriddedStack, letter: str) -> Positions:
    """Return the positions along an axis of a stack: those of the input, else from the scales, else counted from 0.

    Parameters
    ----------
    stack : Acquisition or Geometry
        The stack; of the axes that it does not have, one position is returned.
    letter : str
        Letter of the axis.
    """
    n = stack.shape_in(letter)[0] if letter in stack.axes else 1
    given = _given(stack, letter, n)
    if given is not None:
        return Positions(given.values, "s" if letter == "t" else "mm")
    if letter == "t":
        rate = stack.frame_rate_hz
        return Positions(np.arange(n, dtype=np.float64) / (rate or 1.0), "s" if rate else "frame")
    step = stack.spacing_mm.get(letter)
    return Positions(
        np.arange(n, dtype=np.float64) * (step or 1.0), "mm" if step or letter not in stack.axes else "pixel"
    )


def with_slice(letters: str) -> str:
    """Return axis letters with y, the axis of a single slice, before the first spatial axis if they have no y."""
    spatial = [place for place, letter in enumerate(letters) if letter != "t"]
    if "y" in letters or not spatial:
        return letters
    return letters[: spatial[0]] + "y" + letters[spatial[0] :]


def grid_attributes(stack: GriddedStack) -> dict[str, Any]:
    """Return the matrix that places the voxels of a stack in the world of ConfUSIus, and its unit, as attributes.

    It is that of the input, if that has one. Otherwise it has the pixel pitches and the positions of the first
    voxels; if a pitch is not known, it counts pixels. The thickness of a single slice is 1 if it is not known.
    """
    if (matrix := voxel_matrix(stack.attributes)) is not None:
        unit = str(stack.attributes.get("voxel_to_world_units", "mm"))
        return {"voxel_to_world": matrix, "voxel_to_world_units": unit}
    places = {letter: positions(stack, letter) for letter in WORLD}
    in_mm = all(place.unit == "mm" for place in places.values())
    matrix = np.eye(4)
    for row, letter in enumerate(WORLD if in_mm else ()):
        matrix[row, row] = places[letter].step or slice_thickness_mm(stack, letter) or 1.0
        matrix[row, 3] = places[letter].values[0]
    return {"voxel_to_world": matrix, "voxel_to_world_units": "mm" if in_mm else "pixel"}


def slice_thickness_mm(stack: GriddedStack, letter: str = "y") -> float | None:
    """Return the size of the voxels of a stack along an axis in mm, also one that it has not; None if not known."""
    if letter in stack.spacing_mm:
        return stack.spacing_mm[letter]
    given = stack.coordinates.get(letter)
    size = None if given is None else given.attributes.get("voxdim")
    return float(size) if isinstance(size, int | float) and size > 0 else None


def grid_labels(stack: GriddedStack, letters: str) -> dict[str, Label]:
    """Return the coordinates of the dimensions of an array, and those of its voxels in the world, by their names.

    Parameters
    ----------
    stack : Acquisition or Geometry
        Stack with the axes and scales of the array.
    letters : str
        Axis letters of the array, from :func:`with_slice`.
    """
    made: dict[str, Label] = {}
    has_grid = voxel_matrix(stack.attributes) is not None
    for letter in letters:
        name, place = DIMENSIONS[letter], positions(stack, letter)
        if letter == "t":
            made[name] = Label((name,), place.values, _time_attributes(stack, place))
            continue
        given = _given(stack, letter, len(place.values))
        numbers = given.numbers if has_grid and given is not None else None
        counted = np.arange(len(place.values), dtype=np.int64) if numbers is None else numbers
        made[name] = Label((name,), counted, {"long_name": f"{LONG_NAMES[letter]} voxel"})
        if place.unit == "mm":
            about = {"units": "mm", "long_name": LONG_NAMES[letter]}
            made[WORLD[letter]] = Label((name,), place.values, about)
    return made


def _time_attributes(stack: GriddedStack, place: Positions) -> dict[str, Any]:
    attributes = {
        "units": place.unit,
        "long_name": LONG_NAMES["t"],
        "volume_acquisition_reference": "start",
        "volume_acquisition_duration": place.step or 1.0,
    }
    given = stack.coordinates.get("t")
    kept = {} if given is None else given.attributes
    return attributes | {key: kept[key] for key in ATTRIBUTES if key in kept}


def _given(stack: GriddedStack, letter: str, n: int) -> Coordinate | None:
    """Return the coordinate of the input along an axis; None if it has another number of positions by now."""
    given = stack.coordinates.get(letter)
    return given if given is not None and len(given.values) == n else None
