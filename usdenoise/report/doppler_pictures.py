"""Pictures of a filtered stack: power Doppler, directional power and axial velocity."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.power_doppler import decibels
from usdenoise.options.job_options import COLOR_MAPS, DynamicRange
from usdenoise.report.figures import ColorScale, power_scale, suitable_range_db
from usdenoise.report.panels import Panel, panel_picture, panels_of

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
        colour; by default :func:`usdenoise.report.figures.suitable_range_db`.
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
