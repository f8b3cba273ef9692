"""The options of a job apart from the denoiser's: what it writes, and how its pictures look."""

import re
from dataclasses import dataclass

from usdenoise.errors import OptionError
from usdenoise.options.declaration import Group, Options, option
from usdenoise.options.kinds import LEVELS, NAMES, POSITIVE

PRODUCT_NAMES = ("power", "blood", "directional", "signed", "velocity")

COLOR_MAPS = ("inferno", "magma", "viridis", "cividis", "gray", "hot")
"""Colour maps for power, dark to bright, the default first. All but "hot" are perceptually uniform: equal steps in dB look
equally large, also in grey and to colour-blind readers."""

FORMATS = ("png", "pdf", "svg")
"""Formats of a figure."""

DynamicRange = float | tuple[float, float] | None
"""Which levels the colours cover: dB below the maximum; the lowest and the highest level in dB of the power in the square
of the file's unit; or None for a range that suits the image."""


@dataclass(frozen=True)
class Output(Options, group=Group.OUTPUTS):
    """What a job writes next to, or instead of, the filtered stack.

    Raises
    ------
    OptionError
        If a value is outside its range, or values contradict each other.

    Examples
    --------
    >>> import usdenoise
    >>> usdenoise.Output(window=400, stride=200, movie="gif").window
    400
    """

    compression: str = option("none", "Compression of the stored stack.", choices=("none", "gzip"))
    stack: bool = option(True, "Leave out the filtered stack to save disk space.")
    stack_name: str | None = option(
        None,
        "Name of the filtered stack in its file. Set it to the one that the next program reads, such as "
        "iqSvdFiltered; the variables of a .mat file come along.",
        flag="--as",
        metavar="NAME",
        shown="as in the input",
    )
    """Letters, digits and underscores, the first one a letter, at most 63 as in MATLAB."""
    products: tuple[str, ...] = option(
        ("power", "blood"),
        "Pictures to make: power, blood, directional, signed, velocity.",
        kind=NAMES,
        choices=PRODUCT_NAMES,
    )
    """The result file holds the power and the blood map in any case, and the arrays of the others that are named."""
    window: int | None = option(
        None,
        "Filter the frames as a session of blocks of N frames, and write a series of images. For long acquisitions. "
        "Frames that are left over make a shorter block; a few join the last one.",
        least=2,
    )
    """The series takes the place of the stack (see docs/sessions.md)."""
    stride: int | None = option(
        None,
        "Frames from one block to the next; fewer than the window make blocks overlap.",
        metavar="M",
        least=1,
        shown="the window",
    )
    movie: str | None = option(
        None, "Write the series as a film. Needs several blocks.", choices=("gif", "mp4")
    )
    nifti: bool = option(False, "Write the power images as NIfTI with a JSON sidecar.")
    html: bool = option(True, "Leave out <stem>_report.html, the report as a page for the browser.")

    def check(self) -> None:
        """Check the name of the stack, and that windows leave no frame out."""
        if self.stack_name is not None:
            if re.fullmatch(r"[A-Za-z]\w{0,62}", self.stack_name, re.ASCII) is None:
                raise OptionError(
                    f"'{self.stack_name}' is no name of a variable; give --as up to 63 letters, digits and underscores, a "
                    "letter first"
                )
            if not self.stack:
                raise OptionError("there is no stack to name; leave out --no-stack or --as")
        if self.stride is not None and self.window is None:
            raise OptionError("--stride needs --window; give --window the number of frames of each image")
        if self.stride is not None and self.window is not None and self.stride > self.window:
            raise OptionError(
                f"stride {self.stride} must be from 1 to the window of {self.window} frames, so that no frame is "
                "left out; change --stride"
            )


@dataclass(frozen=True)
class Display(Options, group=Group.OUTPUTS):
    """Options of the pictures.

    Raises
    ------
    OptionError
        If a value is not known, or outside its range.

    Examples
    --------
    >>> import usdenoise
    >>> usdenoise.Display(dynamic_range=30).db_factor
    10.0
    """

    dynamic_range: DynamicRange = option(
        None,
        "Range of the pictures in dB below the maximum. MIN,MAX sets two levels in dB of the power itself, "
        "for one scale over all scans of a study.",
        kind=LEVELS,
        shown="suits the image",
    )
    db_factor: float = option(
        10.0,
        "Scale of the pictures: 10 log10 of the power, or 20 log10 as in the paper.",
        choices=(10.0, 20.0),
    )
    cutoff_figure: bool = option(
        False, "Draw how the low cutoff was chosen. Use it when the report says unsure."
    )
    color_map: str = option(
        COLOR_MAPS[0],
        "Colours of power. In all but hot, equal steps in dB look equally large.",
        choices=COLOR_MAPS,
        flag="--cmap",
    )
    figure_formats: tuple[str, ...] = option(
        FORMATS[:1],
        "Formats of the figures, any of png, pdf and svg with commas.",
        kind=NAMES,
        choices=FORMATS,
        flag="--figure-format",
        metavar="LIST",
    )
    movie_speed: float = option(
        1.0,
        "How many times faster than in reality the film plays. Use 0.1 for slow motion.",
        kind=POSITIVE,
        shown="1, real time",
    )
    frames_figure: bool = option(
        False, "Draw curves over the frames above a carpet plot. Use it when frames look bad."
    )

    @property
    def levels(self) -> tuple[float, float] | None:
        """The two levels of the range in dB of power, 10 log10; None where the range has none."""
        if not isinstance(self.dynamic_range, tuple):
            return None
        low, high = (level * 10.0 / self.db_factor for level in self.dynamic_range)
        return low, high
