"""Run a job: an acquisition file in, a folder of results out, in which all files appear at once."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.clutter_cutoff import CommonCutoff
from usdenoise.errors import OutputError, check_path
from usdenoise.files.bids import bids_name, describe_derivative, judge_recordings, quality_table
from usdenoise.files.layout import scratch_array
from usdenoise.files.open_input import open_input
from usdenoise.files.output_folder import OutputFolder
from usdenoise.files.recordings import file_recording, lines_recording
from usdenoise.files.results import write_result
from usdenoise.jobs.job import PAGE, REPORT, Job, Results, StageClock, chunk_entries, pose_job, scratch_folder
from usdenoise.jobs.products import main_content, reserve_main_files, reserve_products, stack_files
from usdenoise.jobs.workers import dask_executor
from usdenoise.options import DenoiseOptions, Display, Output
from usdenoise.pipeline.denoise import denoise_frames
from usdenoise.pipeline.recording import array_recording
from usdenoise.progress import Progress
from usdenoise.report.page_content import page_of
from usdenoise.report.panels import load_libraries
from usdenoise.report.record import InputRecord, ModelReport, input_record, report_of
from usdenoise.sessions.pose_series import PoseSeries
from usdenoise.sessions.result_series import ResultSeries, series_of_stack
from usdenoise.system.processes import locked
from usdenoise.system.resources import memory_watched, release_freed_memory
from usdenoise.system.text import requested, short_stem, software

logger = logging.getLogger(__name__)

Filter = Callable[[Job, Progress, StageClock], tuple[ResultSeries, InputRecord]]
"""Reads and filters the input of a job, and returns its result and the record of the input."""


def filter_acquisition(job: Job, watcher: Progress, clock: StageClock) -> tuple[ResultSeries, InputRecord]:
    """Read and filter an acquisition, and return its images and the record of its file.

    A stack that does not fit into memory, or that workers filter, is read chunk by chunk in each pass, if the file has
    its frames in order. Any other one is read once, into memory or into a temporary file in the order of its frames.

    Parameters
    ----------
    job : Job
        The job.
    watcher : Progress
        Its methods are called as the work proceeds.
    clock : StageClock
        Gets the seconds of the stages.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend, a file that changed while it was read among it.
    """
    with open_input(job.path, job.reading, job.options.precision) as source:
        digest = source.digest_in_background()
        # None for the memory
        scratch = scratch_folder(source, job)
        is_read_in_chunks = source.is_in_frame_order and not source.is_read_whole
        is_read_in_chunks &= scratch is not None or job.dask is not None
        target: NDArray[Any] | None
        with clock.stage("load"):
            if is_read_in_chunks:
                recording = file_recording(source, chunk_entries(source, job))
                shape, dtype = (source.n_frames, source.geometry.n_pixels), source.dtype
                target = np.empty(shape, dtype) if scratch is None else scratch_array(scratch, shape, dtype)
            elif scratch is not None:
                lines = source.read_lines(scratch, watcher.read)
                recording, target = lines_recording(source, lines), lines.reshape(len(lines), -1)
            else:
                stack = source.read(on_part=watcher.read)
                recording, target = array_recording(stack, job.options.precision, in_place=True)
                del stack
            if not is_read_in_chunks:
                # A change of the file while it was read is reported before the filtering, which does not use the file.
                source.check_unchanged()
                source.close()
            watcher.assumed(recording.geometry.assumptions)
        watcher.stage("solve")
        with dask_executor(job.dask, job.options.threads) as workers:
            result = denoise_frames(recording, job.options, None, target, watcher.iteration, executor=workers)
        if is_read_in_chunks:
            source.check_unchanged()
        clock.add(result.timings_s)
        with clock.stage("write"):
            result = replace(result, common_cutoff=job.common_cutoff)
            series = series_of_stack(result, job.output.products, source.time_of_first_frame)
        with clock.stage("load"):
            found = input_record(source.path, series.geometry, source.shape, source.state)
            # How often workers read the file is not counted.
            passes = source.passes if job.dask is None else None
            return series, replace(found, sha256=digest.result(), passes_over_file=passes)


@memory_watched()
def run(  # noqa: PLR0913
    path: str | Path,
    folder: str | Path | None = None,
    *,
    options: DenoiseOptions | None = None,
    display: Display | None = None,
    output: Output | None = None,
    reading: Mapping[str, Any] | None = None,
    bids: str | None = None,
    memory: int | None = None,
    dask: str | None = None,
    overwrite: bool = False,
    common_cutoff: CommonCutoff | None = None,
    command: list[str] | None = None,
    watcher: Progress | None = None,
) -> dict[str, Any]:
    """Denoise one acquisition file and write the results.

    Parameters
    ----------
    path : str or Path
        The acquisition.
    folder : str or Path, optional
        Folder of the results; by default ``<stem>-usdenoise`` in the current folder.
    options : DenoiseOptions, optional
        Options of the denoiser.
    display : Display, optional
        Options of the pictures.
    output : Output, optional
        The files to write next to, or instead of, the filtered stack.
    reading : mapping, optional
        Fields of :class:`usdenoise.options.ReadOptions`.
    bids : str, optional
        Entities of BIDS, such as "sub-01_task-rest", with which the names of the results begin; "auto" takes them from
        the name of the acquisition. The results go to sub-01/fusi below `folder`, which becomes a derivative data set.
        Needs ``output.nifti``.
    memory : int, optional
        Bytes of memory that the job may take. If the stack does not fit, it is read in blocks of frames, and the filtered
        one goes into a file without a name in the folder of the results. By default the free memory of the system.
    dask : str, optional
        Dask workers that read and filter the stack block by block: a number of worker processes to start, or the address
        of a scheduler whose workers see the same files. By default everything is done here. A script must call this
        function under ``if __name__ == "__main__":`` then, because it starts processes.
    overwrite : bool
        Whether existing results may be replaced; by default False.
    common_cutoff : CommonCutoff, optional
        How the low cutoff of the options follows from the scans of a batch; by default it does not.
    command : list of str, optional
        The command line, for the record.
    watcher : Progress, optional
        Its methods are called as the job proceeds; by default nothing is called.

    Returns
    -------
    dict
        The report, as written to ``<stem>_report.json``.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.

    Examples
    --------
    >>> import tempfile, usdenoise
    >>> output = usdenoise.Output(products=("power", "velocity"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = usdenoise.run("sample_data/phantom.h5", folder, output=output)
    >>> report["input"]["axes"], report["low_cutoff"] > 0
    ('tzx', True)
    """
    check_path(path)
    path = Path(path)
    root = Path(f"{short_stem(path.stem)}-usdenoise" if folder is None else folder)
    job = Job(
        paths=(path,),
        name=path.stem,
        root=root,
        options=options or DenoiseOptions(),
        reading=reading or {},
        display=display or Display(),
        output=output or Output(),
        bids=None if bids is None else bids_name(bids, path, is_session=False),
        memory=memory,
        dask=dask,
        command=command,
        common_cutoff=common_cutoff,
    )
    # Other acquisitions may be filtered into the same folder at the same time.
    with locked(job.folder, job.stem):
        return carry_out(job, filter_acquisition, overwrite, watcher or Progress())


def carry_out(job: Job, filter_input: Filter, overwrite: bool, watcher: Progress) -> dict[str, Any]:
    """Filter an acquisition or a session, and write its results, all of them or none.

    Parameters
    ----------
    job : Job
        The job.
    filter_input : callable
        :func:`filter_acquisition`, or :func:`usdenoise.jobs.session_job.filter_blocks` for a session.
    overwrite : bool
        Whether existing results may be replaced.
    watcher : Progress
        Its methods are called as the job proceeds.

    Returns
    -------
    dict
        The report, as it is written.
    """
    job.check()
    clock = StageClock()
    with OutputFolder(job.folder, overwrite) as folder, _drawing_thread() as drawing:
        # Reserve: every file has its name before the work begins.
        results = Results(job, folder)
        files, writes = reserve_main_files(results), reserve_products(results)
        if job.output.judges_blood:
            results.reserve(PAGE, "report.html")
        results.reserve(REPORT, "report.json")
        # The libraries load, and the versions that the files name are looked up, while the input is filtered.
        if job.output.judges_blood:
            drawing.submit(load_libraries)
        drawing.submit(software)

        # Open and filter: the images of each block, and the record of the input
        watcher.stage("load")
        series, source = filter_input(job, watcher, clock)

        watcher.stage("write")
        with clock.stage("write"):
            release_freed_memory()
            # Products: pictures and tables are drawn while the stack is written.
            drawn = [drawing.submit(write, series) for write in writes]
            # Content: the stack and the arrays of the main file
            content = main_content(series, job, source)
            results.notes += job.notes
            if job.bids is not None:
                try:
                    quality_table(job.root)
                except OutputError as error:
                    results.notes.append(str(error))
            for file in files:
                results.notes += write_result(file, file.suffix, content)
            for product in drawn:
                product.result()

        # Report, and the page that shows it
        report, page = _reported(job, series, source, results, clock)

        # Commit: all files appear at once.
        written = results.commit(report, page)
    for doubt in report.doubts:
        logger.warning("%r: %s", job.name if job.is_session else str(job.path), doubt.sentence)
    if job.bids is not None:
        describe_derivative(job.root, report.software["usdenoise"])
        images = [Path(path) for path in report.output.values() if path.endswith(("_pwd.nii.gz", "_pwd.nii"))]
        doubts = [doubt.sentence for doubt in report.doubts]
        # The results are whole by now.
        try:
            judge_recordings(job.root, images, len(series.time), doubts)
        except OutputError as error:
            logger.warning("%s", error)
    return written


def _reported(
    job: Job, series: ResultSeries, source: InputRecord, results: Results, clock: StageClock
) -> tuple[ModelReport, str | None]:
    """Return the report of a job, and the page that shows it, if there is one."""
    known = (source, results.names | stack_files(job, series), results.notes, clock.timings_s)
    asked = (job.command, requested(**job.requested_options))
    pages = []
    if isinstance(series, PoseSeries) and job.output.judges_blood:
        of_poses = [pose_job(job, number, series.names) for number in range(len(series.names))]
        pages = [os.path.relpath(each.folder / f"{each.stem}_report.html", job.folder) for each in of_poses]
    report = replace(report_of(series, *known, *asked, pages), memory_limit_bytes=job.memory)
    if not job.output.judges_blood:
        return report, None
    return report, page_of(job.name, series, report, results.pictures, results.activations)


@contextmanager
def _drawing_thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as drawing:
        try:
            yield drawing
        except BaseException:
            # Nobody waits for the pictures of a job that has failed or was interrupted.
            drawing.shutdown(wait=False, cancel_futures=True)
            raise
