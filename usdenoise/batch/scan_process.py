"""The process of one scan, as seen from within."""

import os
import signal
import threading
import time
from collections.abc import Mapping
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from usdenoise.batch.table import outcome
from usdenoise.completion.solve import Iteration
from usdenoise.errors import (
    WANT_OF_MEMORY,
    DivergedError,
    InputError,
    OptionError,
    OutputError,
    command_line_text,
    is_want_of_memory,
)
from usdenoise.jobs.memory_check import expected_bytes
from usdenoise.jobs.run_job import run
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.signals import raise_terminated

NEEDS, STAGE, ITERATION, DONE, FAILED = "needs", "stage", "iteration", "done", "failed"
GRACE_S = 5.0
"""That a process has for clearing up after it was told to end."""

_KINDS = {DivergedError: "diverged", InputError: "input", OptionError: "options", OutputError: "output"}


class _Messenger:
    """A watcher that passes on what a job tells."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def stage(self, name: str) -> None:
        self._pipe.send((STAGE, name))

    def loaded(self, acquisition: Acquisition) -> None:
        """Nothing."""

    def iteration(self, line: Iteration) -> None:
        self._pipe.send((ITERATION, line.iteration))


def work(
    pipe: Connection, path: Path, folder: Path, arguments: Mapping[str, Any], command: list[str] | None
) -> None:
    """Say how much memory the scan will want, wait for leave, run its job, and say what came of it."""
    # A terminal's Ctrl-C reaches every process; the parent decides, and asks with SIGTERM.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, raise_terminated)
    threading.Thread(target=_follow_parent, daemon=True).start()
    try:
        pipe.send((NEEDS, expected_bytes(path, arguments["reading"], arguments["options"].precision)))
        pipe.recv()
        try:
            report = run(path, folder, **arguments, overwrite=True, command=command, watcher=_Messenger(pipe))
            message: tuple[Any, ...] = (DONE, outcome(report))
        except Exception as error:
            message = (FAILED, *_failure(error))
        pipe.send(message)
    except (KeyboardInterrupt, OSError, EOFError):
        # Told to end, or nobody listens any more.
        return


def _follow_parent() -> None:
    """End this process when its parent has gone, with time for clearing up."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_S)
        os._exit(1)


def _failure(error: Exception) -> tuple[str, str]:
    """The kind of a failure and its sentence."""
    if is_want_of_memory(error):
        return "memory", f"{WANT_OF_MEMORY}, or fewer scans at once with --jobs"
    for family, kind in _KINDS.items():
        if isinstance(error, family):
            return kind, command_line_text(error)
    return "unexpected", (
        f"{type(error).__name__}: {error} (this is an error of usdenoise; `usdenoise run` on this scan shows where)"
    )
