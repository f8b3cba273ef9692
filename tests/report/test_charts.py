"""Charts as SVG, and the compiled templates that draw them."""

import re
from pathlib import Path

import pytest

from tests.programs import python
from usdenoise.report.charts import Chart


def test_a_curve_is_drawn_at_its_values() -> None:
    drawn = Chart("a", "x", "y", [0, 1, 2, 3], [0.0, None, float("nan"), 10.0]).svg
    points = re.search(r'<polyline points="([^"]*)"', drawn)
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in points[1].split())
    assert x0 < x1
    assert y0 > y1
    assert drawn.count("<circle") == 2
    assert Chart("a", "x", "y", [0], [None]).svg == ""


def test_bad_points_are_marked_also_in_a_long_curve() -> None:
    chart = Chart("a", "frame", "y", range(1000), [float(k % 7) for k in range(1000)], flagged=[3, 500])
    assert chart.svg.count('<circle class="flag"') == chart.svg.count("<circle") == 2
    assert chart.text.endswith("; marked at 3, 500")
    many = Chart("a", "frame", "y", range(1000), [0.0] * 1000, flagged=range(25))
    # A bad block 1000 times as bright does not hide the course of the others.
    bright = Chart("a", "block", "%", range(4), [0.0, 5.0, 5000.0, 2.0], flagged=[2])
    assert "largest 5000 at 2" in bright.text
    (ring,) = re.findall(r'class="flag" cx="[0-9.]+" cy="([0-9.]+)"', bright.svg)
    line = [float(height) for height in re.findall(r"[0-9.]+,([0-9.]+) ", bright.svg)]
    assert float(ring) == line[2] == min(line)
    assert line[0] - line[1] > 100
    assert many.text.endswith("18, 19 and 5 more")


def test_a_long_curve_keeps_its_extremes_and_stays_small() -> None:
    values = [0.0] * 100_000
    values[31_415] = 1.0
    drawn = Chart("a", "x", "y", range(len(values)), values).svg
    assert len(drawn) < 20_000
    points = re.search(r'points="([^"]*)"', drawn)
    assert len({point.split(",")[1] for point in points[1].split()}) == 2


CACHED = """
import importlib.util, pathlib, sys
from usdenoise.report import charts
sys.pycache_prefix, sys.dont_write_bytecode = sys.argv[1], sys.argv[2] == "False"
folder = pathlib.Path(importlib.util.cache_from_source(charts.__file__)).parent
folder.mkdir(parents=True, exist_ok=True)
print(charts.Chart("a", "x", "y", [0, 1], [2.0, 3.0]).svg)
"""


@pytest.mark.slow
def test_compiled_templates_lie_beside_compiled_modules(tmp_path: Path) -> None:
    first = python(CACHED, tmp_path, False).stdout
    assert "<polyline" in first
    assert not list(tmp_path.rglob("*.cache"))
    assert python(CACHED, tmp_path, True).stdout == first
    files = list(tmp_path.rglob("*.cache"))
    assert files
    for path in files:
        # As after a full disk.
        path.write_bytes(path.read_bytes()[:-40])
    assert python(CACHED, tmp_path, True).stdout == first
