"""Scans of a batch whose cutoff, gain or noise is far from that of the other scans."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from usdenoise.batch.table import Row

LEAST_SCANS = 5
"""Scans with a value below which none is an outlier: a median of fewer says little about the usual."""

SPREADS = 4.0
"""Distance from the median, in robust standard deviations (1.4826 times the median absolute deviation), from which a value
is an outlier. Of normal values one in 16000 is."""


def outliers(rows: Sequence[Row]) -> Mapping[str, list[str]]:
    """Return sentences on what is unusual about each scan, by the name of the scan; none for a usual one.

    Parameters
    ----------
    rows : sequence of Row
        The rows of a batch. Those without results are left out.
    """
    found: dict[str, list[str]] = {row.scan: [] for row in rows}
    for measure, least, sentence in _MEASURES:
        values = {row.scan: value for row in rows if (value := measure(row)) is not None}
        if len(values) < LEAST_SCANS:
            continue
        middle = median(values.values())
        spread = 1.4826 * median(abs(value - middle) for value in values.values())
        for scan, value in values.items():
            if abs(value - middle) > max(least, SPREADS * spread):
                found[scan].append(sentence(value, middle))
    return found


def _decibels(value: float | None) -> float | None:
    return 20 * math.log10(value) if value is not None and value > 0 else None


def _level(name: str) -> Callable[[float, float], str]:
    def sentence(value: float, middle: float) -> str:
        return f"{name} {abs(value - middle):.0f} dB {'above' if value > middle else 'below'} the other scans"

    return sentence


_MEASURES: tuple[tuple[Callable[[Row], float | None], float, Callable[[float, float], str]], ...] = (
    (
        lambda row: row.low_cutoff,
        5.0,
        lambda value, middle: f"{value:.0f} components removed, {middle:.0f} in the other scans",
    ),
    (lambda row: _decibels(row.signal_rms), 6.0, _level("gain")),
    (lambda row: _decibels(row.noise_floor), 3.0, _level("noise")),
)
"""Value of a scan, distance from the others that is never unusual, and sentence on an outlier.

Five components more or less, gains within a factor of two and noise within 3 dB are usual between scans.
"""
