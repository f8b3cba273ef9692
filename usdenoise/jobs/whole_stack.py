"""Read and filter a scan as one block."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from usdenoise.files.layout import Disk
from usdenoise.files.open_input import Input
from usdenoise.jobs.job import Job, StageClock
from usdenoise.jobs.progress import Watcher
from usdenoise.jobs.workers import dask_client
from usdenoise.pipeline.denoise import denoise
from usdenoise.pipeline.result import DenoiseResult
from usdenoise.stack.acquisition import canonical_axes, spatial_order
from usdenoise.stack.chunk_grid import fetch
from usdenoise.stack.lazy_arrays import is_dask_array


def filter_stack(
    job: Job, source: Input, disk: Disk | None, watcher: Watcher, clock: StageClock
) -> DenoiseResult:
    """Read and filter a scan.

    Parameters
    ----------
    job : Job
        The job.
    source : Input
        The open scan.
    disk : Disk or None
        Where the stack goes to; None for the memory.
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
        acquisition = source.lazy() if job.dask else source.read(disk=disk, on_part=watcher.read)
        # A stack that changed while it was read is told now and not after the filtering, which needs the file no more.
        source.check_unchanged()
        source.close()
    watcher.loaded(acquisition)
    watcher.stage("solve")
    with nullcontext() if job.dask is None else dask_client(job.dask):
        result = denoise(
            acquisition,
            options=job.options,
            in_place=True,
            on_iteration=watcher.iteration,
        )
        clock.add(result.timings_s)
        with clock.stage("filter"):
            result = fetched(result, disk)
    if job.dask is not None:
        source.check_unchanged()
    return result


def fetched(result: DenoiseResult, disk: Disk | None) -> DenoiseResult:
    """Return a result whose filtered stack is here, in the memory order of the Casorati matrix; itself if it is already.

    Parameters
    ----------
    result : DenoiseResult
        A result whose stack may be a Dask array.
    disk : Disk or None
        Where the stack goes to; None for the memory.
    """
    stack = result.acquisition
    if not is_dask_array(stack.iq):
        return result
    canonical = canonical_axes(stack.axes)
    shape, dtype = stack.shape_in(canonical), stack.iq.dtype
    edges = np.cumsum([0, *stack.iq.chunks[stack.axes.index("t")]])
    whole: Any = np.empty(shape, dtype) if disk is None else disk.begin(shape, dtype, edges)
    iq: Any = spatial_order(whole, canonical, stack.axes)
    fetch(stack.iq, iq)
    return replace(result, acquisition=replace(stack, iq=iq if disk is None else iq.filled()))
