"""A contact sheet: the power Doppler images of many scans in one picture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.images.power_doppler import decibels
from usdenoise.pictures.figures import draw_pixels, figure_png, on_one_line, power_scale, suitable_range_db

_PLACE_INCHES, _LABEL_INCHES, _MARGIN_INCHES, _DPI = 1.6, 0.3, 0.06, 110
_LETTERS_A_LINE = 26
"""Letters of 7 points that fit below a place of 1.6 inches."""

_PLACES_ACROSS = 1.4
"""Columns over rows. A place with its label is 1.6 x 1.9 inches, so a sheet is 1.2 times as wide as high."""


@dataclass(frozen=True)
class Tile:
    """One image of a contact sheet, with its label.

    Attributes
    ----------
    label : str
        Text below the image, followed by the dynamic range. The middle of a long label is left out.
    image : (n_pages, n_rows, n_columns) array or None
        Linear power Doppler, depth downwards. The maximum over the pages is shown. None gives an empty frame
        with the text "no result".
    aspect : float
        Height of a pixel over its width; 1 by default.
    """

    label: str
    image: NDArray[Any] | None
    aspect: float = 1.0


def contact_sheet_png(tiles: Sequence[Tile]) -> bytes:
    """Draw power Doppler images in reading order, each in dB below its own maximum and on its own range.

    All images get places of the same size and keep their proportions within them.

    Parameters
    ----------
    tiles : sequence of Tile
        The images with their labels, at least one.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib.figure import Figure

    n_columns = min(math.ceil(math.sqrt(len(tiles) * _PLACES_ACROSS)), len(tiles))
    n_rows = math.ceil(len(tiles) / n_columns)
    place = _PLACE_INCHES if len(tiles) > 6 else 2 * _PLACE_INCHES
    width, height = n_columns * place, n_rows * (place + _LABEL_INCHES)
    letters = int(_LETTERS_A_LINE * place / _PLACE_INCHES)
    figure = Figure(figsize=(width, height), dpi=_DPI)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, n_columns)
        left, top = column * place, height - row * (place + _LABEL_INCHES)
        inner = place - 2 * _MARGIN_INCHES
        panel = figure.add_axes(
            (
                (left + _MARGIN_INCHES) / width,
                (top - place + _MARGIN_INCHES) / height,
                inner / width,
                inner / height,
            )
        )
        panel.set_xticks([])
        panel.set_yticks([])
        panel.set_facecolor("0.9")
        below = _shortened(tile.label, letters)
        if tile.image is None:
            panel.text(0.5, 0.5, "no result", ha="center", va="center", fontsize=7, transform=panel.transAxes)
        else:
            image = decibels(tile.image.max(axis=0))
            shown = suitable_range_db(image)
            below += f"\n{shown:.0f} dB"
            draw_pixels(panel, np.maximum(image, -shown), power_scale(shown), aspect=tile.aspect)
        figure.text(
            (left + place / 2) / width,
            (top - place) / height,
            below,
            ha="center",
            va="top",
            fontsize=7,
            parse_math=False,
        )
    return figure_png(figure, crop=False)


def _shortened(label: str, letters: int) -> str:
    """Replace the middle of a label of more than `letters` characters by an ellipsis."""
    label = on_one_line(label)
    if len(label) <= letters:
        return label
    tail = (letters - 1) // 2 + 3
    return f"{label[: letters - 1 - tail]}\N{HORIZONTAL ELLIPSIS}{label[-tail:]}"
