"""What is done with one scan of a batch, in a process of its own or on a Dask worker."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from usdenoise.batch.plan import Scan
from usdenoise.batch.table import Failure, Status, outcome
from usdenoise.completion.solve import Iteration
from usdenoise.errors import (
    OUT_OF_MEMORY,
    DivergedError,
    InputError,
    NoStackError,
    OptionError,
    OutputError,
    UnreadableError,
    command_line_text,
    is_out_of_memory,
)
from usdenoise.formats.file_state import file_state
from usdenoise.jobs.memory_check import expected_bytes
from usdenoise.jobs.progress import Silence
from usdenoise.jobs.run_job import run
from usdenoise.system.processes import ask

STARTS, NEEDS, STAGE, ITERATION = "starts", "needs", "stage", "iteration"
"""Kinds of messages about a scan, each with a value: process id, expected memory in bytes, name, number."""

_WAIT_S = 0.2
"""Seconds between two questions whether there is memory."""

_FAILURES = {
    DivergedError: Failure.DIVERGED,
    UnreadableError: Failure.UNREADABLE,
    InputError: Failure.INPUT,
    OptionError: Failure.OPTIONS,
    OutputError: Failure.OUTPUT,
}

Tell = Callable[[tuple[Scan, str, Any]], Any]
"""Takes a message: the scan, the kind and the value. False as the answer to NEEDS means that the scan has to wait."""


class _Messenger(Silence):
    """A watcher that tells the batch of the progress of a job."""

    def __init__(self, scan: Scan, tell: Tell) -> None:
        self._scan, self._tell = scan, tell

    def stage(self, name: str) -> None:
        self._tell((self._scan, STAGE, name))

    def iteration(self, line: Iteration) -> None:
        self._tell((self._scan, ITERATION, line.iteration))


def filter_scan(
    scan: Scan, arguments: Mapping[str, Any], command: list[str] | None, tell: Tell = ask
) -> dict[str, Any]:
    """Wait for memory, run the job of a scan, and return the status and the other fields of its row.

    Parameters
    ----------
    scan : Scan
        The scan.
    arguments : mapping
        Keyword arguments of :func:`usdenoise.jobs.run_job.run`, the same for every scan.
    command : list of str or None
        Command line of the batch, for the report.
    tell : callable
        Takes the messages about the scan.
    """
    began, state, reading = time.monotonic(), None, arguments["reading"]
    try:
        tell((scan, STARTS, os.getpid()))
        needed = expected_bytes(scan.path, reading, arguments["options"].precision)
        while tell((scan, NEEDS, min(needed, arguments.get("memory") or needed))) is False:
            time.sleep(_WAIT_S)
        began, state = time.monotonic(), _state(scan, reading)
        watcher = _Messenger(scan, tell)
        report = run(scan.path, scan.folder, **arguments, overwrite=True, command=command, watcher=watcher)
        return {"status": Status.DONE, **outcome(report)}
    except Exception as error:
        # The failure of an input that changed meanwhile says nothing about the input as it was, or as it is.
        known = state if state == _state(scan, reading) else None
        fields = {f"input_{name}": value for name, value in (known or {}).items()}
        if scan.is_found and isinstance(error, NoStackError):
            return {"status": Status.NO_STACK, "reason": command_line_text(error), **fields}
        return {**failed(*failure_and_sentence(error)), "seconds": time.monotonic() - began, **fields}


def failed(failure: Failure, sentence: str) -> dict[str, Any]:
    """Return the fields of the row of a scan that failed."""
    return {"status": Status.FAILED, "failure": failure, "error": sentence}


def failure_and_sentence(error: BaseException) -> tuple[Failure, str]:
    """Return the kind of a failure and the sentence about it."""
    if is_out_of_memory(error):
        return Failure.MEMORY, f"{OUT_OF_MEMORY}, or fewer scans at once with --jobs"
    for family, failure in _FAILURES.items():
        if isinstance(error, family):
            return failure, command_line_text(error)
    return Failure.UNEXPECTED, (
        f"{type(error).__name__}: {error} (this is an error of usdenoise; `usdenoise run` on this scan shows where)"
    )


def _state(scan: Scan, reading: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the state of all files of an input, as far as they are known; None if it cannot be read."""
    return file_state(scan.path)
