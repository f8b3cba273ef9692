"""A contact sheet: the power Doppler images of many scans in one picture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.images.power_doppler import decibels
from usdenoise.pictures.figures import draw_pixels, figure_png, power_scale, shortened, suitable_range_db

_SHEET_INCHES, _LEAST_INCHES, _MOST_INCHES = 13.0, 1.6, 3.2
"""Width of a sheet of few scans, and the smallest and the largest width of a place: fewer scans are shown larger."""

_LABEL_INCHES, _MARGIN_INCHES, _DPI = 0.36, 0.06, 110

_POINTS, _LARGE_POINTS, _LARGE_INCHES = 7.5, 9.0, 2.4
"""Sizes of the labels of small and of large places, and the width from which a place is large."""

_LETTERS_AN_INCH = 118.0
"""Letters of one point that fit into an inch, about."""

_FAILED, _DOUBTFUL = "#b3261e", "#b35c00"
"""Colours of the frames of failed and of doubtful scans; their labels say so as well."""

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
    mark : str
        What is wrong or doubtful, in a few words. It is written below the label, and the frame gets a colour. Empty by
        default.
    """

    label: str
    image: NDArray[Any] | None
    aspect: float = 1.0
    mark: str = ""


def contact_sheet_png(tiles: Sequence[Tile], levels: tuple[float, float] | None = None) -> bytes:
    """Draw power Doppler images in reading order, each in dB below its own maximum and on its own range.

    All images get places of the same size and keep their proportions within them.

    Parameters
    ----------
    tiles : sequence of Tile
        The images with their labels, at least one.
    levels : (float, float), optional
        Levels of the darkest and of the brightest colour in dB of the power, for one scale of all images; by default
        each image has a range of its own.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib.figure import Figure

    n_columns = min(math.ceil(math.sqrt(len(tiles) * _PLACES_ACROSS)), len(tiles))
    n_rows = math.ceil(len(tiles) / n_columns)
    place = min(max(_SHEET_INCHES / n_columns, _LEAST_INCHES), _MOST_INCHES)
    width, height = n_columns * place, n_rows * (place + _LABEL_INCHES)
    points = _LARGE_POINTS if place >= _LARGE_INCHES else _POINTS
    figure = Figure(figsize=(width, height), dpi=_DPI)
    inner = place - 2 * _MARGIN_INCHES
    for number, tile in enumerate(tiles):
        row, column = divmod(number, n_columns)
        left, bottom = column * place, height - row * (place + _LABEL_INCHES) - place
        panel = figure.add_axes(
            (
                (left + _MARGIN_INCHES) / width,
                (bottom + _MARGIN_INCHES) / height,
                inner / width,
                inner / height,
            )
        )
        below = _draw_tile(panel, tile, points, levels)
        figure.text(
            (left + place / 2) / width,
            bottom / height,
            f"{shortened(tile.label, int(inner * _LETTERS_AN_INCH / points))}\n{below}",
            ha="center",
            va="top",
            fontsize=points,
            linespacing=1.15,
            color=_color(tile) if tile.mark else "black",
            parse_math=False,
        )
    return figure_png(figure, crop=False)


def _draw_tile(panel: Any, tile: Tile, points: float, levels: tuple[float, float] | None) -> str:
    """Draw the image of a tile, and return the text for the line below its label."""
    panel.set_xticks([])
    panel.set_yticks([])
    panel.set_facecolor("0.9")
    if tile.mark:
        for side in panel.spines.values():
            side.set(color=_color(tile), linewidth=3)
    if tile.image is None:
        panel.text(
            0.5, 0.5, "no result", ha="center", va="center", fontsize=points, transform=panel.transAxes
        )
        return tile.mark
    image = decibels(tile.image.max(axis=0), reference=None if levels is None else 1.0)
    scale = power_scale(suitable_range_db(image) if levels is None else levels)
    draw_pixels(panel, np.clip(image, scale.lowest, scale.highest), scale, aspect=tile.aspect)
    shown = f"{-scale.lowest:.0f} dB" if levels is None else f"{scale.lowest:.0f} to {scale.highest:.0f} dB"
    return ", ".join(filter(None, (shown, tile.mark)))


def _color(tile: Tile) -> str:
    return _FAILED if tile.image is None else _DOUBTFUL
