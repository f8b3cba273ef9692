"""How the figures of a job look: titles that a stranger understands, and levels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.power_doppler import decibels
from usdenoise.options.job_options import Display
from usdenoise.report.figures import shortened

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


def session_title(stem: str, quantity: str, n_blocks: int, removed: int) -> str:
    """Return the title of the mean over the good blocks of a session.

    Parameters
    ----------
    stem, quantity : str
        Name of the session, and what the figure shows.
    n_blocks : int
        Number of good blocks.
    removed : int
        Number of components removed as clutter.
    """
    components = f"{removed} clutter component{'' if removed == 1 else 's'}"
    return f"{shortened(stem, STEM_LETTERS)}: {quantity}, mean of {n_blocks} blocks, {components} removed"


def shown_levels(power: NDArray[Any], display: Display) -> NDArray[np.float32]:
    """Return a power in dB: below its maximum, or absolute where the range of the figures has two levels."""
    return decibels(power, display.db_factor, 1.0 if isinstance(display.dynamic_range, tuple) else None)
