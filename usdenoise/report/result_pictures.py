"""The pictures of a result: which there are, how the page names them, and their titles; and the films of a session."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.picture_quality import blood_pixels
from usdenoise.blood.power_doppler import decibels
from usdenoise.options.job_options import Display, DynamicRange
from usdenoise.report.doppler_pictures import (
    Drawing,
    directional_drawing,
    velocity_drawing,
)
from usdenoise.report.figures import ColorScale, power_scale, shortened, suitable_range_db
from usdenoise.report.film import movie
from usdenoise.report.panels import panel_picture, panels_of
from usdenoise.report.series import ResultSeries

QUANTITIES = {"power_doppler": "power Doppler", "blood_power": "blood power"}
"""What the power images show, in words."""

LEAST_TSNR_DB, TSNR_STEP_DB, BRIGHTEST_PERCENT = 10.0, 5.0, 99.5
"""The picture of the tSNR begins at 0 dB, a standard deviation as large as the mean, and ends at the next step above this
percentile of the pixels, at LEAST_TSNR_DB at least."""

_STEM_LETTERS = 40
"""Letters of the name of a scan in a title."""


@dataclass(frozen=True)
class ResultPicture:
    """A picture of a result.

    Attributes
    ----------
    title, caption : str
        How the page names and explains it.
    image : str
        Name of the image whose numbers describe it.
    draw : callable
        Returns the encoded picture for a series, the name of the scan, the options of pictures and a format ("png", "pdf"
        or "svg").
    """

    title: str
    caption: str
    image: str
    draw: Callable[[ResultSeries, str, Display, str], bytes]


def shown_levels(power: NDArray[Any], display: Display) -> NDArray[np.float32]:
    """Return a power in dB: below its maximum, or absolute where the range of the figures has two levels."""
    return decibels(power, display.db_factor, 1.0 if isinstance(display.dynamic_range, tuple) else None)


def film(name: str, series: ResultSeries, stem: str, display: Display, kind: str) -> bytes:
    """Return the film of a power image over the blocks of a session."""
    # Without the noise the power of a block can be below zero; NaN, of blocks without data, stays.
    power = np.maximum(series.images[name], 0)
    return movie(
        list(shown_levels(power, display)),
        series.geometry.spatial_axes,
        kind,
        times=series.times,
        time_unit=series.time_unit,
        dynamic_range_db=display.dynamic_range,
        color_map=display.color_map,
        quantity=QUANTITIES[name],
        spacing_mm=series.geometry.spacing_mm,
        title=f"{shortened(stem, _STEM_LETTERS)}: {QUANTITIES[name]}",
    )


def figure_title(stem: str, quantity: str, removed: int, high: str | int, n_blocks: int | None = None) -> str:
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
    n_blocks : int, optional
        Number of blocks whose mean it shows; by default it is not a mean.
    """
    components = (
        "no component" if removed == 0 else f"{removed} clutter component{'' if removed == 1 else 's'}"
    )
    mean = "" if n_blocks is None else f"mean of {n_blocks} blocks, "
    dropped = "" if high == "none" else f", those from number {int(high) + 1} on dropped"
    return f"{shortened(stem, _STEM_LETTERS)}: {quantity}, {mean}{components} removed{dropped}"


def _title(series: ResultSeries, stem: str, quantity: str) -> str:
    low, n_good = int(series.fit.options.low_cutoff), int((~series.is_bad).sum())
    return figure_title(stem, quantity, low, series.high_cutoff, n_good if series.is_session else None)


def _common_range(series: ResultSeries, display: Display) -> DynamicRange:
    """Return the range of both power images, so that they can be compared: the wider one unless it is given."""
    if display.dynamic_range is not None:
        return display.dynamic_range
    return max(suitable_range_db(shown_levels(series.means[name], display)) for name in QUANTITIES)


def _power(name: str, series: ResultSeries, stem: str, display: Display, kind: str) -> bytes:
    levels, geometry = shown_levels(series.means[name], display), series.geometry
    scale = power_scale(levels, _common_range(series, display), display.color_map, QUANTITIES[name])
    panels = panels_of(np.clip(levels, scale.lowest, scale.highest), geometry.spatial_axes)
    # Both maps have the size of the one with the longer title.
    titles = {quantity: _title(series, stem, quantity) for quantity in QUANTITIES.values()}
    title, longest = titles[QUANTITIES[name]], max(titles.values(), key=len)
    return panel_picture(panels, scale, geometry.spacing_mm, title, kind, longest)


def tsnr_levels(series: ResultSeries, display: Display) -> tuple[NDArray[np.float32], ColorScale]:
    """Return the tSNR in dB, and its colours."""
    levels = decibels(np.maximum(series.means["tsnr"], 0) ** 2, display.db_factor, 1.0)
    finite = levels[np.isfinite(levels)]
    brightest = float(np.percentile(finite, BRIGHTEST_PERCENT)) if finite.size else 0.0
    limits = (0.0, max(LEAST_TSNR_DB, TSNR_STEP_DB * math.ceil(brightest / TSNR_STEP_DB)))
    scale = power_scale(levels, limits, display.color_map, "tSNR")
    return np.clip(levels, *limits), replace(scale, label="tSNR (dB)")


def _tsnr(series: ResultSeries, stem: str, display: Display, kind: str) -> bytes:
    levels, scale = tsnr_levels(series, display)
    panels, spacing = panels_of(levels, series.geometry.spatial_axes), series.geometry.spacing_mm
    return panel_picture(panels, scale, spacing, _title(series, stem, "tSNR"), kind)


def _velocity(series: ResultSeries, display: Display) -> Drawing:
    means, unit = series.means, series.attributes["axial_velocity"]["unit"]
    return velocity_drawing(
        means["axial_velocity"],
        means["blood_power"],
        series.geometry.spatial_axes,
        unit=unit,
        shows_blood=blood_pixels(means["blood_power"], means["noise_power"]),
    )


def _directional(series: ResultSeries, display: Display) -> Drawing:
    positive, negative = (series.means[f"directional_power_{sign}"] for sign in ("positive", "negative"))
    return _two_directions(positive, negative, series, display, "directional power")


def _signed(series: ResultSeries, display: Display) -> Drawing:
    signed = series.means["signed_power"]
    return _two_directions(np.maximum(signed, 0), np.maximum(-signed, 0), series, display, "signed power")


def _two_directions(
    positive: NDArray[Any], negative: NDArray[Any], series: ResultSeries, display: Display, quantity: str
) -> Drawing:
    return directional_drawing(
        positive,
        negative,
        series.geometry.spatial_axes,
        db_factor=display.db_factor,
        dynamic_range_db=display.dynamic_range,
        quantity=quantity,
    )


FLOW_DRAWINGS = {"velocity": _velocity, "directional": _directional, "signed": _signed}
"""Name of a product of the flow -> the function that returns its drawing for a series and the options of pictures."""


def _flow(name: str, series: ResultSeries, stem: str, display: Display, kind: str) -> bytes:
    drawing = FLOW_DRAWINGS[name](series, display)
    title = _title(series, stem, drawing.quantity)
    return panel_picture(drawing.panels, drawing.scale, series.geometry.spacing_mm, title, kind)


PICTURES = {
    "blood_power": ResultPicture(
        "Blood map",
        "Power of the blood before the clutter filter, without the noise. Slow and transverse flow may be missing.",
        "blood_power",
        partial(_power, "blood_power"),
    ),
    "power_doppler": ResultPicture(
        "Power Doppler",
        "Mean power of the filtered frames, noise included: what other programs show.",
        "power_doppler",
        partial(_power, "power_doppler"),
    ),
    "velocity": ResultPicture(
        "Axial velocity",
        "From the phase of the lag-one autocorrelation. Red is towards the probe, blue away. Grey: no blood.",
        "axial_velocity",
        partial(_flow, "velocity"),
    ),
    "directional": ResultPicture(
        "Directional power",
        "Power at positive (red, towards the probe) and at negative Doppler frequencies (blue, away).",
        "directional_power_positive",
        partial(_flow, "directional"),
    ),
    "signed": ResultPicture(
        "Signed power",
        "Power with the sign of the stronger direction: red towards the probe, blue away.",
        "signed_power",
        partial(_flow, "signed"),
    ),
    "tsnr": ResultPicture(
        "tSNR",
        "Temporal signal to noise ratio: 20 log10 of the mean of the blood power in the good blocks over its standard "
        "deviation. Pixels without blood have no meaning.",
        "tsnr",
        _tsnr,
    ),
}
"""Name of a product -> its picture."""
