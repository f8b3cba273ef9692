"""Labels of xarray and ConfUSIus: from names of dimensions and their coordinates to axis letters and positions.

ConfUSIus calls the dimensions of a voxel grid k (elevation), j (depth) and i (lateral), and a matrix places the grid in
the world, whose axes are z (elevation), y (depth) and x. Elsewhere z is usually depth, as in this package.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.coordinates import ATTRIBUTES, Coordinate, pitch

MILLIMETRES: Mapping[str, float] = {"mm": 1.0, "m": 1e3, "um": 1e-3, "µm": 1e-3}
SECONDS: Mapping[str, float] = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-9),
}

VOXELS: Mapping[str, str] = {"k": "y", "j": "z", "i": "x"}
"""Dimension of a voxel grid of ConfUSIus -> axis letter, in the order of the columns of its matrix."""

WORLD: Mapping[str, str] = {"y": "z", "z": "y", "x": "x"}
"""Axis letter -> axis of the world of ConfUSIus, in the order of the rows of its matrix."""

_TIMES = ("time", "t", "frame", "frames")
_SPELT_OUT = {"depth": "z", "axial": "z", "elevation": "y", "lateral": "x", **dict.fromkeys(_TIMES, "t")}
_WORLD_LETTERS = {"z": "y", "y": "z", "x": "x"}


@dataclass(frozen=True, eq=False)
class Label:
    """A coordinate, as a file or an xarray.DataArray holds it.

    Attributes
    ----------
    dimensions : tuple of str
        Names of its dimensions.
    values : array or None
        Its values; None if they are not numbers, or too many.
    attributes : mapping
        Its attributes.
    """

    dimensions: tuple[str, ...]
    values: NDArray[Any] | None
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AmbiguousAxes:
    """Dimensions whose names can be understood in two ways.

    Attributes
    ----------
    letters : str
        Axis letters in the way of ConfUSIus.
    sentence : str
        Error message that says so.
    """

    letters: str
    sentence: str


@dataclass(frozen=True, eq=False)
class LabelledAxes:
    """What labels say about the axes of a stack.

    Attributes
    ----------
    axes : str, AmbiguousAxes or None
        One letter for each dimension; None if a name is unknown.
    spacing_mm : mapping
        Axis letter -> pixel pitch in mm, where it is known.
    frame_rate_hz : float or None
        Frames per second.
    coordinates : mapping
        Axis letter -> positions, where they are known.
    """

    axes: str | AmbiguousAxes | None
    spacing_mm: Mapping[str, float] = field(default_factory=dict)
    frame_rate_hz: float | None = None
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)


def read_labels(
    dimensions: tuple[str, ...],
    shape: tuple[int, ...],
    labels: Mapping[str, Label],
    attributes: Mapping[str, Any],
) -> LabelledAxes:
    """Return what the labels of an array say about its axes.

    Parameters
    ----------
    dimensions : tuple of str
        Names of the dimensions of the array.
    shape : tuple of int
        Their lengths.
    labels : mapping
        Name -> coordinate; those of the dimensions have their names.
    attributes : mapping
        Attributes of the array, `voxel_to_world` among them in files of ConfUSIus 0.8.
    """
    axes = _axes(dimensions, shape, labels, attributes)
    letters = axes.letters if isinstance(axes, AmbiguousAxes) else axes
    if letters is None:
        times = {name: "t" for name in dimensions if name.lower() in _TIMES}
        found = [_labelled(name, "t", labels) for name in times]
        return LabelledAxes(None, frame_rate_hz=_rate(next(iter(found), None)))
    matrix = voxel_matrix(attributes) if _is_grid(dimensions) else None
    unit = MILLIMETRES.get(str(attributes.get("voxel_to_world_units", "mm")))
    named = dict(zip(dimensions, letters, strict=True))
    # A dimension that was selected away may be there as a coordinate of one value.
    named |= {name: VOXELS[name] for name in VOXELS if _is_grid(dimensions) and name in labels}
    coordinates: dict[str, Coordinate] = {}
    spacing: dict[str, float] = {}
    lengths = dict(zip(dimensions, shape, strict=True))
    for name, letter in named.items():
        if letter != "t" and matrix is not None and unit is not None:
            made: Coordinate | None = _placed(letter, labels.get(name), matrix, unit, lengths.get(name, 1))
            spacing[letter] = float(f"{_column_length(matrix, letter) * unit:.12g}")
        else:
            made = _labelled(name, letter, labels)
            if made is not None and letter != "t" and (step := pitch(made.values, 1.0)) is not None:
                spacing[letter] = step
        if made is not None:
            coordinates[letter] = made
    return LabelledAxes(axes, spacing, _rate(coordinates.get("t")), coordinates)


def voxel_matrix(attributes: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """Return the matrix that places the voxels of ConfUSIus in the world; None if the attributes hold none.

    Rows are z, y and x of the world, columns the voxels k, j and i.
    """
    try:
        matrix = np.asarray(attributes.get("voxel_to_world"), np.float64)
    except (TypeError, ValueError):
        return None
    if matrix.shape in ((1, 4, 4), (16,)):
        # One pose of the probe, or rows one after the other, as in NetCDF.
        matrix = matrix.reshape(4, 4)
    usable = matrix.shape == (4, 4) and bool(np.isfinite(matrix).all())
    return matrix if usable and np.abs(matrix[:3, :3]).sum(axis=0).all() else None


def names_an_axis(name: str, label: Label | None) -> bool:
    """Return whether a dimension is known by its name or by the long name of its coordinate."""
    return name.lower() in {*_SPELT_OUT, *VOXELS, *_WORLD_LETTERS} or _long_name(label) in _SPELT_OUT


def _rate(times: Coordinate | None) -> float | None:
    seconds = None if times is None else pitch(times.values, 1.0)
    return None if seconds is None else float(f"{1 / seconds:.7g}")


def _is_grid(dimensions: tuple[str, ...]) -> bool:
    return any(name in VOXELS for name in dimensions)


def _axes(
    dimensions: tuple[str, ...],
    shape: tuple[int, ...],
    labels: Mapping[str, Label],
    attributes: Mapping[str, Any],
) -> str | AmbiguousAxes | None:
    if _is_grid(dimensions):
        letters = "".join({**_SPELT_OUT, **VOXELS}.get(name.lower(), "") for name in dimensions)
        return _checked_grid(letters, attributes) if _is_possible(letters, dimensions) else None
    said = {name: _SPELT_OUT.get(_long_name(labels.get(name))) for name in dimensions}
    letters = "".join(
        said[name] or _SPELT_OUT.get(name.lower()) or _WORLD_LETTERS.get(name.lower(), "")
        for name in dimensions
    )
    lengths = dict(zip((name.lower() for name in dimensions), shape, strict=True))
    if lengths.get("y", 1) == 1 and lengths.get("z", 1) > 1:
        # The depth axis always has more than one pixel, so here z is depth.
        letters = "".join("t" if name.lower() in _TIMES else name.lower() for name in dimensions)
    if not _is_possible(letters, dimensions):
        return None
    open_question = lengths.get("z", 1) > 1 and lengths.get("y", 1) > 1
    if not open_question or any(said[name] for name in dimensions if name.lower() in "zy"):
        return letters
    other = letters.translate(str.maketrans("zy", "yz"))
    return AmbiguousAxes(
        letters,
        f"the dimensions {', '.join(dimensions)} do not say which one is depth; give --axes {letters} if it is y, or "
        f"--axes {other} if it is z",
    )


def _checked_grid(letters: str, attributes: Mapping[str, Any]) -> str | AmbiguousAxes:
    matrix = voxel_matrix(attributes)
    # A slice may be turned about the depth, but depth is y of the world in every file that the probe gives.
    if matrix is None or np.argmax(np.abs(matrix[:3, 1])) == 1:
        return letters
    return AmbiguousAxes(
        letters,
        "the matrix voxel_to_world turns the dimension j, which is depth, away from y of the world, so the stack "
        f"was resampled, and depth is not known; give --axes {letters} if j is depth all the same",
    )


def _is_possible(letters: str, dimensions: tuple[str, ...]) -> bool:
    return len(letters) == len(dimensions) == len(set(letters)) and set(letters) <= set("tzxy")


def _long_name(label: Label | None) -> str:
    return "" if label is None else str(label.attributes.get("long_name", "")).lower()


def _placed(letter: str, label: Label | None, matrix: NDArray[np.float64], unit: float, n: int) -> Coordinate:
    """Return the positions of voxels along one axis of their grid."""
    given = None if label is None or label.values is None else np.atleast_1d(label.values)
    numbers = np.arange(n) if given is None or given.shape != (n,) else given
    row, column = list(WORLD).index(letter), list(VOXELS.values()).index(letter)
    direction = matrix[row, column]
    along = _column_length(matrix, letter) * (-1 if direction < 0 else 1)
    whole = bool(np.isfinite(numbers).all()) and np.array_equal(numbers, np.rint(numbers))
    kept = numbers.astype(np.int64) if whole else None
    return Coordinate((along * numbers + matrix[row, 3]) * unit, kept, {"voxdim": abs(along) * unit})


def _column_length(matrix: NDArray[np.float64], letter: str) -> float:
    return float(np.linalg.norm(matrix[:3, list(VOXELS.values()).index(letter)]))


def _labelled(name: str, letter: str, labels: Mapping[str, Label]) -> Coordinate | None:
    """Return the positions that the coordinate of a dimension holds, or that of the world along this dimension."""
    units, default = (SECONDS, "s") if letter == "t" else (MILLIMETRES, "mm")
    aside = WORLD.get(letter, "") if name in VOXELS else name
    label = labels.get(aside)
    if label is None or label.values is None or label.dimensions not in ((name,), ()):
        return None
    # xarray stores a date as a count such as "milliseconds since 2026-01-01".
    word, since, _ = str(label.attributes.get("units", default)).partition(" since ")
    unit = units.get(word)
    if unit is None:
        return None
    kept = {key: label.attributes[key] for key in ATTRIBUTES if key in label.attributes}
    values = np.atleast_1d(label.values)
    if since:
        # In double precision a date loses the microseconds, so the first frame is 0.
        values = values - values[:1]
    return Coordinate(values.astype(np.float64) * unit, None, kept)
