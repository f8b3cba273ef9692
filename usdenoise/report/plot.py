"""A picture of a result in axes of matplotlib."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from usdenoise.blood.power_doppler import decibels
from usdenoise.errors import OptionError
from usdenoise.options.job_options import Display
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.report.activation_picture import BLOOD_SCALE, activation_layers
from usdenoise.report.figures import ColorScale, power_scale
from usdenoise.report.panels import Panel, add_colorbar, axis_label, draw_panel, front_view
from usdenoise.report.result_pictures import FLOW_DRAWINGS, tsnr_levels
from usdenoise.report.series import ResultSeries, series_of_stack
from usdenoise.sessions.activation import ActivationMap
from usdenoise.stack.geometry import GriddedStack

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
        Type of event of an activation; by default the only one.

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
            activation.t, activation.active, series.means["blood_power"], spatial
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
    known = list(series.activation)
    if not known:
        raise OptionError("the session has no activation map", remedy="give {events}")
    if trial_type is None and len(known) == 1:
        return series.activation[known[0]]
    if trial_type not in known:
        raise OptionError(
            f"trial_type '{trial_type}' is not known; choose one of {', '.join(known)}"
            if trial_type is not None
            else f"the session has {len(known)} trial types; give trial_type, one of {', '.join(known)}"
        )
    return series.activation[trial_type]


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
