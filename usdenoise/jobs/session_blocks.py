"""The blocks of a job of several blocks: read, filtered and measured, and where their spectra are meanwhile."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OutputError, UnreadableError, UsdenoiseError
from usdenoise.files.bids import read_events
from usdenoise.files.input_files import sha256
from usdenoise.files.output_folder import OutputFolder
from usdenoise.files.regions import drawn_regions
from usdenoise.files.spectra_store import SpectraStore
from usdenoise.jobs.job import Job, StageClock
from usdenoise.jobs.main_file import block_file_name, write_block
from usdenoise.jobs.session_inputs import BlocksOfFiles
from usdenoise.jobs.workers import dask_executor
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import SessionOptions
from usdenoise.pipeline.doubts import Doubt
from usdenoise.pipeline.recording import Recording
from usdenoise.progress import Progress
from usdenoise.report.record import BlockRecord, InputRecord
from usdenoise.report.result_record import input_record
from usdenoise.report.series import (
    ResultSeries,
    check_activation,
    series_of_session,
    with_activation,
    with_regions,
)
from usdenoise.sessions.blocks import NO_STARTS
from usdenoise.sessions.filter_session import filter_session
from usdenoise.sessions.measured_block import BlockStore
from usdenoise.sessions.regions import Region, region_masks
from usdenoise.sessions.responses import Event
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.provenance import requested, software, to_json
from usdenoise.system.resources import run_in_background


def filter_blocks(job: Job, watcher: Progress, clock: StageClock) -> tuple[ResultSeries, InputRecord]:
    """Filter the blocks of a session, and return their series and the record of the files.

    The measurements of a block are stored beside the results at once, so that the same command resumes after it was
    stopped at any moment.

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
    session = job.session_options
    events = [] if session.events is None else read_events(Path(session.events))
    with clock.stage("load"):
        blocks = BlocksOfFiles(job.paths, job.reading, job.options.precision, session)
    recording = blocks.recording
    with blocks:
        # Times without starts are no note, but a doubt, if there are events.
        is_doubt = {NO_STARTS} if events else set[str]()
        notes = [note for note in recording.geometry.assumptions if note not in is_doubt]
        watcher.assumed(notes)
        one = len(job.paths) == 1
        digest = run_in_background(lambda: sha256(job.path)) if one else None
        paths = [str(path) for path in job.paths]
        provenance = {"requested": requested(**job.requested_options), "software": software()}
        key = to_json({**provenance, "paths": paths, "files": blocks.states})
        watcher.stage("solve")
        # The errors of workers that are lost pass through: what is stored stays, and the same command resumes.
        with clock.stage("filter"), dask_executor(job.dask, job.options.threads) as executor:
            store = SpectraStore(_spectra_folder(job), key)
            try:
                series = series_of_blocks(
                    recording,
                    session,
                    job.options,
                    store,
                    events,
                    drawn_regions(job.regions),
                    products=job.output.products,
                    sink=_StackFiles(job, blocks, store.folder) if session.stacks else None,
                    progress=(watcher.iteration, watcher.blocks),
                    executor=executor,
                    doubts=blocks.doubts,
                    is_planned=job.was_live,
                )
                blocks.check_unchanged()
            except (OutputError, UnreadableError):
                # So it does when the disk has space, or the files are there again.
                raise
            except UsdenoiseError:
                # The same command would fail again.
                SpectraStore.remove(store.folder)
                raise
        with clock.stage("load"):
            return series, _record_of_files(job, blocks, None if digest is None else digest.result())


def series_of_blocks(
    recording: Recording,
    session: SessionOptions,
    options: DenoiseOptions,
    store: BlockStore,
    events: Sequence[Event],
    regions: Mapping[str, Region],
    doubts: tuple[Doubt, ...] = (),
    is_planned: bool = False,
    **how: Any,
) -> ResultSeries:
    """Filter the blocks of a session, from files or in memory, and return their series with activation maps and regions.

    Parameters
    ----------
    recording, session, options, store, **how
        As for :func:`usdenoise.sessions.filter_session.filter_session`.
    events : sequence of Event
        The events; none for no activation maps.
    regions : mapping
        Name -> region whose mean blood power is followed; none for no regions.
    doubts : tuple of Doubt
        Reasons to doubt the order of the blocks; none by default.
    is_planned : bool
        Whether the events are a plan, of which a live session may have ended before the last ones; by default not.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    # Events and regions that do not fit are an error before an hour of filtering.
    if events:
        lengths = np.array([block.n_frames for block in recording.blocks])
        starts, frame_time = np.array([block.start_s for block in recording.blocks]), recording.frame_time
        times, durations = starts + (lengths - 1) / 2 * frame_time, lengths * frame_time
        check_activation(events, times, durations, recording.geometry, session, is_planned)
    masks = region_masks(regions, recording.geometry) if regions else {}
    filtered_session = filter_session(recording, session, options, store, **how)
    series = with_activation(series_of_session(filtered_session), events, session)
    return with_regions(replace(series, event_doubts=(*doubts, *series.event_doubts)), masks)


@dataclass(frozen=True)
class _StackFiles:
    """The files of the filtered blocks of a session."""

    job: Job
    blocks: BlocksOfFiles
    folder: Path

    def write(self, number: int, frames: NDArray[Any]) -> None:
        """Write a filtered block, (n, n_pixels)."""
        first, geometry = self.blocks.recording.blocks[number].window.start, self.blocks.geometry_of(number)
        stack = Acquisition.of(geometry, geometry.as_stack(frames))
        write_block(self.job, self.folder, self.blocks.path_of(number), number, first, stack)

    def has(self, number: int) -> bool:
        """Return whether a filtered block is written."""
        name = block_file_name(self.job, self.blocks.path_of(number), number)
        return any((folder / name).exists() for folder in (self.folder, self.job.folder))


def was_stopped(job: Job) -> bool:
    """Return whether a session of this name was stopped in this folder; files without a report are then its results."""
    folder = _spectra_folder(job)
    return (
        job.is_session
        and SpectraStore.is_in(folder)
        and not (job.folder / f"{job.stem}_report.json").exists()
    )


def place_stacks(job: Job, blocks: Sequence[BlockRecord]) -> dict[str, str]:
    """Put the filtered blocks of a session, if they are requested, from its spectra into the folder of the results.

    Parameters
    ----------
    job : Job
        The job.
    blocks : sequence of BlockRecord
        The record of each block.

    Returns
    -------
    dict
        Path of each by its name without suffix, which ends in "_denoised".
    """
    if not job.session_options.stacks:
        return {}
    with OutputFolder(job.folder, overwrite=True) as outputs:
        for stack_path in _spectra_folder(job).glob("*_denoised.*"):
            os.replace(stack_path, outputs.reserve(stack_path.name))
        outputs.commit()
    stack_paths = [
        job.folder / block_file_name(job, Path(block.file), number) for number, block in enumerate(blocks)
    ]
    return {stack_path.stem: str(stack_path) for stack_path in stack_paths if stack_path.exists()}


def remove_spectra(job: Job) -> None:
    """Remove the spectra of the blocks of a job that is done."""
    SpectraStore.remove(_spectra_folder(job))


def _spectra_folder(job: Job) -> Path:
    return job.folder / f"{job.stem}_spectra"


def _record_of_files(job: Job, blocks: BlocksOfFiles, digest: str | None) -> InputRecord:
    """Return the record of the files of a session; for one file, the record of a single acquisition."""
    first = blocks.recording.geometry
    shape = [
        blocks.n_frames if letter == "t" else n for letter, n in zip(first.axes, first.shape, strict=True)
    ]
    input_path = job.path if digest is not None else job.paths[0].parent
    states = list(blocks.states.values())
    more: dict[str, Any] = {"files": blocks.states, "bytes": sum(state["bytes"] for state in states)}
    if digest is not None:
        more = {**states[0], "passes_over_file": None if job.dask else blocks.passes}
    return input_record(input_path, first, shape, digest, **more)
