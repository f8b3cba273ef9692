"""A picture of a result in axes of matplotlib."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from usdenoise.blood.power_doppler import decibels
from usdenoise.errors import OptionError
from usdenoise.options.job_options import Display
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.report.figures import ColorScale, power_scale
from usdenoise.report.panels import Panel, add_colorbar, axis_label, draw_panel, front_view
from usdenoise.report.result_pictures import FLOW_DRAWINGS
from usdenoise.report.series import series_of_stack
from usdenoise.stack.geometry import GriddedStack

_IMAGES = {
    "power_doppler": "power Doppler (dB)",
    "blood_power": "blood power (dB)",
    "noise_power": "noise power (dB)",
}


def plot(
    result: DenoiseResult,
    image: str = "power_doppler",
    *,
    ax: Any = None,
    dynamic_range_db: float | None = None,
    colorbar: bool = True,
) -> Any:
    """Draw an image of a result, depth downwards, and return the axes.

    Powers are in dB. Axes are in mm where the pixel pitch is known. For a volume the maximum over elevation is drawn, for
    flow the strongest voxel.

    Parameters
    ----------
    result : DenoiseResult
        From :func:`usdenoise.denoise`.
    image : str
        "power_doppler", the default, "blood_power" or "noise_power"; "velocity", "directional" or "signed" of a complex
        stack.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the current axes of pyplot.
    dynamic_range_db : float, optional
        Power this many dB below the maximum, and less, is black; by default it is chosen from the image. The velocity has
        none.
    colorbar : bool
        Whether a colour bar is added; by default True.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    OptionError
        If the image is not known, or shows flow and the stack is real.

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
    check_image(image, (*_IMAGES, *FLOW_DRAWINGS))
    stack = result.acquisition
    if image in FLOW_DRAWINGS:
        series = series_of_stack(result, (image,))
        drawing = FLOW_DRAWINGS[image](series, Display(dynamic_range=dynamic_range_db))
        return _draw(drawing.panels[0], drawing.scale, stack, ax, colorbar)
    return plot_power(
        getattr(result, image),
        stack,
        image,
        ax=ax,
        dynamic_range_db=dynamic_range_db,
        colorbar=colorbar,
    )


def check_image(image: str, known: Collection[str] = tuple(_IMAGES)) -> None:
    """Check the name of an image against the names that are known, by default the power images.

    Raises
    ------
    OptionError
        If there is no such image.
    """
    if image not in known:
        raise OptionError(f"image '{image}' is not known; choose one of {', '.join(known)}")


def plot_power(
    power: Any,
    stack: GriddedStack,
    image: str,
    *,
    ax: Any = None,
    dynamic_range_db: float | None = None,
    colorbar: bool = True,
) -> Any:
    """Draw the values of an image of power as :func:`plot` does, and return the axes.

    Parameters
    ----------
    power : array
        The image, spatial axes in the order of the stack.
    stack : Geometry or Acquisition
        Its axes and scales.
    image, ax, dynamic_range_db, colorbar
        As for :func:`plot`.
    """
    spatial = stack.spatial_axes
    panel = front_view(decibels(np.asarray(power).reshape(stack.shape_in(spatial))), spatial)
    scale = replace(power_scale(panel.image, dynamic_range_db), label=_IMAGES[image])
    panel = replace(panel, image=np.maximum(panel.image, scale.lowest))
    return _draw(panel, scale, stack, ax, colorbar)


def _draw(panel: Panel, scale: ColorScale, stack: GriddedStack, ax: Any, colorbar: bool) -> Any:
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.gca()
    spacing = stack.spacing_mm
    drawn = draw_panel(ax, panel, scale, spacing)
    ax.set_xlabel(axis_label(panel.columns, spacing))
    ax.set_ylabel(axis_label(panel.rows, spacing))
    if colorbar:
        add_colorbar(ax.figure, drawn, scale, ax=ax)
    return ax
