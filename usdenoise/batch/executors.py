"""Where the scans of a batch are filtered: in processes here, or on Dask workers."""

from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from threading import Lock
from typing import Any
from uuid import uuid4

from usdenoise.batch.filter_scan import NEEDS, STARTS, failure_and_sentence, filter_scan
from usdenoise.batch.plan import Scan
from usdenoise.batch.table import Failure
from usdenoise.system import memory
from usdenoise.system.processes import ProcessDiedError, ProcessExecutor
from usdenoise.system.signals import uninterrupted

_PRELOADED = (
    "PIL.TiffImagePlugin",
    "scipy.io",
    "scipy.linalg",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "usdenoise.completion.sparse_sweep",
    "usdenoise.batch.filter_scan",
)
"""What a job loads, which takes longer than a small scan."""


class Admission:
    """The memory that the processes of a batch are expected to take.

    Running processes still have a claim on the part of their expected memory that they have not yet taken.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._expected: dict[int, int] = {}

    def admits(self, pid: int, needed: int) -> bool:
        """Return whether a process may begin, and then count it until it has ended.

        A process that is alone may always try: no other one will free memory for it.

        Parameters
        ----------
        pid : int
            Process id.
        needed : int
            Expected memory in bytes.
        """
        with self._lock:
            taken = {other: memory.resident_bytes(other) for other in self._expected}
            # A process that has ended holds none. Where the system does not say, all are admitted.
            self._expected = {other: self._expected[other] for other, held in taken.items() if held}
            promised = sum(max(0, expected - taken[other]) for other, expected in self._expected.items())
            fits = not self._expected or needed <= memory.available_bytes() - promised
            if fits:
                self._expected[pid] = needed
            return fits


class ScansHere:
    """Scans in processes here.

    Parameters
    ----------
    jobs : int
        Largest number of processes at a time. Fewer work where the memory is short.
    arguments, command
        As for :func:`usdenoise.batch.filter_scan.filter_scan`.
    """

    def __init__(self, jobs: int, arguments: Mapping[str, Any], command: list[str] | None) -> None:
        self.slots = jobs
        self.messages: SimpleQueue[tuple[Scan, str, Any]] = SimpleQueue()
        self._job = arguments, command
        self._admission = Admission()
        self._processes = ProcessExecutor(jobs, _PRELOADED, self._answer)

    def submit(self, scan: Scan) -> Future[dict[str, Any]]:
        """Filter a scan in a process of its own."""
        return self._processes.submit(filter_scan, scan, *self._job)

    def loss(self, error: BaseException) -> tuple[Failure, str]:
        """Return the kind of failure of a scan whose process was lost, and the sentence about it."""
        if isinstance(error, ProcessDiedError):
            more = "run the batch again, with fewer --jobs if memory is short"
            return Failure.KILLED, f"the process of this scan {error}; {more}"
        return failure_and_sentence(error)

    def stop(self) -> None:
        """End all processes."""
        self._processes.shutdown(cancel_futures=True)

    def _answer(self, pid: int, message: tuple[Scan, str, Any]) -> bool | None:
        _, kind, value = message
        if kind == NEEDS:
            return self._admission.admits(pid, value)
        self.messages.put(message)
        return None


class ScansOnDask:
    """Scans on the workers of a client: as many at a time as the workers have threads.

    A scan takes one thread of a worker, and its share of the worker's memory.

    Parameters
    ----------
    client : distributed.Client
        The client.
    arguments, command
        As for :func:`usdenoise.batch.filter_scan.filter_scan`.
    """

    def __init__(self, client: Any, arguments: Mapping[str, Any], command: list[str] | None) -> None:
        from distributed import Event

        self.messages: SimpleQueue[tuple[Scan, str, Any]] = SimpleQueue()
        self._client = client
        self._executor = client.get_executor(pure=False)
        self._job = {**arguments, "options": replace(arguments["options"], threads=1)}, command
        self._flag = f"usdenoise-stop-{uuid4().hex}"
        self._stop = Event(self._flag, client=client)

    @property
    def slots(self) -> int:
        """Number of threads of all workers."""
        with uninterrupted():
            n_threads: int = sum(self._client.nthreads().values())
        return max(1, n_threads)

    def submit(self, scan: Scan) -> Future[dict[str, Any]]:
        """Give a scan to the workers."""
        self.messages.put((scan, STARTS, None))
        there = replace(scan, path=scan.path.resolve(), folder=scan.folder.resolve())
        # The package is not made to be interrupted.
        with uninterrupted():
            future: Future[dict[str, Any]] = self._executor.submit(
                filter_on_worker, there, *self._job, self._flag
            )
        return future

    def loss(self, error: BaseException) -> tuple[Failure, str]:
        """Return the kind of failure of a scan that a worker could not do, and the sentence about it."""
        from distributed import KilledWorker

        if isinstance(error, CancelledError):
            return Failure.KILLED, "the Dask scheduler dropped this scan; run the batch again"
        if isinstance(error, KilledWorker):
            return Failure.KILLED, (
                "every Dask worker that began this scan was killed, as the system does when memory runs out; run the "
                "batch again, with more memory for a worker"
            )
        return Failure.UNEXPECTED, (
            f"the Dask worker could not do this scan ({type(error).__name__}: {error}); install the same version of "
            "usdenoise on every worker"
        )

    def stop(self) -> None:
        """Ask all scans to end, which they do after a stage or an iteration."""
        # A scheduler that was lost has none.
        with uninterrupted(), suppress(OSError):
            if self._client.status == "running":
                self._stop.set()


ScanExecutor = ScansHere | ScansOnDask
"""What filters scans: `slots` of them at a time. `messages` are those of :mod:`usdenoise.batch.filter_scan`."""


def filter_on_worker(
    scan: Scan, arguments: Mapping[str, Any], command: list[str] | None, flag: str
) -> dict[str, Any]:
    """Filter a scan in a thread of a Dask worker, until the flag of that name says that the batch was stopped."""
    from distributed import Event, get_worker

    worker = get_worker()
    if arguments.get("memory") is None and worker.memory_manager.memory_limit:
        arguments = {**arguments, "memory": worker.memory_manager.memory_limit // worker.state.nthreads}
    stop = Event(flag)

    def end_if_stopped(message: object) -> None:
        if stop.is_set():
            raise RuntimeError("the batch was stopped")

    # A worker that was killed has left files.
    scan.clear()
    return filter_scan(scan, arguments, command, end_if_stopped)
