"""Read and filter an acquisition."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.files.open_input import Input
from usdenoise.files.scratch import scratch_array
from usdenoise.jobs.job import Job, StageClock
from usdenoise.jobs.progress import Watcher
from usdenoise.jobs.workers import dask_client
from usdenoise.pipeline.denoise import denoise_frames, working_type
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.stack.acquisition import Acquisition


def filter_acquisition(
    job: Job, source: Input, scratch: Path | None, watcher: Watcher, clock: StageClock
) -> DenoiseResult:
    """Read and filter an acquisition.

    Parameters
    ----------
    job : Job
        The job.
    source : Input
        The open acquisition.
    scratch : Path or None
        Folder of a temporary file for the stack; None for the memory.
    watcher : Watcher
        Its methods are called as the work proceeds.
    clock : StageClock
        Gets the seconds of the stages.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend, a file that changed while it was read among it.
    """
    with clock.stage("load"):
        acquisition = source.lazy() if job.dask else source.read(scratch=scratch, on_part=watcher.read)
        # A stack that changed while it was read is told now and not after the filtering, which needs the file no more.
        source.check_unchanged()
        source.close()
    watcher.loaded(acquisition)
    watcher.stage("solve")
    if job.dask is None:
        result = denoise_frames(acquisition, job.options, in_place=True, on_iteration=watcher.iteration)
    else:
        with dask_client(job.dask):
            target = _target(acquisition, job.options.precision, scratch)
            result = denoise_frames(acquisition, job.options, on_iteration=watcher.iteration, target=target)
        source.check_unchanged()
    clock.add(result.timings_s)
    return result


def _target(stack: Acquisition, precision: str, scratch: Path | None) -> NDArray[Any]:
    """Return where the filtered frames of workers go, (n_frames, n_pixels)."""
    shape, dtype = (stack.n_frames, stack.n_pixels), working_type(stack, precision)
    return np.empty(shape, dtype) if scratch is None else scratch_array(scratch, shape, dtype)
