"""The batch: decide about each scan, run those that need it, and write the table."""

import filecmp
import math
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from usdenoise.errors import InputError, OptionError
from usdenoise.files.file_state import file_state, is_same_state
from usdenoise.files.output_folder import remove
from usdenoise.files.results import output_suffix
from usdenoise.jobs.batch_table import (
    BatchFile,
    IndexPage,
    Scan,
    find_scans,
    finished_row,
    read_report,
    row_of_report,
    scan_row,
    write_tables,
)
from usdenoise.jobs.job import expected_bytes
from usdenoise.jobs.scan_process import GRACE_S, ScansHere, ScansOnDask, scan_words
from usdenoise.jobs.workers import dask_client
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import Display, Output
from usdenoise.report.pages import WITH_RESULTS, Row, Status
from usdenoise.report.record import Report
from usdenoise.system.lock import locked
from usdenoise.system.provenance import requested
from usdenoise.system.signals import uninterrupted
from usdenoise.system.threads import available_threads


@dataclass(frozen=True)
class Decision:
    """What a batch does with a scan, and why.

    Attributes
    ----------
    reason : str
        Reason in words.
    row : Row or None
        Row of a scan with complete results; None (the default) if the scan is run.
    """

    reason: str
    row: Row | None = None

    @property
    def action(self) -> str:
        """The action for the scan: "run" or "skip"."""
        return "run" if self.row is None else "skip"


def decide(scan: Scan, requested: Mapping[str, Any], overwrite: bool = False) -> Decision:
    """Decide what to do with a scan.

    Parameters
    ----------
    scan : Scan
        The scan.
    requested : mapping
        Options of every job, in the form of :func:`usdenoise.system.provenance.requested`.
    overwrite : bool
        Whether to run the scan even if its results are complete.
    """
    if overwrite:
        return Decision("overwrite")
    try:
        report = read_report(scan)
    except FileNotFoundError:
        return Decision("new")
    except ValueError as error:
        return Decision(str(error))
    difference = _difference(scan, report, requested)
    if difference is not None:
        return Decision(difference)
    return Decision("complete", row_of_report(scan, report, Status.SKIPPED, "complete"))


def _difference(scan: Scan, report: Report, requested: Mapping[str, Any]) -> str | None:
    """Return how the results of a report differ from the requested ones; None if they do not."""
    changes = list(_changes(report.requested, requested))
    if changes:
        return f"options changed: {', '.join(changes)}"
    state = file_state(scan.path)
    is_same = state is not None and is_same_state(state, vars(report.input))
    return None if is_same else "the input changed"


def _changes(before: Any, now: Any, name: str = "") -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            yield from _changes(before.get(key), now.get(key), str(key))
    elif before != now:
        yield f"{name} {before} -> {now}"


class StackFolder:
    """The filtered stacks of a batch in one folder, for programs that read all files of a folder.

    The files are hard links to the results of the scans, or copies if the file system has no hard links.

    Parameters
    ----------
    folder : Path
        Folder of the batch's results.
    scans : iterable of Scan
        All scans.
    output : Output
        What each scan writes.

    Raises
    ------
    OptionError
        If scans write no stack, or two stacks would have the same name.
    """

    def __init__(self, folder: Path, scans: Iterable[Scan], output: Output) -> None:
        if not output.stack:
            raise OptionError("requires the filtered stacks", option="flat", remedy="omit {stack} or {flat}")
        self._folder = folder / BatchFile.STACKS
        named: dict[str, Scan] = {}
        for scan in scans:
            other = named.setdefault(self._path(scan).name.casefold(), scan)
            if other is not scan:
                raise OptionError(
                    f"{other.name} and {scan.name} would have the same name in one folder",
                    remedy="omit {flat}, or rename a file",
                )

    def _path(self, scan: Scan) -> Path:
        return self._folder / f"{scan.path.stem}{output_suffix(scan.path)}"

    def update(self, scan: Scan, is_done: bool) -> None:
        """Put the stack of a scan into the folder if its results are complete; otherwise remove an old one."""
        link_path = self._path(scan)
        source = scan.folder / f"{link_path.stem}_denoised{link_path.suffix}"
        if not is_done:
            remove(link_path)
        elif source.is_dir() or not link_path.exists() or not filecmp.cmp(source, link_path):
            self._folder.mkdir(exist_ok=True)
            remove(link_path)
            if source.is_dir():
                shutil.copytree(source, link_path, copy_function=_link)
            else:
                _link(source, link_path)


def _link(source: str | Path, link_path: str | Path) -> None:
    try:
        os.link(source, link_path)
    except OSError:
        shutil.copy2(source, link_path)


_TICK_S = 0.5
"""Longest time in s without an update of the page."""


class Watcher(Protocol):
    """Methods that a batch calls to report its progress."""

    def planned(self, decisions: Mapping[Scan, Decision]) -> None:
        """Take all scans, with the decision about each."""

    def started(self, scan: Scan) -> None:
        """Take a scan that is started."""

    def finished(self, row: Row) -> None:
        """Take the row of a scan that is done, failed, or skipped."""


class _NoProgress:
    def planned(self, decisions: Mapping[Scan, Decision]) -> None: ...
    def started(self, scan: Scan) -> None: ...
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
        """Whether every scan has complete results."""
        return all(row.status in WITH_RESULTS for row in self.rows)


def plan_batch(
    paths: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    arguments: Mapping[str, Any] | None = None,
    patterns: Sequence[str] = (),
    overwrite: bool = False,
) -> dict[Scan, Decision]:
    """Decide what :func:`run_batch` would do with each scan, and why, without writing anything.

    Parameters
    ----------
    paths, folder, arguments, patterns, overwrite
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
    paths = [paths] if isinstance(paths, str | Path) else paths
    scans = find_scans([Path(path) for path in paths], Path(folder), patterns)
    if not scans:
        raise InputError(
            f"no scans were found in {', '.join(map(str, paths)) or 'nothing'}",
            remedy="name files, or give {patterns} the form of their names",
        )
    options = requested(**_complete(arguments))
    return {scan: decide(scan, options, overwrite) for scan in scans}


def run_batch(  # noqa: PLR0913
    paths: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    arguments: Mapping[str, Any] | None = None,
    patterns: Sequence[str] = (),
    jobs: int | None = None,
    dask: str | None = None,
    overwrite: bool = False,
    flat: bool = False,
    command: list[str] | None = None,
    watcher: Watcher | None = None,
) -> BatchReport:
    """Denoise many acquisitions, each by a process of ``usdenoise run``, and skip those that have complete results.

    Parameters
    ----------
    paths : str, Path, or sequence of them
        Files, and folders that are searched with their subfolders.
    folder : str or Path
        Folder of all results, which mirrors the tree of the input. index.html, batch.csv and batch.json
        are written to its top. index.html is kept up to date while the batch runs.
    arguments : mapping, optional
        Keyword arguments of :func:`usdenoise.run` for every scan: options, display, output, reading and memory. The
        number of threads is divided among the processes. By default, the defaults of `usdenoise.run`.
    patterns : sequence of str
        Shell patterns for the names of files in folders. By default, the suffixes of the known formats decide.
    jobs : int, optional
        Largest number of processes at a time. Fewer run if the memory is short. By default one for each processor, or
        for each scan if there are fewer.
    dask : str, optional
        Dask workers for the scans instead of this machine: a number of workers to start, or the address of a scheduler
        whose workers see the same files.
    overwrite : bool
        Whether to run scans that have complete results.
    flat : bool
        Whether the filtered stacks are also put into the folder ``stacks`` of `folder`, each under the name of its input,
        and nothing else; by default False. They are hard links, or copies where the file system has none.
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
        With `flat`, if stacks are not written, or two would have the same name.
    OutputError
        If the folder cannot be written, or another batch or session writes to it.
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
    complete = _complete(arguments)
    # Without any scan, no folder is created.
    decisions = plan_batch(paths, folder, arguments=arguments, patterns=patterns, overwrite=overwrite)
    index = IndexPage(folder, list(decisions), command, complete["display"])
    stacks = StackFolder(folder, decisions, complete["output"]) if flat else None
    batch = _Batch(decisions, watcher or _NoProgress(), index, stacks)

    def written() -> BatchReport:
        names = {"table": BatchFile.TABLE, "record": BatchFile.RECORD, "index": BatchFile.INDEX}
        output = {key: str(folder / name) for key, name in names.items()}
        report = BatchReport(batch.all_rows(), time.monotonic() - began, output)
        write_tables(folder, report.rows, report.summary, requested(**complete), command)
        index.write(batch.rows)
        return report

    with locked(folder) as lock, ExitStack() as stack:
        executor: ScansHere | ScansOnDask
        if dask is None:
            jobs, options = _divided(complete["options"], jobs, batch.n_waiting)
            executor = ScansHere(stack.enter_context(ThreadPoolExecutor(jobs)), jobs, lock)
        else:
            options = replace(complete["options"], threads=1)
            executor = ScansOnDask(stack.enter_context(dask_client(dask)), lock)
        try:
            batch.run(executor, {**complete, "options": options})
        except BaseException as error:
            with uninterrupted():
                # This ends the processes.
                lock.unlink(missing_ok=True)
                batch.collect(requested(**complete))
                written()
            done = sum(row.status in WITH_RESULTS for row in batch.rows.values())
            error.add_note(
                f"{done} of {len(decisions)} scans are done; the same command filters the remaining scans"
            )
            raise
        return written()


def _complete(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a job's arguments with all defaults, so that the job's report can be compared with them."""
    defaults = {"options": DenoiseOptions(), "display": Display(), "output": Output(), "reading": {}}
    return {**defaults, **(arguments or {})}


def _divided(options: DenoiseOptions, jobs: int | None, n_scans: int) -> tuple[int, DenoiseOptions]:
    """Return the number of scans at a time, and the options of each with its share of the threads.

    Scans side by side are faster than threads in one scan.
    """
    threads = options.threads or available_threads()
    jobs = jobs or max(1, min(threads, n_scans))
    return jobs, replace(options, threads=max(1, threads // jobs))


class _Batch:
    """The scans of a batch: those that wait and run, and the rows of those that are finished."""

    def __init__(
        self,
        decisions: Mapping[Scan, Decision],
        watcher: Watcher,
        index: IndexPage,
        stacks: StackFolder | None,
    ) -> None:
        self.rows: dict[Scan, Row] = {}
        self._stacks = stacks
        self._decisions = decisions
        self._watcher = watcher
        self._index = index
        self._waiting = deque(scan for scan, decision in decisions.items() if decision.row is None)
        self._running: dict[Future[str | None], Scan] = {}
        self._expected: dict[Scan, int] = {}

    @property
    def n_waiting(self) -> int:
        """Number of scans that are not started."""
        return len(self._waiting)

    def all_rows(self) -> tuple[Row, ...]:
        """Return the rows of all scans, also of those that were not run."""
        return tuple(
            self.rows.get(scan) or scan_row(scan, Status.NOT_RUN, decision.reason)
            for scan, decision in self._decisions.items()
        )

    def run(self, executor: ScansHere | ScansOnDask, arguments: Mapping[str, Any]) -> None:
        """Run all scans without complete results."""
        self._watcher.planned(self._decisions)
        for scan, decision in self._decisions.items():
            scan.clear()
            if decision.row is not None:
                self._finish(scan, decision.row)
        while self._waiting or self._running:
            while self._waiting and self._has_room(self._waiting[0], executor, arguments):
                scan = self._waiting.popleft()
                self._watcher.started(scan)
                self._running[executor.submit(scan_words(scan, arguments))] = scan
            for future in wait(self._running, _TICK_S, FIRST_COMPLETED).done:
                scan = self._running.pop(future)
                self._finish(scan, self._row(scan, future))
            self._index.update(self.rows, self._running.values())

    def collect(self, options: Mapping[str, Any]) -> None:
        """Add the rows of scans that had their results when the batch was interrupted."""
        wait(self._running, 2 * GRACE_S)
        for scan in self._running.values():
            row = decide(scan, options).row
            if row is None:
                scan.clear()
            else:
                self.rows[scan] = replace(row, status=Status.DONE, reason=self._decisions[scan].reason)

    def _has_room(self, scan: Scan, executor: ScansHere | ScansOnDask, arguments: Mapping[str, Any]) -> bool:
        """Return whether a processor and the memory for a scan are free. A scan that is alone may always start."""
        if not self._running:
            return True
        if len(self._running) >= executor.slots:
            return False
        if math.isinf(executor.memory):
            return True
        for other in (scan, *self._running.values()):
            if other not in self._expected:
                needed = expected_bytes(other.path, arguments["reading"], arguments["options"].precision)
                self._expected[other] = min(needed, arguments.get("memory") or needed)
        reserved = sum(self._expected[other] for other in self._running.values())
        return reserved + self._expected[scan] <= executor.memory

    def _row(self, scan: Scan, future: Future[str | None]) -> Row:
        try:
            failure = future.result()
        except CancelledError:
            # The connection to the Dask scheduler was lost.
            raise
        except Exception as error:
            failure = (
                f"the Dask worker could not run this scan ({type(error).__name__}: {error}); run the batch again, with "
                "the same version of usdenoise on every worker"
            )
        return finished_row(scan, self._decisions[scan].reason, failure)

    def _finish(self, scan: Scan, row: Row) -> None:
        self.rows[scan] = row
        if row.status == Status.FAILED:
            scan.clear()
        if self._stacks is not None:
            self._stacks.update(scan, row.status in WITH_RESULTS)
        self._watcher.finished(row)
