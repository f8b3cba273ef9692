"""The pictures of a result: which there are, how the page names them, their titles; the films; a picture in axes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import decibels
from usdenoise.blood.picture_quality import blood_pixels
from usdenoise.errors import OptionError
from usdenoise.options.job_options import Display, DynamicRange
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.report.film import movie
from usdenoise.report.panels import (
    ColorScale,
    Panel,
    add_colorbar,
    axis_label,
    draw_panel,
    front_view,
    panel_picture,
    panels_of,
    power_scale,
    shortened,
    suitable_range_db,
)
from usdenoise.report.pictures import (
    BLOOD_SCALE,
    Drawing,
    activation_layers,
    directional_drawing,
    velocity_drawing,
)
from usdenoise.report.record import ANY_TYPE
from usdenoise.report.series import ResultSeries, series_of_stack
from usdenoise.sessions.activation import ActivationMap
from usdenoise.stack.geometry import GriddedStack

QUANTITIES = {"power_doppler": "power Doppler", "blood_power": "blood power"}
"""What the power images show, in words."""

LEAST_TSNR_DB, TSNR_STEP_DB, BRIGHTEST_PERCENT = 10.0, 5.0, 99.5
"""The picture of the tSNR begins at 0 dB, a standard deviation as large as the mean, and ends at the next step above this
percentile of the pixels, at LEAST_TSNR_DB at least."""

_STEM_LETTERS = 40
"""Letters of the name of a scan in a title."""


@dataclass(frozen=True)
class ResultPicture:
    """A picture of a result.

    Attributes
    ----------
    title, caption : str
        How the page names and explains it.
    image : str
        Name of the image whose numbers describe it.
    draw : callable
        Returns the encoded picture for a series, the name of the scan, the options of pictures and a format ("png", "pdf"
        or "svg").
    """

    title: str
    caption: str
    image: str
    draw: Callable[[ResultSeries, str, Display, str], bytes]


def shown_levels(power: NDArray[Any], display: Display) -> NDArray[np.float32]:
    """Return a power in dB: below its maximum, or absolute where the range of the figures has two levels."""
    return decibels(power, display.db_factor, 1.0 if isinstance(display.dynamic_range, tuple) else None)


def film(name: str, series: ResultSeries, stem: str, display: Display) -> bytes:
    """Return the film of a power image over the blocks of a session."""
    # Without the noise the power of a block can be below zero; NaN, of blocks without data, stays.
    power = np.maximum(series.images[name], 0)
    return movie(
        list(shown_levels(power, display)),
        series.geometry.spatial_axes,
        times=series.times,
        time_unit=series.time_unit,
        dynamic_range_db=display.dynamic_range,
        color_map=display.color_map,
        quantity=QUANTITIES[name],
        spacing_mm=series.geometry.spacing_mm,
        title=f"{shortened(stem, _STEM_LETTERS)}: {QUANTITIES[name]}",
    )


def figure_title(stem: str, quantity: str, removed: int, high: str | int, n_blocks: int | None = None) -> str:
    """Return the title of a figure.

    Parameters
    ----------
    stem : str
        Name of the scan.
    quantity : str
        What the figure shows.
    removed : int
        Number of components removed as clutter.
    high : "none" or int
        End of the components that were kept.
    n_blocks : int, optional
        Number of blocks whose mean it shows; by default it is not a mean.
    """
    components = (
        "no component" if removed == 0 else f"{removed} clutter component{'' if removed == 1 else 's'}"
    )
    mean = "" if n_blocks is None else f"mean of {n_blocks} blocks, "
    dropped = "" if high == "none" else f", those from number {int(high) + 1} on dropped"
    return f"{shortened(stem, _STEM_LETTERS)}: {quantity}, {mean}{components} removed{dropped}"


def _title(series: ResultSeries, stem: str, quantity: str) -> str:
    low, n_good = int(series.fit.options.low_cutoff), int((~series.is_bad).sum())
    return figure_title(stem, quantity, low, series.high_cutoff, n_good if series.is_session else None)


def _common_range(series: ResultSeries, display: Display) -> DynamicRange:
    """Return the range of both power images, so that they can be compared: the wider one unless it is given."""
    if display.dynamic_range is not None:
        return display.dynamic_range
    return max(suitable_range_db(shown_levels(series.means[name], display)) for name in QUANTITIES)


def _power(name: str, series: ResultSeries, stem: str, display: Display, kind: str) -> bytes:
    levels, geometry = shown_levels(series.means[name], display), series.geometry
    scale = power_scale(levels, _common_range(series, display), display.color_map, QUANTITIES[name])
    panels = panels_of(np.clip(levels, scale.lowest, scale.highest), geometry.spatial_axes)
    # Both maps have the size of the one with the longer title.
    titles = {quantity: _title(series, stem, quantity) for quantity in QUANTITIES.values()}
    title, longest = titles[QUANTITIES[name]], max(titles.values(), key=len)
    return panel_picture(panels, scale, geometry.spacing_mm, title, kind, longest)


def tsnr_levels(series: ResultSeries, display: Display) -> tuple[NDArray[np.float32], ColorScale]:
    """Return the tSNR in dB, and its colours."""
    levels = decibels(np.maximum(series.means["tsnr"], 0) ** 2, display.db_factor, 1.0)
    finite = levels[np.isfinite(levels)]
    brightest = float(np.percentile(finite, BRIGHTEST_PERCENT)) if finite.size else 0.0
    limits = (0.0, max(LEAST_TSNR_DB, TSNR_STEP_DB * math.ceil(brightest / TSNR_STEP_DB)))
    scale = power_scale(levels, limits, display.color_map, "tSNR")
    return np.clip(levels, *limits), replace(scale, label="tSNR (dB)")


def _tsnr(series: ResultSeries, stem: str, display: Display, kind: str) -> bytes:
    levels, scale = tsnr_levels(series, display)
    panels, spacing = panels_of(levels, series.geometry.spatial_axes), series.geometry.spacing_mm
    return panel_picture(panels, scale, spacing, _title(series, stem, "tSNR"), kind)


def _velocity(series: ResultSeries, display: Display) -> Drawing:
    means, unit = series.means, series.attributes["axial_velocity"]["unit"]
    return velocity_drawing(
        means["axial_velocity"],
        means["blood_power"],
        series.geometry.spatial_axes,
        unit=unit,
        shows_blood=blood_pixels(means["blood_power"], means["noise_power"]),
    )


def _directional(series: ResultSeries, display: Display) -> Drawing:
    positive, negative = (series.means[f"directional_power_{sign}"] for sign in ("positive", "negative"))
    return _two_directions(positive, negative, series, display, "directional power")


def _signed(series: ResultSeries, display: Display) -> Drawing:
    signed = series.means["signed_power"]
    return _two_directions(np.maximum(signed, 0), np.maximum(-signed, 0), series, display, "signed power")


def _two_directions(
    positive: NDArray[Any], negative: NDArray[Any], series: ResultSeries, display: Display, quantity: str
) -> Drawing:
    return directional_drawing(
        positive,
        negative,
        series.geometry.spatial_axes,
        db_factor=display.db_factor,
        dynamic_range_db=display.dynamic_range,
        quantity=quantity,
    )


FLOW_DRAWINGS = {"velocity": _velocity, "directional": _directional, "signed": _signed}
"""Name of a product of the flow -> the function that returns its drawing for a series and the options of pictures."""


def _flow(name: str, series: ResultSeries, stem: str, display: Display, kind: str) -> bytes:
    drawing = FLOW_DRAWINGS[name](series, display)
    title = _title(series, stem, drawing.quantity)
    return panel_picture(drawing.panels, drawing.scale, series.geometry.spacing_mm, title, kind)


PICTURES = {
    "blood_power": ResultPicture(
        "Blood map",
        "Power of the blood before the clutter filter, without the noise. Slow and transverse flow may be missing.",
        "blood_power",
        partial(_power, "blood_power"),
    ),
    "power_doppler": ResultPicture(
        "Power Doppler",
        "Mean power of the filtered frames, noise included: what other programs show.",
        "power_doppler",
        partial(_power, "power_doppler"),
    ),
    "velocity": ResultPicture(
        "Axial velocity",
        "From the phase of the lag-one autocorrelation. Red is towards the probe, blue away. Grey: no blood.",
        "axial_velocity",
        partial(_flow, "velocity"),
    ),
    "directional": ResultPicture(
        "Directional power",
        "Power at positive (red, towards the probe) and at negative Doppler frequencies (blue, away).",
        "directional_power_positive",
        partial(_flow, "directional"),
    ),
    "signed": ResultPicture(
        "Signed power",
        "Power with the sign of the stronger direction: red towards the probe, blue away.",
        "signed_power",
        partial(_flow, "signed"),
    ),
    "tsnr": ResultPicture(
        "tSNR",
        "Temporal signal to noise ratio: 20 log10 of the mean of the blood power in the good blocks over its standard "
        "deviation. Pixels without blood have no meaning.",
        "tsnr",
        _tsnr,
    ),
}
"""Name of a product -> its picture."""


_POWERS = {
    "power_doppler": "power Doppler (dB)",
    "blood_power": "blood power (dB)",
    "noise_power": "noise power (dB)",
}

_OF_SESSIONS = ("tsnr", "activation")


class HasSeries(Protocol):
    """The result of :func:`usdenoise.session`."""

    @property
    def series(self) -> ResultSeries:
        """Images, means and records of the blocks."""


def plot(
    result: DenoiseResult | HasSeries,
    image: str = "power_doppler",
    *,
    ax: Any = None,
    dynamic_range_db: float | None = None,
    colorbar: bool = True,
    trial_type: str | None = None,
) -> Any:
    """Draw an image of a result, depth downwards, and return the axes.

    Powers are in dB. Axes are in mm where the pixel pitch is known. For a volume the maximum over elevation is drawn, for
    flow the strongest voxel. Power images of a session are means over the good blocks.

    Parameters
    ----------
    result : DenoiseResult or SessionResult
        From :func:`usdenoise.denoise` or :func:`usdenoise.session`.
    image : str
        "power_doppler", the default, "blood_power" or "noise_power"; "velocity", "directional" or "signed" of a complex
        stack; "tsnr" or "activation" (t of the active pixels over the blood map) of a session.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the current axes of pyplot.
    dynamic_range_db : float, optional
        Power this many dB below the maximum, and less, is black; by default it is chosen from the image. The velocity, the
        tSNR and the activation have none.
    colorbar : bool
        Whether a colour bar is added; by default True. An activation has two.
    trial_type : str, optional
        Type of event of an activation, or "any type" for F of several; by default the only one.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    OptionError
        If the image is not known, shows flow and the stack is real, or the session has no such activation.

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
    known = (*_POWERS, *(FLOW_DRAWINGS if is_stack else _OF_SESSIONS))
    if image not in known:
        raise OptionError(f"image '{image}' is not known; choose one of {', '.join(known)}")
    products = (image,) if image in FLOW_DRAWINGS else ()
    series = series_of_stack(result, products) if isinstance(result, DenoiseResult) else result.series
    stack, spatial = series.geometry, series.geometry.spatial_axes
    if image in FLOW_DRAWINGS:
        drawing = FLOW_DRAWINGS[image](series, Display(dynamic_range=dynamic_range_db))
        return _draw([(drawing.panels[0], drawing.scale)], stack, ax, colorbar)
    if image == "activation":
        activation = _activation(series, trial_type)
        panels, overlay = activation_layers(
            activation.statistic, activation.active, series.means["blood_power"], spatial, activation.letter
        )
        layers = [(panels[0], BLOOD_SCALE)]
        if overlay is not None:
            layers.append((overlay[0][0], overlay[1]))
        return _draw(layers, stack, ax, colorbar)
    if image == "tsnr":
        levels, scale = tsnr_levels(series, Display())
        return _draw([(front_view(levels, spatial), scale)], stack, ax, colorbar)
    panel = front_view(decibels(series.means[image]), spatial)
    scale = replace(power_scale(panel.image, dynamic_range_db), label=_POWERS[image])
    panel = replace(panel, image=np.maximum(panel.image, scale.lowest))
    return _draw([(panel, scale)], stack, ax, colorbar)


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
        raise OptionError(
            f"trial_type '{trial_type}' is not known; choose one of {', '.join(known)}"
            if trial_type is not None
            else f"the session has {len(series.activation)} trial types; give trial_type, one of {', '.join(known)}"
        )
    return maps[trial_type]


def _draw(layers: Sequence[tuple[Panel, ColorScale]], stack: GriddedStack, ax: Any, colorbar: bool) -> Any:
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.gca()
    spacing = stack.spacing_mm
    for number, (panel, scale) in enumerate(layers):
        drawn = draw_panel(ax, panel, scale, spacing)
        if colorbar:
            # The bar of the next layer, and its label, come between the axes and this bar.
            is_last = number == len(layers) - 1
            add_colorbar(ax.figure, drawn, scale, ax=ax, pad=0.05 if is_last else 0.15)
    ax.set_xlabel(axis_label(panel.columns, spacing))
    ax.set_ylabel(axis_label(panel.rows, spacing))
    return ax
