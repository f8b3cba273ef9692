"""The options of reading: what to read from a file, and metadata that override the metadata of the file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from usdenoise.errors import check_names
from usdenoise.options.declaration import Group, Options, option
from usdenoise.options.kinds import FRAMES, NUMBER, SCALES, positive_numbers

SCALE_NAMES = {
    "frame_rate": "frame_rate_hz",
    "spacing": "spacing_mm",
    "center_frequency": "center_frequency_hz",
}
"""Names of the scales in calls of the library, which have no units -> fields."""


class ScaleKeywords(TypedDict, total=False):
    """The scales with their units, as keyword arguments; None keeps the metadata of the file."""

    frame_rate_hz: float | None
    spacing_mm: float | Sequence[float] | None
    center_frequency_hz: float | None


@dataclass(frozen=True)
class ReadOptions(Options, group=Group.INPUT):
    """What to read from a file, and metadata that override the metadata of the file, which None keeps.

    Raises
    ------
    OptionError
        If a value is of another kind.
    """

    dataset: str | None = option(
        None, "Name of the stack in the file. Needed when the file holds several.", metavar="NAME"
    )
    axes: str | None = option(
        None,
        "Order of the axes in the file, in letters z x y t: tzx has the frames first. Needed if info shows a "
        "wrong order.",
        metavar="ORDER",
    )
    """z is depth, x lateral, y elevation, t frames, in the file's own order, which for .mat files is MATLAB's."""
    frames: slice | None = option(
        None, "Read frames A to B-1, every S-th one, counted from 0. Read fewer to save memory.", kind=FRAMES
    )
    frame_rate_hz: float | None = option(
        None,
        "Frames per second. Use it if the file has no frame rate, or a wrong one.",
        metavar="HZ",
        least=SCALES[0],
        most=SCALES[1],
    )
    """After compounding."""
    spacing_mm: tuple[float, ...] | None = option(
        None,
        "Pixel pitch in mm: one number, or one for each spatial axis in the file's order. Use it if the file "
        "has no pixel pitch, or a wrong one.",
        kind=positive_numbers("MM[,MM[,MM]]", ",", NUMBER, range(1, 4), SCALES),
    )

    center_frequency_hz: float | None = option(
        None,
        "Centre frequency of the received signal, for velocities in mm/s. Use it if the file has none, or a wrong one.",
        metavar="HZ",
        least=SCALES[0],
        most=SCALES[1],
    )

    @property
    def n_axes(self) -> int | None:
        """Number of axes that the user named; None for none."""
        return None if self.axes is None else len(self.axes)


def reading_options(options: Mapping[str, Any]) -> ReadOptions:
    """Return named options as :class:`ReadOptions`; `frame_rate`, `spacing` and `center_frequency` have their units too.

    Raises
    ------
    OptionError
        If a name is unknown, or a value is of another kind.
    """
    check_names(options, [*ReadOptions.declared, *SCALE_NAMES])
    return ReadOptions(**{SCALE_NAMES.get(name, name): value for name, value in options.items()})
