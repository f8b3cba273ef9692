"""The picture of regions: where they are on the blood map, and their blood power over the blocks on one scale."""

from typing import Any

import numpy as np

from usdenoise.blood.power_doppler import decibels
from usdenoise.report.activation_picture import BLOOD_RANGE_DB, BLOOD_SCALE
from usdenoise.report.figures import LINE_COLORS, add_title, encoded
from usdenoise.report.panels import axis_label, draw_panel, front_view
from usdenoise.report.series import ResultSeries
from usdenoise.sessions.regions import WHOLE_IMAGE, relative_change

REGIONS = "regions"
"""Name of the picture and of the table."""

_STYLES = ("-", "--", "-.", ":")
_INCHES, _DPI = (9.0, 3.6), 150


def region_picture(series: ResultSeries, title: str, kind: str) -> bytes:
    """Draw the outlines of the regions on the blood map, and the change of their blood power, all on one scale.

    Parameters
    ----------
    series : ResultSeries
        A session with regions.
    title : str
        Text above the picture.
    kind : str
        "png", "pdf" or "svg".
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")
    image, lines = figure.subplots(1, 2, width_ratios=(1, 2))
    _draw_map(image, series)
    is_bad, labelled = series.is_bad, set[str]()
    for name, region in series.regions.items():
        # The scale is the one of the good blocks.
        change = np.where(is_bad, np.nan, relative_change(region.blood_power, is_bad))
        label = f"{name} ({int(region.mask.sum())} pixels)"
        lines.plot(
            series.times, change, label=label, marker=".", markersize=4, linewidth=1.3, **_style(name, series)
        )
    for number, time in enumerate(series.times[is_bad]):
        lines.axvline(time, color="0.8", linewidth=3, zorder=0, label="bad block" if number == 0 else None)
    types = list(dict.fromkeys(event.trial_type for event in series.events))
    for event in series.events:
        number, is_first = types.index(event.trial_type), event.trial_type not in labelled
        labelled.add(event.trial_type)
        lines.axvspan(
            event.onset,
            event.onset + event.duration,
            color=LINE_COLORS[-2 - number % (len(LINE_COLORS) - 1)],
            alpha=0.15,
            zorder=-1,
            label=event.trial_type if is_first else None,
        )
    if len(series.times) > 1:
        interval = float(np.median(np.diff(series.times)))
        lines.set_xlim(series.times[0] - interval, series.times[-1] + interval)
    lines.set_xlabel(f"time ({series.time_unit})")
    lines.set_ylabel("blood power (% from its mean)")
    lines.grid(alpha=0.3)
    for text in figure.legend(loc="outside lower center", ncols=4, fontsize="small").get_texts():
        text.set_parse_math(False)
    add_title(figure, title)
    return encoded(figure, kind, crop=False)


def _draw_map(subplot: Any, series: ResultSeries) -> None:
    geometry = series.geometry
    levels = np.maximum(decibels(series.means["blood_power"], 10.0, None), -BLOOD_RANGE_DB)
    panel = front_view(levels, geometry.spatial_axes)
    draw_panel(subplot, panel, BLOOD_SCALE, geometry.spacing_mm)
    pitch = [geometry.spacing_mm.get(letter, 1.0) for letter in (panel.rows, panel.columns)]
    for name, region in series.regions.items():
        if name != WHOLE_IMAGE:
            # Drawn around the pixels, also at the edge of the image.
            mask = np.pad(front_view(region.mask, geometry.spatial_axes).image, 1).astype(float)
            rows, columns = ((np.arange(n) - 0.5) * step for n, step in zip(mask.shape, pitch, strict=True))
            style = _style(name, series)
            subplot.contour(columns, rows, mask, [0.5], colors=style["color"], linestyles=style["linestyle"])
    subplot.set_xlabel(axis_label(panel.columns, geometry.spacing_mm))
    subplot.set_ylabel(axis_label(panel.rows, geometry.spacing_mm))


def _style(name: str, series: ResultSeries) -> dict[str, Any]:
    if name == WHOLE_IMAGE:
        return {"color": "0.5", "linestyle": "-"}
    number = list(series.regions).index(name) - 1
    color = LINE_COLORS[number % len(LINE_COLORS)]
    return {"color": color, "linestyle": _STYLES[number // len(LINE_COLORS) % len(_STYLES)]}
