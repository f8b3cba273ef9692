"""Arrays to pictures: the encoded bytes of PNG and TIFF images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.pictures.figures import (
    COLOR_MAP,
    DPI,
    axis_label,
    figure_png,
    on_one_line,
    panels_of,
    suitable_range_db,
)

_DIRECTIONAL_COLORS = ("#9be7ff", "#1f6fff", "#000000", "#e0301e", "#ffe08a")
_WIDTH_INCHES = 6.0


def power_doppler_png(
    decibels: NDArray[Any],
    axes: str,
    *,
    dynamic_range_db: float | None = None,
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
) -> bytes:
    """Picture of a power Doppler image, depth downwards, with a colour bar in dB.

    Axes are in mm where the pixel pitch is known, otherwise in pixels. A volume is shown by its three
    maximum projections.

    Parameters
    ----------
    decibels : 2-D or 3-D array
        0 at the maximum.
    axes : str
        Its axis letters, for example "zx".
    dynamic_range_db : float, optional
        What is this far below the maximum is black; by default :func:`suitable_range_db`.
    spacing_mm : mapping from axis letter to float, optional
        Pixel pitch.
    title : str
        Above the picture.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    if dynamic_range_db is None:
        dynamic_range_db = suitable_range_db(decibels)
    scale = _Scale(COLOR_MAP, -dynamic_range_db, 0.0, "power Doppler (dB)")
    return _picture(np.maximum(decibels, -dynamic_range_db), axes, scale, spacing_mm or {}, title)


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
    """Picture of directional power: red towards the probe, blue away, black where there is little.

    Each pixel shows the stronger of its two directions, in dB below the strongest of all.

    Parameters
    ----------
    positive, negative : 2-D or 3-D arrays
        Power at positive and at negative Doppler frequencies.
    axes : str
        Their axis letters.
    db_factor : float
        Decibels are `db_factor` log10 of the power.
    dynamic_range_db : float
        What is this far below the maximum is black.
    spacing_mm, title
        As for :func:`power_doppler_png`.

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
    scale = _Scale(color_map, -dynamic_range_db, dynamic_range_db, "directional power (dB)", ticks)
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
    """Picture of axial velocity: red towards the probe, blue away, grey where the power is below its median.

    Parameters
    ----------
    velocity, power : 2-D or 3-D arrays
        Axial velocity (or Doppler frequency), and power Doppler, which tells noise from flow.
    axes : str
        Their axis letters.
    unit : str
        Of the velocity.
    spacing_mm, title
        As for :func:`power_doppler_png`.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib import colormaps

    shown = np.where(power >= np.median(power), velocity, np.nan)
    seen = np.abs(shown[np.isfinite(shown)])
    limit = float(np.percentile(seen, 99)) if seen.size else 0.0
    limit = limit or 1.0
    color_map = colormaps["RdBu_r"].with_extremes(bad="0.6")
    label = "axial velocity (mm/s)" if unit == "mm/s" else f"Doppler frequency ({unit})"
    return _picture(shown, axes, _Scale(color_map, -limit, limit, label), spacing_mm or {}, title)


@dataclass(frozen=True)
class _Scale:
    """Colours of a picture: from where to where, and what the colour bar says."""

    color_map: Any
    lowest: float
    highest: float
    label: str
    ticks: Mapping[float, str] | None = None


def _picture(
    image: NDArray[Any], axes: str, scale: _Scale, spacing: Mapping[str, float], title: str
) -> bytes:
    from matplotlib.figure import Figure

    panels = panels_of(image, axes)
    sizes = [
        (image.shape[0] * spacing.get(rows, 1.0), image.shape[1] * spacing.get(columns, 1.0))
        for image, rows, columns in panels
    ]
    aspect = max(min(height / width, 2.5) for height, width in sizes)
    width = _WIDTH_INCHES * (1 + 0.6 * (len(panels) - 1))
    height = (width / len(panels) - 1.2) * aspect + 1.1
    figure = Figure(figsize=(width, max(height, 2.5)), dpi=DPI, layout="compressed")
    subplots = figure.subplots(1, len(panels), squeeze=False)[0]
    for subplot, (image, rows, columns), (height, width) in zip(subplots, panels, sizes, strict=True):
        shown = subplot.imshow(
            image,
            cmap=scale.color_map,
            vmin=scale.lowest,
            vmax=scale.highest,
            extent=(0, width, height, 0),
            interpolation="nearest",
        )
        subplot.set_xlabel(axis_label(columns, spacing))
        subplot.set_ylabel(axis_label(rows, spacing))
    if title:
        figure.suptitle(on_one_line(title), fontsize="medium", parse_math=False)
    bar = figure.colorbar(shown, ax=list(subplots), label=scale.label, shrink=0.9)
    if scale.ticks is not None:
        bar.set_ticks(list(scale.ticks), labels=list(scale.ticks.values()))
    return figure_png(figure)
