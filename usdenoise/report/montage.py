"""The images of several methods on one colour scale."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.options.job_options import COLOR_MAPS
from usdenoise.report.figures import DPI, add_title, encoded, power_scale
from usdenoise.report.panels import axis_label, draw_panel, front_view

_PANEL_INCHES = 2.1

_MAX_ASPECT = 2.5
"""Largest height over width for which there is room; a taller image is drawn narrower instead."""

_OVERFLOW_DB = 1.0
"""Decibels above the scale from which the label of a panel reports them."""


def montage_png(
    grid: Sequence[Sequence[tuple[str, NDArray[Any]]]],
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
