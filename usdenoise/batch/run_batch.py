"""The batch: decide about each scan, run those that need it, and write the table."""

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from usdenoise.batch.executors import ScanExecutor, ScansHere, ScansOnDask
from usdenoise.batch.filter_scan import STARTS, failed
from usdenoise.batch.index_page import IndexPage
from usdenoise.batch.lock import locked
from usdenoise.batch.plan import BatchFile, Scan, find_scans
from usdenoise.batch.resume import Decision, decide, earlier_failures
from usdenoise.batch.table import WITH_RESULTS, Row, Status, scan_row, write_tables
from usdenoise.errors import InputError
from usdenoise.jobs.job import Job
from usdenoise.jobs.workers import dask_client
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import Display, Output
from usdenoise.system.blas_threads import available_threads
from usdenoise.system.processes import GRACE_S
from usdenoise.system.provenance import requested
from usdenoise.system.signals import uninterrupted

_TICK_S = 0.5
"""Longest time in s without a message to the watcher, or an update of the page."""

_STOP_S = 2 * GRACE_S
"""Longest time in s that Dask workers have to stop."""


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


class _Silence:
    def planned(self, decisions: Mapping[Scan, Decision]) -> None: ...
    def started(self, scan: Scan, pid: int | None) -> None: ...
    def progress(self, scan: Scan, text: str) -> None: ...
    def finished(self, row: Row) -> None: ...


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
        counts = Counter(row.status for row in self.rows)
        return {
            "scans": len(self.rows),
            **{status.key: counts[status] for status in Status},
            "seconds": self.seconds,
            "output": dict(self.output),
        }

    @property
    def all_done(self) -> bool:
        """Whether every scan has complete results; files without a stack in folders are no scans."""
        return all(row.status in (*WITH_RESULTS, Status.NO_STACK) for row in self.rows)


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
    OptionError
        If the options do not fit each other, or a package that all scans need is missing.
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
    # What would fail in every scan is said once, and is no failure of a scan.
    Job(scans[0].path, folder, command=command, **complete).check()
    with locked(folder), ExitStack() as stack:
        decisions = _decide(scans, folder, asked, overwrite, retry_failed)
        # A scan that is skipped may have been killed as well, when its results were to be replaced.
        for scan in decisions:
            scan.clear()
        watcher.planned(decisions)
        if dask is None:
            jobs = jobs or _jobs(complete["options"], decisions)
            share = {**complete, "options": _share(complete["options"], jobs)}
            executor: ScanExecutor = ScansHere(jobs, share, command)
        else:
            executor = ScansOnDask(stack.enter_context(dask_client(dask)), complete, command)
        index = IndexPage(folder, list(decisions), command, complete["display"])
        rows: dict[Scan, Row] = {}

        def report() -> BatchReport:
            left = {scan: scan_row(scan, Status.NOT_RUN, decisions[scan].reason) for scan in decisions}
            output = {
                "table": str(folder / BatchFile.TABLE),
                "record": str(folder / BatchFile.RECORD),
                "index": str(folder / BatchFile.INDEX),
            }
            return BatchReport(tuple({**left, **rows}.values()), time.monotonic() - began, output)

        def keep_table() -> None:
            so_far = report()
            write_tables(folder, so_far.rows, so_far.summary, asked, command)
            index.write(rows)

        running: dict[Future[dict[str, Any]], tuple[Scan, float]] = {}
        try:
            _run(decisions, rows, running, executor, stop_on_error, watcher, index)
        # Even after an interruption no process is left, and the table has the finished scans.
        except BaseException as error:
            with uninterrupted():
                executor.stop()
                for future in wait(running, _STOP_S).done:
                    scan = running[future][0]
                    row = _row(scan, decisions[scan], future, executor, 0.0)
                    if row.status == Status.DONE:
                        rows[scan] = row
                for scan in decisions:
                    if scan not in rows:
                        scan.clear()
                keep_table()
            done = sum(row.status in WITH_RESULTS for row in rows.values())
            error.add_note(f"{done} of {len(decisions)} scans are done; the same command does the others")
            raise
        executor.stop()
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


def _jobs(options: DenoiseOptions, decisions: Mapping[Scan, Decision]) -> int:
    """Return how many scans are worked on at a time: scans side by side are faster than threads in one scan."""
    n_scans = sum(decision.row is None for decision in decisions.values())
    return max(1, min(options.threads or available_threads(), n_scans))


def _share(options: DenoiseOptions, jobs: int) -> DenoiseOptions:
    return replace(options, threads=max(1, (options.threads or available_threads()) // jobs))


def _run(
    decisions: Mapping[Scan, Decision],
    rows: dict[Scan, Row],
    running: dict[Future[dict[str, Any]], tuple[Scan, float]],
    executor: ScanExecutor,
    stop_on_error: bool,
    watcher: Watcher,
    index: IndexPage,
) -> None:
    """Run the scans and fill `rows`; a scan that was not started has no row."""

    def finish(scan: Scan, row: Row) -> None:
        rows[scan] = row
        watcher.finished(row)

    def pass_on(scan: Scan, kind: str, value: Any) -> None:
        if kind == STARTS:
            watcher.started(scan, value)
        else:
            watcher.progress(scan, f"{kind} {value}")

    for scan, decision in decisions.items():
        if decision.row is not None:
            finish(scan, decision.row)
    waiting = deque(scan for scan, decision in decisions.items() if decision.row is None)
    while waiting or running:
        if stop_on_error and any(row.status == Status.FAILED for row in rows.values()):
            waiting.clear()
        while waiting and len(running) < executor.slots:
            scan = waiting.popleft()
            running[executor.submit(scan)] = scan, time.monotonic()
        done = wait(running, _TICK_S, FIRST_COMPLETED).done
        # Every message about a finished scan has come by now.
        while not executor.messages.empty():
            pass_on(*executor.messages.get())
        for future in done:
            scan, began = running.pop(future)
            finish(scan, _row(scan, decisions[scan], future, executor, time.monotonic() - began))
        index.update(rows, {scan for scan, _ in running.values()})


def _row(
    scan: Scan, decision: Decision, future: Future[dict[str, Any]], executor: ScanExecutor, seconds: float
) -> Row:
    """Return the row of a scan that has ended; of one that was lost, after its files are removed."""
    try:
        fields = future.result()
    except (Exception, CancelledError) as error:
        scan.clear()
        fields = {**failed(*executor.loss(error)), "seconds": seconds}
    return scan_row(scan, **{"reason": decision.reason, **fields})
