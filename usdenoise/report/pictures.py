"""The pictures of a result: which there are, how the page names them, and how each is drawn; a picture in axes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import aliasing_limit, decibels
from usdenoise.blood.picture_quality import blood_pixels
from usdenoise.errors import OptionError
from usdenoise.options.job_options import COLOR_MAPS, Display, DynamicRange
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.report.montages import movie
from usdenoise.report.panels import (
    LINE_COLORS,
    ColorScale,
    Image,
    Layer,
    Panel,
    add_title,
    axis_label,
    draw_panel,
    encoded,
    front_view,
    label_colorbar,
    own_settings,
    panel_figure,
    panels_of,
    power_scale,
    shortened,
    suitable_range_db,
)
from usdenoise.sessions.activation import ActivationMap
from usdenoise.sessions.design import Event
from usdenoise.sessions.regions import WHOLE_IMAGE, RegionSeries, relative_change
from usdenoise.sessions.result_series import ANY_TYPE, ResultSeries, series_of_stack
from usdenoise.stack.geometry import Coordinate
from usdenoise.system.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The convention of colour Doppler: red towards the probe, blue away. The colours get lighter with the power.
_DIRECTIONAL_COLORS = ("#9be7ff", "#1f6fff", "#000000", "#e0301e", "#ffe08a")

_SPEEDS_ON_SCALE = 99
"""Percentile of the speed at the end of the colour scale, so that a few outliers do not stretch the scale."""


LEAST_TSNR_DB, TSNR_STEP_DB, BRIGHTEST_PERCENT = 10.0, 5.0, 99.5
"""The picture of the tSNR begins at 0 dB, a standard deviation as large as the mean, and ends at the next step above this
percentile of the pixels, at LEAST_TSNR_DB at least."""

_STEM_LETTERS = 40
"""Letters of the name of a scan in a title."""


QUANTITIES = {"power_doppler": "power Doppler", "blood_power": "blood power"}
"""What the power images show, in words."""

FLOW = ("velocity", "directional", "signed")
"""Names of the products of the flow, in the order of the page."""


@dataclass(frozen=True)
class ResultPicture:
    """A picture of a result.

    Attributes
    ----------
    title, caption : str
        How the page names and explains it.
    image : str
        Name of the image whose numbers describe it.
    """

    title: str
    caption: str
    image: str


PICTURES = {
    "blood_power": ResultPicture(
        "Blood map",
        "Power of the blood before the clutter filter, without the noise. Slow and transverse flow may be missing.",
        "blood_power",
    ),
    "power_doppler": ResultPicture(
        "Power Doppler",
        "Mean power of the filtered frames, noise included: what other programs show.",
        "power_doppler",
    ),
    "velocity": ResultPicture(
        "Axial velocity",
        "From the phase of the lag-one autocorrelation. Red is towards the probe, blue away. Grey: no blood.",
        "axial_velocity",
    ),
    "directional": ResultPicture(
        "Directional power",
        "Power at positive (red, towards the probe) and at negative Doppler frequencies (blue, away).",
        "directional_power_positive",
    ),
    "signed": ResultPicture(
        "Signed power",
        "Power with the sign of the stronger direction: red towards the probe, blue away.",
        "signed_power",
    ),
    "tsnr": ResultPicture(
        "tSNR",
        "Temporal signal to noise ratio: 20 log10 of the mean of the blood power in the good blocks over its standard "
        "deviation. Pixels without blood have no meaning.",
        "tsnr",
    ),
}
"""Name of a product -> its picture, which :func:`result_layer` makes."""


def result_layer(name: str, series: ResultSeries, display: Display) -> Layer:
    """Return the panels and colours of a picture of a result, by its name in PICTURES."""
    means, axes, planes = series.means, series.geometry.spatial_axes, series.planes
    if name in QUANTITIES:
        levels = {image: shown_levels(means[image], display) for image in QUANTITIES}
        # Both power images have one range, so that they can be compared: the wider one.
        widest = max(map(suitable_range_db, levels.values()))
        limits = widest if display.dynamic_range is None else display.dynamic_range
        return power_layer(levels[name], axes, limits, display.color_map, QUANTITIES[name], planes)
    if name == "tsnr":
        tsnr = decibels(np.maximum(means["tsnr"], 0) ** 2, display.db_factor, 1.0)
        finite = tsnr[np.isfinite(tsnr)]
        brightest = float(np.percentile(finite, BRIGHTEST_PERCENT)) if finite.size else 0.0
        highest = max(LEAST_TSNR_DB, TSNR_STEP_DB * math.ceil(brightest / TSNR_STEP_DB))
        panels, scale = power_layer(tsnr, axes, (0.0, highest), display.color_map, "tSNR", planes)
        return panels, replace(scale, label="tSNR (dB)")
    if name == "velocity":
        blood, unit = means["blood_power"], series.attributes["axial_velocity"]["unit"]
        shows_blood, velocity = blood_pixels(blood, means["noise_power"]), means["axial_velocity"]
        limit = aliasing_limit(series.geometry)
        if (unit, display.velocity_unit) == ("mm/s", "cm/s"):
            velocity, limit, unit = velocity * np.float32(0.1), 0.1 * limit, "cm/s"
        panels, scale = velocity_layer(velocity, blood, axes, unit=unit, shows_blood=shows_blood)
        return panels, replace(scale, label=f"{scale.label}\naliasing beyond ±{limit:.3g} {unit}")
    if name == "signed":
        positive, negative = (np.maximum(sign * means["signed_power"], 0) for sign in (1, -1))
    else:
        positive, negative = (means[f"directional_power_{sign}"] for sign in ("positive", "negative"))
    return directional_layer(positive, negative, axes, display, f"{name} power")


def draw_picture(name: str, series: ResultSeries, stem: str, display: Display, kind: str) -> bytes:
    """Return a picture of a result, encoded.

    Parameters
    ----------
    name : str
        Its name in PICTURES, or REGIONS.
    series : ResultSeries
        The result.
    stem : str
        Name of the scan.
    display : Display
        Options of the pictures.
    kind : str
        "png", "pdf" or "svg".
    """
    if name == REGIONS:
        return region_picture(series, f"{stem}: blood power of regions", kind, display)
    panels, scale = result_layer(name, series, display)
    n_good = int((~series.bad).sum())
    removed = series.low_cutoff
    components = f"{counted(removed, 'clutter component')} removed" if removed else "no component removed"
    mean = f"mean of {n_good} blocks, " if series.is_session else ""
    high = "none" if series.fit is None else series.high_cutoff
    dropped = "" if high == "none" else f", those from number {int(high) + 1} on dropped"
    if series.planes or series.fit is None:
        # Each position has components of its own, and those of a series from a file are not known.
        over = f"sweeps over {len(series.planes)} positions" if series.planes else "blocks"
        mean, components, dropped = f"mean of {n_good} {over}", "", ""

    def title(quantity: str) -> str:
        return f"{shortened(stem, _STEM_LETTERS)}: {quantity}, {mean}{components}{dropped}"

    # Both power images have the size of the one with the longer title.
    shown_title = title(scale.label.partition(" (")[0])
    longest = title(max(QUANTITIES.values(), key=len)) if name in QUANTITIES else ""
    # Power of unknown noise stands for the blood map
    outlined = series if name == "blood_power" or "noise_power" not in series.means else None
    spacing, how = series.geometry.spacing_mm, (kind, longest, display)
    return layers_picture([(panels, scale)], spacing, shown_title, *how, outlined=outlined)


def shown_levels(power: Image, display: Display) -> NDArray[np.float32]:
    """Return a power in dB: below its maximum, or absolute where the range of the figures has two levels."""
    return decibels(power, display.db_factor, 1.0 if isinstance(display.dynamic_range, tuple) else None)


def film(name: str, series: ResultSeries, stem: str, display: Display) -> bytes:
    """Return the film of a power image over the blocks of a session."""
    # Without the noise the power of a block can be below zero; NaN, of blocks without data, stays.
    power = np.maximum(series.images[name], 0)
    # Neither bad blocks nor missing ones set the scale; without a good one all do.
    is_shown = ~series.bad if not series.bad.all() else series.bad
    reference = (
        1.0 if isinstance(display.dynamic_range, tuple) else float(np.nan_to_num(power[is_shown]).max())
    )
    why = "bad block" if series.interpolated is None else "interpolated"
    return movie(
        list(decibels(power, display.db_factor, reference)),
        series.geometry.spatial_axes,
        times=Coordinate(series.time, unit=series.time_unit),
        display=display,
        quantity=QUANTITIES[name],
        spacing_mm=series.geometry.spacing_mm,
        title=f"{shortened(stem, _STEM_LETTERS)}: {QUANTITIES[name]}",
        notes=[why if is_bad else "" for is_bad in series.bad],
    )


@own_settings()
def layers_picture(
    layers: Sequence[Layer],
    spacing_mm: Mapping[str, float],
    title: str,
    kind: str = "png",
    other_title: str = "",
    display: Display | None = None,
    *,
    outlined: ResultSeries | None = None,
) -> bytes:
    """Draw layers over each other, depth downwards, each with its colour bar, and return the encoded picture.

    Parameters
    ----------
    layers : sequence of Layer
        Panels and their colours, such as those of :func:`power_layer` and :func:`activation_layers`.
    spacing_mm, title, other_title
        As for :func:`usdenoise.report.panels.panel_figure`.
    kind : str
        Format, one of :data:`usdenoise.options.job_options.FORMATS`; by default "png".
    display : Display, optional
        Resolution and scale bar; by default their defaults.
    outlined : ResultSeries, optional
        Series whose regions are outlined; by default none.
    """
    display = display or Display()
    figure = panel_figure(layers, spacing_mm, title, display.dpi, other_title)
    if outlined is not None:
        _outline_regions(figure.axes, outlined, outlined.planes)
    for subplot, panel in zip(figure.axes, layers[0][0], strict=False):
        if display.scale_bar_mm is not None and panel.columns in spacing_mm:
            _draw_scale_bar(subplot, panel, display.scale_bar_mm, spacing_mm)
    return encoded(figure, kind)


def power_layer(
    decibels: Image,
    axes: str,
    dynamic_range_db: DynamicRange,
    color_map: str,
    quantity: str,
    planes: Sequence[str] = (),
) -> Layer:
    """Return the panels and colours of a power image, black where the power is low.

    Parameters
    ----------
    decibels : 2-D or 3-D array
        Power in dB: 0 at the maximum, or absolute where `dynamic_range_db` has two levels.
    axes : str
        Axis letters of `decibels`, for example "zx".
    dynamic_range_db : float or (float, float) or None
        Decibels below the maximum from which on a pixel is black, or the levels of the darkest and of the brightest
        colour; None for :func:`usdenoise.report.panels.suitable_range_db`.
    color_map : str
        One of :data:`usdenoise.options.job_options.COLOR_MAPS`.
    quantity : str
        What the image shows, for the colour bar.
    planes : sequence of str
        As for :func:`usdenoise.report.panels.panels_of`; by default none.
    """
    scale = power_scale(decibels, dynamic_range_db, color_map, quantity)
    # Pixels without power are at minus infinity, which has no colour.
    return panels_of(np.clip(decibels, scale.lowest, scale.highest), axes, planes=planes), scale


def directional_layer(
    positive: Image, negative: Image, axes: str, display: Display, quantity: str = "directional power"
) -> Layer:
    """Return the panels and colours of directional power: red towards the probe, blue away, black where the power is low.

    Each pixel shows the stronger of its two directions, in dB below the maximum of both images. A projection of a
    volume shows the strongest voxel.

    Parameters
    ----------
    positive, negative : 2-D or 3-D arrays of one shape
        Linear power at positive and at negative Doppler frequencies.
    axes : str
        Axis letters of both arrays.
    display : Display
        Options of the pictures. By default the range suits the stronger direction, as for power Doppler.
    quantity : str
        Label of the colour bar, apart from the unit.
    """
    from matplotlib.colors import LinearSegmentedColormap

    stronger = np.maximum(positive, negative)
    levels = shown_levels(stronger, display)
    if isinstance(display.dynamic_range, tuple):
        (lowest, highest), unit = display.dynamic_range, "dB, absolute"
    else:
        # An even number of dB, so that the ticks are whole.
        lowest, highest = -(display.dynamic_range or 2.0 * round(suitable_range_db(levels) / 2)), 0.0
        unit = "dB re maximum"
    reach = highest - lowest
    signed = np.where(positive >= negative, 1.0, -1.0) * np.clip(levels - lowest, 0.0, reach)
    darkest, middle, lightest = (
        f"{level:.3g}".replace("-", "\N{MINUS SIGN}") for level in (lowest, (lowest + highest) / 2, highest)
    )
    texts = f"{lightest}, away", middle, darkest, middle, f"{lightest}, towards"
    ticks = dict(zip((-reach, -reach / 2, 0.0, reach / 2, reach), texts, strict=True))
    color_map = LinearSegmentedColormap.from_list("directional", _DIRECTIONAL_COLORS)
    scale = ColorScale(color_map, -reach, reach, f"{quantity} ({unit})", ticks)
    return panels_of(signed, axes, stronger), scale


def velocity_layer(
    velocity: Image, power: Image, axes: str, *, unit: str, shows_blood: NDArray[np.bool_]
) -> Layer:
    """Return the panels and colours of axial velocity: red towards the probe, blue away, grey outside the vessels.

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
        Unit of `velocity`: "mm/s" or "cm/s" labels the colour bar as axial velocity, any other as Doppler frequency.
    shows_blood : bool array of the same shape
        Where there is blood.
    """
    from matplotlib import colormaps

    shown = np.where(shows_blood, velocity, np.nan)
    speeds = np.abs(shown[np.isfinite(shown)])
    limit = float(np.percentile(speeds, _SPEEDS_ON_SCALE)) if speeds.size else 0.0
    # Without any motion the scale would be empty.
    limit = limit or 1.0
    color_map = colormaps["RdBu_r"].with_extremes(bad="0.6")
    quantity = "axial velocity" if unit in ("mm/s", "cm/s") else "Doppler frequency"
    scale = ColorScale(color_map, -limit, limit, f"{quantity} ({unit}), grey: no blood")
    return panels_of(shown, axes, np.where(shows_blood, power, -1.0)), scale


BLOOD_RANGE_DB = 30.0
"""Range of the blood map below an activation, and below the outlines of regions."""

BLOOD_SCALE = ColorScale("gray", -BLOOD_RANGE_DB, 0.0, "blood power (dB re maximum)")


_PALEST = 0.3
"""Strength of the colour of a pixel at the threshold, of 1 at the largest value: paler ones are like the grey blood map."""

_NOT_ACTIVE = (0.6, 0.6, 0.6, 1.0)
"""Grey of the values of a colour bar that no active pixel has."""

_BAR_COLORS = 512
"""Colours of a scale with values that no pixel has. The edge of the grey is right within a 500th of the bar."""


def activation_layers(
    values: Image,
    active: NDArray[np.bool_],
    blood_power: Image,
    axes: str,
    letter: str = "t",
    planes: Sequence[str] = (),
) -> list[Layer]:
    """Return the panels and colours of the blood map, and of t or F, if any pixel is active, NaN in the other pixels.

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
    letter : str
        "t" (the default) or "F".
    planes : sequence of str
        As for :func:`usdenoise.report.panels.panels_of`; by default none.
    """
    blood = np.maximum(decibels(blood_power), -BLOOD_RANGE_DB)
    layers: list[Layer] = [(panels_of(blood, axes, planes=planes), BLOOD_SCALE)]
    if active.any():
        shown, weight = np.where(active, values, np.nan), np.where(active, np.abs(values), -1.0)
        layers.append((panels_of(shown, axes, weight, planes), statistic_scale(values[active], letter)))
    return layers


def statistic_scale(values: Image, letter: str = "t") -> ColorScale:
    """Return the colours of t or F of active pixels, which begin at the smallest of its values on either side of zero.

    A colour bar with both signs is grey between them, and one sign alone has no other side.

    Parameters
    ----------
    values : array
        t or F of the active pixels, at least one.
    letter : str
        "t" (the default) or "F".
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    least, largest = float(np.abs(values).min()), float(np.abs(values).max())
    # A bar needs two ends.
    largest = max(largest, 1.1 * least)
    lowest, highest = (-largest if (values < 0).any() else least), (largest if (values > 0).any() else -least)
    level = np.linspace(lowest, highest, _BAR_COLORS)
    strength = _PALEST + (1 - _PALEST) * (np.abs(level) - least) / (largest - least)
    # F has no sign.
    name, place = (
        ("coolwarm", 0.5 + 0.5 * np.sign(level) * strength) if letter == "t" else ("YlOrRd", strength)
    )
    colors = colormaps[name](place)
    colors[np.abs(level) < least] = _NOT_ACTIVE
    ends = (-largest, -(least + largest) / 2, -least, least, (least + largest) / 2, largest)
    ticks = {end: f"{end:.3g}".replace("-", "\N{MINUS SIGN}") for end in ends if lowest <= end <= highest}
    return ColorScale(ListedColormap(colors), lowest, highest, f"{letter} of active pixels", ticks)


REGIONS = "regions"
"""Name of the picture and of the table."""

_LINE_STYLES = ("-", "--", "-.", ":")


@own_settings()
def region_picture(series: ResultSeries, title: str, kind: str, display: Display | None = None) -> bytes:
    """Draw the outlines of the regions on the blood map, and the change of their blood power, all on one scale.

    Parameters
    ----------
    series : ResultSeries
        A session with regions.
    title : str
        Text above the picture.
    kind : str
        "png", "pdf" or "svg".
    display : Display, optional
        Its resolution; by default its default.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), dpi=(display or Display()).dpi, layout="constrained")
    image, lines = figure.subplots(1, 2, width_ratios=(1, 2))

    # Outlines on the blood map
    geometry, spacing = series.geometry, series.geometry.spacing_mm
    levels = np.maximum(decibels(series.means["blood_power"]), -BLOOD_RANGE_DB)
    panel = front_view(levels, geometry.spatial_axes)
    draw_panel(image, panel, BLOOD_SCALE, spacing)
    _outline_regions([image], series)
    image.set_xlabel(axis_label(panel.columns, spacing))
    image.set_ylabel(axis_label(panel.rows, spacing))

    _draw_courses(lines, series)
    for text in figure.legend(loc="outside lower center", ncols=4, fontsize="small").get_texts():
        text.set_parse_math(False)
    add_title(figure, title)
    return encoded(figure, kind, crop=False)


def _outline_regions(subplots: Sequence["Axes"], series: ResultSeries, planes: Sequence[str] = ()) -> None:
    """Draw the outlines and names of the regions over the panels of an image or of planes, which are the first subplots."""
    axes, spacing = series.geometry.spatial_axes, series.geometry.spacing_mm
    for name, region, style in _styled_regions(series):
        shown = panels_of(region.mask.astype(np.float64), axes, planes=planes)
        for subplot, panel in zip(subplots, shown, strict=False):
            if name == WHOLE_IMAGE or not panel.image.any():
                continue
            # Around the pixels, also at the edge of the image
            mask = np.pad(panel.image, 1)
            rows, columns = (
                (np.arange(n) - 0.5) * spacing.get(letter, 1.0)
                for n, letter in zip(mask.shape, (panel.rows, panel.columns), strict=True)
            )
            subplot.set_autoscale_on(False)
            # Edged with white, for any colours of the image
            subplot.contour(columns, rows, mask, [0.5], colors="white", linewidths=2.5)
            subplot.contour(columns, rows, mask, [0.5], colors=style["color"], linestyles=style["linestyle"])
            row, column = np.argwhere(mask)[0]
            text: dict[str, Any] = {"fontsize": 7, "va": "top", "clip_on": True, "parse_math": False}
            text["bbox"] = {"facecolor": "white", "pad": 0.5, "linewidth": 0}
            subplot.text(columns[column], rows[row], name, color=style["color"], **text)


def _styled_regions(series: ResultSeries) -> Iterator[tuple[str, RegionSeries, dict[str, Any]]]:
    """Yield the name of each region, the region, and the colour and the style of its lines."""
    styles = cycle((color, line_style) for line_style in _LINE_STYLES for color in LINE_COLORS)
    for name, region in series.region_series.items():
        color, line_style = ("0.5", "-") if name == WHOLE_IMAGE else next(styles)
        yield name, region, {"color": color, "linestyle": line_style}


def _draw_courses(lines: "Axes", series: ResultSeries) -> None:
    """Draw the change of the regions over the blocks, on the scale of the good ones, with events and bad blocks."""
    is_bad, times = series.bad, series.time
    for name, region, style in _styled_regions(series):
        change = np.where(is_bad, np.nan, relative_change(region.blood_power, is_bad))
        label = f"{name} ({int(region.mask.sum())} pixels)"
        lines.plot(times, change, label=label, marker=".", markersize=4, linewidth=1.3, **style)
    for number, time in enumerate(times[is_bad]):
        lines.axvline(time, color="0.8", linewidth=3, zorder=0, label="bad block" if number == 0 else None)
    firsts: dict[str, Event] = {}
    for event in series.events:
        is_first = firsts.setdefault(event.trial_type, event) is event
        lines.axvspan(
            event.onset,
            event.onset + event.duration,
            color=LINE_COLORS[-2 - list(firsts).index(event.trial_type) % (len(LINE_COLORS) - 1)],
            alpha=0.15,
            zorder=-1,
            label=event.trial_type if is_first else None,
        )
    if len(times) > 1:
        interval = float(np.median(np.diff(times)))
        lines.set_xlim(times[0] - interval, times[-1] + interval)
    lines.set_xlabel(f"time ({series.time_unit})")
    lines.set_ylabel("blood power (% from its mean)")
    lines.grid(alpha=0.3)


def plot(  # noqa: PLR0913
    result: DenoiseResult | ResultSeries,
    image: str = "power_doppler",
    *,
    ax: "Axes | None" = None,
    dynamic_range_db: float | None = None,
    colorbar: bool = True,
    trial_type: str | None = None,
    color_map: str = COLOR_MAPS[0],
    planes: Sequence[int] | None = None,
    scale_bar_mm: float | None = None,
) -> Any:
    """Draw an image of a result, depth downwards, and return the axes.

    Powers are in dB. Axes are in mm where the pixel pitch is known. For a volume the maximum over elevation is drawn, for
    flow the strongest voxel. Power images of a session are means over the good blocks. The positions of the probe are drawn
    side by side on one scale, in place of the axes.

    Parameters
    ----------
    result : DenoiseResult or SessionResult
        From :func:`usdenoise.denoise` or :func:`usdenoise.session`.
    image : str
        "power_doppler", the default, "blood_power" or "noise_power"; "velocity", "directional" or "signed" of a complex
        stack; "tsnr", "activation" (t of the active pixels over the blood map) or "regions" (their blood power over time, in
        per cent of its mean) of a session.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the current axes of pyplot.
    dynamic_range_db : float, optional
        Power this many dB below the maximum, and less, is black; by default it is chosen from the image. The velocity, the
        tSNR, the activation and regions have none.
    colorbar : bool
        Whether a colour bar is added; by default True. An activation has two, and regions have a legend instead.
    trial_type : str, optional
        Type of event of an activation, or "any type" for F of several; by default the only one.
    color_map : str
        Colours of power, as for :class:`usdenoise.Display`; by default "inferno".
    planes : sequence of int, optional
        Numbers of the positions of the probe that are drawn, in this order; by default all.
    scale_bar_mm : float, optional
        Length of a scale bar, instead of the ticks; by default there are ticks.

    Returns
    -------
    matplotlib.axes.Axes, or an array of them for several positions of the probe

    Raises
    ------
    OptionError
        If the image is not known, shows flow and the stack is real, the session has no such activation or no regions, or the
        pitch for a scale bar is not known.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import usdenoise
    >>> result = usdenoise.denoise(usdenoise.load("sample_data/phantom.h5"), low_cutoff=8)
    >>> axes = usdenoise.plot(result, "blood_power", dynamic_range_db=30)
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('lateral (mm)', 'depth (mm)')
    """
    is_stack = isinstance(result, DenoiseResult)
    known = (*QUANTITIES, "noise_power", *(FLOW if is_stack else ("tsnr", "activation", REGIONS)))
    if image not in known:
        raise OptionError(f"image '{image}' is not known; choose one of {', '.join(known)}")
    products = (image,) if image in FLOW else ()
    series = series_of_stack(result, products) if isinstance(result, DenoiseResult) else result
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.gca()
    if image == REGIONS:
        if not series.region_series:
            raise OptionError("the session has no regions", remedy="give {regions}")
        _draw_courses(ax, series)
        # Above the axes, where it hides no course.
        legend = ax.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, fontsize="small", frameon=False
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        return ax
    spatial, spacing = series.geometry.spatial_axes, series.geometry.spacing_mm
    if image == "activation":
        activation = _activation(series, trial_type)
        layers = activation_layers(
            *(activation.statistic, activation.active, series.means["blood_power"]),
            *(spatial, activation.letter, series.planes),
        )
    elif image in FLOW or image == "tsnr":
        display = Display(dynamic_range=dynamic_range_db, color_map=color_map)
        layers = [result_layer(image, series, display)]
    else:
        levels, axes, quantity = decibels(series.means[image]), spatial, QUANTITIES.get(image, "noise power")
        if not series.planes:
            view = front_view(levels, spatial)
            levels, axes = view.image, view.rows + view.columns
        panels, scale = power_layer(levels, axes, dynamic_range_db, color_map, quantity, series.planes)
        layers = [(panels, replace(scale, label=f"{quantity} (dB)"))]
    shown = list(range(len(layers[0][0]))) if planes is None or not series.planes else [*planes]
    figure, all_axes = ax.figure, np.array([ax])
    if len(shown) > 1:
        ax.remove()
        all_axes = figure.subplots(1, len(shown), sharey=True)
    for number, (panels, scale) in enumerate(layers):
        drawn = [
            draw_panel(each, panels[at], scale, spacing) for each, at in zip(all_axes, shown, strict=True)
        ]
        if colorbar:
            # The bar of the next layer, and its label, come between the axes and this bar.
            is_last = number == len(layers) - 1
            bar = figure.colorbar(drawn[0], ax=all_axes.tolist(), pad=0.05 if is_last else 0.15)
            label_colorbar(bar, scale)
    for each, at in zip(all_axes, shown, strict=True):
        panel = panels[at]
        each.set_title(panel.caption if series.planes else "", fontsize="small")
        if scale_bar_mm is None:
            each.set_xlabel(axis_label(panel.columns, spacing))
        else:
            _draw_scale_bar(each, panel, scale_bar_mm, spacing)
    if scale_bar_mm is None:
        all_axes[0].set_ylabel(axis_label(panels[0].rows, spacing))
    return all_axes if series.planes else ax


def _draw_scale_bar(subplot: "Axes", panel: Panel, length_mm: float, spacing: Mapping[str, float]) -> None:
    """Draw a scale bar into the lower right corner of a panel, instead of ticks."""
    if panel.columns not in spacing:
        raise OptionError("a scale bar requires the pixel pitch", remedy="give {spacing_mm}")
    height, width = panel.size(spacing)
    subplot.set_axis_off()
    left, right, depth = width * 0.96 - length_mm, width * 0.96, height * 0.95
    subplot.plot([left, right], [depth, depth], color="white", linewidth=2)
    subplot.text(right, depth, f"{length_mm:g} mm", color="white", ha="right", va="bottom", fontsize="small")


def _activation(series: ResultSeries, trial_type: str | None) -> ActivationMap:
    """Return the activation map of a type of event, by default of the only one."""
    overall = {} if series.any_activation is None else {ANY_TYPE: series.any_activation}
    maps = {**overall, **series.activation}
    known = list(maps)
    if not known:
        raise OptionError("the session has no activation map", remedy="give {events}")
    if trial_type is None and len(known) == 1:
        return maps[known[0]]
    if trial_type not in known:
        problem = f"trial_type '{trial_type}' is not known; choose"
        if trial_type is None:
            problem = f"the session has {len(series.activation)} trial types; give trial_type,"
        raise OptionError(f"{problem} one of {', '.join(known)}")
    return maps[trial_type]
