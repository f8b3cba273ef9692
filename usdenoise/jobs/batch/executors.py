"""Where the processes of the scans run: on this machine, or on Dask workers."""

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from usdenoise.jobs.batch.scan_process import run_scan, run_scan_on_worker
from usdenoise.system.memory import available_bytes
from usdenoise.system.signals import uninterrupted


class ScansHere:
    """Scans on this machine.

    Parameters
    ----------
    threads : ThreadPoolExecutor
        Threads that wait for the processes.
    slots : int
        Largest number of scans at a time.
    lock : Path
        The locked file of the batch.

    Attributes
    ----------
    memory : float
        Bytes for all scans that run.
    """

    def __init__(self, threads: ThreadPoolExecutor, slots: int, lock: Path) -> None:
        self.slots = slots
        self.memory = available_bytes()
        self._threads = threads
        self._lock = lock

    def submit(self, words: Sequence[str]) -> Future[str | None]:
        """Start a scan; the result is why it failed, or None."""
        return self._threads.submit(run_scan, words, self._lock)


class ScansOnDask:
    """Scans on the workers of a Dask client, one for each thread.

    Parameters
    ----------
    client : distributed.Client
        The client.
    lock : Path
        The locked file of the batch, in a folder that the workers see.

    Attributes
    ----------
    memory : float
        Infinite: each worker has its own memory.
    """

    memory = math.inf

    def __init__(self, client: Any, lock: Path) -> None:
        self._client = client
        self._lock = lock.resolve()
        self._executor = client.get_executor(pure=False)

    @property
    def slots(self) -> int:
        """Number of threads of all workers."""
        # Dask cannot be interrupted safely.
        with uninterrupted():
            n_threads: int = sum(self._client.nthreads().values())
        return max(1, n_threads)

    def submit(self, words: Sequence[str]) -> Future[str | None]:
        """Submit a scan; the result is why it failed, or None."""
        with uninterrupted():
            future: Future[str | None] = self._executor.submit(run_scan_on_worker, words, self._lock)
        return future
