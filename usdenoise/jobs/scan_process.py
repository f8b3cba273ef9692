"""The scans of a batch in processes that stay, here or on Dask workers, each of which filters one scan after the other."""

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from usdenoise.errors import why_failed
from usdenoise.jobs.workers import dask_client
from usdenoise.options import FLAGS
from usdenoise.system import processes
from usdenoise.system.processes import GRACE_S, INTERRUPTED, exit_code, terminable
from usdenoise.system.resources import release_freed_memory, use_one_heap

_POLL_S = 0.2
"""Seconds between two checks whether the batch has ended."""

# The process ends with its batch, even while it imports the rest.
_PROGRAM = (
    "import sys; from usdenoise.system.processes import end_with_stdin; end_with_stdin()\n"
    "from usdenoise.jobs.scan_process import serve; serve(int(sys.argv[1]), sys.argv[2])"
)


def serve(descriptor: int, lock: str) -> None:
    """Filter the scans that come through a connection, until it is closed, or the file of the batch is removed.

    The answer to each is why it failed, in a sentence with the flags of the command line; None if it did not.
    """
    # Nothing is shown on a screen, and a name that matplotlib does not know would be an error.
    os.environ["MPLBACKEND"] = "agg"
    from usdenoise.jobs.run_job import run

    use_one_heap()
    logging.getLogger("usdenoise").addHandler(logging.NullHandler())
    # The process of the same scan in a batch that was killed a moment ago holds the lock until it ends.
    processes.WAIT_S += GRACE_S
    with Connection(descriptor) as requests, suppress(EOFError, BrokenPipeError), terminable():
        while True:
            while not requests.poll(_POLL_S):
                if not os.path.exists(lock):
                    return
            arguments, failure = requests.recv(), None
            try:
                run(**arguments)
            except KeyboardInterrupt as error:
                requests.send(INTERRUPTED)
                sys.exit(exit_code(error))
            except Exception as error:
                failure = why_failed(error, FLAGS)
            release_freed_memory()
            requests.send(failure)


class ScanProcess:
    """A process that filters scans, one after the other.

    Parameters
    ----------
    lock : Path
        The locked file of the batch, which all workers see. The process is ended when it is removed.

    Raises
    ------
    OSError
        If the process cannot be started.
    """

    def __init__(self, lock: Path) -> None:
        self.lock = lock
        self._requests, theirs = Pipe()
        with theirs:
            self._errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), str(lock)],
                # The process ends when this pipe is closed, also if this process is killed.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                # The Ctrl-C of a terminal is for the batch alone, which then ends its processes.
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        """Whether it can filter a scan."""
        return self._process.poll() is None

    def run(self, arguments: Mapping[str, Any]) -> str | None:
        """Call :func:`usdenoise.run` with some arguments in the process, and return why it failed; None if it did not."""
        self._errors.truncate(0)
        with suppress(EOFError, OSError):
            self._requests.send(arguments)
            while not self._requests.poll(_POLL_S):
                if not self.lock.exists():
                    return self.end()
            answer: str | None = self._requests.recv()
            return answer
        return self.end()

    def end(self) -> str:
        """End the process, by a signal if need be, and return why it ended: the signal, or its last line."""
        # A process that is stopped cannot end itself.
        with suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=2 * GRACE_S)
        self._process.kill()
        code = self._process.wait()
        self._requests.close()
        with self._errors:
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().split("\n")
        if code < 0:
            is_killed = code == -signal.SIGKILL
            hint = "; run the batch again, with fewer jobs if memory is short" if is_killed else ""
            return f"its process was ended by signal {-code} ({signal.strsignal(-code)}){hint}"
        return lines[-1] or f"exit code {code}"


_idle: list[ScanProcess] = []
"""Processes that wait for a scan."""


def run_scan(arguments: Mapping[str, Any], lock: Path) -> str | None:
    """Filter a scan in a process that waits for one, or in a new one.

    Parameters
    ----------
    arguments : mapping
        Arguments of :func:`usdenoise.run`.
    lock : Path
        The locked file of the batch.

    Returns
    -------
    str or None
        Why the scan failed; None if it did not.
    """
    process = None
    while _idle and process is None:
        process = _idle.pop()
        if process.lock != lock or not process.is_alive:
            process.end()
            process = None
    try:
        process = process or ScanProcess(lock)
    except OSError as error:
        return f"the process of this scan cannot be started ({error.strerror}); run the batch again"
    failure = process.run(arguments)
    if process.is_alive:
        _idle.append(process)
    return failure


def run_scan_on_worker(arguments: Mapping[str, Any], lock: Path) -> str | None:
    """Filter a scan on a Dask worker, by default with the share of the worker's memory of one thread."""
    from distributed import get_worker

    worker = get_worker()
    limit = worker.memory_manager.memory_limit
    if limit and arguments.get("memory") is None:
        arguments = {**arguments, "memory": limit // worker.state.nthreads}
    return run_scan(arguments, lock)


StartScan = Callable[[Mapping[str, Any], Path], Future[str | None]]
"""Starts :func:`run_scan` with the same arguments; the result is why the scan failed, or None."""


@contextmanager
def scan_workers(jobs: int, dask: str | None) -> Iterator[tuple[StartScan, Callable[[], int]]]:
    """Yield a function that starts a scan, and one that returns the number of scans that can run at a time.

    Parameters
    ----------
    jobs : int
        Number of scans at a time on this machine.
    dask : str or None
        Dask workers that run the scans instead, one on each of their threads, as for :func:`dask_client`.
    """
    if dask is None:
        try:
            with ThreadPoolExecutor(jobs) as threads:
                yield lambda arguments, lock: threads.submit(run_scan, arguments, lock), lambda: jobs
        finally:
            while _idle:
                _idle.pop().end()
    else:
        with dask_client(dask) as client:
            start: StartScan = partial(client.get_executor(pure=False).submit, run_scan_on_worker)
            # Workers may come and go.
            yield start, lambda: sum(client.nthreads().values())
