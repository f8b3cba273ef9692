"""The picture of an activation map: t of the active pixels over the blood map."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.power_doppler import decibels
from usdenoise.report.figures import ColorScale, encoded
from usdenoise.report.panels import Panel, panel_figure, panels_of
from usdenoise.report.record import ActivationRecord
from usdenoise.sessions.activation import ActivationMap

BLOOD_RANGE_DB = 30.0
"""Range of the blood map below an activation, and below the outlines of regions."""

BLOOD_SCALE = ColorScale("gray", -BLOOD_RANGE_DB, 0.0, "blood power (dB re maximum)")


def activation_title(trial_type: str, activation: ActivationMap) -> str:
    """Return the title of the picture of an activation map."""
    return f"{trial_type}: {ActivationRecord.of(trial_type, activation).sentence}"


def activation_picture(
    t: NDArray[Any],
    active: NDArray[np.bool_],
    blood_power: NDArray[Any],
    axes: str,
    *,
    kind: str = "png",
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
) -> bytes:
    """Draw t of the active pixels in colour, over the blood map in grey.

    Parameters
    ----------
    t : 2-D or 3-D array
        t of the response. A projection of a volume shows the most active voxel.
    active : boolean array of the same shape
        Pixels that are shown as active.
    blood_power : 2-D or 3-D array
        Mean blood power.
    axes : str
        Axis letters of all three.
    kind, spacing_mm, title
        Format, pixel pitch and text above the picture, as for
        :func:`usdenoise.report.doppler_pictures.power_doppler_picture`.

    Returns
    -------
    bytes
        The encoded picture.
    """
    panels, overlay = activation_layers(t, active, blood_power, axes)
    figure = panel_figure(panels, BLOOD_SCALE, spacing_mm or {}, title, overlay=overlay)
    return encoded(figure, kind, crop=False)


def activation_layers(
    t: NDArray[Any], active: NDArray[np.bool_], blood_power: NDArray[Any], axes: str
) -> tuple[list[Panel], tuple[list[Panel], ColorScale] | None]:
    """Return the panels of the blood map, and of t with its scale, NaN in other pixels; None without an active pixel."""
    levels = np.maximum(decibels(blood_power, 10.0, None), -BLOOD_RANGE_DB)
    if not active.any():
        return panels_of(levels, axes), None
    largest = float(np.abs(t[active]).max())
    shown, weight = np.where(active, t, np.nan), np.where(active, np.abs(t), -1.0)
    scale = ColorScale("coolwarm", -largest, largest, "t of active pixels")
    return panels_of(levels, axes), (panels_of(shown, axes, weight), scale)
