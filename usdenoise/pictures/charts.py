"""Line charts as SVG that takes the colours of its page, with their numbers as text for a screen reader."""

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from usdenoise.system.printable import printable

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 14, 12, 50
_MOST_POINTS = 400
"""Points of a line. A longer one is thinned to the smallest and the largest value of each of 200 stretches."""

_MOST_NAMED = 20
"""Marked points whose positions are named in the words of a chart."""

_MOST_DOTS = 60
"""Points up to which each is marked with a dot."""


@dataclass(frozen=True)
class Chart:
    """A line chart.

    Attributes
    ----------
    title : str
        What the line shows.
    x_label, y_label : str
        Quantity and unit of each axis.
    x, y : sequence of float
        Positions and values of the points. Points with a value that is None or not finite are left out.
    mark : float or None
        Position of a vertical line; by default None, for no line.
    mark_label : str
        Text of the vertical line.
    flagged : sequence of float
        Positions of points that are marked with a ring; by default none.
    least_span : float
        Smallest range of the y axis, so that small differences do not look large; by default 0.
    """

    title: str
    x_label: str
    y_label: str
    x: Sequence[float]
    y: Sequence[float | None]
    mark: float | None = None
    mark_label: str = ""
    flagged: Sequence[float] = ()
    least_span: float = 0.0

    @property
    def points(self) -> list[tuple[float, float]]:
        """The points that can be drawn."""
        pairs = zip(self.x, self.y, strict=True)
        return [(float(x), float(y)) for x, y in pairs if y is not None and math.isfinite(y)]

    @property
    def text(self) -> str:
        """The chart in words, with its numbers."""
        points = self.points
        if not points:
            return f"{self.title}: no values"
        lowest, highest = min(points, key=lambda p: p[1]), max(points, key=lambda p: p[1])
        words = (
            f"{self.title}: {len(points)} points of {self.y_label} over {self.x_label}, "
            f"first {_number(points[0][1])}, last {_number(points[-1][1])}, "
            f"smallest {_number(lowest[1])} at {_number(lowest[0])}, "
            f"largest {_number(highest[1])} at {_number(highest[0])}"
        )
        if self.mark is not None:
            words += f"; line at {_number(self.mark)}: {self.mark_label}"
        if self.flagged:
            more = len(self.flagged) - _MOST_NAMED
            named = ", ".join(map(_number, self.flagged[:_MOST_NAMED]))
            words += f"; marked at {named}" + (f" and {more} more" if more > 0 else "")
        return words


@dataclass(frozen=True)
class Carpet:
    """An image below the charts, with their horizontal axis.

    Attributes
    ----------
    title : str
        What it shows.
    x_label, y_label : str
        Quantity and unit of each axis.
    n_columns : int
        Positions along the horizontal axis, counted from 0.
    png : bytes
        The image, stretched over the axes.
    text : str
        The image in words.
    """

    title: str
    x_label: str
    y_label: str
    n_columns: int
    png: bytes
    text: str


def svg(chart: Chart) -> str:
    """Return a chart as an SVG element; it is empty where the chart has no points.

    Parameters
    ----------
    chart : Chart
        The chart. Its texts are escaped.
    """
    points = chart.points
    if not points:
        return ""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    marked = [] if chart.mark is None else [chart.mark]
    spare = max(0.0, chart.least_span - (max(ys) - min(ys))) / 2
    x_ticks = ticks(min(xs + marked), max(xs + marked))
    y_ticks = ticks(min(ys) - spare, max(ys) + spare)
    x_low, x_high = min(x_ticks[0], *xs, *marked), max(x_ticks[-1], *xs, *marked)
    y_low, y_high = min(y_ticks[0], *ys), max(y_ticks[-1], *ys)

    across = _scale(x_low, x_high)

    def down(y: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (y_high - y) / (y_high - y_low)

    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [_opening(chart.text)]
    for tick in y_ticks:
        y = down(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(tick)}</text>')
    parts += _axes(x_ticks, across, chart.x_label, chart.y_label)
    if chart.mark is not None:
        x = across(chart.mark)
        # The text goes to the side with more room.
        left = x > (_LEFT + right) / 2
        place = f'x="{x - 6 if left else x + 6:.1f}" text-anchor="{"end" if left else "start"}"'
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="mark-label" {place} y="{_TOP + 12}">{_shown(chart.mark_label)}</text>')
    drawn = [(across(x), down(y)) for x, y in _thinned(points)]
    parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)}"/>')
    if len(points) <= _MOST_DOTS:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in drawn]
    flagged = set(chart.flagged)
    parts += [
        f'<circle class="flag" cx="{across(x):.1f}" cy="{down(y):.1f}" r="5"/>'
        for x, y in points
        if x in flagged
    ]
    return "".join([*parts, "</svg>"])


def carpet_svg(carpet: Carpet) -> str:
    """Return a carpet as an SVG element whose positions are those of charts over the same columns.

    Parameters
    ----------
    carpet : Carpet
        The carpet. Its texts are escaped.
    """
    last = carpet.n_columns - 1
    x_ticks = ticks(0, last)
    across = _scale(x_ticks[0], max(x_ticks[-1], last))
    left, right = across(-0.5), across(last + 0.5)
    source = f"data:image/png;base64,{base64.b64encode(carpet.png).decode()}"
    image = (
        f'<image x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{_HEIGHT - _BOTTOM - _TOP}" '
        f'preserveAspectRatio="none" href="{source}"/>'
    )
    parts = [_opening(carpet.text), image, *_axes(x_ticks, across, carpet.x_label, carpet.y_label), "</svg>"]
    return "".join(parts)


def _scale(low: float, high: float) -> Callable[[float], float]:
    return lambda x: _LEFT + (_WIDTH - _LEFT - _RIGHT) * (x - low) / (high - low)


def _opening(text: str) -> str:
    return f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_shown(text)}">'


def _axes(
    x_ticks: Sequence[float], across: Callable[[float], float], x_label: str, y_label: str
) -> list[str]:
    """Return both axes with the ticks of the horizontal one and the labels of both."""
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    for tick in x_ticks:
        x = across(tick)
        parts.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{_number(tick)}</text>')
    middle, height = (_LEFT + right) / 2, (_TOP + bottom) / 2
    parts.append(f'<path class="axes" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>')
    parts.append(f'<text x="{middle:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{_shown(x_label)}</text>')
    parts.append(
        f'<text transform="translate(13 {height:.1f}) rotate(-90)" text-anchor="middle">{_shown(y_label)}</text>'
    )
    return parts


def ticks(low: float, high: float) -> list[float]:
    """Return four to ten round numbers in steps of 1, 2 or 5 that reach over a range, or one step around a value."""
    if not high > low:
        width = abs(low) * 0.1 or 1.0
        low, high = low - width, high + width
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _shown(text: str) -> str:
    return escape(printable(text))


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= _MOST_POINTS:
        return points
    length = math.ceil(2 * len(points) / _MOST_POINTS)
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), length):
        stretch = points[start : start + length]
        ends = {min(stretch, key=lambda p: p[1]), max(stretch, key=lambda p: p[1])}
        kept += sorted(ends)
    return kept


def _number(value: float) -> str:
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}") if value else "0"
