"""Pictures that compare methods: their images on one colour scale, and their convergence curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.options.job_options import COLOR_MAPS
from usdenoise.pictures.figures import DPI, ColorScale, add_title, encoded, power_scale
from usdenoise.pictures.panels import Panel, axis_label, draw_panel, front_view

_PANEL_INCHES = 2.1

_MAX_ASPECT = 2.5
"""Largest height over width for which there is room; a taller image is drawn narrower instead."""

_OVERFLOW_DB = 1.0
"""Decibels above the scale from which a panel says so."""


def montage_png(
    grid: Sequence[Sequence[tuple[str, NDArray[Any]] | None]],
    axes: str,
    *,
    dynamic_range_db: float | tuple[float, float],
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
    color_map: str = COLOR_MAPS[0],
) -> bytes:
    """Draw power Doppler images side by side on one dB scale, each with its label above.

    An image whose maximum is above the scale says by how many dB. One that would be a white square, with half of its
    pixels above the scale, is left out for that sentence.

    Parameters
    ----------
    grid : rows of (label, image) or None
        Images in dB, all with the axes `axes`; None leaves a place empty. A volume is shown by its maximum
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
    n_rows, n_columns = len(grid), max(len(row) for row in grid)
    first = next(front_view(cell[1], axes) for row in grid for cell in row if cell is not None)
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
    for i, (row, axes_row) in enumerate(zip(grid, subplots, strict=True)):
        for j, subplot in enumerate(axes_row):
            cell = row[j] if j < len(row) else None
            if cell is None:
                subplot.set_axis_off()
                continue
            drawn = _draw_cell(subplot, cell[0], front_view(cell[1], axes), scale, spacing)
            subplot.tick_params(labelsize="x-small")
            below = i + 1 < n_rows and j < len(grid[i + 1]) and grid[i + 1][j] is not None
            subplot.tick_params(labelbottom=not below)
            if not below:
                subplot.set_xlabel(axis_label(first.columns, spacing), fontsize="small")
            if j == 0:
                subplot.set_ylabel(axis_label(first.rows, spacing), fontsize="small")
    add_title(figure, title)
    figure.colorbar(drawn, ax=subplots, label=scale.label, shrink=0.9, aspect=30)
    return encoded(figure)


def _draw_cell(
    subplot: Any, label: str, panel: Panel, scale: ColorScale, spacing: Mapping[str, float]
) -> Any:
    """Draw one image with its label, and say by how much it is above the scale."""
    image = panel.image
    above = float(image.max()) - scale.highest
    is_white = float(np.median(image)) > scale.highest
    shown = np.full(image.shape, np.nan) if is_white else np.clip(image, scale.lowest, scale.highest)
    drawn = draw_panel(subplot, replace(panel, image=shown), scale, spacing)
    if is_white:
        subplot.set_facecolor("0.85")
        text = f"{above:.0f} dB above\nthe scale"
        subplot.text(0.5, 0.5, text, ha="center", va="center", fontsize="small", transform=subplot.transAxes)
    elif above > _OVERFLOW_DB:
        label += f"\nup to {above:.0f} dB above the scale"
    subplot.set_title(label, fontsize="small", parse_math=False)
    return drawn


def convergence_png(curves: Mapping[str, Sequence[tuple[float, float, float]]]) -> bytes:
    """Draw the held-out error of iterative methods against passes over the samples, and against seconds.

    Parameters
    ----------
    curves : mapping from label to sequence of (passes, seconds, held-out rms)
        The points of each curve. Seconds count from the beginning of the method, its start included.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), dpi=DPI, layout="constrained")
    by_pass, by_second = figure.subplots(1, 2, sharey=True)
    markers = "osv^D<>Pph*X"
    for number, (label, points) in enumerate(curves.items()):
        passes, seconds, errors = zip(*points, strict=True)
        style = {"marker": markers[number % len(markers)], "markersize": 3, "linewidth": 1.2}
        by_pass.plot(passes, errors, label=label, **style)
        by_second.plot(seconds, errors, **style)
    for panel, what in ((by_pass, "passes over the sample"), (by_second, "seconds, start included")):
        # On a logarithmic axis of less than a decade the ticks have long labels, one over the other.
        for scale, (low, high) in (
            (panel.set_xscale, panel.dataLim.intervalx),
            (panel.set_yscale, panel.dataLim.intervaly),
        ):
            scale("log" if high > 10 * low else "linear")
        panel.set_xlabel(what)
        panel.grid(alpha=0.3, which="both")
    by_pass.set_ylabel("held-out rms")
    figure.legend(loc="outside right upper", fontsize="small")
    return encoded(figure)
