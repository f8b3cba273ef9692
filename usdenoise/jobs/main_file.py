"""The main file of a job: the filtered stack with its images, or the images of all blocks as a sequence."""

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from usdenoise.errors import OptionError, OutputError, check_path
from usdenoise.files.images import write_nifti
from usdenoise.files.output_folder import OutputFolder
from usdenoise.files.results import ResultFile, output_suffix, write_result
from usdenoise.jobs.job import Job
from usdenoise.linalg.array_library import on_host
from usdenoise.options.job_options import SessionOptions
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.report.pictures import HasSeries
from usdenoise.report.record import InputRecord
from usdenoise.report.series import POWER_NAMES, ResultSeries, series_of_stack
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.provenance import record, to_json

NIFTI = ".nii.gz"
"""Suffix of gzipped NIfTI."""

WRITTEN_SUFFIXES = (".h5", ".hdf5", ".mat", ".zarr")


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
    arrays = series.contents(job.session_options.window)
    if series.stack is None:
        return ResultFile(series.geometry, arrays, provenance, job.path if len(job.paths) == 1 else None)
    stack = _on_host(series.stack.acquisition) if job.output.stack else series.geometry
    return ResultFile(stack, arrays, provenance, job.path, job.output.stack_name)


def _on_host(stack: Acquisition) -> Acquisition:
    return Acquisition.of(stack, on_host(stack.iq))


def block_file_name(job: Job, source: Path, number: int) -> str:
    """Return the name of the file of a filtered block of a session, from the name of its own file."""
    part = "" if job.session_options.window is None else f"_block_{number:05d}"
    return f"{source.stem}{part}_denoised{output_suffix(source)}"


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


def write_block(job: Job, folder: Path, source: Path, number: int, first: int, stack: Acquisition) -> None:
    """Write a filtered block of a session into a folder, in the format of its file and with its other variables."""
    provenance = to_json(record(job.command, {}, {"path": str(source), "first_frame": first}))
    output = job.output
    content = ResultFile(stack, (), provenance, source, output.stack_name)
    write_one_file(folder / block_file_name(job, source, number), content, overwrite=True)


class SavedSession(HasSeries, Protocol):
    """The result of :func:`usdenoise.session`."""

    @property
    def options(self) -> SessionOptions:
        """Window and stride of the session."""


def save(
    result: DenoiseResult | SavedSession,
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
        If the file exists, its suffix is not of a format that is written, or it cannot be written.
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
    check_suffix(Path(path))
    if isinstance(result, DenoiseResult):
        series, options = series_of_stack(result, ()), SessionOptions()
        content = ResultFile(_on_host(result.acquisition), series.contents(), result.provenance)
    else:
        series, options = result.series, result.options
        provenance = to_json(record(None, {}, {}))
        content = ResultFile(series.geometry, series.contents(options.window), provenance)
    if is_nifti(path):
        return _save_nifti(series, options, path, image, overwrite)
    return write_one_file(Path(path), content, overwrite)


def is_nifti(path: str | Path) -> bool:
    """Return whether a file has the suffix of gzipped NIfTI."""
    return str(path).lower().endswith(NIFTI)


def _save_nifti(
    series: ResultSeries, session: SessionOptions, path: str | Path, image: str, overwrite: bool
) -> Path:
    """Write a power image of a series as NIfTI, with its sidecar beside it, and return its path.

    Raises
    ------
    OptionError
        If the image is not known, or nibabel is missing.
    OutputError
        If a file exists, or cannot be written.
    """
    if image not in POWER_NAMES:
        raise OptionError(f"image '{image}' cannot be written as NIfTI; choose {' or '.join(POWER_NAMES)}")
    path = Path(path)
    with OutputFolder(path.parent, overwrite) as outputs:
        waiting, sidecar = (outputs.reserve(f"{path.name[: -len(NIFTI)]}{end}") for end in (NIFTI, ".json"))
        fields = write_power_nifti(waiting, image, series, session)
        sidecar.write_text(to_json(fields, indent=2) + "\n")
        outputs.commit()
    return path


def write_power_nifti(
    path: Path, image: str, series: ResultSeries, session: SessionOptions
) -> dict[str, Any]:
    """Write a power image of a series as NIfTI, and return the fields of its sidecar.

    Parameters
    ----------
    path : Path
        File to write, which may have a temporary name.
    image : str
        One of POWER_NAMES.
    series : ResultSeries
        The filtered blocks.
    session : SessionOptions
        Window and stride of a session; the defaults otherwise.
    """
    length = series.frames_a_block(session.window)
    fields = write_nifti(
        path,
        series.images[image],
        series.geometry,
        series.times,
        series.time_unit,
        length,
        session.stride or length,
        [vars(block) for block in series.blocks],
    )
    description = {"power_doppler": "Power Doppler", "blood_power": "Blood power without noise"}[image]
    description += " in blocks of frames" if len(series.blocks) > 1 else ""
    return {"Description": description, **fields}


def check_suffix(path: Path) -> None:
    """Check that the suffix of a file belongs to a format that can be written.

    Raises
    ------
    OutputError
        If it is not.
    """
    if path.suffix.lower() not in WRITTEN_SUFFIXES and not is_nifti(path):
        raise OutputError(f"cannot write '{path.suffix}' files; use .h5, .mat, .zarr or .nii.gz")


def write_one_file(path: Path, content: ResultFile, overwrite: bool) -> Path:
    """Write a result file in the format of its suffix, whole or not at all, and return its path."""
    with OutputFolder(path.parent, overwrite) as outputs:
        waiting = outputs.reserve(path.name)
        write_result(waiting, path.suffix.lower(), content)
        outputs.commit()
    return path
