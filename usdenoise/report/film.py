"""A film of power images with axes, colour bar and time, encoded as a GIF."""

import io
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.report.panels import StillFigure, front_view, ink_box, panel_figure, power_scale
from usdenoise.system.text import printable

IMAGES_A_SECOND = 10.0
"""Images a second where the time between them is not known."""

MOST_A_SECOND = 50.0
"""Most images a second that players show; a faster film skips images."""

_SLOWEST = 0.1
"""Fewest images a second: a slower film is too slow to watch, and a GIF cannot store its delay."""

_FILM_DPI, _GREYS = 100, 24
"""Dots per inch of a film, and greys in the palette of a GIF."""


def movie(
    decibels: Sequence[NDArray[Any]],
    axes: str,
    *,
    times: Sequence[float] | NDArray[np.float64] | None = None,
    time_unit: str = "s",
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
    **scale_settings: Any,
) -> bytes:
    """Return a film of power images, depth downwards, with one colour scale for all of them and the time of each.

    A volume is shown by its maximum over elevation. Where the times are known in seconds, the film plays in real time, but
    shows no image for more than 10 s.

    Parameters
    ----------
    decibels : sequence of 2-D or 3-D arrays
        Power in dB: 0 at the maximum of the whole sequence, or absolute where `dynamic_range_db` has two levels.
    axes : str
        Axis letters of each array, for example "zx".
    times : sequence of float, optional
        Time of each image; by default none is shown.
    time_unit : str
        Unit of the times, "s" or "frames".
    spacing_mm, title
        As for :func:`usdenoise.report.pictures.power_doppler_picture`.
    **scale_settings
        Range, colours and quantity of :func:`usdenoise.report.panels.power_scale`; by default the range suits the
        whole sequence.

    Returns
    -------
    bytes
        The encoded film.
    """
    title = printable(title)
    views = [front_view(np.asarray(image), axes) for image in decibels]
    images = np.stack([view.image for view in views])
    scale = power_scale(images, **scale_settings)
    # Pixels without power would be white, like unknown pixels.
    images = np.clip(images, scale.lowest, scale.highest)
    panel = replace(views[0], image=images[0])
    shown_time = "{:.2f} s" if time_unit == "s" else "frame {:.0f}"
    clock = [""] * len(images) if times is None else [shown_time.format(float(time)) for time in times]
    texts = [", ".join(part for part in (title, moment) if part) for moment in clock]
    # An empty text takes no space, and is set later.
    figure = panel_figure([panel], scale, spacing_mm or {}, texts[-1] or " ", _FILM_DPI)
    rate = _images_a_second(times if time_unit == "s" else None)
    rate = min(max(rate, _SLOWEST), MOST_A_SECOND * len(images))
    step = max(1, math.ceil(rate / MOST_A_SECOND - 1e-6))
    pictures = _drawn_images(figure, images[::step], texts[::step])
    return _gif(pictures, rate / step, scale.color_map)


def _images_a_second(times: Sequence[float] | NDArray[np.float64] | None) -> float:
    """Return the images a second at which a film of these times plays; the last window may be shorter."""
    if times is None or len(times) < 2:
        return IMAGES_A_SECOND
    return 1 / float(np.median(np.diff(times)))


def _drawn_images(figure: Any, images: NDArray[Any], texts: Sequence[str]) -> Iterator[NDArray[np.uint8]]:
    """Draw the figure once, and yield its pixels with each image and text in turn."""
    still = StillFigure(figure)
    rows, columns = ink_box(figure, still.pixels([images[0]]))
    # Video encoders accept only an even height and width.
    rows, columns = (
        slice(each.start, each.start + (each.stop - each.start) // 2 * 2) for each in (rows, columns)
    )
    letters = max(map(len, figure.texts[0].get_text().split("\n")))
    for image, text in zip(images, texts, strict=True):
        figure.texts[0].set_text(textwrap.fill(text, max(letters, 1)))
        yield np.ascontiguousarray(still.pixels([image])[rows, columns, :3])


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
