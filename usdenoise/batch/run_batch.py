"""The batch: decide about each scan, run those that need it, and write the table."""

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from usdenoise.batch.dask_pool import DaskPool
from usdenoise.batch.index_page import IndexPage
from usdenoise.batch.lock import FolderLock
from usdenoise.batch.plan import BatchFile, Scan, find_scans
from usdenoise.batch.pool import Event, Pool
from usdenoise.batch.resume import Action, Decision, decide, earlier_failures
from usdenoise.batch.scan_process import EventKind
from usdenoise.batch.table import Row, Status, outcome, scan_row, write_tables
from usdenoise.errors import InputError
from usdenoise.formats.partial_files import remove_leftovers
from usdenoise.jobs.job_options import Display, Output
from usdenoise.jobs.workers import dask_client
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.system.blas_threads import available_threads
from usdenoise.system.provenance import requested
from usdenoise.system.signals import uninterrupted

_TICK_S = 0.5
"""Longest time without a call of `Watcher.tick`, in s: a live table moves twice a second."""

_WITH_RESULTS = (Status.DONE, Status.SKIPPED)


class Watcher(Protocol):
    """Methods that a batch calls to report its progress."""

    def planned(self, decisions: Mapping[Scan, Decision]) -> None:
        """Take all scans, with the decision about each."""

    def started(self, scan: Scan, pid: int | None) -> None:
        """Take a scan whose process has started, and the process id."""

    def progress(self, scan: Scan, text: str) -> None:
        """Take the stage or the iteration that a scan has reached."""

    def finished(self, row: Row) -> None:
        """Take the row of a scan that is done, failed, or left out."""

    def tick(self) -> None:
        """Do what has to be done regularly; called at least twice a second."""


class _Silence:
    def planned(self, decisions: Mapping[Scan, Decision]) -> None: ...
    def started(self, scan: Scan, pid: int | None) -> None: ...
    def progress(self, scan: Scan, text: str) -> None: ...
    def finished(self, row: Row) -> None: ...
    def tick(self) -> None: ...


@dataclass(frozen=True)
class BatchReport:
    """Outcome of a batch.

    Attributes
    ----------
    rows : tuple of Row
        One row for each scan, in natural order.
    seconds : float
        Duration of the batch in s.
    output : mapping
        Paths of the table, the record and the page.
    """

    rows: tuple[Row, ...]
    seconds: float
    output: Mapping[str, str]

    @property
    def summary(self) -> dict[str, Any]:
        """Number of scans in total and by status, seconds, and paths of the batch's own files."""
        return _summary(self.rows, self.seconds, self.output)

    @property
    def all_done(self) -> bool:
        """Whether every scan has complete results."""
        return all(row.status in _WITH_RESULTS for row in self.rows)


def plan_batch(
    paths: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    arguments: Mapping[str, Any] | None = None,
    patterns: Sequence[str] = (),
    overwrite: bool = False,
    retry_failed: bool = False,
) -> dict[Scan, Decision]:
    """Decide what :func:`run_batch` would do with each scan, and why, without writing anything.

    Parameters
    ----------
    paths, folder, arguments, patterns, overwrite, retry_failed
        The same as for :func:`run_batch`.

    Returns
    -------
    dict from Scan to Decision
        Decisions about all scans, in natural order.

    Raises
    ------
    InputError
        If there are no scans.
    """
    scans = _scans(paths, Path(folder), patterns)
    return _decide(scans, Path(folder), requested(**_complete(arguments)), overwrite, retry_failed)


def run_batch(
    paths: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    arguments: Mapping[str, Any] | None = None,
    patterns: Sequence[str] = (),
    jobs: int | None = None,
    dask: str | None = None,
    overwrite: bool = False,
    retry_failed: bool = False,
    stop_on_error: bool = False,
    command: list[str] | None = None,
    watcher: Watcher | None = None,
) -> BatchReport:
    """Denoise many acquisitions, each in its own process, and skip those that have complete results.

    A script must call this function under ``if __name__ == "__main__":``, because it starts processes.

    Parameters
    ----------
    paths : str, Path, or sequence of them
        Files, and folders that are searched with their subfolders.
    folder : str or Path
        Folder of all results, which mirrors the tree of the input. index.html, batch.csv and batch.json
        are written to its top. index.html is kept up to date while the batch runs.
    arguments : mapping, optional
        Keyword arguments of :func:`usdenoise.jobs.run_job.run` for every scan: options, display, output and
        reading. The number of threads is divided among the processes. By default, those of `run_job.run`.
    patterns : sequence of str
        Shell patterns for the names of files in folders. By default, the suffixes of the known formats decide.
    jobs : int, optional
        Largest number of processes at a time. Fewer run where the memory is short. By default one for each processor, or
        for each scan where there are fewer.
    dask : str, optional
        Dask workers for the scans in place of processes: a number of workers to start, or the address of a scheduler
        whose workers see the same files.
    overwrite : bool
        Whether to run scans that have complete results.
    retry_failed : bool
        Whether to run scans that failed before and would fail again.
    stop_on_error : bool
        Whether to start no more scans after the first failure.
    command : list of str, optional
        Command line of the batch, for the record.
    watcher : Watcher, optional
        Object whose methods are called as the batch proceeds.

    Returns
    -------
    BatchReport
        Rows of all scans, and the paths of the batch's own files.

    Raises
    ------
    InputError
        If there are no scans.
    OutputError
        If the folder cannot be written, or another batch holds it.
    KeyboardInterrupt
        If the batch is interrupted. Finished scans keep their results, and the table is written.

    Examples
    --------
    >>> import tempfile
    >>> from usdenoise import run_batch
    >>> from usdenoise.jobs.simulate_job import simulate_to_file
    >>> from usdenoise.phantom import PhantomSettings
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = simulate_to_file(Path(folder, "scan.h5"), PhantomSettings(shape=(16, 12, 40)))
    ...     report = run_batch([Path(folder, "scan.h5")], Path(folder, "out"))
    >>> report.all_done, report.rows[0].scan, str(report.rows[0].status)
    (True, 'scan.h5', 'done')
    """
    began = time.monotonic()
    folder = Path(folder)
    watcher = watcher or _Silence()
    complete = _complete(arguments)
    asked = requested(**complete)
    # The scans come first: without any, no folder may be made.
    scans = _scans(paths, folder, patterns)
    with FolderLock(folder) as lock, ExitStack() as stack:
        lock.acquire()
        decisions = _decide(scans, folder, asked, overwrite, retry_failed)
        # A scan that is skipped may have been killed as well, when its results were to be replaced.
        for scan in decisions:
            remove_leftovers(scan.folder)
        watcher.planned(decisions)
        rows: dict[Scan, Row] = {}
        jobs = jobs or _jobs(complete["options"], decisions)
        pool = stack.enter_context(_pool(jobs, dask, complete, command))
        output = {
            "table": str(folder / BatchFile.TABLE),
            "record": str(folder / BatchFile.RECORD),
            "index": str(folder / BatchFile.INDEX),
        }
        levels = complete["display"].levels
        index = IndexPage(folder, list(decisions), command, levels)

        def report() -> BatchReport:
            left = {scan: scan_row(scan, Status.NOT_RUN, decisions[scan].reason) for scan in decisions}
            return BatchReport(tuple({**left, **rows}.values()), time.monotonic() - began, output)

        def keep_table() -> None:
            so_far = report()
            write_tables(folder, so_far.rows, so_far.summary, asked, command)
            index.finish(rows)

        try:
            _run(decisions, rows, pool, stop_on_error, watcher, index)
        # Even after an interruption no process is left, and the table has the finished scans.
        except BaseException as error:
            with uninterrupted():
                for event in pool.stop():
                    if event.kind == EventKind.DONE:
                        rows[event.scan] = _row(event, decisions[event.scan])
                for scan in decisions:
                    if scan not in rows:
                        remove_leftovers(scan.folder)
                keep_table()
            done = sum(row.status in _WITH_RESULTS for row in rows.values())
            error.add_note(f"{done} of {len(decisions)} scans are done; the same command does the others")
            raise
        keep_table()
        return report()


def _scans(paths: str | Path | Sequence[str | Path], folder: Path, patterns: Sequence[str]) -> list[Scan]:
    paths = [paths] if isinstance(paths, str | Path) else paths
    scans = find_scans([Path(path) for path in paths], folder, patterns)
    if not scans:
        raise InputError(
            f"there are no scans in {', '.join(map(str, paths)) or 'nothing'}; name files, or give --pattern "
            "the form of their names"
        )
    return scans


def _decide(
    scans: Sequence[Scan], folder: Path, asked: Mapping[str, Any], overwrite: bool, retry_failed: bool
) -> dict[Scan, Decision]:
    failures = earlier_failures(folder, asked)
    return {
        scan: decide(scan, asked, failures, overwrite=overwrite, retry_failed=retry_failed) for scan in scans
    }


def _complete(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a job's arguments with all defaults, so that the job's report can be compared with them."""
    defaults = {"options": DenoiseOptions(), "display": Display(), "output": Output(), "reading": {}}
    return {**defaults, **(arguments or {})}


@contextmanager
def _pool(
    jobs: int, dask: str | None, arguments: Mapping[str, Any], command: list[str] | None
) -> Iterator[Pool | DaskPool]:
    """Yield what the scans are given to: processes here, or Dask workers."""
    if dask is None:
        yield Pool(jobs, {**arguments, "options": _share(arguments["options"], jobs)}, command)
        return
    with dask_client(dask) as client:
        yield DaskPool(client, arguments, command)


def _jobs(options: DenoiseOptions, decisions: Mapping[Scan, Decision]) -> int:
    """Return how many scans are worked on at a time: scans side by side are faster than threads in one scan."""
    n_scans = sum(decision.action == Action.RUN for decision in decisions.values())
    return max(1, min(options.threads or available_threads(), n_scans))


def _share(options: DenoiseOptions, jobs: int) -> DenoiseOptions:
    return replace(options, threads=max(1, (options.threads or available_threads()) // jobs))


def _run(
    decisions: Mapping[Scan, Decision],
    rows: dict[Scan, Row],
    pool: Pool | DaskPool,
    stop_on_error: bool,
    watcher: Watcher,
    index: IndexPage,
) -> None:
    """Run the scans and fill `rows`; a scan that was not started has no row."""
    running: set[Scan] = set()

    def finish(scan: Scan, row: Row) -> None:
        rows[scan] = row
        running.discard(scan)
        watcher.finished(row)

    waiting = deque(scan for scan, decision in decisions.items() if decision.action == Action.RUN)
    for scan, decision in decisions.items():
        if decision.action == Action.SKIP and decision.report is not None:
            finish(scan, scan_row(scan, Status.SKIPPED, decision.reason, **outcome(decision.report)))
        elif decision.action == Action.KEEP_FAILED and decision.earlier is not None:
            finish(scan, Row(**{**decision.earlier, "reason": decision.reason}))
    while waiting or not pool.is_idle:
        if stop_on_error and any(row.status == Status.FAILED for row in rows.values()):
            waiting.clear()
        while waiting and pool.is_free:
            scan = waiting.popleft()
            running.add(scan)
            watcher.started(scan, pool.start(scan))
        for event in pool.receive(_TICK_S):
            if not event.is_last:
                watcher.progress(event.scan, " ".join(map(str, (event.kind, *event.values))))
                continue
            if event.kind == EventKind.LOST:
                remove_leftovers(event.scan.folder)
            finish(event.scan, _row(event, decisions[event.scan]))
        index.update(rows, running)
        watcher.tick()


def _row(event: Event, decision: Decision) -> Row:
    """Return the row of a last event.

    Parameters
    ----------
    event : Event
        Last event of the scan's process.
    decision : Decision
        Decision about the scan, whose reason goes into the row.
    """
    if event.kind == EventKind.DONE:
        return scan_row(event.scan, Status.DONE, decision.reason, **event.values[0])
    # A process that was lost has not said in which state it found its input.
    failure, sentence, state = (*event.values, None)[:3]
    return scan_row(
        event.scan,
        Status.FAILED,
        decision.reason,
        seconds=event.seconds,
        error=sentence,
        failure=failure,
        **{f"input_{name}": value for name, value in (state or {}).items()},
    )


def _summary(rows: Sequence[Row], seconds: float, output: Mapping[str, str]) -> dict[str, Any]:
    counts = Counter(row.status for row in rows)
    return {
        "scans": len(rows),
        **{status.key: counts[status] for status in Status},
        "seconds": seconds,
        "output": dict(output),
    }
