"""The geometry of a stack: its axes, pixels and frames, their physical scales, and how its file holds it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from usdenoise.errors import InputError
from usdenoise.stack.coordinates import Coordinate
from usdenoise.stack.stored_form import StoredForm

SPATIAL_LETTERS = "zxy"
"""Depth, lateral, elevation: pixels are numbered in this order, whatever the order in the file."""


def check_axes(axes: str, shape: tuple[int, ...]) -> None:
    """Check that `axes` names every axis of a stack of `shape` once, time among them.

    Raises
    ------
    InputError
        If the letters are not distinct ones of z, x, y and t, if t is missing, or if their number is wrong.
    """
    letters = set(axes)
    if len(letters) != len(axes) or not letters <= set(SPATIAL_LETTERS + "t") or "t" not in letters:
        raise InputError(
            f"axes '{axes}' must be distinct letters of z, x, y and t, with t among them",
            remedy="give {axes} in the file's own order, for example tzx",
        )
    if len(axes) != len(shape):
        raise InputError(
            f"axes '{axes}' names {len(axes)} axes, but the data have {len(shape)} ({shape_text(shape)})",
            remedy="give {axes} one letter for each axis",
        )


def check_stack(shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
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


class GriddedStack:
    """What a :class:`usdenoise.Acquisition` and a :class:`Geometry` have in common: everything but the values."""

    axes: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    frame_rate_hz: float | None
    spacing_mm: Mapping[str, float]
    center_frequency_hz: float | None
    sound_speed_m_s: float | None
    name: str
    stored_dtype: np.dtype[Any] | None
    assumptions: tuple[str, ...]
    attributes: Mapping[str, Any]
    coordinates: Mapping[str, Coordinate]
    labels: Any
    form: StoredForm

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
        return Geometry(**{one.name: getattr(self, one.name) for one in fields(Geometry)})

    @property
    def spatial_axes(self) -> str:
        """The axes without t, in the stack's own order."""
        return self.axes.replace("t", "")

    def shape_in(self, order: str) -> tuple[int, ...]:
        """Return the lengths of some axes, in the order of their letters."""
        return tuple(self.shape[self.axes.index(letter)] for letter in order)

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

    Attributes
    ----------
    axes : str
        One letter for each axis: z depth, x lateral, y elevation, t time (frames); for example "tzx".
    shape : tuple of int
        Lengths of the axes.
    dtype : numpy.dtype
        Type of the values.
    frame_rate_hz, spacing_mm, center_frequency_hz, sound_speed_m_s, name, stored_dtype, assumptions, attributes, \
    coordinates, labels, form
        As in :class:`usdenoise.Acquisition`.

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

    axes: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    frame_rate_hz: float | None = None
    spacing_mm: Mapping[str, float] = field(default_factory=dict)
    center_frequency_hz: float | None = None
    sound_speed_m_s: float | None = None
    name: str = "iq"
    stored_dtype: np.dtype[Any] | None = None
    assumptions: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)
    labels: Any = None
    form: StoredForm = field(default_factory=StoredForm)

    def __post_init__(self) -> None:
        self._check()


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as text for people, such as 200 x 130 x 2400."""
    return " x ".join(str(n) for n in shape)
