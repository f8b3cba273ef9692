"""A pool of processes, one for each scan: start them as memory allows, receive their messages, end them."""

import multiprocessing
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any

from usdenoise.batch.admission import admits
from usdenoise.batch.plan import Scan
from usdenoise.batch.scan_process import GRACE_S, LAST_KINDS, EventKind, work
from usdenoise.batch.table import Failure
from usdenoise.errors import OUT_OF_MEMORY, is_out_of_memory
from usdenoise.system import memory
from usdenoise.system.signals import ALL_ENDING, uninterrupted

_PRELOADED = [
    "usdenoise.system.preloaded",
    "usdenoise.batch.scan_process",
    "usdenoise.completion.sparse_sweep",
]
"""Modules that the server loads before it forks, the one that guards the others first."""


@dataclass(frozen=True)
class Event:
    """A message from the process of a scan, or the end of the process without one.

    Attributes
    ----------
    scan : Scan
        Scan of the process.
    kind : EventKind
        Kind of the message. Each process has one last event: done, failed or lost.
    values : tuple
        Values of the message, as :class:`EventKind` lists them.
    seconds : float
        Time since the job began, in s.
    """

    scan: Scan
    kind: EventKind
    values: tuple[Any, ...]
    seconds: float

    @property
    def is_last(self) -> bool:
        """Whether the process has ended or is about to end."""
        return self.kind in LAST_KINDS


@dataclass
class _Worker:
    scan: Scan
    process: ForkServerProcess
    pipe: Connection
    needs: int | None = None
    going: bool = False
    began: float = field(default_factory=time.monotonic)


class Pool:
    """Up to `jobs` processes, one for each scan.

    Processes are forked from a server that has the libraries loaded. So a process starts within milliseconds,
    and the system gets all of its memory back when it ends.

    Parameters
    ----------
    jobs : int
        Largest number of processes at a time.
    arguments : mapping
        Keyword arguments of :func:`usdenoise.jobs.run_job.run`, the same for every job.
    command : list of str or None
        Command line of the batch, for the reports.
    """

    def __init__(self, jobs: int, arguments: Mapping[str, Any], command: list[str] | None) -> None:
        self._jobs = jobs
        self._arguments = arguments
        self._command = command
        self._workers: list[_Worker] = []
        self._unstarted: list[Event] = []
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)

    @property
    def is_free(self) -> bool:
        """Whether one more process may start: fewer than `jobs` run, and none of them waits for memory."""
        return len(self._workers) < self._jobs and all(worker.going for worker in self._workers)

    @property
    def is_idle(self) -> bool:
        """Whether no process runs, and every event has been received."""
        return not (self._workers or self._unstarted)

    def start(self, scan: Scan) -> int | None:
        """Start the process of a scan, and return the process id; None if it cannot be started, which is an event."""
        pipe, far_end = self._context.Pipe()
        process = self._context.Process(
            target=work, args=(far_end, scan.path, scan.folder, self._arguments, self._command), daemon=True
        )
        # A signal in the middle of a start would leave a process that no one knows. The server and its processes
        # inherit the mask: they end when the batch ends them.
        with uninterrupted():
            resource_tracker.ensure_running()
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ALL_ENDING)
            try:
                process.start()
                self._workers.append(_Worker(scan, process, pipe))
            except (OSError, EOFError) as error:
                pipe.close()
                self._unstarted.append(_unstarted(scan, error))
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                # The parent's copy must be closed: only then does the pipe end when the process ends.
                far_end.close()
        return process.pid

    def receive(self, timeout_s: float) -> list[Event]:
        """Return the events of the processes, after waiting at most `timeout_s` seconds for the first one."""
        unstarted, self._unstarted = self._unstarted, []
        if unstarted:
            return unstarted
        ready = wait([worker.pipe for worker in self._workers], timeout_s)
        events = [
            event
            for worker in list(self._workers)
            if worker.pipe in ready and (event := self._receive(worker)) is not None
        ]
        self._admit()
        return events

    def stop(self) -> list[Event]:
        """End all processes with SIGTERM, and with SIGKILL after the grace time; return their last events."""
        for worker in self._workers:
            worker.process.terminate()
        deadline = time.monotonic() + GRACE_S
        events = []
        while self._workers and (left := deadline - time.monotonic()) > 0:
            for worker in list(self._workers):
                if worker.pipe in wait([other.pipe for other in self._workers], left):
                    event = self._receive(worker)
                    events += [] if event is None else [event]
        for worker in self._workers:
            worker.process.kill()
            worker.process.join()
            events.append(self._event(worker, EventKind.LOST, (Failure.KILLED, _END)))
        self._workers = []
        return events

    def _admit(self) -> None:
        for worker in self._workers:
            if worker.going or worker.needs is None:
                continue
            running = [
                (other.needs or 0, memory.resident_bytes(other.process.pid))
                for other in self._workers
                if other.going
            ]
            # A job that is alone may always try: no other job will free memory for it.
            if not running or admits(worker.needs, running, memory.available_bytes()):
                try:
                    worker.pipe.send(None)
                except OSError:
                    # The process has died; the next receive() finds the end of its pipe.
                    continue
                worker.going, worker.began = True, time.monotonic()

    def _receive(self, worker: _Worker) -> Event | None:
        try:
            kind, *values = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(GRACE_S)
            self._forget(worker)
            return self._event(
                worker, EventKind.LOST, (Failure.KILLED, how_it_ended(worker.process.exitcode))
            )
        if kind == EventKind.NEEDS:
            worker.needs = values[0]
            return None
        event = self._event(worker, kind, tuple(values))
        if event.is_last:
            worker.process.join(GRACE_S)
            self._forget(worker)
        return event

    def _forget(self, worker: _Worker) -> None:
        worker.pipe.close()
        self._workers.remove(worker)

    @staticmethod
    def _event(worker: _Worker, kind: EventKind, values: tuple[Any, ...]) -> Event:
        return Event(worker.scan, kind, values, time.monotonic() - worker.began)


_END = "the process had to be killed when the batch was stopped"


def _unstarted(scan: Scan, error: Exception) -> Event:
    if is_out_of_memory(error):
        values = Failure.MEMORY, f"{OUT_OF_MEMORY}, or fewer scans at once with --jobs"
    else:
        values = (
            Failure.KILLED,
            f"the process of this scan could not be started ({error}); run the batch again, with "
            "fewer --jobs if memory is short",
        )
    return Event(scan, EventKind.LOST, values, 0.0)


def how_it_ended(exit_code: int | None) -> str:
    """Return a sentence on the end of a process without a last message."""
    if exit_code is not None and exit_code < 0:
        try:
            name = signal.Signals(-exit_code).name
        except ValueError:
            name = f"signal {-exit_code}"
        how = f"by {name}"
        if -exit_code == signal.SIGKILL:
            how += ", as the system does when memory runs out"
    else:
        how = "without a message"
    return (
        f"the process of this scan was ended {how}; run the batch again, with fewer --jobs if memory is short"
    )
