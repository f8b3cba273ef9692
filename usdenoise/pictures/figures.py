"""The parts that all pictures share: panels, colour scales, labels and PNG encoding."""

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.pictures.figure_choices import COLOR_MAPS
from usdenoise.stack.acquisition import canonical_axes, spatial_order

DPI = 150
"""Dots per inch of a picture with few panels."""

MARGIN_INCHES = 0.06
"""White margin around a figure."""

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


def power_scale(
    dynamic_range: float | tuple[float, float],
    color_map: str = COLOR_MAPS[0],
    quantity: str = "power Doppler",
) -> ColorScale:
    """Return the colour scale of power in dB.

    Parameters
    ----------
    dynamic_range : float or (float, float)
        Decibels below the maximum, which is 0; or the lowest and the highest level.
    color_map : str
        One of COLOR_MAPS; by default the first.
    quantity : str
        What the colour bar is labelled with, apart from the unit; by default "power Doppler".
    """
    if isinstance(dynamic_range, tuple):
        return ColorScale(color_map, *dynamic_range, f"{quantity} (dB, absolute)")
    return ColorScale(color_map, -dynamic_range, 0.0, f"{quantity} (dB below maximum)")


def load_libraries() -> None:
    """Import the libraries that draw, so that the first picture does not wait for them."""
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg"):
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


@dataclass(frozen=True)
class Panel:
    """One view of an image or a volume.

    Attributes
    ----------
    image : (n_rows, n_columns) array
        What is drawn, depth downwards.
    rows, columns : str
        Axis letters of the rows and of the columns.
    caption : str
        How the view was made; empty for an image.
    """

    image: NDArray[Any]
    rows: str
    columns: str
    caption: str = ""


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
    return ordered if ordered.ndim == 2 else ordered.max(axis=2), order[0], order[1]


def panels_of(image: NDArray[Any], axes: str, weight: NDArray[Any] | None = None) -> list[Panel]:
    """Return the panels of a picture: one for an image; front, side and top for a volume.

    Parameters
    ----------
    image : 2-D or 3-D array
        Image or volume.
    axes : str
        Axis letters of `image`, in its own order.
    weight : array of the same shape, optional
        A projection shows the value of the voxel with the largest weight; by default the largest value.
    """
    order = canonical_axes(axes)
    ordered = spatial_order(image, axes, order)
    if ordered.ndim == 2:
        return [Panel(ordered, order[0], order[1])]
    heavy = ordered if weight is None else spatial_order(weight, axes, order)
    how = "maximum over" if weight is None else "strongest voxel over"
    # Rows and columns of the axes z, x, y: the front is z by x, the side z by y, and the top y by x.
    front, side, top = (_projected(ordered, heavy, axis) for axis in (2, 1, 0))
    return [
        Panel(front, order[0], order[1], f"front: {how} {_AXIS_NAMES[order[2]]}"),
        Panel(side, order[0], order[2], f"side: {how} {_AXIS_NAMES[order[1]]}"),
        Panel(top.T, order[2], order[1], f"top: {how} {_AXIS_NAMES[order[0]]}"),
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


def shortened(text: str, letters: int) -> str:
    """Return a text on one line, with an ellipsis for the middle of one of more than `letters` characters."""
    text = on_one_line(text)
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


def figure_png(figure: Any, *, crop: bool = True) -> bytes:
    """Return a matplotlib figure as PNG, see :func:`encoded`."""
    return encoded(figure, "png", crop=crop)


def encoded(figure: Any, file_format: str, *, crop: bool = True) -> bytes:
    """Return a matplotlib figure in a file format; the same figure gives the same bytes.

    Text in PDF and SVG stays text, which other programs can edit.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    file_format : str
        One of FORMATS.
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
        figure.savefig(buffer, format=file_format, metadata=metadata[file_format], **cropped)
    return buffer.getvalue()


def _projected(volume: NDArray[Any], weight: NDArray[Any], axis: int) -> NDArray[Any]:
    """Return along an axis the value of the voxel with the largest weight."""
    place = np.expand_dims(np.argmax(weight, axis=axis), axis)
    chosen: NDArray[Any] = np.take_along_axis(volume, place, axis).squeeze(axis)
    return chosen
