"""What the process of one scan does, and what it sends to the batch."""

import _thread
import os
import signal
import time
from collections.abc import Mapping
from enum import StrEnum
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any

from usdenoise.batch.table import Failure, outcome
from usdenoise.completion.solve import Iteration
from usdenoise.errors import (
    OUT_OF_MEMORY,
    DivergedError,
    InputError,
    OptionError,
    OutputError,
    UnreadableError,
    command_line_text,
    is_out_of_memory,
)
from usdenoise.formats.file_state import file_state
from usdenoise.formats.open_input import other_files
from usdenoise.jobs.memory_check import expected_bytes
from usdenoise.jobs.run_job import run
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.memory import use_one_heap
from usdenoise.system.signals import ALL_ENDING, Terminated, none_is_lost, raise_terminated

GRACE_S = 5.0
"""Seconds that a process has to remove its temporary files after it was asked to end."""

_KINDS = {
    DivergedError: Failure.DIVERGED,
    UnreadableError: Failure.UNREADABLE,
    InputError: Failure.INPUT,
    OptionError: Failure.OPTIONS,
    OutputError: Failure.OUTPUT,
}


class EventKind(StrEnum):
    """Kind of a message from the process of a scan; the values that follow it are in brackets."""

    NEEDS = "needs"
    """Before the job begins (expected memory in bytes)."""
    STAGE = "stage"
    """A stage of the job began (name of the stage)."""
    ITERATION = "iteration"
    """The solver finished an iteration (its number)."""
    DONE = "done"
    """The results are written (fields of the row)."""
    FAILED = "failed"
    """The job failed (kind of failure, sentence, state of the input when the job began)."""
    LOST = "lost"
    """The process ended without a last message (kind of failure, sentence); sent by the pool."""


LAST_KINDS = (EventKind.DONE, EventKind.FAILED, EventKind.LOST)
"""Kinds of the last message of a scan."""


class _Messenger:
    """A watcher that sends the progress of a job to the batch."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def stage(self, name: str) -> None:
        self._pipe.send((EventKind.STAGE, name))

    def read(self, done: int, total: int) -> None:
        """Do nothing: the batch shows stages."""

    def loaded(self, acquisition: Acquisition) -> None:
        """Do nothing: the report of the scan lists the assumptions."""

    def iteration(self, line: Iteration) -> None:
        self._pipe.send((EventKind.ITERATION, line.iteration))


def work(
    pipe: Connection, path: Path, folder: Path, arguments: Mapping[str, Any], command: list[str] | None
) -> None:
    """Send the expected memory of a scan, wait for permission, run its job, and send the outcome.

    Parameters
    ----------
    pipe : Connection
        Pipe to the batch; see :class:`EventKind` for the messages.
    path : Path
        File of the acquisition.
    folder : Path
        Folder of the scan's results.
    arguments : mapping
        Keyword arguments of :func:`usdenoise.jobs.run_job.run`.
    command : list of str or None
        Command line of the batch, for the report.
    """
    # A terminal's Ctrl-C reaches every process; only the parent acts on it, and ends the others with SIGTERM.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_once)
    use_one_heap()
    try:
        # The pool starts processes with these signals blocked.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL_ENDING)
        with none_is_lost():
            pipe.send(_outcome(pipe, path, folder, arguments, command))
    except (KeyboardInterrupt, OSError):
        # The batch asked this process to end, or the batch itself has ended.
        return
    finally:
        # What is left is the end of the interpreter, which may be cut short.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _outcome(
    pipe: Connection, path: Path, folder: Path, arguments: Mapping[str, Any], command: list[str] | None
) -> tuple[Any, ...]:
    """Run the job of a scan, and return the last message about it."""
    state: Mapping[str, Any] | None = None
    try:
        # Thread.start would wait forever for a thread that finds no memory for its first step.
        _thread.start_new_thread(_follow_parent, ())
        needed = expected_bytes(path, arguments["reading"], arguments["options"].precision)
        pipe.send((EventKind.NEEDS, min(needed, arguments.get("memory") or needed)))
        pipe.recv()
        state = _state(path, arguments["reading"])
        report = run(path, folder, **arguments, overwrite=True, command=command, watcher=_Messenger(pipe))
        return EventKind.DONE, outcome(report)
    except Exception as error:
        # The failure of an input that changed meanwhile says nothing about the input as it was, or as it is.
        known = state if state == _state(path, arguments["reading"]) else None
        return EventKind.FAILED, *_failure(error), known


def _end_once(number: int, frame: FrameType | None) -> None:
    """Raise :class:`Terminated`, and ignore the signal from then on.

    A signal to the whole group comes twice, from its sender and from the batch.
    """
    try:
        raise_terminated(number, frame)
    except Terminated:
        signal.signal(number, signal.SIG_IGN)
        raise


def _state(path: Path, reading: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the state of all files of an input, as far as they are known; None if it cannot be read."""
    return file_state(path, other_files(path, reading))


def _follow_parent() -> None:
    """Wait until the parent process ends; then end this one, with time to remove its temporary files."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_S)
        os._exit(1)


def _failure(error: Exception) -> tuple[Failure, str]:
    """Return the kind of a failure and its sentence."""
    if is_out_of_memory(error):
        return Failure.MEMORY, f"{OUT_OF_MEMORY}, or fewer scans at once with --jobs"
    for family, kind in _KINDS.items():
        if isinstance(error, family):
            return kind, command_line_text(error)
    return Failure.UNEXPECTED, (
        f"{type(error).__name__}: {error} (this is an error of usdenoise; `usdenoise run` on this scan shows where)"
    )
