"""Sessions from files to files: ``usdenoise session``, and the steps from block files to their series.

:func:`run_session` names the files and options of a job, and follows the blocks first if they are still to come.
:func:`usdenoise.jobs.run_job.carry_out` reserves and writes the results, as for one acquisition. :func:`filter_files` makes
the series, also for :func:`usdenoise.session`.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import Any

from usdenoise.errors import InputError, OptionError, OutputError, UnreadableError, UsdenoiseError, cause_of
from usdenoise.files.bids import bids_name
from usdenoise.files.blocks_on_disk import BlocksOnDisk
from usdenoise.files.input_files import sha256
from usdenoise.files.output_folder import OutputFolder, check_new, remove
from usdenoise.files.regions import drawn_regions
from usdenoise.jobs import session_inputs
from usdenoise.jobs.job import POSES_FOLDER, Job, StageClock
from usdenoise.jobs.live_job import LiveBlocks, LivePages, follow
from usdenoise.jobs.poses_job import filter_positions, write_poses
from usdenoise.jobs.products import StackFiles, check_stack_names
from usdenoise.jobs.run_job import carry_out
from usdenoise.jobs.workers import dask_executor
from usdenoise.options import DenoiseOptions, Display, Output, SessionOptions
from usdenoise.pipeline.recording import Recording
from usdenoise.pipeline.result import Doubt
from usdenoise.progress import Progress
from usdenoise.report.record import InputRecord, input_record
from usdenoise.sessions.blocks import NO_STARTS
from usdenoise.sessions.design import Event
from usdenoise.sessions.filter_session import filter_session
from usdenoise.sessions.measured_block import BlockStore
from usdenoise.sessions.model import modelled
from usdenoise.sessions.online_session import OnlineSession
from usdenoise.sessions.pose_series import PoseSeries
from usdenoise.sessions.regions import Region, region_masks
from usdenoise.sessions.result_series import ResultSeries
from usdenoise.sessions.session_activation import check_activation
from usdenoise.system.processes import locked
from usdenoise.system.resources import memory_watched, run_in_background
from usdenoise.system.text import requested, software, to_json


@memory_watched()
def run_session(  # noqa: PLR0913
    paths: Sequence[str | Path],
    folder: str | Path,
    *,
    patterns: Sequence[str] = (),
    options: DenoiseOptions | None = None,
    display: Display | None = None,
    output: Output | None = None,
    bids: str | None = None,
    session_options: SessionOptions | None = None,
    regions: Mapping[str, str] | None = None,
    dask: str | None = None,
    reading: session_inputs.Reading | None = None,
    overwrite: bool = False,
    command: list[str] | None = None,
    watcher: Progress | None = None,
) -> dict[str, Any]:
    """Filter a session, and write its series and what belongs to it.

    Parameters
    ----------
    paths : sequence of paths
        Files in the order of time, and folders whose files are taken in natural order.
    folder : str or Path
        Folder of the results.
    patterns : sequence of str
        Shell patterns that the names of files in folders must match; by default the suffixes of the known formats.
    options, display, output, reading, overwrite, command, watcher
        As for :func:`usdenoise.run`.
    bids : str, optional
        Entities of BIDS, as for :func:`usdenoise.run`; "auto" takes them from the name of the first file.
    session_options : SessionOptions, optional
        The time between blocks, the output for each block, and whether blocks are still to come.
    regions : mapping, optional
        Name -> region whose mean blood power is followed, in words as for :class:`usdenoise.Session`.
    dask : str, optional
        Dask workers, as for :func:`usdenoise.run`. Blocks that were lost with a worker are done again.

    Returns
    -------
    dict
        The report, as written to ``<name>_report.json``. If files of a live session were removed before its end, only
        `output`, the paths of the live results, and `notes`, with what is missing.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    session = session_options or SessionOptions()
    watcher, live_pages = watcher or Progress(), None
    job = Job(
        root=Path(folder),
        options=options or DenoiseOptions(),
        reading=reading or {},
        session=session,
        display=display or Display(),
        output=output or Output(),
        regions=regions or {},
        command=command,
        dask=dask,
    )
    # Follow: a live session shows its blocks as they come. Then the folder is filtered as any other.
    if session.live:
        input_folder = session_inputs.only_folder(paths)
        of_bids = None if bids in (None, "auto") else bids_name(bids, input_folder)
        named = replace(job, name=input_folder.absolute().name, bids=of_bids)
        live_pages = _follow(named, input_folder, patterns, overwrite, watcher)
        if live_pages.missing:
            live_pages.end(is_finished=False)
            return live_pages.result
        # Files that are not blocks are missing blocks, and are reported.
        session = replace(session, live=False, until_idle_s=None, skip_bad_files=True)
        job = replace(job, notes=tuple(live_pages.file_remarks), was_live=True)
    # Find: the files of the blocks, from which the results have their name
    files, groups = session_inputs.session_files(paths, session, job.root, patterns)
    name = files[0].stem if len(files) == 1 else _common_folder(files if groups else files[:1]).name
    of_bids = None if bids is None else bids_name(bids, files[0])
    session = session_inputs.with_own_window(session, files, job.reading, job.options.precision)
    job = replace(job, paths=files, name=name, groups=groups, bids=of_bids, session=session)
    # Filter and write. A run of the long file of a session writes to the same names.
    with locked(job.folder), locked(job.folder, job.stem):
        if live_pages is None:
            return _carry_out(job, overwrite, watcher)
        return _final_series(job, overwrite, watcher, live_pages)


def _carry_out(job: Job, overwrite: bool, watcher: Progress) -> dict[str, Any]:
    """Filter a session of files, and write its results; a session that was stopped goes on."""
    job = replace(job, events=session_inputs.events_of(job.session_options.events))
    if BlocksOnDisk.is_in(_spectra_folder(job)) and not (job.folder / f"{job.stem}_report.json").exists():
        # Files without a report are its results.
        overwrite = True
    if job.session_options.stacks:
        check_stack_names(job, overwrite)
    if job.session_options.poses is not None:
        for of_pose in (job.root / POSES_FOLDER).rglob(f"{escape(job.stem)}_pose-*_report.json"):
            check_new(of_pose, overwrite)
    report = carry_out(job, filter_blocks, overwrite, watcher)
    remove_spectra(job)
    return report


def _follow(job: Job, source: Path, patterns: Sequence[str], overwrite: bool, watcher: Progress) -> LivePages:
    """Show the blocks of a live session as they come, until it ends, and return its pages."""
    session = job.session_options
    # Errors of the final session are raised before the live session starts.
    session_inputs.check_apart(source, job.root)
    events, regions = session_inputs.events_so_far(session.events), drawn_regions(job.regions)
    follower = OnlineSession(regions, job.options, session=session, events=events)
    job.check()
    with OutputFolder(job.folder, overwrite) as outputs:
        outputs.reserve(f"{job.stem}_report.json")
    blocks = LiveBlocks(job, source, follower, patterns)
    with locked(job.folder):
        return follow(blocks, job, watcher)


def _final_series(job: Job, overwrite: bool, watcher: Progress, live_pages: LivePages) -> dict[str, Any]:
    """Return the report of the final series of a live session, or its live results if its files are removed meanwhile.

    Events that are wrong take no series: it is then without activation maps.
    """
    report: dict[str, Any] = {}
    try:
        report = _carry_out(job, overwrite, watcher)
    except (InputError, OptionError) as error:
        if not live_pages.missing:
            if job.session_options.events is None:
                raise
            without = replace(job.session_options, events=None)
            notes = (*job.notes, f"there is no activation map: {cause_of(error)}")
            report = _carry_out(replace(job, session=without, notes=notes), overwrite, watcher)
    finally:
        live_pages.end(is_finished=bool(report))
    return report or live_pages.result


def filter_blocks(job: Job, watcher: Progress, clock: StageClock) -> tuple[ResultSeries, InputRecord]:
    """Filter the files of a session, and return their series and their record, for :func:`carry_out`.

    Parameters
    ----------
    job, watcher, clock
        As for :func:`filter_files`.
    """
    digest = run_in_background(lambda: sha256(job.path)) if len(job.paths) == 1 else None
    series, source = filter_files(job, watcher, clock)
    if isinstance(series, PoseSeries):
        with clock.stage("write"):
            write_poses(job, series, source)
    # The filtered blocks, which were written one by one, join the results.
    if job.session_options.stacks:
        with OutputFolder(job.folder, overwrite=True) as outputs:
            for stack_path in _spectra_folder(job).glob("*_denoised.*"):
                os.replace(stack_path, outputs.reserve(stack_path.name))
            outputs.commit()
    with clock.stage("load"):
        return series, source if digest is None else replace(source, sha256=digest.result())


def filter_files(job: Job, watcher: Progress, clock: StageClock) -> tuple[ResultSeries, InputRecord]:
    """Filter the files of a session, and return their series and their record without a digest.

    The measurements of a block are stored in the folder of the job at once, so that the same command resumes after it was
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
    session, options, regions = job.session_options, job.options, drawn_regions(job.regions)
    # Notes on the events join the assumptions about the files.
    events, notes = job.events
    with ExitStack() as opened:
        # Headers of the files, and their blocks
        with clock.stage("load"):
            reading = (job.reading, options.precision, session, notes)
            opening = session_inputs.open_session(job.paths, *reading)
            if job.groups:
                opening = session_inputs.open_positions(job.groups, *reading)
            files = opened.enter_context(opening)
        # Times without starts are no note, but a doubt, if there are events.
        assumptions = files.recording.geometry.assumptions
        watcher.assumed([note for note in assumptions if not (events and note == NO_STARTS)])
        watcher.stage("solve")
        # The series. The errors of workers that are lost pass through: what is stored stays, and the same command resumes.
        provenance = {"requested": requested(**job.requested_options), "software": software()}
        key = to_json({**provenance, "paths": [str(path) for path in job.paths], "files": files.states})
        with clock.stage("filter"), dask_executor(job.dask, options.threads) as executor:
            store = BlocksOnDisk(_spectra_folder(job), key)
            try:
                sink = StackFiles(job, files, store.folder) if session.stacks else None
                what = (files.recording, session, options, store, events, regions, files.doubts, job.was_live)
                series = filter_series(
                    *what, products=job.output.products, sink=sink, progress=watcher, executor=executor
                )
                files.check_unchanged()
            except (OutputError, UnreadableError):
                # So it does when the disk has space, or the files are there again.
                raise
            except UsdenoiseError:
                # The same command would fail again.
                remove_spectra(job)
                raise
        # The record of the files
        with clock.stage("load"):
            return series, _record_of_files(job, files)


def filter_series(
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
    if session.poses is not None:
        return filter_positions(recording, session, options, store, events, regions, doubts, **how)
    # Events and regions that do not fit are an error before an hour of filtering.
    check_activation(recording.geometry, recording.block_times, events, session, is_planned)
    masks = region_masks(regions, recording.geometry) if regions else {}
    series = filter_session(recording, session, options, store, **how)
    return modelled([replace(series, event_doubts=doubts)], events, masks)


def _common_folder(paths: Sequence[Path]) -> Path:
    """Return the folder that holds all files."""
    return Path(os.path.commonpath([path.absolute().parent for path in paths]))


def remove_spectra(job: Job) -> None:
    """Remove the measurements of the blocks of a job that is done."""
    remove(_spectra_folder(job))


def _spectra_folder(job: Job) -> Path:
    return job.folder / f"{job.stem}_spectra"


def _record_of_files(job: Job, files: session_inputs.SessionFiles) -> InputRecord:
    """Return the record of the files of a session; for one file, the record of a single acquisition."""
    first, states = files.recording.geometry, files.states
    shape = [files.n_frames if axis == "t" else n for axis, n in zip(first.axes, first.shape, strict=True)]
    if len(job.paths) > 1:
        n_bytes = sum(state["bytes"] for state in states.values())
        folder = _common_folder(job.paths) if job.groups else job.path.parent
        return replace(input_record(folder, first, shape), files=states, bytes=n_bytes)
    found = input_record(job.path, first, shape, states.get(str(job.path)))
    # How often workers read the file is not counted.
    if job.dask is not None:
        return found
    with files.opened(0) as source:
        return replace(found, passes_over_file=source.passes)
