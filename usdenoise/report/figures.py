"""What all pictures share: colour scales, titles and encoding."""

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.options.job_options import COLOR_MAPS, DynamicRange
from usdenoise.system.printable import printable

DPI = 150
"""Dots per inch of a picture with few panels."""

MARGIN_INCHES = 0.06
"""White margin around a figure."""


# The colours of Okabe and Ito, which stay distinct in all common kinds of colour blindness, without yellow.
LINE_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")

BLACK_SHARE = 0.02
"""Share of the pixels, or of the power, that may be black where the dynamic range suits a picture."""


@dataclass(frozen=True)
class ColorScale:
    """Colours of an image and the text of its colour bar.

    Attributes
    ----------
    color_map : str or matplotlib.colors.Colormap
        Colour map, or its name in matplotlib.
    lowest, highest : float
        Values at the two ends of the colour map.
    label : str
        Quantity and unit, written next to the colour bar.
    ticks : mapping from float to str, optional
        Text of each tick of the colour bar; by default matplotlib chooses the ticks.
    """

    color_map: Any
    lowest: float
    highest: float
    label: str
    ticks: Mapping[float, str] | None = None


def power_scale(
    decibels: NDArray[Any],
    dynamic_range_db: DynamicRange = None,
    color_map: str = COLOR_MAPS[0],
    quantity: str = "power Doppler",
) -> ColorScale:
    """Return the colour scale of power in dB.

    Parameters
    ----------
    decibels : array
        Values to draw, in dB.
    dynamic_range_db : float or (float, float), optional
        Decibels below the maximum, which is 0; or the lowest and the highest level; by default
        :func:`suitable_range_db`.
    color_map : str
        One of COLOR_MAPS; by default the first.
    quantity : str
        What the colour bar is labelled with, apart from the unit; by default "power Doppler".
    """
    if isinstance(dynamic_range_db, tuple):
        return ColorScale(color_map, *dynamic_range_db, f"{quantity} (dB, absolute)")
    span = suitable_range_db(decibels) if dynamic_range_db is None else dynamic_range_db
    return ColorScale(color_map, -span, 0.0, f"{quantity} (dB re maximum)")


def load_libraries() -> None:
    """Import the libraries that draw, so that the first picture does not wait for them."""
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg"):
        import_module(name)


def suitable_range_db(decibels: NDArray[Any]) -> float:
    """Return the dynamic range of a picture: at least 10 and at most 40 dB.

    It is the smaller one of two. In the first, 2 % of the pixels with any power are black: neither a few very dark pixels
    set it nor those outside a sector. In the second, the black pixels have 2 % of the power: in a blood map, they
    hide the faint remaining power between the vessels.

    Parameters
    ----------
    decibels : array of any shape
        Power Doppler in dB, 0 at the maximum.

    Returns
    -------
    float
        Dynamic range in dB.
    """
    levels = np.sort(decibels[np.isfinite(decibels)].astype(np.float64))
    if not len(levels):
        return 40.0
    power = np.cumsum(10 ** (levels / 10))
    ends = np.searchsorted(power, BLACK_SHARE * power[-1]), round(BLACK_SHARE * (len(levels) - 1))
    return float(np.clip(-levels[max(ends)], 10, 40))


def add_title(figure: Any, title: str) -> None:
    """Write a title above all panels of a figure; an empty title takes no room."""
    if title:
        figure.suptitle(printable(title), fontsize="medium", parse_math=False)


def shortened(text: str, letters: int) -> str:
    """Return a text on one line, with an ellipsis for the middle of one of more than `letters` characters."""
    text = printable(text)
    if len(text) <= letters:
        return text
    tail = (letters - 1) // 2 + 3
    return f"{text[: letters - 1 - tail]}\N{HORIZONTAL ELLIPSIS}{text[-tail:]}"


@contextmanager
def any_letters() -> Iterator[None]:
    """Draw without a warning of letters that the font lacks: a file name may hold any."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def encoded(figure: Any, kind: str = "png", *, crop: bool = True) -> bytes:
    """Return a matplotlib figure in a file format; the same figure gives the same bytes.

    Text in PDF and SVG stays text, which other programs can edit.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    kind : str
        One of FORMATS; by default "png".
    crop : bool
        Whether the figure is made as large as what it shows, with a narrow margin; True by default. Otherwise it keeps
        its size.
    """
    from matplotlib import rc_context

    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    buffer = io.BytesIO()
    with (
        any_letters(),
        rc_context({"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "usdenoise"}),
    ):
        cropped = {"bbox_inches": "tight", "pad_inches": MARGIN_INCHES} if crop else {}
        figure.savefig(buffer, format=kind, metadata=metadata[kind], **cropped)
    return buffer.getvalue()
