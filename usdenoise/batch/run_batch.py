"""The batch: decide, run what has to be run, and keep the table."""

import json
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from usdenoise.batch.lock import hold
from usdenoise.batch.plan import RECORD, SHEET, TABLE, Scan, find_scans
from usdenoise.batch.pool import LOST, Event, Pool
from usdenoise.batch.resume import KEEP_FAILED, RUN, SKIP, Decision, decide, earlier_failures
from usdenoise.batch.scan_process import DONE as JOB_DONE
from usdenoise.batch.table import (
    DONE,
    FAILED,
    SKIPPED,
    WAITING,
    Row,
    outcome,
    scan_row,
    write_sheet,
    write_tables,
)
from usdenoise.errors import InputError
from usdenoise.formats.file_state import file_state
from usdenoise.formats.output_folder import remove_leftovers
from usdenoise.jobs.job_options import Display, Output
from usdenoise.pipeline.options import DenoiseOptions
from usdenoise.system.blas_threads import available_threads
from usdenoise.system.provenance import requested
from usdenoise.system.signals import uninterrupted

_TICK_S = 0.5


class Watcher(Protocol):
    """What a batch tells its caller on the way."""

    def planned(self, decisions: Mapping[Scan, Decision]) -> None:
        """All scans, and what will be done with each."""

    def started(self, scan: Scan, pid: int | None) -> None:
        """A process took on a scan."""

    def progress(self, scan: Scan, text: str) -> None:
        """A scan has come to a stage or an iteration."""

    def finished(self, row: Row) -> None:
        """A scan is over: done, failed, or left out."""

    def tick(self) -> None:
        """Time has passed."""


class _Silence:
    def planned(self, decisions: Mapping[Scan, Decision]) -> None: ...
    def started(self, scan: Scan, pid: int | None) -> None: ...
    def progress(self, scan: Scan, text: str) -> None: ...
    def finished(self, row: Row) -> None: ...
    def tick(self) -> None: ...


@dataclass(frozen=True)
class BatchReport:
    """What came of a batch.

    Attributes
    ----------
    rows : tuple of Row
        One for each scan, in natural order.
    seconds : float
        From the first scan to the last file.
    output : dict
        Paths of the table, the record and the contact sheet.
    """

    rows: tuple[Row, ...]
    seconds: float
    output: Mapping[str, str]

    @property
    def summary(self) -> dict[str, Any]:
        """Number of scans in all and by status, seconds, and the paths of the batch's own files."""
        return _summary(self.rows, self.seconds, self.output)

    @property
    def all_done(self) -> bool:
        """Whether every scan has whole results."""
        return all(row.status in (DONE, SKIPPED) for row in self.rows)


def plan_batch(
    paths: Sequence[str | Path],
    folder: str | Path,
    *,
    arguments: Mapping[str, Any] | None = None,
    patterns: Sequence[str] = (),
    overwrite: bool = False,
    retry_failed: bool = False,
) -> dict[Scan, Decision]:
    """What :func:`run_batch` would do with each scan, and why; nothing is written.

    Parameters
    ----------
    paths, folder, arguments, patterns, overwrite, retry_failed
        As for :func:`run_batch`.

    Raises
    ------
    InputError
        If there are no scans.
    """
    scans = _scans(paths, Path(folder), patterns)
    return _decide(scans, Path(folder), requested(**_complete(arguments)), overwrite, retry_failed)


def run_batch(
    paths: Sequence[str | Path],
    folder: str | Path,
    *,
    arguments: Mapping[str, Any] | None = None,
    patterns: Sequence[str] = (),
    jobs: int = 1,
    overwrite: bool = False,
    retry_failed: bool = False,
    stop_on_error: bool = False,
    command: list[str] | None = None,
    watcher: Watcher | None = None,
) -> BatchReport:
    """Denoise many acquisitions, each in a process of its own, and skip those whose results are whole.

    A script that calls this needs ``if __name__ == "__main__":`` around it, as everything that starts
    processes does.

    Parameters
    ----------
    paths : sequence of str or Path
        Files, and folders that are searched with their subfolders.
    folder : str or Path
        Mirrors the tree of the input; batch.csv, batch.json and contact_sheet.png go to its top.
    arguments : mapping, optional
        Keyword arguments of :func:`usdenoise.jobs.run_job.run` for every scan: options, display, reading, …
        The number of threads is that of all processes together.
    patterns : sequence of str
        What the files in folders are called.
    jobs : int
        Processes at a time, where memory allows.
    overwrite : bool
        Run every scan, also those that are whole.
    retry_failed : bool
        Run also those that failed and would fail again.
    stop_on_error : bool
        Start no more after the first failure.
    command : list of str, optional
        The command line, for the record.
    watcher : Watcher, optional
        Told about progress.

    Returns
    -------
    BatchReport

    Raises
    ------
    InputError
        If there are no scans.
    OutputError
        If the folder cannot be written, or another batch holds it.
    KeyboardInterrupt
        When told to stop; what is done is kept, and the table is written.
    """
    began = time.monotonic()
    folder = Path(folder)
    watcher = watcher or _Silence()
    complete = _complete(arguments)
    asked = requested(**complete)
    # Before the folder is made: without scans there is nothing to make it for.
    scans = _scans(paths, folder, patterns)
    with hold(folder):
        decisions = _decide(scans, folder, asked, overwrite, retry_failed)
        watcher.planned(decisions)
        rows: dict[Scan, Row] = {}
        pool = Pool(jobs, {**complete, "options": _share(complete["options"], jobs)}, command)
        output = {"table": str(folder / TABLE), "record": str(folder / RECORD), "sheet": str(folder / SHEET)}

        def report() -> BatchReport:
            left = {scan: scan_row(scan, WAITING, decisions[scan].reason) for scan in decisions}
            return BatchReport(tuple({**left, **rows}.values()), time.monotonic() - began, output)

        def keep_table() -> None:
            so_far = report()
            write_tables(folder, so_far.rows, so_far.summary, asked, command)

        try:
            _run(decisions, rows, pool, stop_on_error, watcher)
        # Whatever the reason, nothing is left running and what is done is on record.
        except BaseException as error:
            with uninterrupted():
                for event in pool.stop():
                    if event.kind == JOB_DONE:
                        rows[event.scan] = _row(event, decisions[event.scan], None)
                for scan in decisions:
                    if scan not in rows:
                        remove_leftovers(scan.folder)
                keep_table()
            done = sum(row.status in (DONE, SKIPPED) for row in rows.values())
            error.add_note(f"{done} of {len(decisions)} scans are done; the same command does the others")
            raise
        keep_table()
        write_sheet(folder, list(decisions), _reports(rows))
        return report()


def _scans(paths: Sequence[str | Path], folder: Path, patterns: Sequence[str]) -> list[Scan]:
    scans = find_scans([Path(path) for path in paths], folder, patterns)
    if not scans:
        raise InputError(
            f"there are no scans in {', '.join(map(str, paths)) or 'nothing'}; name files, or say with --pattern "
            "what theirs look like"
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
    """A job's arguments with its defaults, so that a job records what is compared here."""
    defaults = {"options": DenoiseOptions(), "display": Display(), "output": Output(), "reading": {}}
    return {**defaults, **(arguments or {})}


def _share(options: DenoiseOptions, jobs: int) -> DenoiseOptions:
    return replace(options, threads=max(1, (options.threads or available_threads()) // jobs))


def _run(
    decisions: Mapping[Scan, Decision],
    rows: dict[Scan, Row],
    pool: Pool,
    stop_on_error: bool,
    watcher: Watcher,
) -> None:
    """Fill the rows; what was not begun has none."""

    def finish(scan: Scan, row: Row) -> None:
        rows[scan] = row
        watcher.finished(row)

    states: dict[Scan, Mapping[str, int] | None] = {}
    waiting = deque(scan for scan, decision in decisions.items() if decision.action == RUN)
    for scan, decision in decisions.items():
        if decision.action == SKIP and decision.report is not None:
            finish(scan, scan_row(scan, SKIPPED, decision.reason, **outcome(decision.report)))
        elif decision.action == KEEP_FAILED and decision.earlier is not None:
            finish(scan, Row(**{**decision.earlier, "reason": decision.reason}))
    while waiting or not pool.is_idle:
        if stop_on_error and any(row.status == FAILED for row in rows.values()):
            waiting.clear()
        while waiting and pool.is_free:
            scan = waiting.popleft()
            remove_leftovers(scan.folder)
            states[scan] = file_state(scan.path)
            watcher.started(scan, pool.start(scan))
        for event in pool.hear(_TICK_S):
            if not event.is_last:
                watcher.progress(event.scan, " ".join(map(str, (event.kind, *event.values))))
                continue
            if event.kind == LOST:
                remove_leftovers(event.scan.folder)
            finish(event.scan, _row(event, decisions[event.scan], states[event.scan]))
        watcher.tick()


def _row(event: Event, decision: Decision, state: Mapping[str, int] | None) -> Row:
    """The row of a last event; `state` is that of the input when its process was started."""
    if event.kind == JOB_DONE:
        return scan_row(event.scan, DONE, decision.reason, **event.values[0])
    failure, sentence = event.values
    state = state or {}
    return scan_row(
        event.scan,
        FAILED,
        decision.reason,
        seconds=event.seconds,
        error=sentence,
        failure=failure,
        input_bytes=state.get("bytes"),
        input_mtime_ns=state.get("mtime_ns"),
    )


def _reports(rows: Mapping[Scan, Row]) -> dict[Scan, Mapping[str, Any]]:
    whole = [scan for scan, row in rows.items() if row.status in (DONE, SKIPPED)]
    return {scan: json.loads(scan.report.read_text()) for scan in whole}


def _summary(rows: Sequence[Row], seconds: float, output: Mapping[str, str]) -> dict[str, Any]:
    counts = Counter(row.status for row in rows)
    return {
        "scans": len(rows),
        **{status.replace(" ", "_"): counts[status] for status in (DONE, SKIPPED, FAILED, WAITING)},
        "seconds": seconds,
        "output": dict(output),
    }
