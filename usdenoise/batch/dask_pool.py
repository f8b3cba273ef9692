"""Scans on Dask workers: each is the task of a worker, which starts a process for it and waits for its end."""

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import uuid4

from usdenoise.batch.plan import Scan
from usdenoise.batch.pool import Event, how_it_ended
from usdenoise.batch.scan_process import GRACE_S, LAST_KINDS, EventKind
from usdenoise.batch.table import Failure
from usdenoise.formats.partial_files import remove_leftovers
from usdenoise.system.signals import uninterrupted

RETRIES = 1
"""Times that a scan whose process was killed is done again."""

_LOOK_S = 0.5
_NOT_DONE = (
    "the Dask worker could not do this scan ({what}); install the same version of usdenoise on every worker"
)
_WORKERS_KILLED = (
    "the Dask worker of this scan was killed twice, as the system does when memory runs out; run the batch again, with "
    "more memory for a worker"
)


class ScanKilledError(Exception):
    """The process of a scan was killed; the argument is the sentence about it."""


class DaskPool:
    """Scans on the workers of a client: as many at a time as the workers have threads.

    A scan takes one thread of a worker, and its share of the worker's memory.

    Parameters
    ----------
    client : distributed.Client
        The client.
    arguments : mapping
        Keyword arguments of :func:`usdenoise.jobs.run_job.run`, the same for every job.
    command : list of str or None
        Command line of the batch, for the reports.
    """

    def __init__(self, client: Any, arguments: Mapping[str, Any], command: list[str] | None) -> None:
        from distributed import Event as Flag

        self._client = client
        self._arguments = {**arguments, "options": replace(arguments["options"], threads=1)}
        self._command = command
        self._running: dict[Any, tuple[Scan, float]] = {}
        self._flag = f"usdenoise-stop-{uuid4().hex}"
        self._stop = Flag(self._flag, client=client)

    @property
    def is_free(self) -> bool:
        """Whether one more scan may start."""
        threads: int = sum(self._client.nthreads().values())
        return len(self._running) < max(1, threads)

    @property
    def is_idle(self) -> bool:
        """Whether no scan is being worked on."""
        return not self._running

    def start(self, scan: Scan) -> None:
        """Give a scan to the workers."""
        future = self._client.submit(
            filter_scan,
            scan.path.resolve(),
            scan.folder.resolve(),
            self._arguments,
            self._command,
            self._flag,
            pure=False,
            retries=RETRIES,
        )
        self._running[future] = scan, time.monotonic()

    def receive(self, timeout_s: float) -> list[Event]:
        """Return the last events of the scans that have ended, after waiting at most `timeout_s` seconds for one."""
        from distributed import wait
        from distributed.client import FuturesCancelledError

        if not self._running:
            return []
        # The package is not made to be interrupted while it waits.
        with uninterrupted():
            try:
                wait(list(self._running), timeout=timeout_s, return_when="FIRST_COMPLETED")
            except TimeoutError:
                return []
            except FuturesCancelledError:
                # The scheduler dropped a scan; its row says so.
                pass
            return [self._ended(future) for future in list(self._running) if future.done()]

    def stop(self) -> list[Event]:
        """End all scans; return their last events."""
        self._stop.set()
        events, deadline = [], time.monotonic() + 2 * GRACE_S
        while self._running and (left := deadline - time.monotonic()) > 0:
            events += self.receive(left)
        for future, (scan, began) in self._running.items():
            future.cancel()
            values = (Failure.KILLED, "the worker of this scan did not answer when the batch was stopped")
            events.append(Event(scan, EventKind.LOST, values, time.monotonic() - began))
        self._running = {}
        return events

    def _ended(self, future: Any) -> Event:
        from distributed import KilledWorker

        scan, began = self._running.pop(future)
        seconds = time.monotonic() - began
        if future.status == "finished":
            kind, *values = future.result()
            return Event(scan, kind, tuple(values), seconds)
        if future.status != "error":
            failure = Failure.KILLED, "the Dask scheduler dropped this scan; run the batch again"
        elif isinstance(error := future.exception(), ScanKilledError):
            failure = Failure.KILLED, str(error)
        elif isinstance(error, KilledWorker):
            failure = Failure.KILLED, _WORKERS_KILLED
        else:
            what = f"{type(error).__name__}: {error}"
            failure = Failure.UNEXPECTED, _NOT_DONE.format(what=what)
        return Event(scan, EventKind.LOST, failure, seconds)


def filter_scan(
    path: Path, folder: Path, arguments: Mapping[str, Any], command: list[str] | None, flag: str
) -> tuple[Any, ...]:
    """Do the job of a scan in a process of its own; return its last message (see :class:`EventKind`).

    This is the task of a worker.

    Parameters
    ----------
    path, folder, arguments, command
        As for :func:`usdenoise.batch.scan_process.work`.
    flag : str
        Name of the flag that stops the batch.

    Raises
    ------
    ScanKilledError
        If the process is killed.
    """
    from distributed import Event as Flag
    from distributed import get_worker

    worker = get_worker()
    if arguments.get("memory") is None and worker.memory_manager.memory_limit:
        arguments = {**arguments, "memory": worker.memory_manager.memory_limit // worker.state.nthreads}
    remove_leftovers(folder)
    pipe, far_end = Pipe()
    with far_end:
        child = subprocess.Popen(
            [sys.executable, "-m", "usdenoise.batch.scan_child", str(far_end.fileno())],
            pass_fds=[far_end.fileno()],
            stdin=subprocess.DEVNULL,
            # The Ctrl-C of a terminal is for the batch, which then asks every scan to end.
            start_new_session=True,
        )
    stop = Flag(flag)
    try:
        pipe.send((path, folder, arguments, command))
        while True:
            message = _next(pipe)
            if message is None:
                if stop.is_set():
                    child.terminate()
                    child.wait(GRACE_S)
                    return EventKind.LOST, Failure.KILLED, "the batch was stopped"
            elif message[0] == EventKind.NEEDS:
                pipe.send(None)
            elif message[0] in LAST_KINDS:
                return message
    except (EOFError, OSError) as error:
        raise ScanKilledError(how_it_ended(child.wait())) from error
    finally:
        pipe.close()
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()


def _next(pipe: Connection) -> tuple[Any, ...] | None:
    """Return the next message; None if there is none for a while."""
    return pipe.recv() if pipe.poll(_LOOK_S) else None
