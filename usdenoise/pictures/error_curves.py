"""Error curves with their spread, one panel a setting: the encoded bytes of a PNG."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.pictures.figures import figure_png

# The colours of Okabe and Ito, which people with any common colour vision tell apart, without yellow.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_STYLES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
_LOWEST, _HIGHEST = 1e-17, 1e3
_COLUMNS, _DPI = 2, 100


@dataclass(frozen=True)
class Line:
    """One curve.

    Attributes
    ----------
    label : str
        In the legend.
    x : (k,) array
        Where it is known.
    quartiles : (3, k) array
        Lower quartile, median and upper quartile: a band, and the line in it.
    """

    label: str
    x: NDArray[Any]
    quartiles: NDArray[Any]


@dataclass(frozen=True)
class Setting:
    """One panel.

    Attributes
    ----------
    title : str
        Above it.
    lines : sequence of Line
        Its curves.
    floor : float or None
        Drawn as a level, named noise floor.
    """

    title: str
    lines: Sequence[Line]
    floor: float | None = None


def curves_png(settings: Sequence[Setting], *, title: str, x_label: str, y_label: str) -> bytes:
    """Picture of error curves on a log scale, two panels a row.

    Errors below 1e-17 and above 1e3 are drawn at the edge.

    Parameters
    ----------
    settings : sequence of Setting
        The panels.
    title : str
        Above the picture.
    x_label, y_label : str
        Of every panel.

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
        for number, line in enumerate(setting.lines):
            low, median, high = np.clip(line.quartiles, _LOWEST, _HIGHEST)
            color = _COLORS[number % len(_COLORS)]
            style = _STYLES[number % len(_STYLES)]
            panel.fill_between(line.x, low, high, color=color, alpha=0.2, linewidth=0)
            panel.plot(line.x, median, color=color, linestyle=style, linewidth=1.6, label=line.label)
        if setting.floor is not None:
            panel.axhline(setting.floor, color="gray", linewidth=1.0, label="noise floor")
        panel.set_yscale("log")
        panel.set_title(setting.title, fontsize="medium", parse_math=False)
        panel.set_xlabel(x_label)
        panel.set_ylabel(y_label)
        panel.grid(alpha=0.3)
        # Below the axes, where it hides nothing.
        panel.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3)
    figure.suptitle(title, fontsize="medium", parse_math=False)
    return figure_png(figure)
