"""The table of products: which files a job writes besides its main file, and which pictures its page shows.

To add one, write a function in `report` or `files` that draws or encodes it, and a row of PRODUCTS. A picture also has a
row in :data:`usdenoise.report.pictures.PICTURES`. The names of --products are in
:mod:`usdenoise.options.job_options`; an image that needs more than the power is made in :mod:`usdenoise.blood.doppler`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from usdenoise.files.bids import read_events
from usdenoise.files.images import tiff, write_stat_map
from usdenoise.jobs.job import Job, Results
from usdenoise.jobs.main_file import write_power_nifti
from usdenoise.report.pictures import (
    PICTURES,
    QUANTITIES,
    REGIONS,
    activation_picture,
    activation_title,
    draw_picture,
    film,
    region_picture,
)
from usdenoise.report.series import ResultSeries, activation_names
from usdenoise.report.tables import block_table, frame_table, region_table
from usdenoise.sessions.responses import FIR
from usdenoise.system.provenance import to_json


@dataclass(frozen=True)
class Product:
    """A row of the table.

    Attributes
    ----------
    name : str
        Beginning of its keys in the report, of the names of its files, and the name of its picture, if it has one.
    is_requested : callable
        Whether a job writes it.
    other_files : callable
        Returns the files besides the picture for a job: key -> end of the name. By default none.
    write_others : callable or None
        Writes these files for a series and the results; None (the default) without any.
    """

    name: str
    is_requested: Callable[[Job], bool]
    other_files: Callable[[Job], Mapping[str, str]] = lambda job: {}
    write_others: Callable[[ResultSeries, Results], None] | None = None

    def files(self, job: Job) -> dict[str, str]:
        """Return the key and the end of the name of each file that the job writes of it."""
        if not self.is_requested(job):
            return {}
        kinds = job.display.figure_formats if self.name in PICTURES else ()
        return {f"{self.name}_{kind}": f"{self.name}.{kind}" for kind in kinds} | dict(self.other_files(job))

    def is_on_page(self, job: Job) -> bool:
        """Return whether the page of the job shows it: always the power images, other pictures if they are requested."""
        is_shown = self.name in PICTURES and (self.name in QUANTITIES or self.is_requested(job))
        return is_shown and job.output.judges_blood

    def write(self, series: ResultSeries, results: Results) -> None:
        """Write its files, and keep its picture for the page."""
        job = results.job
        if self.name in PICTURES:
            for kind in _picture_formats(job):
                key, on_page = f"{self.name}_{kind}", kind == "png" and self.is_on_page(job)
                if on_page or results.has(key):
                    drawn = draw_picture(self.name, series, job.name, job.display, kind)
                    results.add_picture(key, drawn)
        if self.write_others and self.is_requested(job):
            self.write_others(series, results)


def pictures_on_page(results: Results) -> dict[str, bytes]:
    """Return the pictures that the page shows, in its order: name -> PNG."""
    shown = [product.name for product in PRODUCTS if product.is_on_page(results.job)]
    shown += [REGIONS] if results.job.regions else []
    return {name: results.pictures[f"{name}_png"] for name in shown}


def activations_on_page(series: ResultSeries, results: Results) -> dict[str, bytes]:
    """Return the pictures of the activation by each type of event, and ("") by any of several, as PNG."""
    names = activation_names(series.events)
    return {
        trial_type: results.pictures[f"activation_{names[trial_type]}_png"]
        for trial_type in series.activations
    }


_FILM_KEYS = {"power_doppler": "movie", "blood_power": "blood_movie"}
_NIFTI_KEYS = {"power_doppler": "nifti", "blood_power": "blood_nifti"}
_NIFTI_ENDINGS = {"power_doppler": "pwd", "blood_power": "blood"}
"""Keys of the films and of the NIfTI files, and the ends of the names of these. BIDS calls power Doppler pwd."""
_BIDS_ENDINGS = {"power_doppler": "desc-doppler_pwd", "blood_power": "desc-blood_pwd"}
"""The same ends in BIDS, which has no suffix for the blood map. Each has an entity that the other one does not have, as the
sidecar of a name with fewer entities applies to both images."""


def _power_files(name: str, job: Job) -> dict[str, str]:
    movie, nifti = job.session_options.movie, job.output.nifti
    named = {f"{name}_tif": f"{name}.tif"}
    if movie is not None:
        named[_FILM_KEYS[name]] = f"{name}.{movie}"
    if nifti:
        key = _NIFTI_KEYS[name]
        ending = (_NIFTI_ENDINGS if job.bids is None else _BIDS_ENDINGS)[name]
        named |= {key: f"{ending}.nii.gz", f"{key}_json": f"{ending}.json"}
    return named


def _write_power_files(name: str, series: ResultSeries, results: Results) -> None:
    stack, job = series.geometry, results.job
    encoded_mean = tiff(series.means[name], stack.spatial_axes, stack.spacing_mm)
    results.path_of(f"{name}_tif").write_bytes(encoded_mean)
    if job.session_options.movie is not None:
        results.path_of(_FILM_KEYS[name]).write_bytes(film(name, series, job.name, job.display))
    if job.output.nifti:
        _write_nifti(name, series, results)


def _write_nifti(name: str, series: ResultSeries, results: Results) -> None:
    job, key = results.job, _NIFTI_KEYS[name]
    sidecar = write_power_nifti(results.path_of(key), name, series, job.session_options)
    task = None if job.bids is None else job.bids.task
    named = {} if task is None else {"TaskName": task}
    results.path_of(f"{key}_json").write_text(to_json({**named, **sidecar}, indent=2) + "\n")


def _picture_formats(job: Job) -> tuple[str, ...]:
    """Return the formats of a picture that the page shows as PNG."""
    return tuple(dict.fromkeys(("png", *job.display.figure_formats)))


def _activation_files(job: Job) -> dict[str, str]:
    assert job.session_options.events is not None
    named: dict[str, str] = {}
    is_free = job.session_options.hrf.startswith(FIR)
    for trial_type, plain in activation_names(read_events(Path(job.session_options.events))).items():
        name = f"activation_{plain}"
        named |= {f"{name}_{kind}": f"{name}.{kind}" for kind in _picture_formats(job)}
        if job.output.nifti:
            letter = "t" if trial_type and not is_free else "F"
            named[f"{name}_nifti"] = f"{name}_stat-{letter}_statmap.nii.gz"
    return named


def _write_activation(series: ResultSeries, results: Results) -> None:
    job, stack, names = results.job, series.geometry, activation_names(series.events)
    for trial_type, activation in series.activations.items():
        name = f"activation_{names[trial_type]}"
        for kind in _picture_formats(job):
            drawn = activation_picture(
                activation.statistic,
                activation.active,
                series.means["blood_power"],
                stack.spatial_axes,
                kind=kind,
                spacing_mm=stack.spacing_mm,
                title=activation_title(trial_type, activation),
                letter=activation.letter,
            )
            results.add_picture(f"{name}_{kind}", drawn)
        if job.output.nifti:
            write_stat_map(results.path_of(f"{name}_nifti"), activation.statistic, stack, activation.letter)


def _region_files(job: Job) -> dict[str, str]:
    return _table_files(REGIONS, job) | {
        f"{REGIONS}_{kind}": f"{REGIONS}.{kind}" for kind in _picture_formats(job)
    }


def _write_regions(series: ResultSeries, results: Results) -> None:
    results.write_table(REGIONS, region_table(series))
    for kind in _picture_formats(results.job):
        drawn = region_picture(series, f"{results.job.name}: blood power of regions", kind)
        results.add_picture(f"{REGIONS}_{kind}", drawn)


def _asks_for(product: str, job: Job) -> bool:
    return product in job.output.products


def _draws_flow(product: str, job: Job) -> bool:
    """Return whether a job draws a flow image. For windows, only the arrays are stored."""
    return product in job.output.products and not job.is_session


def _write_frame_table(series: ResultSeries, results: Results) -> None:
    assert series.stack is not None
    results.write_table("frames", frame_table(series.stack))


def _table_files(name: str, job: Job) -> dict[str, str]:
    return {f"{name}_tsv": f"{name}.tsv", f"{name}_json": f"{name}.json"}


PRODUCTS = (
    Product(
        "blood_power",
        partial(_asks_for, "blood"),
        partial(_power_files, "blood_power"),
        partial(_write_power_files, "blood_power"),
    ),
    Product(
        "power_doppler",
        lambda job: job.is_session or "power" in job.output.products,
        partial(_power_files, "power_doppler"),
        partial(_write_power_files, "power_doppler"),
    ),
    Product("velocity", partial(_draws_flow, "velocity")),
    Product("directional", partial(_draws_flow, "directional")),
    Product("signed", partial(_draws_flow, "signed")),
    Product(
        "tsnr",
        lambda job: job.is_session,
        partial(_table_files, "blocks"),
        lambda series, results: results.write_table("blocks", block_table(series)),
    ),
    Product(
        REGIONS,
        lambda job: bool(job.regions),
        lambda job: _region_files(job),
        lambda series, results: _write_regions(series, results),
    ),
    Product(
        "activation",
        lambda job: job.session_options.events is not None,
        lambda job: _activation_files(job),
        lambda series, results: _write_activation(series, results),
    ),
    Product(
        "frame_table",
        lambda job: not job.is_session,
        partial(_table_files, "frames"),
        _write_frame_table,
    ),
)
"""The products, in the order in which the page shows their pictures."""


def product_files(job: Job) -> dict[str, str]:
    """Return the key and the end of the name of each file that a job writes besides its main file."""
    return {key: ending for product in PRODUCTS for key, ending in product.files(job).items()}
