"""What pictures share: colour scales, titles, encoding, and panels, which are views of an image or a volume in axes."""

import io
import math
import sys
import textwrap
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from usdenoise.options.job_options import COLOR_MAPS, DPI, DynamicRange
from usdenoise.stack.geometry import canonical_axes, in_axes, picture_axes
from usdenoise.system.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

Image = NDArray[np.floating]
"""Values of an image or of a volume."""

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

    color_map: "str | Colormap"
    lowest: float
    highest: float
    label: str
    ticks: Mapping[float, str] | None = None


def power_scale(
    decibels: Image,
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
    artist: Any = import_module("matplotlib.artist")
    describe = getattr(artist, "kwdoc", None)
    if not hasattr(sys, "ps1"):
        # It describes all properties of each class of artists as the class is made, which takes 0.1 s and which only an
        # interactive session shows.
        artist.kwdoc = lambda _: ""
    try:
        for name in ("matplotlib.figure", "matplotlib.backends.backend_agg"):
            import_module(name)
    finally:
        artist.kwdoc = describe


def suitable_range_db(decibels: Image) -> float:
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


def add_title(figure: "Figure", title: str) -> None:
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


_ONE_DRAWING = RLock()
"""Settings of matplotlib are those of the process: two threads would restore each other's."""


@contextmanager
def own_settings() -> Iterator[None]:
    """Draw with the default settings of matplotlib, whatever a matplotlibrc, a style or the caller has set.

    Text in PDF and SVG stays text, which other programs can edit.
    """
    from matplotlib import rc_context, rcParamsDefault

    settings = {name: value for name, value in rcParamsDefault.items() if not name.startswith("backend")}
    settings |= {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "usdenoise"}
    with _ONE_DRAWING, rc_context(settings):
        yield


@contextmanager
def any_letters() -> Iterator[None]:
    """Draw without a warning of letters that the font lacks: a file name may hold any."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def encoded(figure: "Figure", kind: str = "png", *, crop: bool = True) -> bytes:
    """Return a matplotlib figure, drawn with :func:`own_settings`, in a file format; the same figure gives the same bytes.

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
    if kind == "png":
        pixels = drawn_pixels(figure)
        edges = (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1])
        if not crop or all((edge == pixels[0, 0]).all() for edge in edges):
            return png(pixels[ink_box(figure, pixels)] if crop else pixels, figure.dpi)
        # What reaches the edge, such as a long title, may go on beyond it.
    buffer = io.BytesIO()
    with any_letters():
        figure.savefig(
            buffer,
            format=kind,
            metadata={{"png": "Software", "pdf": "CreationDate", "svg": "Date"}[kind]: None},
            bbox_inches="tight" if crop else None,
            pad_inches=MARGIN_INCHES,
        )
    return buffer.getvalue()


def drawn_pixels(figure: "Figure") -> NDArray[np.uint8]:
    """Draw a figure, and return its pixels (n_rows, n_columns, 4): red, green, blue and opacity."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    with any_letters():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def png(pixels: NDArray[np.uint8], dots_per_inch: float | None = None) -> bytes:
    """Return pixels as PNG: grey (n_rows, n_columns), or red, green, blue and opacity (n_rows, n_columns, 4)."""
    from PIL import Image

    buffer = io.BytesIO()
    # Drawings have runs of one colour, which Z_RLE finds in half of the time.
    settings = (
        {} if dots_per_inch is None else {"dpi": (dots_per_inch, dots_per_inch), "compress_type": zlib.Z_RLE}
    )
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG", **settings)
    return buffer.getvalue()


def ink_box(figure: "Figure", pixels: NDArray[np.uint8]) -> tuple[slice, slice]:
    """Return the rows and columns of a drawn figure that show something, with a narrow margin.

    Matplotlib's own cropping lays the figure out once more, which takes 0.06 s a picture, as long as to draw it.
    """
    # Four bytes a pixel
    colors = pixels.view(np.uint32)[..., 0]
    inked = colors != colors[0, 0]
    rows, columns = (np.flatnonzero(inked.any(axis=axis)) for axis in (1, 0))
    # The empty lines of a title belong to it.
    title_tops = [len(pixels) - text.get_window_extent().y1 for text in figure.texts]
    top = round(min([rows[0], *title_tops]))
    margin = round(MARGIN_INCHES * figure.dpi)
    shown = slice(max(0, top - margin), rows[-1] + 1 + margin)
    return shown, slice(max(0, columns[0] - margin), columns[-1] + 1 + margin)


_WIDEST, _HIGHEST, _LEAST = 4.6, 6.5, 0.45
"""Inches of the panels together, and of the narrowest one. A panel that would be narrower is stretched."""

_GAP, _BAR_GAP, _BAR = 0.32, 0.12, 0.14
"""Inches between panels, between the panels and the colour bar, and of the colour bar."""

_MOST_ACROSS, _WIDEST_PLANE, _WIDER = 8.6, 2.6, 1.6
"""Inches of the planes of a volume together, and of one at most, and their width over their height."""

_BAR_STEP = 0.85
"""Inches from one colour bar to the next: its ticks and its label."""

_ROOM = 2.0
"""Inches around the panels of a figure, for the colour bars and all texts, before it is cropped."""

_LEAST_BAR = 1.6
"""Least height of the colour bar in inches: its label has to fit."""

_LETTERS_AN_INCH, _SMALL_LETTERS_AN_INCH = 13.0, 18.0
"""Letters of a title of 10 points, and of a caption of 7 points, that fit into an inch."""

AXIS_NAMES = {"z": "depth", "x": "lateral", "y": "elevation"}
"""Name of each axis in words, by its letter."""


@dataclass(frozen=True)
class Panel:
    """One view of an image or a volume.

    Attributes
    ----------
    image : (n_rows, n_columns) array
        Values to draw, depth downwards.
    rows, columns : str
        Axis letters of the rows and of the columns.
    caption : str
        How the view was made; empty for an image.
    """

    image: Image
    rows: str
    columns: str
    caption: str = ""

    def size(self, spacing_mm: Mapping[str, float]) -> tuple[float, float]:
        """Return the height and width, in mm along axes of known pixel pitch, otherwise in pixels."""
        n_rows, n_columns = self.image.shape
        return n_rows * spacing_mm.get(self.rows, 1.0), n_columns * spacing_mm.get(self.columns, 1.0)


def front_view(image: Image, axes: str) -> Panel:
    """Return an image with depth downwards; a volume is reduced to its maximum over elevation.

    Parameters
    ----------
    image : 2-D or 3-D array
        Image or volume.
    axes : str
        Axis letters of `image`, in its own order.
    """
    order = canonical_axes(axes)
    ordered = in_axes(image, axes, order)
    return Panel(ordered if ordered.ndim == 2 else ordered.max(axis=2), order[0], order[1])


def panels_of(
    image: Image, axes: str, weight: Image | None = None, planes: Sequence[str] = ()
) -> list[Panel]:
    """Return the panels of a picture: one for an image; front, side and top for a volume, or its planes.

    Parameters
    ----------
    image : 2-D or 3-D array
        Image or volume.
    axes : str
        Axis letters of `image`, in its own order.
    weight : array of the same shape, optional
        A projection shows the value of the voxel with the largest weight; by default the largest value.
    planes : sequence of str
        Names of the planes of a volume that are shown side by side, one for each elevation; by default its projections are.
    """
    if image.ndim == 2:
        return [front_view(image, axes)]
    if planes:
        pages = in_axes(image, axes, picture_axes(axes))
        return [Panel(page, "z", "x", name) for page, name in zip(pages, planes, strict=True)]
    volume = in_axes(image, axes, "zxy")
    heavy = volume if weight is None else in_axes(weight, axes, "zxy")
    projection = "maximum over" if weight is None else "strongest voxel over"

    def projected(axis: int) -> Image:
        strongest = np.argmax(heavy, axis=axis, keepdims=True)
        return np.take_along_axis(volume, strongest, axis).squeeze(axis)

    return [
        Panel(projected(2), "z", "x", f"front: {projection} elevation"),
        Panel(projected(1), "z", "y", f"side: {projection} lateral"),
        Panel(projected(0).T, "y", "x", f"top: {projection} depth"),
    ]


def axis_label(letter: str, spacing_mm: Mapping[str, float]) -> str:
    """Return the name of an axis with its unit: mm where its pixel pitch is known, otherwise pixels."""
    return f"{AXIS_NAMES[letter]} ({'mm' if letter in spacing_mm else 'pixels'})"


def draw_panel(
    subplot: "Axes",
    panel: Panel,
    scale: ColorScale,
    spacing_mm: Mapping[str, float],
    aspect: Literal["equal", "auto"] = "equal",
) -> "AxesImage":
    """Draw a panel without smoothing in a subplot, and return matplotlib's handle for the colour bar.

    Parameters
    ----------
    subplot : matplotlib.axes.Axes
        Where the panel is drawn.
    panel : Panel
        Values to draw.
    scale : ColorScale
        Colours of the values.
    spacing_mm : mapping from axis letter to float
        Pixel pitch in mm, for the axes where it is known.
    aspect : str
        "equal" (the default) for a panel that keeps its proportions, or "auto" for one that fills the subplot.
    """
    height, width = panel.size(spacing_mm)
    return subplot.imshow(
        panel.image,
        cmap=scale.color_map,
        vmin=scale.lowest,
        vmax=scale.highest,
        interpolation="nearest",
        # The axes of `usdenoise.plot` are the user's, with settings of their own.
        origin="upper",
        extent=(0, width, height, 0),
        aspect=aspect,
    )


def label_colorbar(bar: "Colorbar", scale: ColorScale) -> None:
    """Write the label and the ticks of a scale at its colour bar."""
    bar.set_label(scale.label)
    if scale.ticks is not None:
        bar.set_ticks(list(scale.ticks), labels=list(scale.ticks.values()))


Layer = tuple[Sequence[Panel], ColorScale]
"""The panels of an image or a volume, and their colours."""

_Places = list[tuple[float, float, float, float]]
"""Left, top, width and height of each panel, in inches."""


def _projected(sizes: Sequence[tuple[float, float]]) -> _Places:
    """Return the places of an image, or of the front, side and top of a volume, by their heights and widths."""
    widths = [sizes[0][1], *(size[1] for size in sizes[1:2])]
    heights = [sizes[0][0], *(size[0] for size in sizes[2:3])]
    gaps = _GAP * (len(widths) - 1)
    inches = min((_WIDEST - gaps) / sum(widths), (_HIGHEST - gaps) / sum(heights))
    across = [max(width * inches, _LEAST) for width in widths]
    down = [max(height * inches, _LEAST) for height in heights]
    places = [(0.0, 0.0, across[0], down[0])]
    if len(sizes) > 1:
        places += [(across[0] + _GAP, 0.0, across[1], down[0]), (0.0, down[0] + _GAP, across[0], down[1])]
    return places


def _in_rows(sizes: Sequence[tuple[float, float]]) -> _Places:
    """Return the places of planes of one height and width in rows, together about _WIDER times as wide as high."""
    height, width = sizes[0]
    n_columns = min(len(sizes), math.ceil(math.sqrt(_WIDER * len(sizes) * height / width)))
    across = min((_MOST_ACROSS - _GAP * (n_columns - 1)) / n_columns, _WIDEST_PLANE)
    down = max(across * height / width, _LEAST)
    return [
        (number % n_columns * (across + _GAP), number // n_columns * (down + _GAP), across, down)
        for number in range(len(sizes))
    ]


def panel_figure(
    layers: Sequence[Layer],
    spacing_mm: Mapping[str, float],
    title: str,
    dots_per_inch: int = DPI,
    other_title: str = "",
) -> "Figure":
    """Return a matplotlib figure of one panel, of the front, side and top of a volume, or of its planes, on one scale.

    The side is drawn next to the front at the same depths, and the top below it at the same lateral positions. Planes are
    drawn in rows.

    Parameters
    ----------
    layers : sequence of Layer
        The panels of :func:`panels_of`, and the colours of all panels. Further layers are drawn over the first,
        transparent where they are NaN, with a colour bar of their own.
    spacing_mm : mapping from axis letter to float
        Pixel pitch in mm, for the axes where it is known.
    title : str
        Text above the panels; empty for none.
    dots_per_inch : int
        Resolution of the figure, 150 by default.
    other_title : str
        Title of a figure of the same panels that is to have the same size; by default none.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, with room around what it shows.
    """
    from matplotlib.figure import Figure

    # Places in inches, without the room around the panels: left, top, width, height
    panels = layers[0][0]
    are_planes = len(panels) > 1 and len({(panel.rows, panel.columns) for panel in panels}) == 1
    rectangles = (_in_rows if are_planes else _projected)([panel.size(spacing_mm) for panel in panels])
    width, height = (max(place[side] + place[side + 2] for place in rectangles) for side in (0, 1))
    page = np.array([width, height]) + 2 * _ROOM
    figure = Figure(figsize=tuple(page), dpi=dots_per_inch)

    def add_axes(left: float, top: float, wide: float, high: float) -> "Axes":
        corner = np.array([left, height - top - high]) + _ROOM
        return figure.add_axes((*(corner / page), *((wide, high) / page)))

    # Panels
    for number, (panel, where) in enumerate(zip(panels, rectangles, strict=True)):
        subplot = add_axes(*where)
        drawn = [draw_panel(subplot, views[number], scale, spacing_mm, "auto") for views, scale in layers]
        # Beside and below others of the same axis, a panel needs no labels
        is_first = where[0] == 0
        is_last = not any(other[0] == where[0] and other[1] > where[1] for other in rectangles)
        subplot.set_xlabel(axis_label(panel.columns, spacing_mm) if is_last else "")
        subplot.set_ylabel(axis_label(panel.rows, spacing_mm) if is_first else "")
        subplot.tick_params(labelbottom=is_last, labelleft=is_first)
        if panel.caption:
            letters = max(int(where[2] * _SMALL_LETTERS_AN_INCH), 12)
            caption = textwrap.fill(printable(panel.caption), letters)
            subplot.set_title(caption, fontsize=7, loc="left", pad=3, parse_math=False)

    # Colour bars
    bar_height = max(rectangles[0][3], min(_LEAST_BAR, height))
    for number, (image, (_, scale)) in enumerate(zip(drawn, layers, strict=True)):
        bar = add_axes(width + _BAR_GAP + number * _BAR_STEP, 0.0, _BAR, bar_height)
        label_colorbar(figure.colorbar(image, cax=bar), scale)
        if len(scale.label) > bar_height * _LETTERS_AN_INCH:
            bar.set_ylabel(scale.label.replace(" (", "\n("))

    # Title
    letters = max(int((width + 0.8) * _LETTERS_AN_INCH), 24)
    lines, others = (textwrap.wrap(printable(text), letters) for text in (title, other_title))
    if title:
        gap = 0.34 if panels[0].caption else 0.12
        left, bottom = (_ROOM, _ROOM + height + gap) / page
        lines = [""] * (len(others) - len(lines)) + lines
        figure.text(left, bottom, "\n".join(lines), va="bottom", fontsize="medium", parse_math=False)
    return figure
