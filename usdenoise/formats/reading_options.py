"""Options of reading an acquisition, which every reader of a format gets."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from usdenoise.errors import OptionError, check_names


@dataclass(frozen=True)
class ReadOptions:
    """What to read from a file, and metadata that override those of the file.

    Attributes
    ----------
    dataset : str or None
        Name of the stack in the file; None takes the only dataset that can be a stack.
    axes : str or None
        Axis letters (z depth, x lateral, y elevation, t frames) in the file's own order, which for .mat files
        is MATLAB's order. None takes those of the file, or guesses them from the shape.
    frames : slice or None
        Frames to read, counted from 0; None reads all.
    frame_rate_hz : float or None
        Frames per second after compounding; None takes the file's.
    spacing_mm : tuple of float or None
        Pixel pitch in mm: one number for all spatial axes, or one for each in the file's order. None takes
        the file's.
    allow_external : bool
        Whether files outside the folder of the acquisition may be read, which an HDF5 file can name and to which
        links in a folder can lead; False by default.

    Raises
    ------
    OptionError
        If `frames` is no slice of whole numbers.
    """

    dataset: str | None = None
    axes: str | None = None
    frames: slice | None = None
    frame_rate_hz: float | None = None
    spacing_mm: tuple[float, ...] | None = None
    allow_external: bool = False

    def __post_init__(self) -> None:
        frames = self.frames
        parts = (frames.start, frames.stop, frames.step) if isinstance(frames, slice) else (frames,)
        whole = all(part is None or isinstance(part, int | np.integer) for part in parts)
        if not whole or not isinstance(frames, slice | None):
            raise OptionError(
                f"--frames is {frames!r}, and must be a slice of whole numbers, such as slice(0, 400)"
            )

    @property
    def n_axes(self) -> int | None:
        """Number of axes that the user named; None for none."""
        return None if self.axes is None else len(self.axes)


def reading_options(options: Mapping[str, Any]) -> ReadOptions:
    """Return named options as :class:`ReadOptions`; an unknown name raises an OptionError."""
    check_names(options, [field.name for field in fields(ReadOptions)])
    return ReadOptions(**options)
