"""A film of power images with axes, colour bar and time, encoded as a GIF."""

import io
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.options.job_options import Display
from usdenoise.report.panels import (
    Image,
    any_letters,
    drawn_pixels,
    front_view,
    ink_box,
    panel_figure,
    power_scale,
)
from usdenoise.system.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULTS = Display()
"""Range and colours of the pictures, if nothing is requested."""

IMAGES_A_SECOND = 10.0
"""Images a second where the time between them is not known."""

MOST_A_SECOND = 50.0
"""Most images a second that players show; a faster film skips images."""

_SLOWEST = 0.1
"""Fewest images a second: a slower film is too slow to watch, and a GIF cannot store its delay."""

_FILM_DPI, _GREYS = 100, 24
"""Dots per inch of a film, and greys in the palette of a GIF."""


def movie(
    decibels: Sequence[Image],
    axes: str,
    *,
    times: Sequence[float] | NDArray[np.float64] | None = None,
    time_unit: str = "s",
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
    display: Display = DEFAULTS,
    quantity: str = "power Doppler",
) -> bytes:
    """Return a film of power images, depth downwards, with one colour scale for all of them and the time of each.

    A volume is shown by its maximum over elevation. Where the times are known in seconds, the film plays in real time, but
    shows no image for more than 10 s.

    Parameters
    ----------
    decibels : sequence of 2-D or 3-D arrays
        Power in dB: 0 at the maximum of the whole sequence, or absolute where the range of `display` has two levels.
    axes : str
        Axis letters of each array, for example "zx".
    times : sequence of float, optional
        Time of each image; by default none is shown.
    time_unit : str
        Unit of the times, "s" or "frames".
    spacing_mm, title
        As for :func:`usdenoise.report.pictures.power_doppler_picture`.
    display : Display
        Range and colours; by default the range suits the whole sequence.
    quantity : str
        What the colour bar is labelled with, apart from the unit; by default "power Doppler".

    Returns
    -------
    bytes
        The encoded film.
    """
    title = printable(title)
    views = [front_view(np.asarray(image), axes) for image in decibels]
    images = np.stack([view.image for view in views])
    scale = power_scale(images, display.dynamic_range, display.color_map, quantity)
    # Pixels without power would be white, like unknown pixels.
    images = np.clip(images, scale.lowest, scale.highest)
    panel = replace(views[0], image=images[0])
    shown_time = "{:.2f} s" if time_unit == "s" else "frame {:.0f}"
    clock = [""] * len(images) if times is None else [shown_time.format(float(time)) for time in times]
    texts = [", ".join(part for part in (title, moment) if part) for moment in clock]
    # An empty text takes no space, and is set later.
    figure = panel_figure([([panel], scale)], spacing_mm or {}, texts[-1] or " ", _FILM_DPI)
    rate = IMAGES_A_SECOND
    if times is not None and time_unit == "s" and len(times) > 1:
        # The last window may be shorter.
        rate = 1 / float(np.median(np.diff(times)))
    rate = min(max(rate, _SLOWEST), MOST_A_SECOND * len(images))
    step = max(1, math.ceil(rate / MOST_A_SECOND - 1e-6))
    pictures = _drawn_images(figure, images[::step], texts[::step])
    return _gif(pictures, rate / step, display.color_map)


def _drawn_images(figure: "Figure", images: Image, texts: Sequence[str]) -> Iterator[NDArray[np.uint8]]:
    """Draw the figure once, and yield its pixels with each image and text in turn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    rows, columns = ink_box(figure, drawn_pixels(figure))
    # Video encoders accept only an even height and width.
    rows, columns = (
        slice(each.start, each.start + (each.stop - each.start) // 2 * 2) for each in (rows, columns)
    )
    image, title, panel = figure.axes[0].images[0], figure.texts[0], figure.axes[0]
    letters = max(map(len, title.get_text().split("\n")))
    # Axes and colour bar are drawn once; the frame of the panel covers the edges of its image.
    changing = [image, *panel.spines.values(), title]
    for artist in changing:
        artist.set_animated(True)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    still = canvas.copy_from_bbox(figure.bbox)
    for values, text in zip(images, texts, strict=True):
        image.set_data(values)
        title.set_text(textwrap.fill(text, max(letters, 1)))
        canvas.restore_region(still)
        with any_letters():
            for artist in changing:
                artist.draw(canvas.get_renderer())
        yield np.asarray(canvas.buffer_rgba())[rows, columns, :3].copy()


def _gif(pictures: Iterator[NDArray[np.uint8]], rate: float, color_map: str) -> bytes:
    from matplotlib import colormaps
    from PIL import Image

    # One palette for all pictures: most of it for the scale, the rest for the greys of the text.
    colors = colormaps[color_map](np.linspace(0, 1, 256 - _GREYS))[:, :3]
    greys = np.linspace(0, 1, _GREYS)[:, np.newaxis].repeat(3, axis=1)
    palette = Image.new("P", (1, 1))
    palette.putpalette((255 * np.concatenate([colors, greys])).round().astype(np.uint8).tobytes())
    frames = (
        Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures
    )
    buffer = io.BytesIO()
    next(frames).save(
        buffer,
        "GIF",
        save_all=True,
        append_images=frames,
        duration=round(1000 / rate),
        loop=0,
        optimize=False,
    )
    return buffer.getvalue()
