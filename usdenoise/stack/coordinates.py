"""Positions of pixels and times of frames along the axes of a stack."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError

ATTRIBUTES = ("volume_acquisition_reference", "volume_acquisition_duration")
"""Attributes of a time axis that an output carries on: to which moment of a frame its time belongs, and how long it is."""


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
    """

    values: NDArray[np.float64]
    numbers: NDArray[np.int64] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, part: slice) -> "Coordinate":
        """Return the positions of some pixels or frames."""
        numbers = None if self.numbers is None else self.numbers[part]
        return Coordinate(self.values[part], numbers, self.attributes)


def check_order(times: NDArray[Any], remedy: str) -> None:
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


def pitch(coordinates: Any, unit_mm: float) -> float | None:
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
