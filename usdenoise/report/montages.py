"""Pictures of many images, each on one scale: methods side by side, error curves, thumbnails, and films.

A film is a GIF of power images with axes, colour bar and time.
"""

import functools
import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import decibels
from usdenoise.options.job_options import COLOR_MAPS, DPI, Display
from usdenoise.report.panels import (
    LINE_COLORS,
    Image,
    add_title,
    any_letters,
    axis_label,
    draw_panel,
    drawn_pixels,
    encoded,
    front_view,
    ink_box,
    own_settings,
    panel_figure,
    power_scale,
    suitable_range_db,
)
from usdenoise.stack.geometry import Coordinate
from usdenoise.system.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL_INCHES = 2.1

_MAX_ASPECT = 2.5
"""Largest height over width for which there is room; a taller image is drawn narrower instead."""

_OVERFLOW_DB = 1.0
"""Decibels above the scale from which the label of a panel reports them."""


Grid = Sequence[Sequence[tuple[str, Image]]]
"""Rows of labelled images."""


@own_settings()
def montage_png(
    grid: Grid,
    axes: str,
    *,
    dynamic_range_db: float | tuple[float, float],
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
    color_map: str = COLOR_MAPS[0],
) -> bytes:
    """Draw power Doppler images side by side on one dB scale, each with its label above.

    The label of an image whose maximum is above the scale gives the difference in dB.

    Parameters
    ----------
    grid : rows of (label, image)
        Images in dB, all with the axes `axes`; a row may be shorter than the first. A volume is shown by its maximum
        over elevation.
    axes : str
        Axis letters of every image, for example "zx".
    dynamic_range_db : float or (float, float)
        Power this many dB below 0 dB, and less, is black; or the levels of the darkest and of the brightest colour.
    spacing_mm : mapping from axis letter to float, optional
        Pixel pitch in mm; an axis is in mm where its pitch is known, otherwise in pixels. By default no pitch
        is known.
    title : str
        Text above the picture; by default none.
    color_map : str
        One of :data:`usdenoise.options.job_options.COLOR_MAPS`; by default the first.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib.figure import Figure

    spacing = spacing_mm or {}
    n_rows, n_columns = len(grid), len(grid[0])
    first = front_view(grid[0][0][1], axes)
    scale = power_scale(first.image, dynamic_range_db, color_map)
    height, width = first.size(spacing)
    figure = Figure(
        figsize=(
            max(n_columns * _PANEL_INCHES + 1.3, 4.0),
            n_rows * (_PANEL_INCHES * np.clip(height / width, 0.3, _MAX_ASPECT) + 0.3) + 0.9,
        ),
        dpi=DPI if n_rows * n_columns <= 30 else 100,
        layout="compressed",
    )
    subplots = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True)
    for subplot in subplots.flat:
        subplot.set_axis_off()
    for row, axes_row in zip(grid, subplots, strict=True):
        for (label, image), subplot in zip(row, axes_row, strict=False):
            subplot.set_axis_on()
            panel = front_view(image, axes)
            # Pixels without power are at minus infinity, which has no colour.
            shown = replace(panel, image=np.clip(panel.image, scale.lowest, scale.highest))
            drawn = draw_panel(subplot, shown, scale, spacing)
            above = float(panel.image.max()) - scale.highest
            if above > _OVERFLOW_DB:
                label = f"{label}\nup to {above:.0f} dB above the scale"
            subplot.set_title(label, fontsize="small", parse_math=False)
            subplot.set_xlabel(axis_label(first.columns, spacing), fontsize="small")
            subplot.set_ylabel(axis_label(first.rows, spacing), fontsize="small")
            subplot.tick_params(labelsize="x-small")
            subplot.label_outer()
    add_title(figure, title)
    figure.colorbar(drawn, ax=subplots, label=scale.label, shrink=0.9, aspect=30)
    return encoded(figure)


_LINE_STYLES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
_SMALLEST_DRAWN, _LARGEST_DRAWN = 1e-17, 1e3
"""Smallest and largest relative error drawn: below the rounding of double precision, and divergence."""

_CURVES_COLUMNS, _CURVES_DPI = 2, 100


@dataclass(frozen=True)
class Setting:
    """One panel of curves.

    Attributes
    ----------
    title : str
        Text above the panel.
    lines : mapping from str to ((k,) array, (3, k) array)
        Text in the legend -> positions along the x axis, and lower quartile, median and upper quartile of the error. The
        median is drawn as a line, and the range between the quartiles as a band.
    floor : float or None
        Error at the noise floor, drawn as a horizontal line; None draws no line.
    """

    title: str
    lines: Mapping[str, tuple[Image, Image]]
    floor: float | None = None


@own_settings()
def curves_png(settings: Sequence[Setting], *, title: str, x_label: str, y_label: str) -> bytes:
    """Draw error curves on a log scale, two panels in a row.

    Errors below 1e-17 are drawn at 1e-17, and errors above 1e3 at 1e3.

    Parameters
    ----------
    settings : sequence of Setting
        The panels, at least one.
    title : str
        Text above all panels.
    x_label, y_label : str
        Labels of the two axes, the same in every panel.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib.figure import Figure

    n_columns = min(_CURVES_COLUMNS, len(settings))
    n_rows = -(-len(settings) // n_columns)
    figure = Figure(figsize=(5.2 * n_columns, 4.1 * n_rows + 0.3), dpi=_CURVES_DPI, layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False).reshape(-1)
    for panel in panels[len(settings) :]:
        panel.set_axis_off()
    for panel, setting in zip(panels, settings, strict=False):
        for number, (label, (x, quartiles)) in enumerate(setting.lines.items()):
            low, median, high = np.clip(quartiles, _SMALLEST_DRAWN, _LARGEST_DRAWN)
            color = LINE_COLORS[number % len(LINE_COLORS)]
            style = _LINE_STYLES[number % len(_LINE_STYLES)]
            panel.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
            panel.plot(x, median, color=color, linestyle=style, linewidth=1.6, label=label)
        if setting.floor is not None:
            panel.axhline(setting.floor, color="gray", linewidth=1.0, label="noise floor")
        panel.set_yscale("log")
        panel.set_title(setting.title, fontsize="medium", parse_math=False)
        panel.set_xlabel(x_label)
        panel.set_ylabel(y_label)
        panel.grid(alpha=0.3)
        # Inside the axes the legend would hide curves.
        panel.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3)
    add_title(figure, title)
    return encoded(figure, crop=False)


LONGEST = 96
"""Pixels of the longer side of a thumbnail."""

NEAR_DB = 10.0
"""A scan whose maximum is this far from the median of the maxima is shown below its own maximum: on the common scale it
would be black or white."""

_LEAST_DB = -400.0
"""Level of a pixel without power."""


@dataclass(frozen=True)
class CommonScale:
    """The dB scale of a set of thumbnails.

    Attributes
    ----------
    peak_db, range_db : float
        Level of the brightest colour, and range below it.
    is_given : bool
        Whether the scale was requested, so that all images have it; False by default.
    color_map : str
        One of COLOR_MAPS; by default the first.
    """

    peak_db: float
    range_db: float
    is_given: bool = False
    color_map: str = COLOR_MAPS[0]

    def is_near(self, levels: NDArray[np.float32]) -> bool:
        """Whether an image in dB is shown on the scale itself, and not below its own maximum."""
        return self.is_given or abs(float(levels.max()) - self.peak_db) <= NEAR_DB


def small_image(power: Image, aspect: float = 1.0) -> NDArray[np.float32]:
    """Return an image in dB with at most 96 pixels along each side, averaged over blocks of pixels.

    Parameters
    ----------
    power : (n_pages, n_rows, n_columns) array
        Linear power, depth downwards. The maximum over the pages is taken.
    aspect : float
        Height of a pixel over its width; 1 by default.

    Returns
    -------
    (n_rows, n_columns) float32 array
        10 log10 of the mean linear power, depth downwards.
    """
    from PIL import Image as PILImage

    image = power.max(axis=0).astype(np.float32)
    height, width = image.shape[0] * aspect, float(image.shape[1])
    scale = LONGEST / max(height, width)
    rows, columns = (max(1, round(size * scale)) for size in (height, width))
    # A small image is repeated, a large one averaged.
    mean = np.asarray(PILImage.fromarray(image).resize((columns, rows), PILImage.Resampling.BOX))
    return np.maximum(decibels(mean, reference=1.0), np.float32(_LEAST_DB))


def common_scale(images: Sequence[NDArray[np.float32]], display: Display | None = None) -> CommonScale:
    """Return the scale of a set of images: the medians of their maxima and of the ranges that suit them.

    Parameters
    ----------
    images : sequence of arrays
        Images of :func:`small_image`; those without power do not count.
    display : Display, optional
        Options of the pictures: colour map, and the range or the two levels where it has them. By default their defaults.
    """
    display = display or Display()
    if display.levels is not None:
        low, high = display.levels
        return CommonScale(high, high - low, is_given=True, color_map=display.color_map)
    images = [image for image in images if image.max() > _LEAST_DB]
    if not images:
        return CommonScale(0.0, 30.0)
    peaks = [float(image.max()) for image in images]
    if isinstance(display.dynamic_range, float | int):
        span = display.dynamic_range * 10.0 / display.db_factor
    else:
        ranges = [suitable_range_db(image - peak) for image, peak in zip(images, peaks, strict=True)]
        span = float(np.median(ranges))
    return CommonScale(float(np.median(peaks)), span, color_map=display.color_map)


@functools.cache
def _palette(color_map: str) -> bytes:
    """Return 256 RGB colours."""
    from matplotlib import colormaps

    colors = colormaps[color_map](np.arange(256))[:, :3]
    return (255 * colors).round().astype(np.uint8).tobytes()


def thumbnail_png(levels: NDArray[np.float32], scale: CommonScale) -> bytes:
    """Return an image as PNG in the colours of the scale.

    Parameters
    ----------
    levels : (n_rows, n_columns) float32 array
        An image of :func:`small_image`.
    scale : CommonScale
        The scale of all thumbnails.
    """
    from PIL import Image as PILImage

    peak = scale.peak_db if scale.is_near(levels) else float(levels.max())
    bright = np.clip((levels - peak) / scale.range_db + 1, 0, 1) * (levels > _LEAST_DB)
    picture = PILImage.fromarray((255 * bright).round().astype(np.uint8), "P")
    picture.putpalette(_palette(scale.color_map))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


IMAGES_A_SECOND = 10.0
"""Images a second where the time between them is not known."""

FEWEST_A_SECOND, MOST_A_SECOND = 5.0, 25.0
"""Bounds of the images a second: a slower film does not show motion, and of a faster one single images are not seen."""

LONGEST_S = 60.0
"""A film that would be longer plays faster, at MOST_A_SECOND at most: a session of 20 minutes is not watched."""

_MARK, _MARK_POINTS = "#ff2020", 4.0
"""Colour and width of the frame around an image with a note."""

_FILM_DPI, _GREYS = 100, 24
"""Dots per inch of a film, and greys in the palette of a GIF, the last of which is _MARK."""


@own_settings()
def movie(
    decibels: Sequence[Image],
    axes: str,
    *,
    times: Coordinate | None = None,
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
    display: Display | None = None,
    quantity: str = "power Doppler",
    notes: Sequence[str] = (),
) -> bytes:
    """Return a film of power images, depth downwards, with one colour scale for all of them and the time of each.

    A volume is shown by its maximum over elevation. Where the times are known in seconds, the film plays in real time if
    that is 5 to 25 images a second, and takes at most a minute; otherwise at the nearest rate.

    Parameters
    ----------
    decibels : sequence of 2-D or 3-D arrays
        Power in dB: 0 at the maximum of the images without a note, or absolute where the range of `display` has two levels.
    axes : str
        Axis letters of each array, for example "zx".
    times : Coordinate, optional
        Time of each image, in "s" or "frames"; by default none is shown.
    spacing_mm, title
        As for :func:`montage_png`.
    display : Display, optional
        Range and colours; by default the range suits the images without a note.
    quantity : str
        What the colour bar is labelled with, apart from the unit; by default "power Doppler".
    notes : sequence of str
        What is unusual about each image, written after its time and marked by a red frame, such as "bad block"; empty
        texts, or an empty sequence (the default), for none.

    Returns
    -------
    bytes
        The encoded film.
    """
    title, display = printable(title), display or Display()
    views = [front_view(np.asarray(image), axes) for image in decibels]
    images = np.stack([view.image for view in views])
    notes = notes or [""] * len(images)
    usual = [image for image, note in zip(images, notes, strict=True) if not note]
    scale = power_scale(
        np.stack(usual) if usual else images, display.dynamic_range, display.color_map, quantity
    )
    # Pixels without power would be white, like unknown pixels.
    images = np.clip(images, scale.lowest, scale.highest)
    in_s = times is not None and times.unit == "s"
    shown_time = "{:.2f} s" if in_s else "frame {:.0f}"
    clock = [""] * len(images) if times is None else [shown_time.format(time) for time in times.values]
    texts = [", ".join(filter(None, (title, *words))) for words in zip(clock, notes, strict=True)]
    # An empty text takes no space, and is set later.
    longest = max(texts, key=len) or " "
    figure = panel_figure(
        [([replace(views[0], image=images[0])], scale)], spacing_mm or {}, longest, _FILM_DPI
    )
    rate = IMAGES_A_SECOND
    if times is not None and in_s and len(images) > 1:
        # The last window may be shorter.
        rate = 1 / float(np.median(np.diff(times.values)))
    rate = float(np.clip(max(rate, len(images) / LONGEST_S), FEWEST_A_SECOND, MOST_A_SECOND))
    return _gif(_drawn_images(figure, images, texts, notes), rate, display.color_map)


def _drawn_images(
    figure: "Figure", images: Image, texts: Sequence[str], notes: Sequence[str]
) -> Iterator[NDArray[np.uint8]]:
    """Draw the figure once, and yield its pixels with each image and text in turn, framed if it has a note."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    rows, columns = ink_box(figure, drawn_pixels(figure))
    # Video encoders accept only an even height and width.
    rows, columns = (
        slice(each.start, each.start + (each.stop - each.start) // 2 * 2) for each in (rows, columns)
    )
    image, title, panel = figure.axes[0].images[0], figure.texts[0], figure.axes[0]
    letters = max(map(len, title.get_text().split("\n")))
    # Axes and colour bar are drawn once; the frame of the panel covers the edges of its image.
    spines = list(panel.spines.values())
    usual = spines[0].get_edgecolor(), spines[0].get_linewidth()
    changing = [image, *spines, title]
    for artist in changing:
        artist.set_animated(True)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    still = canvas.copy_from_bbox(figure.bbox)
    for values, text, note in zip(images, texts, notes, strict=True):
        image.set_data(values)
        color, width = (_MARK, _MARK_POINTS) if note else usual
        for spine in spines:
            spine.set(edgecolor=color, linewidth=width)
        title.set_text(textwrap.fill(text, max(letters, 1)))
        canvas.restore_region(still)
        with any_letters():
            for artist in changing:
                artist.draw(canvas.get_renderer())
        yield np.asarray(canvas.buffer_rgba())[rows, columns, :3].copy()


def _gif(pictures: Iterator[NDArray[np.uint8]], rate: float, color_map: str) -> bytes:
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb
    from PIL import Image as PILImage

    # One palette for all pictures: most of it for the scale, the rest for the greys of the text, and the mark.
    colors = colormaps[color_map](np.linspace(0, 1, 256 - _GREYS))[:, :3]
    greys = np.linspace(0, 1, _GREYS - 1)[:, np.newaxis].repeat(3, axis=1)
    palette = PILImage.new("P", (1, 1))
    entries = np.concatenate([colors, greys, [to_rgb(_MARK)]])
    palette.putpalette((255 * entries).round().astype(np.uint8).tobytes())
    plain = PILImage.Dither.NONE
    frames = (PILImage.fromarray(picture).quantize(palette=palette, dither=plain) for picture in pictures)
    buffer, ms = io.BytesIO(), round(1000 / rate)
    next(frames).save(buffer, "GIF", save_all=True, append_images=frames, duration=ms, loop=0, optimize=False)
    return buffer.getvalue()
