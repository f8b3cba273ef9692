"""Pictures of a filtered stack and of its regions: power Doppler, directional power, velocity, activation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import decibels
from usdenoise.options.job_options import COLOR_MAPS, DynamicRange
from usdenoise.report.panels import (
    LINE_COLORS,
    ColorScale,
    Panel,
    add_title,
    axis_label,
    draw_panel,
    encoded,
    encoded_panels,
    front_view,
    panel_figure,
    panel_picture,
    panels_of,
    power_scale,
    suitable_range_db,
)
from usdenoise.report.record import ActivationRecord
from usdenoise.report.series import ResultSeries
from usdenoise.sessions.activation import ActivationMap
from usdenoise.sessions.regions import WHOLE_IMAGE, relative_change

# The convention of colour Doppler: red towards the probe, blue away. The colours get lighter with the power.
_DIRECTIONAL_COLORS = ("#9be7ff", "#1f6fff", "#000000", "#e0301e", "#ffe08a")

_SPEEDS_ON_SCALE = 99
"""Percentile of the speed at the end of the colour scale, so that a few outliers do not stretch the scale."""


@dataclass(frozen=True)
class Drawing:
    """An image of flow as it is drawn.

    Attributes
    ----------
    image : 2-D or 3-D array
        Values that are drawn.
    weight : array of the same shape
        A projection shows the voxel with the largest weight.
    axes : str
        Axis letters of both arrays.
    scale : ColorScale
        Colours of the values.
    quantity : str
        What the image shows, for the title.
    """

    image: NDArray[Any]
    weight: NDArray[Any]
    axes: str
    scale: ColorScale
    quantity: str

    @property
    def panels(self) -> list[Panel]:
        """The panels: one for an image; front, side and top for a volume."""
        return panels_of(self.image, self.axes, self.weight)


def power_doppler_picture(
    decibels: NDArray[Any],
    axes: str,
    *,
    kind: str = "png",
    dynamic_range_db: DynamicRange = None,
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
    color_map: str = COLOR_MAPS[0],
    quantity: str = "power Doppler",
) -> bytes:
    """Draw a power image, depth downwards, with a colour bar in dB.

    Axes are in mm where the pixel pitch is known, otherwise in pixels. A volume is shown by its three
    maximum projections.

    Parameters
    ----------
    decibels : 2-D or 3-D array
        Power in dB: 0 at the maximum, or absolute where `dynamic_range_db` has two levels.
    axes : str
        Axis letters of `decibels`, for example "zx".
    kind : str
        Format, one of :data:`usdenoise.options.job_options.FORMATS`; by default "png".
    dynamic_range_db : float or (float, float), optional
        Decibels below the maximum from which on a pixel is black, or the levels of the darkest and of the brightest
        colour; by default :func:`usdenoise.report.panels.suitable_range_db`.
    spacing_mm : mapping from axis letter to float, optional
        Pixel pitch in mm, for the axes where it is known; by default for none.
    title : str
        Text above the picture; by default none.
    color_map : str
        One of :data:`usdenoise.options.job_options.COLOR_MAPS`; by default the first.
    quantity : str
        What the image shows, for the colour bar.

    Returns
    -------
    bytes
        The encoded picture.
    """
    scale = power_scale(decibels, dynamic_range_db, color_map, quantity)
    shown = np.clip(decibels, scale.lowest, scale.highest)
    return panel_picture(panels_of(shown, axes), scale, spacing_mm or {}, title, kind)


def directional_drawing(
    positive: NDArray[Any],
    negative: NDArray[Any],
    axes: str,
    *,
    db_factor: float = 10.0,
    dynamic_range_db: DynamicRange = None,
    quantity: str = "directional power",
) -> Drawing:
    """Return the drawing of directional power: red towards the probe, blue away, black where the power is low.

    Each pixel shows the stronger of its two directions, in dB below the maximum of both images. A projection of a
    volume shows the strongest voxel.

    Parameters
    ----------
    positive, negative : 2-D or 3-D arrays of one shape
        Linear power at positive and at negative Doppler frequencies.
    axes : str
        Axis letters of both arrays.
    db_factor : float
        Decibels are `db_factor` log10 of the power.
    dynamic_range_db : float or (float, float), optional
        Decibels below the maximum from which on a pixel is black, or the levels of black and of the lightest colours in
        dB of the power; by default the range that suits the stronger direction, as for power Doppler.
    quantity : str
        Label of the colour bar, apart from the unit.
    """
    from matplotlib.colors import LinearSegmentedColormap

    stronger = np.maximum(positive, negative)
    peak = 1.0 if isinstance(dynamic_range_db, tuple) else float(stronger.max())
    levels = decibels(stronger, db_factor, peak)
    if isinstance(dynamic_range_db, tuple):
        lowest, highest = dynamic_range_db
    else:
        # An even number of dB, so that the ticks are whole.
        lowest, highest = -(dynamic_range_db or 2.0 * round(suitable_range_db(levels) / 2)), 0.0
    reach = highest - lowest
    signed = np.where(positive >= negative, 1.0, -1.0) * np.clip(levels - lowest, 0.0, reach)
    color_map = LinearSegmentedColormap.from_list("directional", _DIRECTIONAL_COLORS)
    middle = _number((lowest + highest) / 2)
    ticks = {
        -reach: f"{_number(highest)}, away",
        -reach / 2: middle,
        0.0: _number(lowest),
        reach / 2: middle,
        reach: f"{_number(highest)}, towards",
    }
    unit = "dB, absolute" if isinstance(dynamic_range_db, tuple) else "dB re maximum"
    scale = ColorScale(color_map, -reach, reach, f"{quantity} ({unit})", ticks)
    return Drawing(signed, stronger, axes, scale, quantity)


def velocity_drawing(
    velocity: NDArray[Any],
    power: NDArray[Any],
    axes: str,
    *,
    unit: str,
    shows_blood: NDArray[np.bool_] | None = None,
) -> Drawing:
    """Return the drawing of axial velocity: red towards the probe, blue away, grey outside the vessels.

    The phase of noise is random, so a pixel without flow would show a random velocity. A projection of a volume shows
    the velocity at the strongest voxel with blood, and is grey where there is none.

    Parameters
    ----------
    velocity : 2-D or 3-D array
        Axial velocity, or Doppler frequency, in `unit`.
    power : array of the same shape
        Linear power of the blood, which decides about the voxel of a projection.
    axes : str
        Axis letters of both arrays.
    unit : str
        Unit of `velocity`: "mm/s" labels the colour bar as axial velocity, any other as Doppler frequency.
    shows_blood : bool array of the same shape, optional
        Where there is blood; by default where the power is at least its median.
    """
    from matplotlib import colormaps

    visible = power >= np.median(power) if shows_blood is None else shows_blood
    shown = np.where(visible, velocity, np.nan)
    speeds = np.abs(shown[np.isfinite(shown)])
    limit = float(np.percentile(speeds, _SPEEDS_ON_SCALE)) if speeds.size else 0.0
    # Without any motion the scale would be empty.
    limit = limit or 1.0
    color_map = colormaps["RdBu_r"].with_extremes(bad="0.6")
    quantity = "axial velocity" if unit == "mm/s" else "Doppler frequency"
    scale = ColorScale(color_map, -limit, limit, f"{quantity} ({unit}), grey: no blood")
    return Drawing(shown, np.where(visible, power, -1.0), axes, scale, quantity)


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "\N{MINUS SIGN}")


BLOOD_RANGE_DB = 30.0
"""Range of the blood map below an activation, and below the outlines of regions."""

BLOOD_SCALE = ColorScale("gray", -BLOOD_RANGE_DB, 0.0, "blood power (dB re maximum)")


def activation_title(trial_type: str, activation: ActivationMap) -> str:
    """Return the title of the picture of an activation map."""
    record = ActivationRecord.of(trial_type, activation)
    return f"{record.name}: {record.sentence}"


def activation_picture(
    values: NDArray[Any],
    active: NDArray[np.bool_],
    blood_power: NDArray[Any],
    axes: str,
    *,
    kind: str = "png",
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
    letter: str = "t",
) -> bytes:
    """Draw t or F of the active pixels in colour, over the blood map in grey.

    Parameters
    ----------
    values : 2-D or 3-D array
        t or F of the response. A projection of a volume shows the most active voxel.
    active : boolean array of the same shape
        Pixels that are shown as active.
    blood_power : 2-D or 3-D array
        Mean blood power.
    axes : str
        Axis letters of all three.
    kind, spacing_mm, title
        Format, pixel pitch and text above the picture, as for
        :func:`usdenoise.report.pictures.power_doppler_picture`.
    letter : str
        "t" (the default) or "F".

    Returns
    -------
    bytes
        The encoded picture.
    """
    panels, overlay = activation_layers(values, active, blood_power, axes, letter)
    figure = panel_figure(panels, BLOOD_SCALE, spacing_mm or {}, title, overlay=overlay)
    return encoded_panels(figure, kind)


def activation_layers(
    values: NDArray[Any], active: NDArray[np.bool_], blood_power: NDArray[Any], axes: str, letter: str = "t"
) -> tuple[list[Panel], tuple[list[Panel], ColorScale] | None]:
    """Return the panels of the blood map, and of t or F with its scale, NaN in other pixels; None without any."""
    levels = np.maximum(decibels(blood_power, 10.0, None), -BLOOD_RANGE_DB)
    if not active.any():
        return panels_of(levels, axes), None
    largest = float(np.abs(values[active]).max())
    shown, weight = np.where(active, values, np.nan), np.where(active, np.abs(values), -1.0)
    # F has no sign.
    colors, least = ("coolwarm", -largest) if letter == "t" else ("YlOrRd", 0.0)
    scale = ColorScale(colors, least, largest, f"{letter} of active pixels")
    return panels_of(levels, axes), (panels_of(shown, axes, weight), scale)


REGIONS = "regions"
"""Name of the picture and of the table."""

_STYLES = ("-", "--", "-.", ":")
_INCHES, _DPI = (9.0, 3.6), 150


def region_picture(series: ResultSeries, title: str, kind: str) -> bytes:
    """Draw the outlines of the regions on the blood map, and the change of their blood power, all on one scale.

    Parameters
    ----------
    series : ResultSeries
        A session with regions.
    title : str
        Text above the picture.
    kind : str
        "png", "pdf" or "svg".
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")
    image, lines = figure.subplots(1, 2, width_ratios=(1, 2))
    _draw_map(image, series)
    is_bad, labelled = series.is_bad, set[str]()
    for name, region in series.regions.items():
        # The scale is the one of the good blocks.
        change = np.where(is_bad, np.nan, relative_change(region.blood_power, is_bad))
        label = f"{name} ({int(region.mask.sum())} pixels)"
        lines.plot(
            series.times, change, label=label, marker=".", markersize=4, linewidth=1.3, **_style(name, series)
        )
    for number, time in enumerate(series.times[is_bad]):
        lines.axvline(time, color="0.8", linewidth=3, zorder=0, label="bad block" if number == 0 else None)
    types = list(dict.fromkeys(event.trial_type for event in series.events))
    for event in series.events:
        number, is_first = types.index(event.trial_type), event.trial_type not in labelled
        labelled.add(event.trial_type)
        lines.axvspan(
            event.onset,
            event.onset + event.duration,
            color=LINE_COLORS[-2 - number % (len(LINE_COLORS) - 1)],
            alpha=0.15,
            zorder=-1,
            label=event.trial_type if is_first else None,
        )
    if len(series.times) > 1:
        interval = float(np.median(np.diff(series.times)))
        lines.set_xlim(series.times[0] - interval, series.times[-1] + interval)
    lines.set_xlabel(f"time ({series.time_unit})")
    lines.set_ylabel("blood power (% from its mean)")
    lines.grid(alpha=0.3)
    for text in figure.legend(loc="outside lower center", ncols=4, fontsize="small").get_texts():
        text.set_parse_math(False)
    add_title(figure, title)
    return encoded(figure, kind, crop=False)


def _draw_map(subplot: Any, series: ResultSeries) -> None:
    geometry = series.geometry
    levels = np.maximum(decibels(series.means["blood_power"], 10.0, None), -BLOOD_RANGE_DB)
    panel = front_view(levels, geometry.spatial_axes)
    draw_panel(subplot, panel, BLOOD_SCALE, geometry.spacing_mm)
    pitch = [geometry.spacing_mm.get(letter, 1.0) for letter in (panel.rows, panel.columns)]
    for name, region in series.regions.items():
        if name != WHOLE_IMAGE:
            # Drawn around the pixels, also at the edge of the image.
            mask = np.pad(front_view(region.mask, geometry.spatial_axes).image, 1).astype(float)
            rows, columns = ((np.arange(n) - 0.5) * step for n, step in zip(mask.shape, pitch, strict=True))
            style = _style(name, series)
            subplot.contour(columns, rows, mask, [0.5], colors=style["color"], linestyles=style["linestyle"])
    subplot.set_xlabel(axis_label(panel.columns, geometry.spacing_mm))
    subplot.set_ylabel(axis_label(panel.rows, geometry.spacing_mm))


def _style(name: str, series: ResultSeries) -> dict[str, Any]:
    if name == WHOLE_IMAGE:
        return {"color": "0.5", "linestyle": "-"}
    number = list(series.regions).index(name) - 1
    color = LINE_COLORS[number % len(LINE_COLORS)]
    return {"color": color, "linestyle": _STYLES[number // len(LINE_COLORS) % len(_STYLES)]}
