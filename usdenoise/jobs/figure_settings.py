"""How the figures of a job look: titles that a stranger understands, and levels."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.images.power_doppler import decibels
from usdenoise.options.job_options import Display
from usdenoise.pictures.figures import shortened

QUANTITIES = {"power_doppler": "power Doppler", "blood_power": "blood power"}
"""What the power images show, in words."""

STEM_LETTERS = 40
"""Letters of the name of a scan in a title."""


def figure_title(stem: str, quantity: str, removed: int, high: str | int) -> str:
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
    """
    components = (
        "no component" if removed == 0 else f"{removed} clutter component{'' if removed == 1 else 's'}"
    )
    dropped = "" if high == "none" else f", those from number {int(high) + 1} on dropped"
    return f"{shortened(stem, STEM_LETTERS)}: {quantity}, {components} removed{dropped}"


def window_title(stem: str, quantity: str, windows: Sequence[Mapping[str, Any]]) -> str:
    """Return the title of the mean over windows, with the range of the components removed in them.

    Parameters
    ----------
    stem, quantity : str
        Name of the scan, and what the figure shows.
    windows : sequence of mapping
        Records of the windows, with their "low_cutoff".
    """
    cutoffs = [int(window["low_cutoff"]) for window in windows]
    low, high = min(cutoffs), max(cutoffs)
    components = f"{high}" if low == high else f"{low} to {high}"
    return (
        f"{shortened(stem, STEM_LETTERS)}: {quantity}, mean of {len(windows)} windows, {components} clutter components "
        "removed"
    )


def shown_levels(power: NDArray[Any], display: Display) -> NDArray[np.float32]:
    """Return a power in dB: below its maximum, or absolute where the range of the figures has two levels."""
    return decibels(power, display.db_factor, 1.0 if isinstance(display.dynamic_range, tuple) else None)
