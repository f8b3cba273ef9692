"""The files of a job: the main file with the result, and the products beside it, which the page shows.

To add a product, write a function in `report` or `files` that draws or encodes it, and reserve its files in
:func:`reserve_products`. A picture also has a row in :data:`usdenoise.report.pictures.PICTURES`. The names of --products are
in :mod:`usdenoise.options.job_options`; an image that needs more than the power is made in :mod:`usdenoise.blood.doppler`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError, OutputError, check_path
from usdenoise.files.bids import tsv_text
from usdenoise.files.images import tiff, write_nifti, write_stat_map
from usdenoise.files.output_folder import OutputFolder, check_new
from usdenoise.files.results import ResultFile, output_suffix, write_result
from usdenoise.jobs.job import Job, Results
from usdenoise.jobs.session_inputs import SessionFiles
from usdenoise.linalg.array_library import on_host
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.report import pictures, tables
from usdenoise.report.record import ActivationRecord, InputRecord
from usdenoise.sessions.design import FIR, unit_of
from usdenoise.sessions.pose_series import PoseSeries
from usdenoise.sessions.result_series import POWER_NAMES, ResultSeries, activation_names, series_of_stack
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.text import record, short_stem, to_json

Write = Callable[[ResultSeries], None]
"""Draws or encodes a product of the filtered blocks, and writes its files."""


def reserve_products(results: Results) -> list[Write]:
    """Reserve the files of a job besides its main file, and return what writes them, in the order of the page."""
    job, names, formats = results.job, results.job.output.products, results.job.display.figure_formats
    if job.is_model:
        # Its images have their files
        return [_picture("blood_power", results, formats), *_answers(results)]
    writes = _power_image("blood_power", results, "blood" in names)
    writes += _power_image("power_doppler", results, job.is_session or "power" in names)
    if not job.is_session:
        writes += [_picture(name, results, formats) for name in pictures.FLOW if name in names]
        return [*writes, _table("frames", results, tables.frame_table)]
    # Of the flow images of blocks, only the arrays are stored.
    writes += [_picture("tsnr", results, formats), _table("blocks", results, tables.block_table)]
    if job.output.nifti:
        of_bids = None if job.bids is None else "desc-confounds_timeseries"
        writes.append(_table("confounds", results, tables.confound_table, of_bids))
    return [*writes, *_answers(results)]


def _answers(results: Results) -> list[Write]:
    """Reserve the files of the regions and of the activation of a session, and return what writes them."""
    job, writes = results.job, list[Write]()
    if job.regions:
        writes += [
            _table("regions", results, tables.region_table),
            _picture(pictures.REGIONS, results, _formats(job)),
        ]
        if job.session_options.events is not None:
            writes.append(_table("region_responses", results, tables.region_response_table))
        # A mask may have several labels.
        if len(job.regions) > 1 or any(Path(str(text)).is_file() for text in job.regions.values()):
            writes.append(_table("region_correlations", results, tables.region_correlation_table))
    if job.session_options.events is not None:
        writes.append(_activation(results))
    return writes


def _picture(name: str, results: Results, formats: Sequence[str]) -> Write:
    """Reserve the files of a picture in some formats, and return what draws it for them and for the page."""
    job = results.job
    places = {kind: results.reserve(f"{name}_{kind}", f"{name}.{kind}") for kind in formats}
    on_page = ("png",) if job.output.judges_blood else ()

    def write(series: ResultSeries) -> None:
        # A series of unknown noise has no blood map
        is_power = name == "blood_power" and "noise_power" not in series.means
        shown = "power_doppler" if is_power else name
        for kind in dict.fromkeys((*on_page, *places)):
            drawn = pictures.draw_picture(shown, series, job.name, job.display, kind)
            if kind in on_page:
                results.pictures[shown] = drawn
            if kind in places:
                places[kind].write_bytes(drawn)

    return write


def _formats(job: Job) -> tuple[str, ...]:
    """Return the formats of a picture that the page shows as PNG."""
    return tuple(dict.fromkeys(("png", *job.display.figure_formats)))


def _table(
    name: str, results: Results, table_of: Callable[[ResultSeries], tables.Table], ending: str | None = None
) -> Write:
    """Reserve the file of a table and of its sidecar, with a name that ends with its own or another ending."""
    ending = ending or name
    values = results.reserve(f"{name}_tsv", f"{ending}.tsv")
    sidecar = results.reserve(f"{name}_json", f"{ending}.json")
    return lambda series: _write_table(table_of(series), values, sidecar)


def _write_table(table: tables.Table, path: Path, sidecar: Path) -> None:
    path.write_text(tsv_text(table.columns))
    sidecar.write_text(to_json(table.sidecar, indent=2) + "\n")


_PREFIXES = {"power_doppler": "", "blood_power": "blood_"}
"""Beginnings of the keys of the film and of the NIfTI file of a power image."""

_NIFTI_ENDINGS = {"power_doppler": "pwd", "blood_power": "blood"}
_BIDS_ENDINGS = {"power_doppler": "desc-doppler_pwd", "blood_power": "desc-blood_pwd"}
"""Ends of the names of NIfTI files, also in BIDS, which calls power Doppler pwd, and has no suffix for the blood map. Each
has an entity that the other one does not have, as the sidecar of a name with fewer entities applies to both images."""

_DESCRIPTIONS = {"power_doppler": "Power Doppler", "blood_power": "Blood power without noise"}


def _power_image(name: str, results: Results, is_requested: bool) -> list[Write]:
    """Reserve the files of a power image, if it is requested, and return what draws and encodes it."""
    job, session, prefix = results.job, results.job.session_options, _PREFIXES[name]
    picture = _picture(name, results, job.display.figure_formats if is_requested else ())
    if not is_requested:
        return [picture]
    mean = results.reserve(f"{name}_tif", f"{name}.tif")
    # A film shows one plane
    has_film = session.movie is not None and session.poses is None
    movie = results.reserve(f"{prefix}movie", f"{name}.{session.movie}") if has_film else None
    ending = (_NIFTI_ENDINGS if job.bids is None else _BIDS_ENDINGS)[name]
    nifti = sidecar = None
    if job.output.nifti:
        nifti = results.reserve(f"{prefix}nifti", f"{ending}{job.output.nifti_suffix}")
        sidecar = results.reserve(f"{prefix}nifti_json", f"{ending}.json")

    def write(series: ResultSeries) -> None:
        mean.write_bytes(tiff(series.means[name], series.geometry.spatial_axes, series.geometry.spacing_mm))
        if movie is not None:
            movie.write_bytes(pictures.film(name, series, job.name, job.display))
        if nifti is not None and sidecar is not None:
            task = None if job.bids is None else job.bids.task
            _write_power_nifti(nifti, sidecar, name, series, {} if task is None else {"TaskName": task})

    return [picture, write]


def _write_power_nifti(
    path: Path, sidecar_path: Path, name: str, series: ResultSeries, named: Mapping[str, str]
) -> None:
    """Write a power image of a series as NIfTI, and its sidecar with some fields first.

    Other programs know of no bad blocks, so these are interpolated unless the options keep them.
    """
    blocks, stride = [vars(block) for block in series.block_records], series.options.stride or series.window
    times = series.starts.tolist(), series.time_unit, series.window, stride
    is_kept = series.options.bad_blocks == "keep"
    power = series.images[name] if is_kept else series.filled_image(name)
    fields = write_nifti(path, power, series.geometry, *times, blocks)
    if series.is_session:
        bad = series.bad_blocks if isinstance(series, PoseSeries) else series.bad
        fields |= {"BadBlocks": bad.tolist(), **({} if is_kept else {"InterpolatedBlocks": bad.tolist()})}
    if isinstance(series, PoseSeries):
        fields |= _slice_fields(series)
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
    }
    if series.time_unit != "s":
        return fields
    begins = series.block_starts
    timing = begins - series.starts[:, None]
    fields["FrameAcquisitionDuration"] = series.sweep_duration
    if np.ptp(timing, axis=0).max() <= SAME_TIMING * series.block_duration:
        slices = np.median(timing, axis=0).round(9)
        fields |= {"SliceTiming": slices.tolist(), "SliceEncodingDirection": "k"}
        # Confusius takes the median step for the duration of a slice, and refuses those that end later than the volume.
        duration = max(series.block_duration, float(np.median(np.abs(np.diff(slices)))))
        fields["FrameAcquisitionDuration"] = round(float(slices.max()) + duration, 9)
    return fields | {"BlockTiming": begins.round(9).tolist()}


def _activation(results: Results) -> Write:
    """Reserve the files of the activation maps, and return what writes them."""
    job, session, suffix = results.job, results.job.session_options, results.job.output.nifti_suffix
    names = activation_names(job.events[0], session.contrasts)
    for trial_type, plain in names.items():
        name = f"activation_{plain}"
        for kind in _formats(job):
            results.reserve(f"{name}_{kind}", f"{name}.{kind}")
        has_t = trial_type and not session.hrf.startswith(FIR)
        if job.output.nifti:
            results.reserve(f"{name}_nifti", f"{name}_stat-{'t' if has_t else 'F'}_statmap{suffix}")
        if job.output.nifti and has_t:
            results.reserve(f"{name}_effect", f"{name}_stat-effect_statmap{suffix}")
            results.reserve(f"{name}_effect_json", f"{name}_stat-effect_statmap.json")
    return partial(_write_activation, names, results)


def _write_activation(names: Mapping[str, str], results: Results, series: ResultSeries) -> None:
    job, stack = results.job, series.geometry
    for trial_type, activation in series.activations.items():
        name, planes = f"activation_{names[trial_type]}", series.planes
        images = activation.statistic, activation.active, series.means["blood_power"]
        if planes:
            # Those with most active pixels first
            counts = [-np.count_nonzero(plane) for plane in activation.active]
            order = np.argsort(counts, kind="stable").tolist()
            images, planes = tuple(image[order] for image in images), tuple(planes[at] for at in order)
        layers = pictures.activation_layers(*images, stack.spatial_axes, activation.letter, planes)
        title = ActivationRecord.of(trial_type, activation).title
        for kind in _formats(job):
            drawn = pictures.layers_picture(layers, stack.spacing_mm, title, kind, display=job.display)
            results.path_of(f"{name}_{kind}").write_bytes(drawn)
            if kind == "png":
                results.activations[trial_type] = drawn
        if job.output.nifti:
            write_stat_map(results.path_of(f"{name}_nifti"), activation.statistic, stack, activation.letter)
            if activation.t is not None and activation.change is not None:
                write_stat_map(results.path_of(f"{name}_effect"), activation.change, stack, "change")
                described = {
                    "Description": f"Response of the blood power to long events, type or contrast '{trial_type}'",
                    "Units": unit_of(trial_type),
                    "Baseline": "Constant of the general linear model of the pixel, which is 100 %; NaN outside the vessels",
                    "TrialType": trial_type,
                }
                results.path_of(f"{name}_effect_json").write_text(to_json(described, indent=2) + "\n")


def reserve_main_files(results: Results) -> list[Path]:
    """Reserve the main file of a job, and the Zarr group beside it on request."""
    job = results.job
    name = "activation" if job.is_model else "sequence" if job.is_session else "denoised"
    suffix = output_suffix(job.path)
    files = [results.reserve(name, f"{name}{suffix}")]
    if job.session_options.zarr and suffix != ".zarr":
        files.append(results.reserve("zarr", f"{name}.zarr"))
    return files


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
    options = {} if series.fit is None else asdict(series.fit.options)
    parameters = {**options, **asdict(job.display), **asdict(job.output)}
    if job.session is not None:
        parameters |= asdict(job.session)
    # A session that was stopped and went on has read some blocks twice, and has the same results.
    provenance = to_json(record(job.command, parameters, asdict(replace(source, passes_over_file=None))))
    arrays = [array for array in series.contents() if not (job.is_model and array.name in series.images)]
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
        check_new(stack_path, overwrite)


def stack_files(job: Job, series: ResultSeries) -> dict[str, str]:
    """Return the files of the filtered blocks of a session, if they are requested: name without suffix -> path."""
    if not job.session_options.stacks:
        return {}
    files = [Path(block.file) for block in series.block_records]
    paths = [job.folder / block_file_name(job, file, number) for number, file in enumerate(files)]
    return {path.stem: str(path) for path in paths if path.exists()}


@dataclass(frozen=True)
class StackFiles:
    """The files of the filtered blocks of a session, which wait in a folder."""

    job: Job
    files: SessionFiles
    folder: Path

    def write(self, number: int, frames: NDArray[np.generic]) -> None:
        """Write a filtered block, (n, n_pixels), in the format of its file and with its other variables."""
        source, geometry = self.files.path_of(number), self.files.geometry_of(number)
        first = self.files.recording.blocks[number].window.start
        provenance = to_json(record(self.job.command, {}, {"path": str(source), "first_frame": first}))
        stack = Acquisition.of(geometry, geometry.as_stack(frames))
        content = ResultFile(stack, (), provenance, source, self.job.output.stack_name)
        _write_one_file(self.folder / block_file_name(self.job, source, number), content, overwrite=True)

    def has(self, number: int) -> bool:
        """Return whether a filtered block is written."""
        name = block_file_name(self.job, self.files.path_of(number), number)
        return any((folder / name).exists() for folder in (self.folder, self.job.folder))


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
        File to write: .h5 or .hdf5, .mat, .zarr (needs the package zarr), or .nii.gz or .nii
        with a sidecar .json (needs nibabel).
        Beside the NIfTI file of a session are its confounds, such as x_confounds.tsv and .json.
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
    is_nifti = path.name.lower().endswith((".nii.gz", ".nii"))
    if not path.parent.is_dir():
        raise OutputError(f"the folder {path.parent} does not exist", remedy="create it, or check the path")
    if path.suffix.lower() not in (".h5", ".hdf5", ".mat", ".zarr") and not is_nifti:
        raise OutputError(f"cannot write '{path.suffix}' files; use .h5, .mat, .zarr, .nii.gz or .nii")
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
        stem = path.name[: path.name.lower().rfind(".nii")]
        sidecar = outputs.reserve(f"{stem}.json")
        _write_power_nifti(outputs.reserve(path.name), sidecar, image, series, {})
        if series.is_session:
            confounds = [outputs.reserve(f"{stem}_confounds.{suffix}") for suffix in ("tsv", "json")]
            _write_table(tables.confound_table(series), *confounds)
        outputs.commit()
    return path


def _write_one_file(path: Path, content: ResultFile, overwrite: bool) -> Path:
    """Write a result file in the format of its suffix, whole or not at all, and return its path."""
    with OutputFolder(path.parent, overwrite) as outputs:
        write_result(outputs.reserve(path.name), path.suffix.lower(), content)
        outputs.commit()
    return path
