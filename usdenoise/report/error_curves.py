"""Error curves with their spread on a log scale, one panel for each setting, encoded as PNG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.report.figures import LINE_COLORS, add_title, encoded

_STYLES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
_LOWEST, _HIGHEST = 1e-17, 1e3
"""Smallest and largest relative error drawn: below the rounding of double precision, and divergence."""

_COLUMNS, _DPI = 2, 100


@dataclass(frozen=True)
class Setting:
    """One panel of curves.

    Attributes
    ----------
    title : str
        Text above the panel.
    lines : mapping from str to ((k,) array, (3, k) array)
        Text in the legend -> positions along the x axis, and lower quartile, median and upper quartile of the error. The
        median is drawn as a line, and the range between the quartiles as a band.
    floor : float or None
        Error at the noise floor, drawn as a horizontal line; None draws no line.
    """

    title: str
    lines: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]
    floor: float | None = None


def curves_png(settings: Sequence[Setting], *, title: str, x_label: str, y_label: str) -> bytes:
    """Draw error curves on a log scale, two panels in a row.

    Errors below 1e-17 are drawn at 1e-17, and errors above 1e3 at 1e3.

    Parameters
    ----------
    settings : sequence of Setting
        The panels, at least one.
    title : str
        Text above all panels.
    x_label, y_label : str
        Labels of the two axes, the same in every panel.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib.figure import Figure

    n_columns = min(_COLUMNS, len(settings))
    n_rows = -(-len(settings) // n_columns)
    figure = Figure(figsize=(5.2 * n_columns, 4.1 * n_rows + 0.3), dpi=_DPI, layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False).reshape(-1)
    for panel in panels[len(settings) :]:
        panel.set_axis_off()
    for panel, setting in zip(panels, settings, strict=False):
        for number, (label, (x, quartiles)) in enumerate(setting.lines.items()):
            low, median, high = np.clip(quartiles, _LOWEST, _HIGHEST)
            color = LINE_COLORS[number % len(LINE_COLORS)]
            style = _STYLES[number % len(_STYLES)]
            panel.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
            panel.plot(x, median, color=color, linestyle=style, linewidth=1.6, label=label)
        if setting.floor is not None:
            panel.axhline(setting.floor, color="gray", linewidth=1.0, label="noise floor")
        panel.set_yscale("log")
        panel.set_title(setting.title, fontsize="medium", parse_math=False)
        panel.set_xlabel(x_label)
        panel.set_ylabel(y_label)
        panel.grid(alpha=0.3)
        # Inside the axes the legend would hide curves.
        panel.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3)
    add_title(figure, title)
    return encoded(figure, crop=False)
