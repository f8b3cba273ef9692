"""Read and filter an acquisition."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.files.frame_source import file_recording, lines_recording
from usdenoise.files.open_input import open_input
from usdenoise.files.scratch import scratch_array
from usdenoise.jobs.job import Job, StageClock
from usdenoise.jobs.memory_check import scratch_folder
from usdenoise.jobs.progress import Watcher
from usdenoise.jobs.workers import dask_executor
from usdenoise.pipeline.denoise import denoise_frames
from usdenoise.pipeline.recording import array_recording
from usdenoise.report.record import InputRecord
from usdenoise.report.result_record import input_record
from usdenoise.report.series import ResultSeries, series_of_stack


def filter_acquisition(job: Job, watcher: Watcher, clock: StageClock) -> tuple[ResultSeries, InputRecord]:
    """Read and filter an acquisition, and return its images and the record of its file.

    A stack that does not fit into memory, or that workers filter, is read chunk by chunk in each pass, if the file has
    its frames in order. Any other one is read once, into memory or into a temporary file in the order of its frames.

    Parameters
    ----------
    job : Job
        The job.
    watcher : Watcher
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
                recording, shape = file_recording(source), (source.n_frames, source.geometry.n_pixels)
                target = (
                    np.empty(shape, source.dtype)
                    if scratch is None
                    else scratch_array(scratch, shape, source.dtype)
                )
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
            watcher.loaded(recording.geometry)
        watcher.stage("solve")
        with dask_executor(job.dask) as executor:
            result = denoise_frames(
                recording, job.options, target=target, on_iteration=watcher.iteration, executor=executor
            )
        if is_read_in_chunks:
            source.check_unchanged()
        clock.add(result.timings_s)
        with clock.stage("write"):
            series = series_of_stack(result, job.output.products, source.time_of_first_frame)
        with clock.stage("load"):
            source_record = input_record(
                source.path,
                series.geometry,
                source.shape,
                digest.result(),
                **source.state,
                # How often workers read the file is not counted.
                passes_over_file=source.passes if job.dask is None else None,
            )
            return series, source_record
