"""Line charts of pages as SVG, carpet plots, and the templates. Text is escaped for HTML, without control characters."""

import base64
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import cache_from_source
from pickle import UnpicklingError
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import decibels
from usdenoise.report.panels import png
from usdenoise.sessions.design import Event
from usdenoise.system.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from jinja2.bccache import Bucket
    from markupsafe import Markup


def template(name: str) -> "Template":
    """Return a compiled template, by the name of its file in the folder templates, such as scan.html.

    An expression in HTML or SVG that is not marked as safe is escaped, and a missing value is an error.
    """
    return _environment().get_template(name)


@cache
def _environment() -> "Environment":
    # A job imports it beside other work.
    import jinja2
    from jinja2 import compiler

    class Compiled(jinja2.FileSystemBytecodeCache):
        """Compiled templates beside the compiled modules, under the same conditions."""

        def get_source_checksum(self, source: str) -> str:
            # The code also depends on the compiler, and on the settings below.
            states = [os.stat(path) for path in (compiler.__file__, __file__)]
            return super().get_source_checksum(
                f"{[(each.st_size, each.st_mtime_ns) for each in states]} {source}"
            )

        def load_bytecode(self, bucket: "Bucket") -> None:
            with suppress(OSError, EOFError, UnpicklingError):
                super().load_bytecode(bucket)

        def dump_bytecode(self, bucket: "Bucket") -> None:
            if not sys.dont_write_bytecode:
                with suppress(OSError):
                    super().dump_bytecode(bucket)

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("usdenoise.report"),
        bytecode_cache=Compiled(os.path.dirname(cache_from_source(__file__))),
        autoescape=lambda name: name is None or not name.endswith(".txt"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Markup is a str as well, of text that has been through here.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters["data_address"] = lambda picture: (
        f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    )
    environment.filters["file_name"] = _file_name
    # From a page in the same folder
    environment.filters["address"] = lambda path: f"./{quote(os.fsencode(path))}"
    return environment


def _file_name(name: str) -> "Markup":
    """Return a name as markup that is broken between its parts, where it is longer than a line."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(printable(part)) for part in re.split(r"(?<=[/_])", name))


CARPET_DB = (-6.0, 12.0)
"""Levels of the darkest and of the brightest colour of the carpet. Speckle stays in the dark half."""

BLOCKS_DB = (-3.0, 3.0)
"""The same for the blood of blocks over their mean: an activation of 30 % is 1.1 dB."""


MOST_COLUMNS = 600
"""Columns of the carpet of a page, about as many as its charts have pixels across."""


_FRAME = {"width": 640, "height": 260, "left": 84, "right": 626, "top": 12, "bottom": 210}
"""Size of a drawing, and the edges of the area inside its axes."""

_MOST_POINTS = 400
"""Points of a line. A longer one is thinned to the smallest and the largest value of each of 200 stretches."""

_MOST_IN_LEGEND = 20
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
        Positions and values of the points. Points with a value that is None or not finite are omitted.
    mark : (float, str) or None
        Position of a vertical line, and its text; by default None, for no line.
    level : (float, str) or None
        Value of a horizontal line, and its text; by default None, for no line.
    flagged : sequence of float
        Positions of points that are marked with a ring; by default none. The y axis suits the other points; flagged
        points beyond it are drawn at its end.
    least_span : float
        Smallest range of the y axis, so that small differences do not look large; by default 0.
    events : sequence of Event
        Events that are shaded, in the unit of the horizontal axis; by default none.
    """

    title: str
    x_label: str
    y_label: str
    x: Sequence[float]
    y: Sequence[float | None]
    mark: tuple[float, str] | None = None
    level: tuple[float, str] | None = None
    flagged: Sequence[float] = ()
    least_span: float = 0.0
    events: Sequence[Event] = ()

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
            f"first {_number_text(points[0][1])}, last {_number_text(points[-1][1])}, "
            f"smallest {_number_text(lowest[1])} at {_number_text(lowest[0])}, "
            f"largest {_number_text(highest[1])} at {_number_text(highest[0])}"
        )
        for line, of_line in ((self.mark, ""), (self.level, "the value ")):
            if line is not None:
                words += f"; line at {of_line}{_number_text(line[0])}: {line[1]}"
        if self.flagged:
            more = len(self.flagged) - _MOST_IN_LEGEND
            named = ", ".join(map(_number_text, self.flagged[:_MOST_IN_LEGEND]))
            words += f"; marked at {named}" + (f" and {more} more" if more > 0 else "")
        if self.events:
            types = ", ".join(dict.fromkeys(event.trial_type for event in self.events))
            words += f"; {len(self.events)} events are shaded: {types}"
        return words

    @cached_property
    def svg(self) -> str:
        """The chart as an SVG element; empty if it has no points."""
        points = self.points
        if not points:
            return ""
        xs, flagged = [x for x, _ in points], set(self.flagged)
        ys = [y for x, y in points if x not in flagged] or [y for _, y in points]
        marked, levels = ([] if line is None else [line[0]] for line in (self.mark, self.level))
        spare = max(0.0, self.least_span - (max(ys) - min(ys))) / 2
        y_ticks = ticks(min(ys + levels) - spare, max(ys + levels) + spare)
        points = [(x, min(max(y, y_ticks[0]), y_ticks[-1])) for x, y in points]
        x_ticks = ticks(min(xs + marked), max(xs + marked))
        across, down = _scale(x_ticks, "left", "right"), _scale(y_ticks, "bottom", "top")
        return _drawing(
            "chart.svg",
            self,
            x_ticks,
            y_ticks=y_ticks,
            down=down,
            # A template takes ten times as long for each point.
            line=" ".join(f"{across(x)},{down(y)}" for x, y in _thinned(points)),
            dots=points if len(points) <= _MOST_DOTS else (),
            flagged=[point for point in points if point[0] in flagged],
        )


@dataclass(frozen=True)
class Carpet:
    """A carpet plot below the charts, with their horizontal axis: bands of pixels, from shallow to deep.

    Attributes
    ----------
    name : str
        What it shows.
    reference : str
        What the power of a band is divided by, and what the columns are, in words.
    x_label : str
        Quantity and unit of the horizontal axis.
    values : (n_bands, n_columns) array
        Power of each band over the reference.
    range_db : (float, float)
        Levels of black and white.
    step : float
        Distance of two columns on the horizontal axis, the first at 0.
    """

    name: str
    reference: str
    x_label: str
    values: NDArray[np.floating]
    range_db: tuple[float, float]
    step: float
    y_label = "depth"

    @property
    def title(self) -> str:
        """What it shows, with the levels of black and white."""
        low, high = self.range_db
        return f"{self.name} ({low:.0f} to {high:.0f} dB)".replace("-", "\N{MINUS SIGN}")

    @property
    def text(self) -> str:
        """The carpet in words."""
        return f"{self.title}, black to white, over {self.reference}"

    @property
    def png(self) -> bytes:
        """The image in grey, at most MOST_COLUMNS wide, which is stretched over the axes.

        Where a column covers several frames, it shows their maximum.
        """
        n_columns, (darkest, brightest) = self.values.shape[1], self.range_db
        firsts = np.arange(0, n_columns, max(1, -(-n_columns // MOST_COLUMNS)))
        levels = decibels(np.maximum.reduceat(self.values, firsts, axis=1), reference=1.0)
        shares = np.clip((levels - darkest) / (brightest - darkest), 0, 1)
        return png(np.round(255 * shares).astype(np.uint8))

    @cached_property
    def svg(self) -> str:
        """The carpet as an SVG element, whose positions match charts over the same columns."""
        return _drawing("carpet.svg", self, ticks(0, self.step * (self.values.shape[1] - 1)))


def ticks(low: float, high: float) -> list[float]:
    """Return four to ten round numbers in steps of 1, 2 or 5 that reach over a range, or one step around a value."""
    if not high > low:
        width = abs(low) * 0.1 or 1.0
        low, high = low - width, high + width
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _drawing(name: str, chart: Chart | Carpet, x_ticks: Sequence[float], **lines: object) -> str:
    return template(name).render(
        chart=chart,
        x_ticks=x_ticks,
        across=_scale(x_ticks, "left", "right"),
        number=_number_text,
        **_FRAME,
        **lines,
    )


def _scale(ticks: Sequence[float], start: str, end: str) -> Callable[[float], float]:
    """Return the function from values to positions, with the first tick at one edge and the last one at another."""
    low, high, first, last = ticks[0], ticks[-1], _FRAME[start], _FRAME[end]
    return lambda value: round(first + (last - first) * (value - low) / (high - low), 1)


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


def _number_text(value: float) -> str:
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}") if value else "0"
