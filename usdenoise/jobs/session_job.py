"""The job behind ``usdenoise session``: block files in, a folder of results out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from usdenoise.errors import InputError, OptionError, cause_of
from usdenoise.files.bids import bids_name
from usdenoise.files.output_folder import OutputFolder
from usdenoise.jobs.job import Job
from usdenoise.jobs.live_files import LiveBlocks
from usdenoise.jobs.live_job import LivePages, follow
from usdenoise.jobs.run_job import carry_out
from usdenoise.jobs.session_call import live_session
from usdenoise.jobs.session_inputs import block_files, check_apart, only_folder, with_own_window
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import Display, Output, SessionOptions
from usdenoise.progress import Progress
from usdenoise.system.processes import locked


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
    reading: Mapping[str, Any] | None = None,
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
    root, session_options = Path(folder), session_options or SessionOptions()
    options, display, output = options or DenoiseOptions(), display or Display(), output or Output()
    watcher, live_pages = watcher or Progress(), None
    how: dict[str, Any] = {
        "root": root,
        "options": options,
        "display": display,
        "output": output,
        "reading": reading or {},
        "command": command,
    }
    if session_options.live:
        input_folder = only_folder(paths)
        stem = input_folder.absolute().name
        # Errors of the final session are raised before the live session starts.
        check_apart(input_folder, root)
        follower = live_session(options, session_options, regions, session_options.events)
        name = None if bids in (None, "auto") else bids_name(bids, input_folder)
        job = Job(paths=(), name=stem, bids=name, session=session_options, **how)
        job.check()
        with OutputFolder(job.folder, overwrite) as outputs:
            outputs.reserve(f"{job.stem}_report.json")
        blocks = LiveBlocks(
            input_folder,
            follower,
            reading or {},
            options.precision,
            patterns,
            session_options.until_idle_s,
            root,
        )
        with locked(job.folder):
            live_pages = follow(blocks, stem, root, display, watcher)
        # The sample and the sums of the live session are as large as the ones that follow.
        del blocks, follower
        if live_pages.missing:
            live_pages.end(is_finished=False)
            return live_pages.result
        # Files that are not blocks are missing blocks, and are reported.
        session_options = replace(session_options, live=False, until_idle_s=None, skip_bad_files=True)
    files = block_files(paths, root, patterns)
    session_options = with_own_window(session_options, files, reading or {})
    job = Job(
        paths=tuple(files),
        name=files[0].stem if len(files) == 1 else files[0].absolute().parent.name,
        bids=None if bids is None else bids_name(bids, files[0]),
        dask=dask,
        session=session_options,
        regions=regions or {},
        notes=() if live_pages is None else tuple(live_pages.file_remarks),
        was_live=live_pages is not None,
        **how,
    )
    # A run of the long file of a session writes to the same names.
    with locked(job.folder), locked(job.folder, job.stem):
        if live_pages is None:
            return carry_out(job, overwrite, watcher)
        return _final_series(job, overwrite, watcher, live_pages)


def _final_series(job: Job, overwrite: bool, watcher: Progress, live_pages: LivePages) -> dict[str, Any]:
    """Return the report of the final series of a live session, or its live results if its files are removed meanwhile.

    Events that are wrong take no series: it is then without activation maps.
    """
    report = None
    try:
        report = carry_out(job, overwrite, watcher)
    except (InputError, OptionError) as error:
        if not live_pages.missing:
            if job.session_options.events is None:
                raise
            without = replace(job.session_options, events=None)
            notes = (*job.notes, f"there is no activation map: {cause_of(error)}")
            report = carry_out(replace(job, session=without, notes=notes), overwrite, watcher)
    finally:
        live_pages.end(is_finished=report is not None)
    return report or live_pages.result
