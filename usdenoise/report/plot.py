"""A picture of a result in axes of matplotlib."""

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from usdenoise.blood.power_doppler import decibels
from usdenoise.errors import OptionError
from usdenoise.report.figures import power_scale
from usdenoise.report.panels import axis_label, draw_panel, front_view
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.geometry import GriddedStack

_IMAGES = {
    "power_doppler": "power Doppler (dB)",
    "blood_power": "blood power (dB)",
    "noise_power": "noise power (dB)",
}


class _Result(Protocol):
    @property
    def acquisition(self) -> Acquisition: ...


def plot(
    result: _Result,
    image: str = "power_doppler",
    *,
    ax: Any = None,
    dynamic_range_db: float | None = None,
    colorbar: bool = True,
) -> Any:
    """Draw an image of a result in dB, depth downwards, and return the axes.

    Axes are in mm where the pixel pitch is known. Of a volume the maximum over elevation is drawn.

    Parameters
    ----------
    result : DenoiseResult
        From :func:`usdenoise.denoise`.
    image : str
        "power_doppler", the default, "blood_power" or "noise_power".
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the current axes of pyplot.
    dynamic_range_db : float, optional
        Power this many dB below the maximum, and less, is black; by default it is chosen from the image.
    colorbar : bool
        Whether a colour bar is added; by default True.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    OptionError
        If there is no such image.

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
    check_image(image)
    return plot_power(
        getattr(result, image),
        result.acquisition,
        image,
        ax=ax,
        dynamic_range_db=dynamic_range_db,
        colorbar=colorbar,
    )


def check_image(image: str) -> None:
    """Check the name of an image.

    Raises
    ------
    OptionError
        If there is no such image.
    """
    if image not in _IMAGES:
        raise OptionError(f"image '{image}' is not known; choose one of {', '.join(_IMAGES)}")


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
    spatial, spacing = stack.spatial_axes, stack.spacing_mm
    panel = front_view(decibels(np.asarray(power).reshape(stack.shape_in(spatial))), spatial)
    scale = power_scale(panel.image, dynamic_range_db)
    panel = replace(panel, image=np.maximum(panel.image, scale.lowest))
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.gca()
    drawn = draw_panel(ax, panel, scale, spacing)
    ax.set_xlabel(axis_label(panel.columns, spacing))
    ax.set_ylabel(axis_label(panel.rows, spacing))
    if colorbar:
        ax.figure.colorbar(drawn, ax=ax, label=_IMAGES[image])
    return ax
