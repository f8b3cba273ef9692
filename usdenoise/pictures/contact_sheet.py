"""Many power Doppler images on one sheet, and the images back from their files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.images.power_doppler import decibels
from usdenoise.pictures.figures import COLOR_MAP, figure_png, on_one_line, suitable_range_db

_PLACE_INCHES, _LABEL_INCHES, _MARGIN_INCHES, _DPI = 1.6, 0.3, 0.06, 110
_LETTERS_A_LINE = 26


@dataclass(frozen=True)
class Tile:
    """A place on a contact sheet.

    Attributes
    ----------
    label : str
        Below the image, with the dynamic range; the middle of a long one is left out.
    image : (n_pages, n_rows, n_columns) array or None
        Linear power, depth downwards; of several pages the maximum is shown. None leaves an empty frame.
    aspect : float
        Height of a pixel over its width.
    """

    label: str
    image: NDArray[Any] | None
    aspect: float = 1.0


def contact_sheet_png(tiles: Sequence[Tile]) -> bytes:
    """Power Doppler images in reading order, each in dB below its own maximum, on its own range.

    Every image has a place of the same size, and its own proportions within it.

    Parameters
    ----------
    tiles : sequence of Tile
        At least one.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib.figure import Figure

    n_columns = min(math.ceil(math.sqrt(len(tiles) * 1.4)), len(tiles))
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
            panel.imshow(
                np.maximum(image, -shown),
                cmap=COLOR_MAP,
                vmin=-shown,
                vmax=0,
                aspect=tile.aspect,
                interpolation="nearest",
            )
        figure.text(
            (left + place / 2) / width,
            (top - place) / height,
            below,
            ha="center",
            va="top",
            fontsize=7,
            parse_math=False,
        )
    return figure_png(figure)


def _shortened(label: str, letters: int) -> str:
    label = on_one_line(label)
    if len(label) <= letters:
        return label
    tail = (letters - 1) // 2 + 3
    return f"{label[: letters - 1 - tail]}\N{HORIZONTAL ELLIPSIS}{label[-tail:]}"
