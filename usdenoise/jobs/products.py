"""The files of a job: the main file with the result, and the table of products beside it, which the page shows.

To add a product, write a function in `report` or `files` that draws or encodes it, and a row of PRODUCTS. A picture also has
a row in :data:`usdenoise.report.pictures.PICTURES`. The names of --products are in
:mod:`usdenoise.options.job_options`; an image that needs more than the power is made in :mod:`usdenoise.blood.doppler`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from usdenoise.errors import OptionError, OutputError, check_path
from usdenoise.files.bids import read_events
from usdenoise.files.images import tiff, write_nifti, write_stat_map
from usdenoise.files.output_folder import OutputFolder
from usdenoise.files.results import ResultFile, output_suffix, write_result
from usdenoise.jobs.job import Job, Results
from usdenoise.linalg.array_library import on_host
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.report.pictures import (
    PICTURES,
    QUANTITIES,
    REGIONS,
    activation_layers,
    draw_picture,
    film,
    layers_picture,
    region_picture,
)
from usdenoise.report.record import ActivationRecord, InputRecord
from usdenoise.report.tables import block_table, frame_table, region_response_table, region_table
from usdenoise.sessions.design import FIR
from usdenoise.sessions.pose_series import PoseSeries
from usdenoise.sessions.result_series import (
    POWER_NAMES,
    BlockRecord,
    ResultSeries,
    activation_names,
    series_of_stack,
)
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.text import record, short_stem, to_json


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


_PREFIXES = {"power_doppler": "", "blood_power": "blood_"}
"""Beginnings of the keys of the film and of the NIfTI file of a power image."""

_NIFTI_ENDINGS = {"power_doppler": "pwd", "blood_power": "blood"}
_BIDS_ENDINGS = {"power_doppler": "desc-doppler_pwd", "blood_power": "desc-blood_pwd"}
"""Ends of the names of NIfTI files, also in BIDS, which calls power Doppler pwd, and has no suffix for the blood map. Each
has an entity that the other one does not have, as the sidecar of a name with fewer entities applies to both images."""

_DESCRIPTIONS = {"power_doppler": "Power Doppler", "blood_power": "Blood power without noise"}


def _power_files(name: str, job: Job) -> dict[str, str]:
    prefix, movie = _PREFIXES[name], job.session_options.movie
    files = {f"{name}_tif": f"{name}.tif"}
    # A film shows one plane
    if movie is not None and job.session_options.poses is None:
        files[f"{prefix}movie"] = f"{name}.{movie}"
    if job.output.nifti:
        ending = (_NIFTI_ENDINGS if job.bids is None else _BIDS_ENDINGS)[name]
        files |= {f"{prefix}nifti": f"{ending}.nii.gz", f"{prefix}nifti_json": f"{ending}.json"}
    return files


def _write_power_files(name: str, series: ResultSeries, results: Results) -> None:
    prefix, stack, job = _PREFIXES[name], series.geometry, results.job
    encoded_mean = tiff(series.means[name], stack.spatial_axes, stack.spacing_mm)
    results.path_of(f"{name}_tif").write_bytes(encoded_mean)
    if results.has(f"{prefix}movie"):
        results.path_of(f"{prefix}movie").write_bytes(film(name, series, job.name, job.display))
    if job.output.nifti:
        task = None if job.bids is None else job.bids.task
        paths = results.path_of(f"{prefix}nifti"), results.path_of(f"{prefix}nifti_json")
        _write_power_nifti(*paths, name, series, {} if task is None else {"TaskName": task})


def _write_power_nifti(
    path: Path, sidecar_path: Path, name: str, series: ResultSeries, named: Mapping[str, str]
) -> None:
    """Write a power image of a series as NIfTI, and its sidecar with some fields first."""
    fields = write_nifti(
        path,
        series.images[name],
        series.geometry,
        series.starts.tolist(),
        series.time_unit,
        series.window,
        series.options.stride or series.window,
        [vars(block) for block in series.block_records],
    )
    if isinstance(series, PoseSeries):
        fields |= _slice_fields(series)
    elif series.interpolated is not None:
        fields["InterpolatedBlocks"] = series.interpolated.tolist()
    description = _DESCRIPTIONS[name] + " in blocks of frames" * (len(series.block_records) > 1)
    sidecar_path.write_text(to_json({**named, "Description": description, **fields}, indent=2) + "\n")


SAME_TIMING = 0.01
"""Part of a block by which the times of planes in their sweep may differ from sweep to sweep, and be given once."""


def _slice_fields(series: PoseSeries) -> dict[str, object]:
    """Return the fields of a sidecar that differ for a series of several positions: the times of its planes, as slices."""
    cutoffs = [of_pose.low_cutoff for of_pose in series.poses]
    fields: dict[str, object] = {
        "ClutterFilters": [
            f"low-rank, {min(cutoffs)} to {max(cutoffs)} leading components removed in each block, by position"
        ],
        "Poses": list(series.names),
        "BadBlocks": series.bad_blocks.tolist(),
    }
    if series.interpolated is not None:
        fields["InterpolatedBlocks"] = series.bad_blocks.tolist()
    if series.time_unit != "s":
        return fields
    begins = series.block_starts
    timing = begins - series.starts[:, None]
    fields["FrameAcquisitionDuration"] = series.sweep_duration
    if np.ptp(timing, axis=0).max() <= SAME_TIMING * series.block_duration:
        fields |= {"SliceTiming": np.median(timing, axis=0).round(9).tolist(), "SliceEncodingDirection": "k"}
    return fields | {"BlockTiming": begins.round(9).tolist()}


def _picture_formats(job: Job) -> tuple[str, ...]:
    """Return the formats of a picture that the page shows as PNG."""
    return tuple(dict.fromkeys(("png", *job.display.figure_formats)))


def _activation_files(job: Job) -> dict[str, str]:
    assert job.session_options.events is not None
    named: dict[str, str] = {}
    is_free = job.session_options.hrf.startswith(FIR)
    for trial_type, plain in activation_names(read_events(Path(job.session_options.events))[0]).items():
        name = f"activation_{plain}"
        named |= {f"{name}_{kind}": f"{name}.{kind}" for kind in _picture_formats(job)}
        if job.output.nifti:
            has_t = trial_type and not is_free
            named[f"{name}_nifti"] = f"{name}_stat-{'t' if has_t else 'F'}_statmap.nii.gz"
            if has_t:
                ending = f"{name}_stat-effect_statmap"
                named |= {f"{name}_effect": f"{ending}.nii.gz", f"{name}_effect_json": f"{ending}.json"}
    return named


def _write_activation(series: ResultSeries, results: Results) -> None:
    job, stack, names = results.job, series.geometry, activation_names(series.events)
    for trial_type, activation in series.activations.items():
        name, planes = f"activation_{names[trial_type]}", series.planes
        images = activation.statistic, activation.active, series.means["blood_power"]
        if planes:
            # Those with most active pixels first
            order = np.argsort(
                [-np.count_nonzero(plane) for plane in activation.active], kind="stable"
            ).tolist()
            images, planes = tuple(image[order] for image in images), tuple(planes[at] for at in order)
        layers = activation_layers(*images, stack.spatial_axes, activation.letter, planes)
        title = ActivationRecord.of(trial_type, activation).title
        for kind in _picture_formats(job):
            drawn = layers_picture(layers, stack.spacing_mm, title, kind)
            results.add_picture(f"{name}_{kind}", drawn)
        if job.output.nifti:
            write_stat_map(results.path_of(f"{name}_nifti"), activation.statistic, stack, activation.letter)
            if activation.t is not None and activation.change is not None:
                write_stat_map(results.path_of(f"{name}_effect"), activation.change, stack, "change")
                described = {
                    "Description": f"Response of the blood power to a long event of the type '{trial_type}'",
                    "Units": "%",
                    "Baseline": "Constant of the general linear model of the pixel, which is 100 %; NaN outside the vessels",
                    "TrialType": trial_type,
                }
                results.path_of(f"{name}_effect_json").write_text(to_json(described, indent=2) + "\n")


REGION_RESPONSES = "region_responses"
"""Beginning of the keys, and of the names, of the table of the responses of regions."""


def _region_files(job: Job) -> dict[str, str]:
    files = _table_files(REGIONS, job) | {
        f"{REGIONS}_{kind}": f"{REGIONS}.{kind}" for kind in _picture_formats(job)
    }
    has_responses = job.session_options.events is not None
    return files | (_table_files(REGION_RESPONSES, job) if has_responses else {})


def _write_regions(series: ResultSeries, results: Results) -> None:
    results.write_table(REGIONS, region_table(series))
    if results.job.session_options.events is not None:
        results.write_table(REGION_RESPONSES, region_response_table(series))
    for kind in _picture_formats(results.job):
        drawn = region_picture(series, f"{results.job.name}: blood power of regions", kind)
        results.add_picture(f"{REGIONS}_{kind}", drawn)


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
        lambda job: "blood" in job.output.products,
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
    Product(REGIONS, lambda job: bool(job.regions), _region_files, _write_regions),
    Product(
        "activation", lambda job: job.session_options.events is not None, _activation_files, _write_activation
    ),
    Product(
        "frame_table", lambda job: not job.is_session, partial(_table_files, "frames"), _write_frame_table
    ),
)
"""The products, in the order in which the page shows their pictures."""


def product_files(job: Job) -> dict[str, str]:
    """Return the key and the end of the name of each file that a job writes besides its main file."""
    return {key: ending for product in PRODUCTS for key, ending in product.files(job).items()}


NIFTI = ".nii.gz"
"""Suffix of gzipped NIfTI."""


def main_files(job: Job) -> dict[str, str]:
    """Return the key and the end of the name of the main file of a job, and of the Zarr group beside it on request."""
    suffix = output_suffix(job.path)
    name = "sequence" if job.is_session else "denoised"
    beside = {"zarr": f"{name}.zarr"} if job.session_options.zarr and suffix != ".zarr" else {}
    return {name: f"{name}{suffix}", **beside}


def main_content(series: ResultSeries, job: Job, source: InputRecord) -> ResultFile:
    """Return the content of the main file of a job.

    Parameters
    ----------
    series : ResultSeries
        The filtered blocks.
    job : Job
        The job.
    source : InputRecord
        The input.
    """
    parameters = {**asdict(series.fit.options), **asdict(job.display), **asdict(job.output)}
    if job.session is not None:
        parameters |= asdict(job.session)
    # A session that was stopped and went on has read some blocks twice, and has the same results.
    provenance = to_json(record(job.command, parameters, asdict(replace(source, passes_over_file=None))))
    arrays = series.contents()
    if series.stack is None:
        return ResultFile(series.geometry, arrays, provenance, job.path if len(job.paths) == 1 else None)
    stack = _on_host(series.stack.acquisition) if job.output.stack else series.geometry
    return ResultFile(stack, arrays, provenance, job.path, job.output.stack_name)


def _on_host(stack: Acquisition) -> Acquisition:
    return Acquisition.of(stack, on_host(stack.iq))


def block_file_name(job: Job, source: Path, number: int) -> str:
    """Return the name of the file of a filtered block of a session, from the name of its own file."""
    part = "" if job.session_options.window is None else f"_block_{number:05d}"
    return f"{short_stem(source.stem)}{part}_denoised{output_suffix(source)}"


def check_stack_names(job: Job, overwrite: bool) -> None:
    """Check that each filtered block of a session can have its file.

    Raises
    ------
    OptionError
        If two of them would have one name.
    OutputError
        If such a file exists and may not be replaced.
    """
    stack_paths = [job.folder / block_file_name(job, path, 0) for path in job.paths]
    for path, stack_path in zip(job.paths, stack_paths, strict=True):
        if stack_paths.count(stack_path) > 1:
            raise OptionError(
                f"the filtered blocks of {path} and of another file would both be {stack_path}",
                remedy="rename one, or omit {stacks}",
            )
        if os.path.lexists(stack_path) and not overwrite:
            raise OutputError(
                f"{stack_path} exists", remedy="give {overwrite} to replace it, or another output folder"
            )


def stack_files(job: Job, blocks: Sequence[BlockRecord]) -> dict[str, str]:
    """Return the files of the filtered blocks of a session, if they are requested: name without suffix -> path."""
    paths = [
        job.folder / block_file_name(job, Path(block.file), number) for number, block in enumerate(blocks)
    ]
    is_requested = job.session_options.stacks
    return {path.stem: str(path) for path in paths if is_requested and path.exists()}


def write_block(job: Job, folder: Path, source: Path, number: int, first: int, stack: Acquisition) -> None:
    """Write a filtered block of a session into a folder, in the format of its file and with its other variables."""
    provenance = to_json(record(job.command, {}, {"path": str(source), "first_frame": first}))
    output = job.output
    content = ResultFile(stack, (), provenance, source, output.stack_name)
    _write_one_file(folder / block_file_name(job, source, number), content, overwrite=True)


def save(
    result: DenoiseResult | ResultSeries,
    path: str | Path,
    *,
    image: str = "blood_power",
    overwrite: bool = False,
) -> Path:
    """Write a result to a file, as `usdenoise run` and `usdenoise session` write it, or an image of it as NIfTI.

    The file of a filtered stack holds the stack and its images, the file of a session its series.

    Parameters
    ----------
    result : DenoiseResult or SessionResult
        From :func:`usdenoise.denoise` or :func:`usdenoise.session`.
    path : str or Path
        File to write: .h5 or .hdf5, .mat, .zarr (needs the package zarr), or .nii.gz with a sidecar .json (needs nibabel).
    image : str
        The image of a NIfTI file: "blood_power" (the default) or "power_doppler".
    overwrite : bool
        Whether an existing file may be replaced; by default False.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    OutputError
        If the file exists, its folder does not, its suffix is not of a format that is written, or it cannot be written.
    OptionError
        If the image is not known, or a package is missing.

    Examples
    --------
    >>> import tempfile, usdenoise
    >>> result = usdenoise.denoise(usdenoise.load("sample_data/phantom.h5"), low_cutoff=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     back = usdenoise.load(usdenoise.save(result, f"{folder}/filtered.h5"))
    >>> back.axes, back.iq.shape
    ('tzx', (150, 72, 56))
    """
    check_path(path, OutputError)
    path = Path(path)
    is_nifti = path.name.lower().endswith(NIFTI)
    if not path.parent.is_dir():
        raise OutputError(f"the folder {path.parent} does not exist", remedy="create it, or check the path")
    if path.suffix.lower() not in (".h5", ".hdf5", ".mat", ".zarr") and not is_nifti:
        raise OutputError(f"cannot write '{path.suffix}' files; use .h5, .mat, .zarr or .nii.gz")
    if isinstance(result, DenoiseResult):
        series = series_of_stack(result)
        content = ResultFile(_on_host(result.acquisition), series.contents(), result.provenance)
    else:
        series = result
        content = ResultFile(series.geometry, series.contents(), to_json(record(None, {}, {})))
    if not is_nifti:
        return _write_one_file(path, content, overwrite)
    if image not in POWER_NAMES:
        raise OptionError(f"image '{image}' cannot be written as NIfTI; choose {' or '.join(POWER_NAMES)}")
    with OutputFolder(path.parent, overwrite) as outputs:
        stem = path.name[: -len(NIFTI)]
        sidecar = outputs.reserve(f"{stem}.json")
        _write_power_nifti(outputs.reserve(stem + NIFTI), sidecar, image, series, {})
        outputs.commit()
    return path


def _write_one_file(path: Path, content: ResultFile, overwrite: bool) -> Path:
    """Write a result file in the format of its suffix, whole or not at all, and return its path."""
    with OutputFolder(path.parent, overwrite) as outputs:
        waiting = outputs.reserve(path.name)
        write_result(waiting, path.suffix.lower(), content)
        outputs.commit()
    return path
