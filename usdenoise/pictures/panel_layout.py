"""Figures of one panel or of three, without margins: everything is placed in inches around the panels."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from usdenoise.pictures.figures import (
    DPI,
    MARGIN_INCHES,
    ColorScale,
    Panel,
    any_letters,
    axis_label,
    draw_pixels,
    encoded,
    on_one_line,
    panel_size,
)

_WIDEST, _HIGHEST, _LEAST = 4.6, 6.5, 0.45
"""Inches of the panels together, and of the narrowest one. A panel that would be narrower is stretched."""

_GAP, _BAR_GAP, _BAR = 0.32, 0.12, 0.14
"""Inches between panels, between the panels and the colour bar, and of the colour bar."""

_LEAST_BAR = 1.6
"""Least height of the colour bar in inches: its label has to fit."""

_LETTERS_AN_INCH, _SMALL_LETTERS_AN_INCH = 13.0, 18.0
"""Letters of a title of 10 points, and of a caption of 7 points, that fit into an inch."""


def panel_figure(panels: Sequence[Panel], scale: ColorScale, spacing: Mapping[str, float], title: str) -> Any:
    """Return a matplotlib figure of one panel, or of the front, side and top of a volume on one scale.

    The side is drawn next to the front at the same depths, and the top below it at the same lateral positions.

    Parameters
    ----------
    panels : sequence of Panel
        One panel, or three from :func:`usdenoise.pictures.figures.panels_of`.
    scale : ColorScale
        Colours of all panels.
    spacing : mapping from axis letter to float
        Pixel pitch in mm, for the axes where it is known.
    title : str
        Text above the panels; empty for none.
    """
    from matplotlib.figure import Figure

    sizes = [panel_size(panel.image.shape, panel.rows, panel.columns, spacing) for panel in panels]
    widths = [sizes[0][1], *(size[1] for size in sizes[1:2])]
    heights = [sizes[0][0], *(size[0] for size in sizes[2:3])]
    gaps = _GAP * (len(widths) - 1)
    inches = min((_WIDEST - gaps) / sum(widths), (_HIGHEST - gaps) / sum(heights))
    across = [max(width * inches, _LEAST) for width in widths]
    down = [max(height * inches, _LEAST) for height in heights]
    width, height = sum(across) + gaps, sum(down) + gaps
    # The bar is outside this size; without margins, the size of the figure does not matter.
    figure = Figure(figsize=(width, height), dpi=DPI)

    def place(left: float, top: float, wide: float, high: float) -> Any:
        return figure.add_axes((left / width, (height - top - high) / height, wide / width, high / height))

    places = [(0.0, 0.0, across[0], down[0])]
    if len(panels) == 3:
        places += [(across[0] + _GAP, 0.0, across[1], down[0]), (0.0, down[0] + _GAP, across[0], down[1])]
    for number, (panel, size, where) in enumerate(zip(panels, sizes, places, strict=True)):
        subplot = place(*where)
        drawn = draw_pixels(subplot, panel.image, scale, extent=(0, size[1], size[0], 0), aspect="auto")
        is_front = number == 0 and len(panels) == 3
        subplot.set_xlabel("" if is_front else axis_label(panel.columns, spacing))
        subplot.set_ylabel("" if number == 1 else axis_label(panel.rows, spacing))
        subplot.tick_params(labelbottom=not is_front, labelleft=number != 1)
        if panel.caption:
            subplot.set_title(
                "\n".join(textwrap.wrap(panel.caption, max(int(where[2] * _SMALL_LETTERS_AN_INCH), 12))),
                fontsize=7,
                loc="left",
                pad=3,
            )
    bar = place(width + _BAR_GAP, 0.0, _BAR, max(down[0], min(_LEAST_BAR, height)))
    color_bar = figure.colorbar(drawn, cax=bar, label=scale.label)
    if scale.ticks is not None:
        color_bar.set_ticks(list(scale.ticks), labels=list(scale.ticks.values()))
    if title:
        lines = textwrap.wrap(on_one_line(title), max(int((width + 0.8) * _LETTERS_AN_INCH), 24))
        above = 0.12 if len(panels) == 1 else 0.34
        figure.text(0, 1 + above / height, "\n".join(lines), va="bottom", fontsize="medium", parse_math=False)
    return figure


def panel_picture(figure: Any, kind: str) -> bytes:
    """Return a figure of :func:`panel_figure` in a file format, as large as what it shows; the figure is changed.

    Matplotlib's own cropping would lay the figure out once more, which takes a quarter of the time of a picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    with any_letters():
        fit_margins(figure)
    return encoded(figure, kind, crop=False)


def fit_margins(figure: Any) -> None:
    """Make a figure as large as what it shows, with a narrow margin; its panels keep their sizes in inches.

    The canvas of the figure must be one that renders, such as matplotlib's FigureCanvasAgg.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure, which is changed.
    """
    box = figure.get_tightbbox(figure.canvas.get_renderer())
    old_width, old_height = figure.get_size_inches()
    width, height = box.width + 2 * MARGIN_INCHES, box.height + 2 * MARGIN_INCHES

    def across(x: float) -> float:
        return float((x * old_width - box.x0 + MARGIN_INCHES) / width)

    def up(y: float) -> float:
        return float((y * old_height - box.y0 + MARGIN_INCHES) / height)

    for subplot in figure.axes:
        place = subplot.get_position()
        left, bottom = across(place.x0), up(place.y0)
        subplot.set_position((left, bottom, across(place.x1) - left, up(place.y1) - bottom))
    for text in figure.texts:
        x, y = text.get_position()
        text.set_position((across(x), up(y)))
    figure.set_size_inches(width, height)
