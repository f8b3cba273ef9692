"""The table of products: what a job writes besides its main file, how it is drawn, and whether the page shows it.

To add one, write a function that draws or encodes it, and a row of PRODUCTS. What a user asks for by --products is named in
:mod:`usdenoise.options.job_options`; an image that needs more than the power is made in :mod:`usdenoise.blood.flow`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.picture_quality import blood_pixels
from usdenoise.blood.power_doppler import decibels
from usdenoise.files.nifti import write_nifti
from usdenoise.files.tiff import tiff
from usdenoise.jobs.block_table import write_block_table
from usdenoise.jobs.figure_settings import (
    QUANTITIES,
    STEM_LETTERS,
    figure_title,
    session_title,
    shown_levels,
)
from usdenoise.jobs.frame_files import FRAME_FILES, write_frame_table
from usdenoise.jobs.job import Job
from usdenoise.jobs.result_folder import Results
from usdenoise.jobs.series import Series
from usdenoise.report.doppler_pictures import directional_picture, power_doppler_picture, velocity_picture
from usdenoise.report.figures import shortened
from usdenoise.report.film import movie
from usdenoise.system.provenance import to_json


class OnPage(NamedTuple):
    """How the page shows a picture: its title, its caption, and the image that it is described by."""

    title: str
    caption: str
    image: str


@dataclass(frozen=True)
class Product:
    """A row of the table.

    Attributes
    ----------
    name : str
        Beginning of its keys in the report, and of the names of its files.
    is_asked : callable
        Whether a job writes it.
    draw : callable or None
        Returns its picture for a series, a job and a format ("png", "pdf" or "svg"); None without a picture.
    on_page : OnPage or None
        How the page shows the picture; None (the default) for not at all.
    other_files : callable
        Returns the files besides the picture for a job: key -> end of the name. By default none.
    write_others : callable or None
        Writes these files for a series and the results; None (the default) without any.
    """

    name: str
    is_asked: Callable[[Job], bool]
    draw: Callable[[Series, Job, str], bytes] | None = None
    on_page: OnPage | None = None
    other_files: Callable[[Job], Mapping[str, str]] = lambda job: {}
    write_others: Callable[[Series, Results], None] | None = None

    def files(self, job: Job) -> dict[str, str]:
        """Return the key and the end of the name of each file that the job writes of it."""
        if not self.is_asked(job):
            return {}
        kinds = job.display.figure_formats if self.draw else ()
        return {f"{self.name}_{kind}": f"{self.name}.{kind}" for kind in kinds} | dict(self.other_files(job))

    def is_on_page(self, job: Job) -> bool:
        """Return whether the page of the job shows it: always the power images, others where they are asked for."""
        return self.on_page is not None and (self.name in QUANTITIES or self.is_asked(job))

    def write(self, series: Series, results: Results) -> None:
        """Write its files, and keep its picture for the page."""
        job = results.job
        kinds = {f"{self.name}_{kind}": kind for kind in ("png", *job.display.figure_formats)}
        for key, kind in kinds.items():
            on_page = kind == "png" and self.is_on_page(job)
            if self.draw and (on_page or results.has(key)):
                results.add_picture(key, self.draw(series, job, kind))
        if self.write_others and self.is_asked(job):
            self.write_others(series, results)


def _power_picture(name: str, series: Series, job: Job, kind: str) -> bytes:
    return power_doppler_picture(
        shown_levels(series.means[name], job.display),
        series.geometry.spatial_axes,
        kind=kind,
        dynamic_range_db=job.display.dynamic_range,
        color_map=job.display.color_map,
        quantity=QUANTITIES[name],
        **_common_settings(series, job, QUANTITIES[name]),
    )


def _velocity_picture(series: Series, job: Job, kind: str) -> bytes:
    unit = series.attributes["axial_velocity"]["unit"]
    means = series.means
    return velocity_picture(
        means["axial_velocity"],
        means["blood_power"],
        series.geometry.spatial_axes,
        kind=kind,
        unit=unit,
        shows_blood=blood_pixels(means["blood_power"], means["noise_power"]),
        **_common_settings(series, job, "axial velocity" if unit == "mm/s" else "Doppler frequency"),
    )


def _directional_picture(series: Series, job: Job, kind: str) -> bytes:
    positive, negative = (series.means[f"directional_power_{sign}"] for sign in ("positive", "negative"))
    return _two_directions(positive, negative, series, job, kind)


def _signed_picture(series: Series, job: Job, kind: str) -> bytes:
    signed = series.means["signed_power"]
    return _two_directions(np.maximum(signed, 0), np.maximum(-signed, 0), series, job, kind)


def _two_directions(
    positive: NDArray[Any], negative: NDArray[Any], series: Series, job: Job, kind: str
) -> bytes:
    return directional_picture(
        positive,
        negative,
        series.geometry.spatial_axes,
        kind=kind,
        db_factor=job.display.db_factor,
        dynamic_range_db=job.display.dynamic_range,
        **_common_settings(series, job, "directional power"),
    )


def _tsnr_picture(series: Series, job: Job, kind: str) -> bytes:
    return power_doppler_picture(
        decibels(np.maximum(series.means["tsnr"], 0) ** 2, job.display.db_factor, 1.0),
        series.geometry.spatial_axes,
        kind=kind,
        dynamic_range_db=TSNR_RANGE_DB,
        color_map=job.display.color_map,
        quantity="tSNR",
        **_common_settings(series, job, "mean over standard deviation"),
    )


def _common_settings(series: Series, job: Job, quantity: str) -> dict[str, Any]:
    stem, options = job.path.stem, series.result.options
    if job.is_session:
        n_good = int((~series.is_bad).sum())
        title = session_title(stem, quantity, n_good, int(options.low_cutoff))
    else:
        high = options.rank if options.high_cutoff == "rank" else options.high_cutoff
        title = figure_title(stem, quantity, int(options.low_cutoff), high)
    return {"spacing_mm": series.geometry.spacing_mm, "title": title}


TSNR_RANGE_DB = (0.0, 40.0)
"""Range of the picture of the tSNR: from a standard deviation as large as the mean to one of 1 %."""

_FILM_KEYS = {"power_doppler": "movie", "blood_power": "blood_movie"}
_NIFTI_KEYS = {"power_doppler": "nifti", "blood_power": "blood_nifti"}
_NIFTI_ENDINGS = {"power_doppler": "pwd", "blood_power": "blood"}
"""Keys of the films and of the NIfTI files, and the ends of the names of these. BIDS calls power Doppler pwd."""


def _power_files(name: str, job: Job) -> dict[str, str]:
    movie, nifti = job.session_options.movie, job.output.nifti
    named = {f"{name}_tif": f"{name}.tif"}
    if movie is not None:
        named[_FILM_KEYS[name]] = f"{name}.{movie}"
    if nifti:
        key, ending = _NIFTI_KEYS[name], _NIFTI_ENDINGS[name]
        if job.bids is not None and ending != "pwd":
            # BIDS has no suffix for the blood map.
            ending = f"desc-{ending}_pwd"
        named |= {key: f"{ending}.nii.gz", f"{key}_json": f"{ending}.json"}
    return named


def _write_power_files(name: str, series: Series, results: Results) -> None:
    stack, job = series.geometry, results.job
    movie = job.session_options.movie
    encoded_mean = tiff(series.means[name], stack.spatial_axes, stack.spacing_mm)
    results.place(f"{name}_tif").write_bytes(encoded_mean)
    if movie is not None:
        results.place(_FILM_KEYS[name]).write_bytes(_film(name, series, job, movie))
    if job.output.nifti:
        _write_nifti(name, series, results)


def _film(name: str, series: Series, job: Job, kind: str) -> bytes:
    display = job.display
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
        title=f"{shortened(job.path.stem, STEM_LETTERS)}: {QUANTITIES[name]}",
    )


def _write_nifti(name: str, series: Series, results: Results) -> None:
    job, key = results.job, _NIFTI_KEYS[name]
    length = series.frames_a_block(job.session_options.window)
    sidecar = write_nifti(
        results.place(key),
        series.images[name],
        series.geometry,
        series.times,
        series.time_unit,
        length,
        job.session_options.stride or length,
        series.records,
    )
    description = {"power_doppler": "Power Doppler", "blood_power": "Blood power without noise"}[name]
    description += " in blocks of frames" if len(series.records) > 1 else ""
    sidecar = {"Description": description, **sidecar}
    task = None if job.bids is None else job.bids.task
    named = {} if task is None else {"TaskName": task}
    results.place(f"{key}_json").write_text(to_json({**named, **sidecar}, indent=2) + "\n")


def _asks_for(product: str, job: Job) -> bool:
    return product in job.output.products


def _draws_flow(product: str, job: Job) -> bool:
    """Return whether a job draws a flow image. Of windows the arrays alone are stored."""
    return product in job.output.products and not job.is_session


PRODUCTS = (
    Product(
        "blood_power",
        partial(_asks_for, "blood"),
        partial(_power_picture, "blood_power"),
        OnPage(
            "Blood map",
            "Power of the blood before the clutter filter, without the noise. Compare places, depths and scans in this "
            "image.",
            "blood_power",
        ),
        partial(_power_files, "blood_power"),
        partial(_write_power_files, "blood_power"),
    ),
    Product(
        "power_doppler",
        lambda job: job.is_session or "power" in job.output.products,
        partial(_power_picture, "power_doppler"),
        OnPage(
            "Power Doppler",
            "Mean power of the filtered frames, noise included: what other programs show.",
            "power_doppler",
        ),
        partial(_power_files, "power_doppler"),
        partial(_write_power_files, "power_doppler"),
    ),
    Product(
        "velocity",
        partial(_draws_flow, "velocity"),
        _velocity_picture,
        OnPage(
            "Axial velocity",
            "From the phase of the lag-one autocorrelation. Red is towards the probe, blue away. Grey: no blood.",
            "axial_velocity",
        ),
    ),
    Product(
        "directional",
        partial(_draws_flow, "directional"),
        _directional_picture,
        OnPage(
            "Directional power",
            "Power at positive (red, towards the probe) and at negative Doppler frequencies (blue, away).",
            "directional_power_positive",
        ),
    ),
    Product(
        "signed",
        partial(_draws_flow, "signed"),
        _signed_picture,
        OnPage(
            "Signed power",
            "Power with the sign of the stronger direction: red towards the probe, blue away.",
            "signed_power",
        ),
    ),
    Product(
        "tsnr",
        lambda job: job.is_session,
        _tsnr_picture,
        OnPage(
            "tSNR",
            "Temporal signal to noise ratio, in dB: mean over standard deviation of the blood power in the good blocks.",
            "tsnr",
        ),
        lambda job: {"blocks_tsv": "blocks.tsv", "blocks_json": "blocks.json"},
        write_block_table,
    ),
    Product(
        "frame_table",
        lambda job: not job.is_session,
        other_files=lambda job: FRAME_FILES,
        write_others=write_frame_table,
    ),
)
"""The products, in the order in which the page shows their pictures."""
