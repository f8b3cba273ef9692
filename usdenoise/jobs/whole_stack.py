"""Read and filter an acquisition."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.files.frame_source import FileFrames, LineFrames
from usdenoise.files.open_input import Input
from usdenoise.files.scratch import scratch_array
from usdenoise.jobs.job import Job, StageClock
from usdenoise.jobs.progress import Watcher
from usdenoise.jobs.workers import dask_executor
from usdenoise.pipeline.denoise import denoise_frames
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.stack.acquisition import Acquisition


def filter_acquisition(
    job: Job, source: Input, scratch: Path | None, watcher: Watcher, clock: StageClock
) -> DenoiseResult:
    """Read and filter an acquisition.

    A stack that does not fit into memory, or that workers filter, is read block by block in each pass, if the file has
    its frames in order. Any other one is read once, into memory or into a temporary file in the order of its frames.

    Parameters
    ----------
    job : Job
        The job.
    source : Input
        The open acquisition.
    scratch : Path or None
        Folder of a temporary file for the filtered stack; None for the memory.
    watcher : Watcher
        Its methods are called as the work proceeds.
    clock : StageClock
        Gets the seconds of the stages.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend, a file that changed while it was read among it.
    """
    is_read_in_blocks = source.is_in_frame_order and not source.is_read_whole
    is_read_in_blocks &= scratch is not None or job.dask is not None
    with clock.stage("load"):
        stack: Acquisition | FileFrames | LineFrames
        if is_read_in_blocks:
            stack = FileFrames(source, target=_target(source, scratch))
        elif scratch is not None:
            stack = LineFrames(source, source.read_lines(scratch, watcher.read))
        else:
            stack = source.read(on_part=watcher.read)
        if not is_read_in_blocks:
            # A change of the file while it was read is reported before the filtering, which does not use the file.
            source.check_unchanged()
            source.close()
        watcher.loaded(stack if isinstance(stack, Acquisition) else stack.stack)
    watcher.stage("solve")
    with dask_executor(job.dask) as executor:
        result = denoise_frames(
            stack, job.options, in_place=True, on_iteration=watcher.iteration, executor=executor
        )
    if is_read_in_blocks:
        source.check_unchanged()
    clock.add(result.timings_s)
    return result


def _target(source: Input, scratch: Path | None) -> NDArray[Any]:
    """Return where the filtered frames of a file go, (n_frames, n_pixels)."""
    shape, dtype = (source.n_frames, source.geometry.n_pixels), source.dtype
    return np.empty(shape, dtype) if scratch is None else scratch_array(scratch, shape, dtype)
