"""The options of a job apart from the denoiser's: what it writes, and how its pictures look."""

import re
from dataclasses import dataclass

from usdenoise.errors import OptionError
from usdenoise.options.declaration import Group, Options, option
from usdenoise.options.kinds import LEVELS, NAMES

PRODUCT_NAMES = ("power", "blood", "directional", "signed", "velocity", "none")

NO_PRODUCTS = ("none",)

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
    >>> usdenoise.Output(products=("power", "velocity")).stack
    True
    """

    stack: bool = option(True, "Do not write the filtered stack, to save disk space.")
    stack_name: str | None = option(
        None,
        "Name of the filtered stack in its file. Set it to the one that the next program reads, such as "
        "iqSvdFiltered; the other variables of a .mat file are copied.",
        flag="--as",
        metavar="NAME",
        shown="as in the input",
    )
    """Letters, digits and underscores, the first one a letter, at most 63 as in MATLAB."""
    products: tuple[str, ...] = option(
        ("power", "blood"),
        "Pictures to make: power, blood, directional, signed, velocity (in mm/s with {center_frequency_hz}, which the "
        "file may have). none writes the stack without pictures, page and doubts about blood, for localisation.",
        kind=NAMES,
        choices=PRODUCT_NAMES,
    )
    """The result file holds the power and the blood map in any case, and the arrays of the other named products."""
    nifti: bool = option(False, "Write the power images as NIfTI with a JSON sidecar.")

    @property
    def judges_blood(self) -> bool:
        """Whether there are pictures, a page, and doubts about blood."""
        return self.products != NO_PRODUCTS

    def check(self) -> None:
        """Check the name of the stack, and that no product stands beside none."""
        if "none" in self.products and self.judges_blood:
            raise OptionError("none excludes other products", option="products")
        if self.stack_name is not None:
            if re.fullmatch(r"[A-Za-z]\w{0,62}", self.stack_name, re.ASCII) is None:
                raise OptionError(
                    f"'{self.stack_name}' is not a valid name of a variable",
                    option="stack_name",
                    remedy="use up to 63 letters, digits and underscores, a letter first",
                )
            if not self.stack:
                raise OptionError(
                    "requires the filtered stack", option="stack_name", remedy="omit {stack} or {stack_name}"
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
        least=10,
        most=20,
    )
    color_map: str = option(
        COLOR_MAPS[0],
        f"Colours of power: {', '.join(COLOR_MAPS)}. In all but hot, equal steps in dB look equally large.",
        choices=COLOR_MAPS,
        metavar="NAME",
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

    @property
    def levels(self) -> tuple[float, float] | None:
        """The two levels of the range in dB of power, 10 log10; None if the range has none."""
        if not isinstance(self.dynamic_range, tuple):
            return None
        low, high = (level * 10.0 / self.db_factor for level in self.dynamic_range)
        return low, high
