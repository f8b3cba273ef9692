"""Pictures of a filtered stack: power Doppler, directional power and axial velocity, encoded as PNG."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.pictures.figures import (
    DPI,
    MAX_ASPECT,
    ColorScale,
    add_color_bar,
    add_title,
    axis_label,
    draw_panel,
    figure_png,
    panel_size,
    panels_of,
    power_scale,
    suitable_range_db,
)

# The convention of colour Doppler: red towards the probe, blue away. The colours get lighter with the power.
_DIRECTIONAL_COLORS = ("#9be7ff", "#1f6fff", "#000000", "#e0301e", "#ffe08a")
_WIDTH_INCHES = 6.0
"""Width of a picture with one panel, colour bar included; each further panel adds 60 %."""

_SPEEDS_ON_SCALE = 99
"""Percentile of the speed at the end of the colour scale, so that a few outliers do not stretch the scale."""


def power_doppler_png(
    decibels: NDArray[Any],
    axes: str,
    *,
    dynamic_range_db: float | None = None,
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
) -> bytes:
    """Draw a power Doppler image, depth downwards, with a colour bar in dB.

    Axes are in mm where the pixel pitch is known, otherwise in pixels. A volume is shown by its three
    maximum projections.

    Parameters
    ----------
    decibels : 2-D or 3-D array
        Power Doppler in dB, 0 at the maximum.
    axes : str
        Axis letters of `decibels`, for example "zx".
    dynamic_range_db : float, optional
        Power this many dB below the maximum, and less, is black; by default
        :func:`usdenoise.pictures.figures.suitable_range_db`.
    spacing_mm : mapping from axis letter to float, optional
        Pixel pitch in mm, for the axes where it is known; by default for none.
    title : str
        Text above the picture; by default none.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    if dynamic_range_db is None:
        dynamic_range_db = suitable_range_db(decibels)
    shown = np.maximum(decibels, -dynamic_range_db)
    return _picture(shown, axes, power_scale(dynamic_range_db), spacing_mm or {}, title)


def directional_png(
    positive: NDArray[Any],
    negative: NDArray[Any],
    axes: str,
    *,
    db_factor: float = 10.0,
    dynamic_range_db: float = 30.0,
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
) -> bytes:
    """Draw directional power: red towards the probe, blue away, black where the power is low.

    Each pixel shows the stronger of its two directions, in dB below the maximum of both images.

    Parameters
    ----------
    positive, negative : 2-D or 3-D arrays of one shape
        Linear power at positive and at negative Doppler frequencies.
    axes : str
        Axis letters of both arrays.
    db_factor : float
        Decibels are `db_factor` log10 of the power.
    dynamic_range_db : float
        Power this many dB below the maximum, and less, is black.
    spacing_mm, title
        Pixel pitch and text above the picture, as for :func:`power_doppler_png`.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib.colors import LinearSegmentedColormap

    stronger = np.maximum(positive, negative).astype(np.float64)
    peak = float(stronger.max())
    with np.errstate(divide="ignore", invalid="ignore"):
        height = db_factor * np.log10(stronger / peak) if peak > 0 else np.full(stronger.shape, -np.inf)
    signed = np.where(positive >= negative, 1.0, -1.0) * np.maximum(height + dynamic_range_db, 0.0)
    color_map = LinearSegmentedColormap.from_list("directional", _DIRECTIONAL_COLORS)
    ticks = {
        -dynamic_range_db: "0, away",
        -dynamic_range_db / 2: f"{-dynamic_range_db / 2:g}",
        0.0: f"{-dynamic_range_db:g}",
        dynamic_range_db / 2: f"{-dynamic_range_db / 2:g}",
        dynamic_range_db: "0, towards",
    }
    scale = ColorScale(color_map, -dynamic_range_db, dynamic_range_db, "directional power (dB)", ticks)
    return _picture(signed, axes, scale, spacing_mm or {}, title)


def velocity_png(
    velocity: NDArray[Any],
    power: NDArray[Any],
    axes: str,
    *,
    unit: str,
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
) -> bytes:
    """Draw axial velocity: red towards the probe, blue away, grey where the power is below its median.

    The phase of noise is random, so a pixel without flow would show a random velocity.

    Parameters
    ----------
    velocity : 2-D or 3-D array
        Axial velocity, or Doppler frequency, in `unit`.
    power : array of the same shape
        Linear power Doppler, which tells flow from noise.
    axes : str
        Axis letters of both arrays.
    unit : str
        Unit of `velocity`: "mm/s" labels the colour bar as axial velocity, any other as Doppler frequency.
    spacing_mm, title
        Pixel pitch and text above the picture, as for :func:`power_doppler_png`.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib import colormaps

    shown = np.where(power >= np.median(power), velocity, np.nan)
    seen = np.abs(shown[np.isfinite(shown)])
    limit = float(np.percentile(seen, _SPEEDS_ON_SCALE)) if seen.size else 0.0
    # Without any motion the scale would be empty.
    limit = limit or 1.0
    color_map = colormaps["RdBu_r"].with_extremes(bad="0.6")
    label = "axial velocity (mm/s)" if unit == "mm/s" else f"Doppler frequency ({unit})"
    return _picture(shown, axes, ColorScale(color_map, -limit, limit, label), spacing_mm or {}, title)


def _picture(
    image: NDArray[Any], axes: str, scale: ColorScale, spacing: Mapping[str, float], title: str
) -> bytes:
    from matplotlib.figure import Figure

    panels = panels_of(image, axes)
    sizes = [panel_size(view.shape, rows, columns, spacing) for view, rows, columns in panels]
    aspect = max(min(height / width, MAX_ASPECT) for height, width in sizes)
    width = _WIDTH_INCHES * (1 + 0.6 * (len(panels) - 1))
    height = (width / len(panels) - 1.2) * aspect + 1.1
    figure = Figure(figsize=(width, max(height, 2.5)), dpi=DPI, layout="compressed")
    subplots = figure.subplots(1, len(panels), squeeze=False)[0]
    for subplot, (view, rows, columns), size in zip(subplots, panels, sizes, strict=True):
        drawn = draw_panel(subplot, view, scale, size)
        subplot.set_xlabel(axis_label(columns, spacing))
        subplot.set_ylabel(axis_label(rows, spacing))
    add_title(figure, title)
    add_color_bar(figure, drawn, list(subplots), scale)
    return figure_png(figure)
