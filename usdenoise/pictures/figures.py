"""What every picture shares: panels, labels, scales, encoding."""

import io
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.acquisition import SPATIAL_LETTERS, spatial_order

COLOR_MAP = "hot"


_AXIS_NAMES = {"z": "depth", "x": "lateral", "y": "elevation"}


DPI = 150


def load_libraries() -> None:
    """Load what pictures are drawn and encoded with, so that the first of them does not wait for it."""
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg", "imageio.v3"):
        import_module(name)


def suitable_range_db(decibels: NDArray[Any]) -> float:
    """Dynamic range that suits an image: down to its darkest 2 %, but no less than 10 and no more than 40 dB."""
    return float(np.clip(-np.percentile(decibels, 2, method="nearest"), 10, 40))


def panels_of(image: NDArray[Any], axes: str) -> list[tuple[NDArray[Any], str, str]]:
    """An image with its row and column letters, depth downwards; of a volume its three maximum projections."""
    order = "".join(letter for letter in SPATIAL_LETTERS if letter in axes)
    ordered = spatial_order(image, axes, order)
    if ordered.ndim == 2:
        return [(ordered, order[0], order[1])]
    return [
        (_strongest(ordered, 2), order[0], order[1]),
        (_strongest(ordered, 1), order[0], order[2]),
        (_strongest(ordered, 0), order[1], order[2]),
    ]


def _strongest(volume: NDArray[Any], axis: int) -> NDArray[Any]:
    """The largest value along an axis; where signs differ, the value of largest size."""
    present = np.where(np.isnan(volume), -np.inf, volume)
    largest: NDArray[Any] = present.max(axis=axis)
    if not (present > 0).any():
        return np.where(np.isneginf(largest) & np.isnan(volume).any(axis=axis), np.nan, largest)
    place = np.argmax(np.where(np.isnan(volume), -1.0, np.abs(volume)), axis=axis)
    chosen: NDArray[Any] = np.take_along_axis(volume, np.expand_dims(place, axis), axis).squeeze(axis)
    return chosen


def axis_label(letter: str, spacing: Mapping[str, float]) -> str:
    """What an axis shows, and its unit."""
    return f"{_AXIS_NAMES[letter]} ({'mm' if letter in spacing else 'pixels'})"


def on_one_line(text: str) -> str:
    """Text that a font can show on one line: a file name may hold anything."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def figure_png(figure: Any) -> bytes:
    """The encoded bytes of a matplotlib figure; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A file name may hold letters that the font does not have.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
