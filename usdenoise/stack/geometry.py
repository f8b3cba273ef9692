"""The geometry of a stack: its axes, pixels, frames, their positions and scales, and how its file holds it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from usdenoise.errors import InputError
from usdenoise.linalg.array_library import Entry, Numbers, namespace

ATTRIBUTES = ("volume_acquisition_reference", "volume_acquisition_duration")
"""Attributes of a time axis that an output carries on: to which moment of a frame its time belongs, and how long it is."""

SOUND_SPEED_M_S = 1540.0
"""Speed of sound in soft tissue, used if the acquisition does not specify it."""


@dataclass(frozen=True, eq=False)
class Coordinate:
    """Positions along one axis of a stack.

    Attributes
    ----------
    values : (n,) float64 array
        Positions of the pixels in mm, or times of the frames in s.
    numbers : (n,) int64 array or None
        Numbers of the pixels in the grid that `voxel_to_world` places, where a file gives them; None (the default)
        counts from 0.
    attributes : mapping
        Entries of :data:`ATTRIBUTES` that the file contains; none by default.
    unit : str
        Unit of `values`: "mm" or "s", by default as the axis has it; "pixel" or "frame" for counted positions.
    """

    values: NDArray[np.float64]
    numbers: NDArray[np.int64] | None = None
    attributes: Mapping[str, object] = field(default_factory=dict)
    unit: str = ""

    def __getitem__(self, part: slice) -> "Coordinate":
        """Return the positions of some pixels or frames."""
        numbers = None if self.numbers is None else self.numbers[part]
        return replace(self, values=self.values[part], numbers=numbers)

    @property
    def step(self) -> float | None:
        """Mean step from one position to the next; None for a single one."""
        n = len(self.values)
        return None if n < 2 else float(self.values[-1] - self.values[0]) / (n - 1)


def check_order(times: NDArray[np.number], remedy: str) -> None:
    """Check that the times of frames do not go back: Doppler shifts have the sign of the order of the frames.

    Equal times and NaN do not determine the order, and pass.

    Parameters
    ----------
    times : (n_frames,) array
        Times of the frames, in any unit.
    remedy : str
        What the user can do, with options as placeholders.

    Raises
    ------
    InputError
        If a frame is earlier than the previous one.
    """
    times = np.asarray(times, np.float64)
    known = np.flatnonzero(np.isfinite(times))
    back = np.flatnonzero(np.diff(times[known]) < 0)
    if len(back):
        before, frame = known[back[0]], known[back[0] + 1]
        raise InputError(
            f"the times of the frames go back: frame {frame} is at {times[frame]:.7g}, and frame {before} before it at "
            f"{times[before]:.7g}",
            remedy=remedy,
        )


def pitch(coordinates: ArrayLike, unit_mm: float) -> float | None:
    """Return the spacing in mm of coordinates, or None if they are fewer than two, uneven or not finite.

    Parameters
    ----------
    coordinates : (n,) array
        Positions of the pixels along one axis.
    unit_mm : float
        Unit of the positions in mm.
    """
    steps = np.diff(np.asarray(coordinates, np.float64).reshape(-1)) * unit_mm
    if len(steps) == 0 or not np.isfinite(steps).all():
        return None
    mean = float(np.mean(steps))
    even = np.abs(steps - mean).max() <= 0.02 * abs(mean)
    # Coordinates in single precision have no more than 7 significant digits.
    return float(f"{abs(mean):.7g}") if mean and even else None


FREE_NAME = "filtered_stack"
"""Name of the stack in a result that has something else of its own name, such as `power_doppler`."""


@dataclass(frozen=True)
class StoredForm:
    """How a file holds a stack, apart from its name, axes and type.

    Attributes
    ----------
    parts : tuple of str
        Names of the arrays of the real and the imaginary part, where they are apart; empty (the default) otherwise.
    singles : tuple of int
        Numbers of the axes of length 1 that the array in the file has and the stack does not; none by default.
    """

    parts: tuple[str, ...] = ()
    singles: tuple[int, ...] = ()


SPATIAL_LETTERS = "zxy"
"""Depth, lateral, elevation: pixels are numbered in this order, whatever the order in the file."""


def canonical_axes(axes: str) -> str:
    """Return `axes` in the order in which pixels are numbered: z, x, y, then t."""
    return "".join(letter for letter in SPATIAL_LETTERS + "t" if letter in axes)


def picture_axes(axes: str) -> str:
    """Return spatial axes in the order of a picture: depth downwards; the pages of a volume are its elevations."""
    return "yzx" if len(axes) == 3 else canonical_axes(axes)


def in_axes(values: NDArray[Entry], axes: str, order: str) -> NDArray[Entry]:
    """Return a view of an array with axes `axes`, its axes in the order of the letters `order`."""
    return values.transpose([axes.index(letter) for letter in order])


def dropped_axes(shape: Sequence[int], n_left: int = 3) -> tuple[int, ...]:
    """Return the axes that an array loses as a stack: the first ones of length 1, until `n_left` axes are left."""
    return tuple(axis for axis, n in enumerate(shape) if n == 1)[: max(0, len(shape) - n_left)]


def as_frames(values: Any, axes: str) -> Any:
    """Return the values of a stack, axes in the order of the letters `axes`, as frames of pixels in the order z, x, y.

    Returns
    -------
    (n_frames, n_pixels) array
        A view if the memory allows it. Otherwise a copy, pixel after pixel if time is the fastest axis in memory.
    """
    if not isinstance(values, np.ndarray):
        xp = namespace(values)
        by_frame = xp.permute_dims(values, [axes.index(letter) for letter in "t" + canonical_axes(axes)[:-1]])
        return xp.reshape(by_frame, (by_frame.shape[0], -1))
    lines = in_axes(values, axes, canonical_axes(axes))
    n_frames = lines.shape[-1]
    strides = [abs(stride) for n, stride in zip(lines.shape, lines.strides, strict=True) if n > 1]
    if n_frames > 1 and abs(lines.strides[-1]) == min(strides):
        return lines.reshape(-1, n_frames).T
    return np.moveaxis(lines, -1, 0).reshape(n_frames, -1)


def check_axes(axes: str, shape: tuple[int, ...]) -> None:
    """Check that `axes` names every axis of a stack of `shape` once, time among them.

    Raises
    ------
    InputError
        If the letters are not distinct ones of z, x, y and t, if t is missing, or if their number is wrong.
    """
    if len(axes) != len(shape):
        raise InputError(
            f"axes '{axes}' names {len(axes)} axes, but the data have {len(shape)} ({shape_text(shape)})",
            remedy="give {axes} one letter for each axis",
        )
    letters = set(axes)
    if len(letters) != len(axes) or not letters <= set(SPATIAL_LETTERS + "t") or "t" not in letters:
        raise InputError(
            f"axes '{axes}' must be distinct letters of z, x, y and t, with t among them",
            remedy="give {axes} in the file's own order, for example tzx",
        )


def check_stack(shape: tuple[int, ...], dtype: np.dtype, name: str) -> None:
    """Check that an array could be an ultrafast stack: numeric, two or three spatial axes and time.

    Raises
    ------
    InputError
        If the data are not numeric, have another number of axes, or are empty, or their shape is not known.
    """
    if dtype.kind not in "fciu":
        raise InputError(
            f"'{name}' holds {dtype} values, not numbers", remedy="pick the stack with {dataset}"
        )
    if len(shape) not in (3, 4):
        raise InputError(
            f"'{name}' is {len(shape)}-D ({shape_text(shape)}), but a stack has 3 axes (2-D + time) "
            "or 4 (3-D + time)",
            remedy="pick another one with {dataset}",
        )
    if any(np.isnan(n) for n in shape):
        raise InputError(
            f"the sizes of the chunks of '{name}' are not known; call compute_chunk_sizes() on it first"
        )
    if 0 in shape:
        raise InputError(f"'{name}' is empty ({shape_text(shape)}); check how the file was written")


@dataclass(frozen=True)
class GriddedStack:
    """What a :class:`usdenoise.Acquisition` and a :class:`Geometry` have in common: everything but the values.

    Attributes
    ----------
    shape : tuple of int
        Lengths of the axes.
    dtype : numpy.dtype
        Type of the values.
    axes, frame_rate_hz, spacing_mm, center_frequency_hz, sound_speed_m_s, name, stored_dtype, assumptions, \
    attributes, coordinates, labels, form
        As in :class:`usdenoise.Acquisition`.
    """

    axes: str
    frame_rate_hz: float | None = None
    spacing_mm: Mapping[str, float] = field(default_factory=dict)
    center_frequency_hz: float | None = None
    sound_speed_m_s: float | None = None
    name: str = "iq"
    stored_dtype: np.dtype | None = None
    assumptions: tuple[str, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)
    labels: Any = None
    form: StoredForm = field(default_factory=StoredForm)
    shape: tuple[int, ...] = field(kw_only=True)
    dtype: np.dtype = field(kw_only=True)

    def _check(self) -> None:
        check_stack(self.shape, self.dtype, self.name)
        check_axes(self.axes, self.shape)
        if self.n_frames < 2:
            raise InputError(
                f"'{self.name}' holds one frame, and a clutter filter needs at least two",
                remedy="check {frames} and {axes}",
            )

    @property
    def geometry(self) -> "Geometry":
        """The geometry without the values."""
        return Geometry(**self.scales, shape=self.shape, dtype=self.dtype)

    @property
    def scales(self) -> dict[str, Any]:
        """The axes and scales by their names: all fields but the values, their shape and their type."""
        names = [one.name for one in fields(GriddedStack)]
        return {name: getattr(self, name) for name in names if name not in ("shape", "dtype")}

    @property
    def spatial_axes(self) -> str:
        """The axes without t, in the stack's own order."""
        return self.axes.replace("t", "")

    @property
    def displacement_unit(self) -> tuple[float, str]:
        """What a displacement of a wavelength is, and its unit: in um if the centre frequency is known.

        The speed of sound is 1540 m/s if it is not given.
        """
        if self.center_frequency_hz is None:
            return 1.0, "wavelengths"
        return 1e6 * (self.sound_speed_m_s or SOUND_SPEED_M_S) / self.center_frequency_hz, "um"

    def shape_in(self, order: str) -> tuple[int, ...]:
        """Return the lengths of some axes, in the order of their letters."""
        return tuple(self.shape[self.axes.index(letter)] for letter in order)

    @property
    def pixel_axes(self) -> str:
        """The axes without t, in the order z, x, y in which pixels are numbered."""
        return canonical_axes(self.spatial_axes)

    @property
    def pixel_shape(self) -> tuple[int, ...]:
        """Number of pixels along z, x and y."""
        return self.shape_in(self.pixel_axes)

    def image(self, values: Numbers) -> Numbers:
        """Return values of all pixels, (..., n_pixels), as images with the spatial axes of the stack: a view."""
        first = values.ndim - 1
        images = values.reshape(*values.shape[:-1], *self.pixel_shape)
        order = [first + self.pixel_axes.index(letter) for letter in self.spatial_axes]
        return images.transpose([*range(first), *order])

    def pixels(self, images: Numbers) -> Numbers:
        """Return images with the spatial axes of the stack, the last ones, as values of all pixels, (..., n_pixels)."""
        first = images.ndim - len(self.spatial_axes)
        order = [first + self.spatial_axes.index(letter) for letter in self.pixel_axes]
        return images.transpose([*range(first), *order]).reshape(*images.shape[:first], -1)

    def as_stack(self, frames: Any) -> Any:
        """Return frames, (n, n_pixels), as a stack of n frames with the axes of this one: a view."""
        xp, letters = namespace(frames), "t" + self.pixel_axes
        images = xp.reshape(frames, (frames.shape[0], *self.pixel_shape))
        return xp.permute_dims(images, [letters.index(letter) for letter in self.axes])

    @property
    def shape_text(self) -> str:
        """Axes and shape in words, for example "t 150, z 72, x 56"."""
        return ", ".join(f"{letter} {n}" for letter, n in zip(self.axes, self.shape, strict=True))

    @property
    def n_frames(self) -> int:
        """Number of frames (the ensemble)."""
        return int(self.shape[self.axes.index("t")])

    @property
    def n_pixels(self) -> int:
        """Number of pixels of a frame."""
        return math.prod(self.shape_in(self.spatial_axes))

    @property
    def is_complex(self) -> bool:
        """Whether the values are complex."""
        return self.dtype.kind == "c"


@dataclass(frozen=True)
class Geometry(GriddedStack):
    """The axes, the shape and the physical scales of a stack, without its values.

    All blocks of a session have the same one, up to the number of their frames.

    Raises
    ------
    InputError
        If no stack has this geometry; see :class:`usdenoise.Acquisition`.

    Examples
    --------
    >>> import usdenoise
    >>> geometry = usdenoise.load("sample_data/phantom.h5").geometry
    >>> geometry.shape_text, geometry.n_pixels, geometry.is_complex
    ('t 150, z 72, x 56', 4032, True)
    """

    def __post_init__(self) -> None:
        self._check()

    def of_frames(self, n_frames: int) -> "Geometry":
        """Return the geometry of another number of frames, whose times are not known."""
        shape = tuple((dict(zip(self.axes, self.shape, strict=True)) | {"t": n_frames}).values())
        coordinates = {letter: along for letter, along in self.coordinates.items() if letter != "t"}
        return replace(self, shape=shape, coordinates=coordinates, labels=None)


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as text for people, such as 200 x 130 x 2400."""
    return " x ".join(str(n) for n in shape)
