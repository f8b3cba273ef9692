"""Labels of xarray and ConfUSIus: from names of dimensions and their coordinates to axis letters and positions.

ConfUSIus calls the dimensions of a voxel grid k (elevation), j (depth) and i (lateral), and a matrix places the grid in
the world, whose axes are z (elevation), y (depth) and x. Elsewhere z is usually depth, as in this package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.geometry import ATTRIBUTES, Coordinate, dropped_axes, pitch

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

ALIASES: Mapping[str, Sequence[str]] = {
    "frame_rate_hz": ("frame_rate_hz", "frame_rate", "framerate", "compound_sampling_frequency", "framerateuf"),
    "center_frequency_hz": ("center_frequency_hz", "center_frequency", "transmit_frequency"),
    "sound_speed_m_s": ("sound_speed_m_s", "sound_speed", "speed_of_sound", "beamforming_sound_velocity"),
    "spacing_mm": ("spacing_mm", "pixel_spacing_mm"),
    "axes": ("axes",),
}  # fmt: skip
"""Our name of a scale -> names in files, in lower case."""

TIMES = ("time", "t", "frame", "frames")
"""Lower-case names of the axis of time."""

_SPELT_OUT = {"depth": "z", "axial": "z", "elevation": "y", "lateral": "x", **dict.fromkeys(TIMES, "t")}

KNOWN_DIMENSIONS = frozenset({*_SPELT_OUT, *VOXELS, *WORLD})
"""Lower-case names of dimensions that are known."""


FROM_TIMES = "coordinate time"
"""Source of a frame rate that is from the times of the frames."""


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
    values: NDArray[np.number] | None
    attributes: Mapping[str, object] = field(default_factory=dict)


Labels = Mapping[str, Label]
"""Name -> coordinate; coordinates of dimensions have the names of the dimensions."""

Found = Mapping[str, tuple[object, str]]
"""Metadata of a stack: name in the file -> (value, source of the value in the file)."""


class AmbiguousAxes(str):
    """Axis letters of dimensions that do not identify depth for certain.

    Parameters
    ----------
    letters : str
        Axis letters if depth is the dimension y, as in ConfUSIus.
    sentence : str
        Error message for this case.
    """

    sentence: str

    def __new__(cls, letters: str, sentence: str) -> Self:
        """Return the letters with their sentence."""
        axes = super().__new__(cls, letters)
        axes.sentence = sentence
        return axes


def labelled_metadata(
    dimensions: tuple[str, ...], shape: tuple[int, ...], n_axes: int, labels: Labels, entries: Found
) -> dict[str, tuple[object, str]]:
    """Return axes, frame rate, pitches and positions from the labels of an array, unless its attributes have them.

    Parameters
    ----------
    dimensions : tuple of str
        Names of the dimensions of the array.
    shape : tuple of int
        Their lengths.
    n_axes : int
        Number of axes of the stack, which has lost the first axes of length 1 of the array.
    labels : mapping
        Name -> coordinate; coordinates of dimensions have the names of the dimensions.
    entries : mapping
        Name of each attribute -> its value, and its source; `voxel_to_world` is among them in files of ConfUSIus.

    Returns
    -------
    dict
        Name -> value and source, for :func:`usdenoise.stack.metadata.interpret`.
    """
    attributes = {name: value for name, (value, _) in entries.items()}
    lengths = dict(zip(dimensions, shape, strict=True))
    # Dimensions of length 1 of another meaning, such as the pose of the probe
    others = [name for name, n in lengths.items() if n == 1 and not _is_known(name, labels.get(name))]
    if len(others) <= len(lengths) - n_axes:
        lengths = {name: n for name, n in lengths.items() if name not in others}
    axes = _axes(lengths, labels, attributes)
    if axes is None:
        letters = {name: "t" for name in lengths if name.lower() in TIMES}
    else:
        letters = dict(zip(lengths, axes, strict=True))
    coordinates, spacing = _positions(letters, lengths, labels, attributes)
    more: dict[str, tuple[object, str]] = {}
    rate = frame_rate(coordinates["t"].values) if "t" in coordinates else None
    if rate and not any(name.lower() in ALIASES["frame_rate_hz"] for name in entries):
        more["frame_rate_hz"] = (rate, FROM_TIMES)
    # The axes of length 1 that the stack has lost lose their letters as well.
    dropped = dropped_axes([*lengths.values()], n_axes)
    kept = "".join(letter for axis, letter in enumerate(letters.values()) if axis not in dropped)
    if axes is None or len(kept) != n_axes:
        times = {letter: coordinate for letter, coordinate in coordinates.items() if letter == "t"}
        return {**more, "coordinates": (times, FROM_TIMES)} if times else more
    if "axes" not in entries:
        depth = next((name.lower() for name, letter in letters.items() if letter == "z"), "z")
        words = f"dimensions {', '.join(lengths)}" + (f", in which {depth} is depth" if depth in "jy" else "")
        known = AmbiguousAxes(kept, axes.sentence) if isinstance(axes, AmbiguousAxes) else kept
        more["axes"] = (known, words)
    if entries.get("axes", (kept,))[0] == kept:
        more["coordinates"] = (coordinates, "coordinates of its dimensions")
    if "spacing_mm" not in entries and set(spacing) >= set(kept) - {"t"}:
        more["spacing_mm"] = (spacing, "coordinates of its dimensions")
    return more


def voxel_matrix(attributes: Mapping[str, object]) -> NDArray[np.float64] | None:
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


def _axes(lengths: Mapping[str, int], labels: Labels, attributes: Mapping[str, object]) -> str | None:
    """Return one letter for each dimension; None if a name is unknown."""
    if _is_grid(lengths):
        letters = "".join({**_SPELT_OUT, **VOXELS}.get(name.lower(), "") for name in lengths)
        if not _is_possible(letters, lengths):
            return None
        matrix = voxel_matrix(attributes)
        # A slice may be turned about the depth, but depth is y of the world in every file that the probe gives.
        if matrix is None or np.argmax(np.abs(matrix[:3, 1])) == 1:
            return letters
        return AmbiguousAxes(
            letters,
            "the matrix voxel_to_world rotates the dimension j away from y of the world, so depth is unknown; set the axes "
            f"to {letters} if j is depth",
        )
    spelt_out = {name: _SPELT_OUT.get(_long_name(labels.get(name))) for name in lengths}
    n_y, n_z = (max((n for name, n in lengths.items() if name.lower() == axis), default=1) for axis in "yz")
    # The depth axis always has more than one pixel. If both have, depth is y as in ConfUSIus, or refused below.
    names = {**_SPELT_OUT, **({letter: letter for letter in "zyx"} if n_y == 1 and n_z > 1 else WORLD)}
    letters = "".join(spelt_out[name] or names.get(name.lower(), "") for name in lengths)
    if not _is_possible(letters, lengths):
        return None
    if min(n_y, n_z) == 1 or any(spelt_out[name] for name in lengths if name.lower() in ("z", "y")):
        return letters
    other = letters.translate(str.maketrans("zy", "yz"))
    return AmbiguousAxes(
        letters,
        f"the dimensions {', '.join(lengths)} do not identify depth; set the axes to {letters} if it is y, or "
        f"to {other} if it is z",
    )


def _positions(
    letters: Mapping[str, str], lengths: Mapping[str, int], labels: Labels, attributes: Mapping[str, object]
) -> tuple[dict[str, Coordinate], dict[str, float]]:
    """Return the positions and the pixel pitches along the axes, as far as they are known, by the axis letters."""
    matrix = voxel_matrix(attributes) if _is_grid(lengths) else None
    unit = MILLIMETRES.get(str(attributes.get("voxel_to_world_units", "mm")))
    # A dimension that was selected away may be there as a coordinate of one value.
    apart = {name: VOXELS[name] for name in VOXELS if _is_grid(lengths) and name in labels}
    coordinates: dict[str, Coordinate] = {}
    spacing: dict[str, float] = {}
    for name, letter in {**letters, **apart}.items():
        if letter != "t" and matrix is not None and unit is not None:
            coordinates[letter] = _placed(letter, labels.get(name), matrix, unit, lengths.get(name, 1))
            spacing[letter] = float(f"{_column_length(matrix, letter) * unit:.12g}")
        elif (coordinate := _labelled(name, letter, labels)) is not None:
            coordinates[letter] = coordinate
            step = pitch(coordinate.values, 1.0)
            if letter != "t" and step is not None:
                spacing[letter] = step
    return coordinates, spacing


def frame_rate(times: NDArray[np.float64]) -> float | None:
    """Return the frame rate in Hz of the times of frames in s; None if they are uneven."""
    seconds = pitch(times, 1.0)
    return None if seconds is None else float(f"{1 / seconds:.7g}")


def _is_grid(lengths: Mapping[str, int]) -> bool:
    return any(name in VOXELS for name in lengths)


def _is_possible(letters: str, lengths: Mapping[str, int]) -> bool:
    return len(letters) == len(lengths) == len(set(letters)) and set(letters) <= set("tzxy")


def _is_known(name: str, label: Label | None) -> bool:
    return name.lower() in KNOWN_DIMENSIONS or _long_name(label) in _SPELT_OUT


def _long_name(label: Label | None) -> str:
    return "" if label is None else str(label.attributes.get("long_name", "")).lower()


def _placed(letter: str, label: Label | None, matrix: NDArray[np.float64], unit: float, n: int) -> Coordinate:
    """Return the positions of voxels along one axis of their grid."""
    label_values = None if label is None or label.values is None else np.atleast_1d(label.values)
    numbers = np.arange(n) if label_values is None or label_values.shape != (n,) else label_values
    row, column = list(WORLD).index(letter), list(VOXELS.values()).index(letter)
    direction = matrix[row, column]
    along = _column_length(matrix, letter) * (-1 if direction < 0 else 1)
    whole = bool(np.isfinite(numbers).all()) and np.array_equal(numbers, np.rint(numbers))
    kept = numbers.astype(np.int64) if whole else None
    return Coordinate((along * numbers + matrix[row, 3]) * unit, kept, {"voxdim": abs(along) * unit})


def _column_length(matrix: NDArray[np.float64], letter: str) -> float:
    return float(np.linalg.norm(matrix[:3, list(VOXELS.values()).index(letter)]))


def _labelled(name: str, letter: str, labels: Labels) -> Coordinate | None:
    """Return the positions that the coordinate of a dimension holds, or the world coordinate along this dimension."""
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
