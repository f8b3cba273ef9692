"""The picture of an activation map: t of the active pixels over the blood map."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.power_doppler import decibels
from usdenoise.report.figures import ColorScale
from usdenoise.report.panels import panel_picture, panels_of
from usdenoise.sessions.activation import FALSE_DISCOVERY_RATE, ActivationMap

BLOOD_RANGE_DB = 30.0
"""Range of the blood map below an activation, and below the outlines of regions."""

_GREYS = 256


def activation_title(trial_type: str, activation: ActivationMap) -> str:
    """Return the title of the picture of an activation map."""
    n_active = int(activation.active.sum())
    if activation.threshold is None:
        return f"{trial_type}: no pixel is significant (false discovery rate {FALSE_DISCOVERY_RATE})"
    return (
        f"{trial_type}: {n_active} pixels with |t| of {activation.threshold:.2f} or more (false discovery rate "
        f"{FALSE_DISCOVERY_RATE})"
    )


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
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    grey = np.clip(1 + decibels(blood_power, 10.0, None) / BLOOD_RANGE_DB, 0, 1 - 1 / _GREYS)
    spacing_mm = spacing_mm or {}
    if not active.any():
        greys = ColorScale("gray", 0.0, 1.0, "blood power", {0.0: f"-{BLOOD_RANGE_DB:.0f} dB", 1.0: "0 dB"})
        return panel_picture(panels_of(grey, axes), greys, spacing_mm, title, kind)
    largest = float(np.abs(t[active]).max())
    # One scale: greys from 0 to 1, colours of t from 1 to 2.
    shown = np.where(active, 1.5 + 0.499 * np.nan_to_num(t) / largest, grey)
    weight = np.where(active, 1 + np.abs(np.nan_to_num(t)), grey)
    part = np.linspace(0, 1, _GREYS)
    colours = np.concatenate([colormaps["gray"](0.8 * part), colormaps["coolwarm"](part)])
    ticks = {
        0.0: f"-{BLOOD_RANGE_DB:.0f} dB",
        1.0: f"0 dB, t {-largest:.1f}",
        1.5: "t 0",
        2.0: f"t {largest:.1f}",
    }
    label = "grey: blood power; colour: t of active pixels"
    scale = ColorScale(ListedColormap(colours), 0.0, 2.0, label, ticks)
    return panel_picture(panels_of(shown, axes, weight), scale, spacing_mm, title, kind)
