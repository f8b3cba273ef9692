"""The batch: plan, decide how many scans fit side by side, run them in processes, and write the table and the page."""

import filecmp
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from usdenoise.clutter.clutter_cutoff import CommonCutoff, CutoffCertainty, common_cutoff
from usdenoise.errors import InputError, OptionError, OutputError
from usdenoise.files.bids import csv_text
from usdenoise.files.input_files import file_state, is_same_state
from usdenoise.files.output_folder import remove, write_files
from usdenoise.files.results import output_suffix
from usdenoise.jobs.batch_table import BatchFile, BatchPage, Scan, find_scans, read_report, scan_row
from usdenoise.jobs.job import expected_bytes
from usdenoise.jobs.scan_process import scan_workers
from usdenoise.jobs.workers import LOOK_S
from usdenoise.options import DenoiseOptions, Display, Output
from usdenoise.options.job_options import NO_PRODUCTS
from usdenoise.progress import NotebookBar
from usdenoise.report.pages import COMPLETE, Row, Status
from usdenoise.stack.sampling import spread_rows
from usdenoise.system.processes import GRACE_S, locked, uninterrupted
from usdenoise.system.resources import available_bytes, available_threads
from usdenoise.system.text import alike, printable, requested, short_stem, software, to_json

COMMON_SCANS = 32
"""Scans, spread over a batch, whose cutoffs name the common one: up to twice as many, and all of a small batch. If a
fifth of them are sure, as in a folder of bubbles, about six are left to agree."""

PAGE_S = 60.0
"""Seconds between two times that the table and the page are written while a batch runs, which takes 1.2 ms a scan."""


def decide(scan: Scan, requested: Mapping[str, object], overwrite: bool = False) -> Row:
    """Return the row of a scan before a batch: "done" if its results are complete, or "not run", and the reason.

    Parameters
    ----------
    scan : Scan
        The scan.
    requested : mapping
        Options of every job, in the form of :func:`usdenoise.system.text.requested`.
    overwrite : bool
        Whether to run the scan even if its results are complete.
    """
    not_run = partial(scan_row, scan, Status.NOT_RUN)
    if overwrite:
        return not_run("overwrite")
    try:
        report = read_report(scan)
    except FileNotFoundError:
        return not_run("new")
    except ValueError as error:
        return not_run(str(error))
    changes = list(_changes(report.requested, requested))
    if changes:
        return not_run(f"options changed: {', '.join(changes)}")
    state = file_state(scan.path)
    if state is None or not is_same_state(state, vars(report.input)):
        return not_run("the input changed")
    return scan_row(scan, Status.DONE, COMPLETE, report)


def _changes(before: object, now: object, name: str = "") -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            yield from _changes(before.get(key), now.get(key), str(key))
    elif before != now:
        yield f"{name} {before} -> {now}"


def _stack_links(folder: Path, scans: Sequence[Scan], output: Output) -> tuple[dict[Scan, Path], set[Path]]:
    """Return the path of each filtered stack in the folder of all stacks of a batch, and paths that earlier batches used.

    If two stacks would have the same name in one folder, all stay in the tree of the batch.

    Raises
    ------
    OptionError
        If scans write no stack.
    """
    if not output.stack:
        raise OptionError("requires the filtered stacks", option="flat", remedy="omit {stack} or {flat}")
    stacks = folder / BatchFile.STACKS
    flat = {scan: stacks / f"{short_stem(scan.path.stem)}{output_suffix(scan.path)}" for scan in scans}
    # The folders of the scans differ, and with them these paths
    tree = {
        scan: (stacks / scan.folder.relative_to(folder)).with_name(
            f"{short_stem(scan.folder.name)}{path.suffix}"
        )
        for scan, path in flat.items()
    }
    links = flat if len({alike(path.name) for path in flat.values()}) == len(flat) else tree
    return links, {*flat.values(), *tree.values()} - {*links.values()}


def _update_link(scan: Scan, link_path: Path, is_done: bool) -> None:
    """Link to the stack of a scan if its results are complete, or copy it on a file system without hard links."""

    def link(source: str | Path, target: str | Path) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    stack = scan.folder / f"{short_stem(scan.path.stem)}_denoised{link_path.suffix}"
    if not is_done:
        remove(link_path)
    elif stack.is_dir() or not link_path.exists() or not filecmp.cmp(stack, link_path):
        link_path.parent.mkdir(parents=True, exist_ok=True)
        remove(link_path)
        if stack.is_dir():
            shutil.copytree(stack, link_path, copy_function=link)
        else:
            link(stack, link_path)


class BatchWatcher(Protocol):
    """Methods that a batch calls to report its progress."""

    def estimating(self, n_scans: int) -> None:
        """Take the number of scans whose cutoffs will name the common one, before all others."""

    def chosen(self, common: CommonCutoff) -> None:
        """Take the common cutoff."""

    def planned(self, rows: Mapping[Scan, Row]) -> None:
        """Take all scans, with the row of each before the batch."""

    def started(self, scan: Scan) -> None:
        """Take a scan that is started."""

    def finished(self, row: Row) -> None:
        """Take the row of a scan that is done, or failed. First come the scans of which the results are complete."""

    def ended(self, report: "BatchReport") -> None:
        """Take the outcome of the batch, also if it is interrupted."""


class NotebookWatcher:
    """A watcher that counts the scans that are over by a bar in a notebook, and does nothing elsewhere."""

    def __init__(self) -> None:
        self._bar, self._done, self._total = NotebookBar(), 0, 0

    def estimating(self, n_scans: int) -> None:
        """Ignore the scans whose cutoffs name the common one: they are counted themselves."""

    def chosen(self, common: CommonCutoff) -> None:
        """Ignore the common cutoff."""

    def planned(self, rows: Mapping[Scan, Row]) -> None:
        """Begin to count."""
        self._total = len(rows)

    def started(self, scan: Scan) -> None:
        """Ignore a scan that is started."""

    def finished(self, row: Row) -> None:
        """Count a scan."""
        self._done += 1
        self._bar(self._done, self._total)

    def ended(self, report: "BatchReport") -> None:
        """Ignore the outcome."""


@dataclass(frozen=True)
class BatchReport:
    """Outcome of a batch.

    Attributes
    ----------
    rows : tuple of Row
        One row for each scan, the failed ones first, in natural order.
    seconds : float
        Duration of the batch in s.
    folder : Path
        Folder of the batch's results.
    common : CommonCutoff or None
        The one low cutoff of all scans; None (the default) if none was requested.
    """

    rows: tuple[Row, ...]
    seconds: float
    folder: Path
    common: CommonCutoff | None = None

    @property
    def output(self) -> dict[str, str]:
        """Paths of the table, the record and the page."""
        names = {"table": BatchFile.TABLE, "record": BatchFile.RECORD, "index": BatchFile.INDEX}
        return {key: str(self.folder / name) for key, name in names.items()}

    @property
    def summary(self) -> dict[str, Any]:
        """Number of scans in total and by status, seconds, the common cutoff, and paths of the batch's own files."""
        statuses = [row.status for row in self.rows]
        return {
            "scans": len(self.rows),
            **{status.key: statuses.count(status) for status in Status},
            "seconds": self.seconds,
            "common_cutoff": None if self.common is None else asdict(self.common),
            "output": self.output,
        }

    @property
    def all_done(self) -> bool:
        """Whether every scan has complete results."""
        return all(row.status == Status.DONE for row in self.rows)

    def write_tables(self, options: Mapping[str, object], command: list[str] | None) -> None:
        """Write batch.csv and batch.json.

        Parameters
        ----------
        options : mapping
            Options of every job, in the form of :func:`usdenoise.system.text.requested`.
        command : list of str or None
            Command line of the batch, for the record.

        Raises
        ------
        OutputError
            If a file cannot be written.
        """
        rows = [asdict(row) for row in self.rows]
        record: dict[str, object] = {"summary": self.summary, "rows": rows, "requested": options}
        record |= {"software": software(), "command": command}
        table = csv_text([each.name for each in fields(Row)], rows)
        write_files(self.folder, {BatchFile.TABLE: table, BatchFile.RECORD: f"{to_json(record, indent=2)}\n"})


def plan_batch(
    paths: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    arguments: Mapping[str, Any] | None = None,
    patterns: Sequence[str] = (),
    overwrite: bool = False,
    common_cutoff: bool = False,
) -> dict[Scan, Row]:
    """Decide which scans :func:`run_batch` would run or skip, and why, without writing anything.

    Parameters
    ----------
    paths, folder, arguments, patterns, overwrite, common_cutoff
        The same as for :func:`run_batch`.

    Returns
    -------
    dict from Scan to Row
        Rows of all scans, "done" or "not run", in natural order.

    Raises
    ------
    InputError
        If there are no scans.
    """
    scans, job = _scans(paths, Path(folder), patterns), _complete(arguments)
    if common_cutoff:
        sample = _sample(scans, Path(folder), job)
        rows = plan_batch(**sample, overwrite=overwrite)
        if sample["folder"] == Path(folder):
            return rows
        if any(row.status != Status.DONE for row in rows.values()):
            return {scan: scan_row(scan, Status.NOT_RUN, "its cutoff is not known yet") for scan in scans}
        job = _with_cutoff(job, _common(rows.values()))
    options = requested(**job)
    return {scan: decide(scan, options, overwrite) for scan in scans}


def _scans(paths: str | Path | Sequence[str | Path], folder: Path, patterns: Sequence[str]) -> list[Scan]:
    paths = [paths] if isinstance(paths, str | Path) else paths
    scans = find_scans([Path(path) for path in paths], folder, patterns)
    if not scans:
        raise InputError(
            f"no scans were found in {', '.join(map(str, paths)) or 'nothing'}",
            remedy="name files, or give {patterns} the form of their names",
        )
    return scans


def _sample(scans: Sequence[Scan], folder: Path, job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a batch of some scans, spread over all, that chooses the cutoff of each and writes little.

    If only the cutoffs are requested, they go to the folder of the batch.
    """
    spread = spread_rows(len(scans), COMMON_SCANS)
    output = Output(stack=False, products=NO_PRODUCTS)
    return {
        "paths": [scans[number].path for number in spread],
        "folder": folder if job["output"] == output else folder / BatchFile.CUTOFFS,
        "arguments": {**job, "options": replace(job["options"], low_cutoff="auto"), "output": output},
    }


def _common(rows: Iterable[Row]) -> CommonCutoff | None:
    """Return the cutoff that the scans of a sample name; None if all failed."""
    cutoffs = [
        (row.low_cutoff, CutoffCertainty(row.cutoff_certainty)) for row in rows if row.low_cutoff is not None
    ]
    return common_cutoff(cutoffs) if cutoffs else None


def _with_cutoff(job: Mapping[str, Any], common: CommonCutoff | None) -> dict[str, Any]:
    low = "auto" if common is None else common.low
    return {**job, "options": replace(job["options"], low_cutoff=low)}


def run_batch(  # noqa: PLR0913
    paths: str | Path | Sequence[str | Path],
    folder: str | Path,
    *,
    arguments: Mapping[str, Any] | None = None,
    patterns: Sequence[str] = (),
    jobs: int | None = None,
    dask: str | None = None,
    overwrite: bool = False,
    common_cutoff: bool = False,
    flat: bool = False,
    command: list[str] | None = None,
    watcher: BatchWatcher | None = None,
) -> BatchReport:
    """Denoise many acquisitions in processes that each call :func:`usdenoise.run`, and skip those with complete results.

    Parameters
    ----------
    paths : str, Path, or sequence of them
        Files, and folders that are searched with their subfolders.
    folder : str or Path
        Folder of all results, which mirrors the tree of the input. index.html, batch.csv and batch.json
        are written to its top, at the end and each minute.
    arguments : mapping, optional
        Keyword arguments of :func:`usdenoise.run` for every scan: options, display, output, reading and memory. The
        number of threads is divided among the processes. By default, the defaults of `usdenoise.run`.
    patterns : sequence of str
        Shell patterns for the names of files in folders. By default, the suffixes of the known formats decide.
    jobs : int, optional
        Largest number of processes at a time. There are fewer if the largest scans would not fit into the free memory
        side by side. By default one for each processor, or for each scan if there are fewer.
    dask : str, optional
        Dask workers for the scans instead of this machine: a number of workers to start, or the address of a scheduler
        whose workers see the same files.
    overwrite : bool
        Whether to run scans that have complete results.
    common_cutoff : bool
        Whether all scans have one low cutoff, instead of the one in `arguments`; by default False. COMMON_SCANS scans,
        spread over all, are filtered with a cutoff of their own first, and
        :func:`usdenoise.clutter.clutter_cutoff.common_cutoff` follows from theirs. Their reports are in the folder
        ``cutoffs`` of `folder`, a batch of its own. If neither stacks nor pictures are requested, they are all: their
        reports are in `folder`, and no scan is filtered with the common cutoff.
    flat : bool
        Whether the filtered stacks are also put into the folder ``stacks`` of `folder`, each under the name of its input,
        and nothing else; by default False. If names are the same, the tree of the input is mirrored there. They are
        hard links, or copies where the file system has none.
    command : list of str, optional
        Command line of the batch, for the record.
    watcher : BatchWatcher, optional
        Object whose methods are called as the batch proceeds. By default a Jupyter notebook shows a progress bar.

    Returns
    -------
    BatchReport
        Rows of all scans, and the paths of the batch's own files.

    Raises
    ------
    InputError
        If there are no scans.
    OptionError
        With `flat`, if stacks are not written.
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
    began, folder, watcher = time.monotonic(), Path(folder), watcher or NotebookWatcher()
    # The plan: without any scan, no folder is created
    job, common, is_sample = _complete(arguments), None, False
    scans = _scans(paths, folder, patterns)
    links, earlier_links = _stack_links(folder, scans, job["output"]) if flat else ({}, set())
    if common_cutoff:
        sample = _sample(scans, folder, job)
        watcher.estimating(len(sample["paths"]))
        is_sample = sample["folder"] == folder
        if is_sample:
            paths, patterns, job = sample["paths"], (), sample["arguments"]
        else:
            common = run_batch(**sample, jobs=jobs, dask=dask, overwrite=overwrite, common_cutoff=True).common
            job = _with_cutoff(job, common)
        if common is not None:
            watcher.chosen(common)
    rows = plan_batch(paths, folder, arguments=job, patterns=patterns, overwrite=overwrite)
    todo = [scan for scan, row in rows.items() if row.status == Status.NOT_RUN]
    # How many scans run side by side: with Dask, one on each thread of the workers
    n_here, threads = (0, 1) if dask is not None else scans_side_by_side(todo, job, jobs)
    options = replace(job["options"], threads=threads)
    scan_job = {**job, "options": options, "common_cutoff": common, "command": command, "overwrite": True}
    page = BatchPage(folder, job["display"], command, common)
    batch = _Batch(page, rows, links, requested(**job), watcher, began)
    with locked(folder) as lock, scan_workers(n_here, dask) as (start, n_workers):
        try:
            watcher.planned(rows)
            for path in earlier_links:
                remove(path)
            for scan, row in rows.items():
                scan.clear()
                if row.status == Status.DONE:
                    batch.finish(scan, row)
            written = -math.inf
            while todo or batch.running:
                # Start scans on free workers, of which Dask may have none for a moment. It cannot be interrupted safely.
                with uninterrupted():
                    while todo and len(batch.running) < max(1, n_workers()):
                        scan = todo.pop(0)
                        watcher.started(scan)
                        # The folder of a scan follows from the tree of the batch.
                        paths_of_scan = {"path": scan.path.absolute(), "folder": scan.folder.absolute()}
                        batch.running[start({**scan_job, **paths_of_scan}, lock.resolve())] = scan
                if time.monotonic() >= written + PAGE_S:
                    # A problem with the folder is reported at the end: the scans matter more than the page.
                    # An import that a signal interrupts cannot be repeated.
                    with suppress(OutputError), uninterrupted():
                        batch.write(is_over=False)
                    written = time.monotonic()
                # Wait until a scan has ended, or look whether a Dask worker has come
                for future in wait(batch.running, LOOK_S, FIRST_COMPLETED).done:
                    # The outcome of a scan is its report
                    scan = batch.running.pop(future)
                    batch.finish(scan, _finished_row(scan, rows[scan].reason, future))
        except BaseException as error:
            with uninterrupted():
                # This ends the processes, of which some may have written their results.
                lock.unlink(missing_ok=True)
                batch.interrupt()
            n_done = sum(row.status == Status.DONE for row in rows.values())
            error.add_note(
                f"{n_done} of {len(rows)} scans are done; the same command filters the remaining scans"
            )
            raise
        if is_sample:
            page.common = _common(rows.values())
        return batch.write(is_over=True)


@dataclass
class _Batch:
    """A batch that runs: the rows of its scans, and what is written of them.

    Attributes
    ----------
    page : BatchPage
        Its page.
    rows : dict from Scan to Row
        The rows of all scans so far.
    links : dict from Scan to Path
        Where the filtered stacks go besides; empty without a flat folder.
    options : mapping
        Options of every job, in the form of :func:`usdenoise.system.text.requested`.
    watcher : BatchWatcher
        Its methods are called as the batch proceeds.
    began : float
        When it began, by the monotonic clock.
    running : dict from Future to Scan
        The scans that run; none by default.
    """

    page: BatchPage
    rows: dict[Scan, Row]
    links: Mapping[Scan, Path]
    options: Mapping[str, object]
    watcher: BatchWatcher
    began: float
    running: dict[Future[str | None], Scan] = field(default_factory=dict)

    def finish(self, scan: Scan, row: Row) -> None:
        """Take the row of a scan that is over."""
        self.rows[scan] = row
        if row.status == Status.FAILED:
            scan.clear()
        if scan in self.links:
            _update_link(scan, self.links[scan], row.status == Status.DONE)
        self.watcher.finished(row)

    def interrupt(self) -> None:
        """Wait for the scans that run, whose processes end, and write the tables."""
        wait(self.running, 3 * GRACE_S)
        for scan in self.running.values():
            row = decide(scan, self.options)
            if row.status == Status.DONE:
                self.rows[scan] = replace(row, reason=self.rows[scan].reason)
            else:
                scan.clear()
        self.write(is_over=True)

    def write(self, is_over: bool) -> BatchReport:
        """Write the tables and the page, and return the outcome so far."""
        # The failed ones first
        listed = dict(sorted(self.rows.items(), key=lambda item: item[1].status != Status.FAILED))
        seconds, page = time.monotonic() - self.began, self.page
        report = BatchReport(tuple(listed.values()), seconds, page.folder, page.common)
        report.write_tables(self.options, page.command)
        page.write(listed, None if is_over else self.running.values())
        if is_over:
            self.watcher.ended(report)
        return report


def _complete(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a job's arguments with all defaults, so that the job's report can be compared with them."""
    defaults = {"options": DenoiseOptions(), "display": Display(), "output": Output(), "reading": {}}
    return {**defaults, **(arguments or {})}


def scans_side_by_side(
    scans: Sequence[Scan], arguments: Mapping[str, Any], jobs: int | None = None
) -> tuple[int, int]:
    """Return how many scans run at a time on this machine, and the number of threads of each.

    Scans side by side are faster than threads in one scan. At least one runs, whatever its memory.

    Parameters
    ----------
    scans : sequence of Scan
        All scans.
    arguments : mapping
        Keyword arguments of :func:`usdenoise.run` for every scan.
    jobs : int, optional
        Largest number; by default one for each thread, or for each scan if there are fewer.
    """
    options = arguments["options"]
    threads = options.threads or available_threads()
    jobs = jobs or max(1, min(threads, len(scans)))
    if jobs > 1:
        most, reading = arguments.get("memory") or math.inf, arguments["reading"]
        paths = [scan.path for scan in scans]
        # A folder of blocks has files of one size. Their headers are the same, and reading each delays the first scan
        sizes = [(path.suffix, os.path.getsize(path)) if os.path.isfile(path) else path for path in paths]
        bytes_of = {
            size: min(most, expected_bytes(path, reading, options.precision))
            for size, path in dict(zip(sizes, paths, strict=True)).items()
        }
        # Any of the scans may meet: the largest ones have to fit.
        needed = sorted((bytes_of[size] for size in sizes), reverse=True)
        free = available_bytes()
        while jobs > 1 and sum(needed[:jobs]) > free:
            jobs -= 1
    return jobs, max(1, threads // jobs)


def _finished_row(scan: Scan, reason: str, future: Future[str | None]) -> Row:
    """Return the row of a scan that was run, from its report or the sentence on why it failed."""
    # If the connection to the Dask scheduler was lost, this raises CancelledError.
    error = future.exception()
    if error is None:
        failure = future.result()
    else:
        failure = (
            f"the Dask worker could not run this scan ({type(error).__name__}: {error}); run the batch again, with "
            "the same version of usdenoise on every worker"
        )
    try:
        if failure is None:
            return scan_row(scan, Status.DONE, reason, read_report(scan))
    except (OSError, ValueError) as unreadable:
        failure = str(unreadable)
    return scan_row(scan, Status.FAILED, reason, error=printable(failure))
