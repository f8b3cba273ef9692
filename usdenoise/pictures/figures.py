"""The parts that all pictures share: panels, colour scales, labels and PNG encoding."""

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.stack.acquisition import canonical_axes, spatial_order

COLOR_MAP = "hot"
"""Colours of power Doppler: black, red, yellow, white."""

DPI = 150
"""Dots per inch of a picture with few panels."""

MAX_ASPECT = 2.5
"""Largest height over width for which a picture leaves room; a taller panel is drawn narrower instead."""

_AXIS_NAMES = {"z": "depth", "x": "lateral", "y": "elevation"}


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


def power_scale(dynamic_range_db: float) -> ColorScale:
    """Return the colour scale of power Doppler in dB: black at `-dynamic_range_db`, white at 0."""
    return ColorScale(COLOR_MAP, -dynamic_range_db, 0.0, "power Doppler (dB)")


def load_libraries() -> None:
    """Import the drawing and encoding libraries, so that the first picture does not wait for them."""
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg", "imageio.v3"):
        import_module(name)


def suitable_range_db(decibels: NDArray[Any]) -> float:
    """Return the dynamic range in which 2 % of the pixels are black, but at least 10 and at most 40 dB.

    A few very dark pixels do not set it. The nearest pixel is taken instead of an interpolated value, which
    would be NaN between two pixels of minus infinity (power 0).

    Parameters
    ----------
    decibels : array of any shape
        Power Doppler in dB, 0 at the maximum.

    Returns
    -------
    float
        Dynamic range in dB.
    """
    return float(np.clip(-np.percentile(decibels, 2, method="nearest"), 10, 40))


def front_view(image: NDArray[Any], axes: str) -> tuple[NDArray[Any], str, str]:
    """Return an image with depth downwards; a volume is reduced to its maximum over elevation.

    Parameters
    ----------
    image : 2-D or 3-D array
        Image or volume.
    axes : str
        Axis letters of `image`, in its own order.

    Returns
    -------
    image : 2-D array
        The image to draw.
    rows, columns : str
        Axis letters of its rows and of its columns.
    """
    order = canonical_axes(axes)
    ordered = spatial_order(image, axes, order)
    return ordered if ordered.ndim == 2 else _strongest(ordered, 2), order[0], order[1]


def panels_of(image: NDArray[Any], axes: str) -> list[tuple[NDArray[Any], str, str]]:
    """Return the panels of a picture: one for an image, the three maximum projections for a volume.

    Parameters and the three values of each panel are those of :func:`front_view`.
    """
    front = front_view(image, axes)
    if image.ndim == 2:
        return [front]
    order = canonical_axes(axes)
    ordered = spatial_order(image, axes, order)
    return [
        front,
        (_strongest(ordered, 1), order[0], order[2]),
        (_strongest(ordered, 0), order[1], order[2]),
    ]


def panel_size(
    shape: tuple[int, ...], rows: str, columns: str, spacing_mm: Mapping[str, float]
) -> tuple[float, float]:
    """Return the height and width of a panel, in mm along axes of known pixel pitch, otherwise in pixels.

    Parameters
    ----------
    shape : (n_rows, n_columns) tuple
        Pixels of the panel.
    rows, columns : str
        Axis letters of its rows and of its columns.
    spacing_mm : mapping from axis letter to float
        Pixel pitch in mm, for the axes where it is known.
    """
    return shape[0] * spacing_mm.get(rows, 1.0), shape[1] * spacing_mm.get(columns, 1.0)


def draw_panel(subplot: Any, image: NDArray[Any], scale: ColorScale, size: tuple[float, float]) -> Any:
    """Draw an image in a subplot, and return matplotlib's handle for the colour bar.

    Parameters
    ----------
    subplot : matplotlib.axes.Axes
        Where the image is drawn.
    image : (n_rows, n_columns) array
        Values to draw, depth downwards.
    scale : ColorScale
        Colours of the values.
    size : tuple of float
        Height and width of the panel, see :func:`panel_size`.
    """
    height, width = size
    return draw_pixels(subplot, image, scale, extent=(0, width, height, 0))


def draw_pixels(subplot: Any, image: NDArray[Any], scale: ColorScale, **geometry: Any) -> Any:
    """Draw an image without smoothing in a subplot, and return matplotlib's handle for the colour bar.

    Parameters
    ----------
    subplot, image, scale
        Destination, values and colours, as for :func:`draw_panel`.
    **geometry
        The arguments `extent` or `aspect` of matplotlib's ``Axes.imshow``.
    """
    return subplot.imshow(
        image,
        cmap=scale.color_map,
        vmin=scale.lowest,
        vmax=scale.highest,
        interpolation="nearest",
        **geometry,
    )


def add_title(figure: Any, title: str) -> None:
    """Write a title above all panels of a figure; an empty title takes no room."""
    if title:
        figure.suptitle(on_one_line(title), fontsize="medium", parse_math=False)


def add_color_bar(figure: Any, drawn: Any, subplots: Any, scale: ColorScale, **settings: Any) -> None:
    """Add one colour bar next to all subplots.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    drawn : matplotlib.image.AxesImage
        Any of the images with this scale, from :func:`draw_panel`.
    subplots : sequence or array of matplotlib.axes.Axes
        Subplots that make room for the bar.
    scale : ColorScale
        Label and ticks of the bar.
    **settings
        Other arguments of matplotlib's ``Figure.colorbar``.
    """
    bar = figure.colorbar(drawn, ax=subplots, label=scale.label, shrink=0.9, **settings)
    if scale.ticks is not None:
        bar.set_ticks(list(scale.ticks), labels=list(scale.ticks.values()))


def axis_label(letter: str, spacing_mm: Mapping[str, float]) -> str:
    """Return the name of an axis with its unit: mm where its pixel pitch is known, otherwise pixels."""
    return f"{_AXIS_NAMES[letter]} ({'mm' if letter in spacing_mm else 'pixels'})"


def on_one_line(text: str) -> str:
    """Replace every character that cannot be printed: a file name may hold line breaks."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def figure_png(figure: Any) -> bytes:
    """Return a matplotlib figure as PNG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A file name may hold letters that the font lacks.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _strongest(volume: NDArray[Any], axis: int) -> NDArray[Any]:
    """Return the largest value along an axis, or that of largest magnitude if the volume has positive values.

    The second case keeps velocities of either sign. The result is NaN only where no value is finite.
    """
    present = np.where(np.isnan(volume), -np.inf, volume)
    largest: NDArray[Any] = present.max(axis=axis)
    if not (present > 0).any():
        return np.where(np.isneginf(largest) & np.isnan(volume).any(axis=axis), np.nan, largest)
    place = np.argmax(np.where(np.isnan(volume), -1.0, np.abs(volume)), axis=axis)
    chosen: NDArray[Any] = np.take_along_axis(volume, np.expand_dims(place, axis), axis).squeeze(axis)
    return chosen
