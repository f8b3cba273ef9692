"""A scan as a process of ``usdenoise run``, on this machine or on Dask workers: its outcome is its report."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from usdenoise.jobs.batch_table import Scan
from usdenoise.jobs.workers import dask_client
from usdenoise.options.declaration import Options
from usdenoise.options.job_options import ReadOptions
from usdenoise.system.processes import uninterrupted


def as_flags(options: Options) -> list[str]:
    """Return the words of the command line that set the values of an option object; none for a default.

    Parameters
    ----------
    options : Options
        The values.

    Examples
    --------
    >>> import usdenoise
    >>> as_flags(usdenoise.DenoiseOptions(rank=20, bad_frames=(3, 17)))
    ['--rank=20', '--bad-frames=3,17']
    """
    words = []
    for name, declared in options.declared.items():
        value = getattr(options, name)
        if value == declared.default:
            continue
        # A group of options can share a flag, such as "--estimator": the key follows it.
        flag, _, key = declared.flag.partition(" ")
        text = f"{key}={_flag_value(value)}" if key else _flag_value(value)
        words.append(declared.flag if isinstance(value, bool) else f"{flag}={text}")
    return words


def _flag_value(value: Any) -> str:
    if isinstance(value, slice):
        ends = (value.start, value.stop) if value.step is None else (value.start, value.stop, value.step)
        return ":".join("" if end is None else str(end) for end in ends)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


GRACE_S = 5.0
"""Seconds that a process has to remove its temporary files before it is killed."""

_POLL_S = 0.2
"""Seconds between two checks whether the batch has ended."""

_PROGRAM = f"""
import os, signal, sys, threading, time
batch = int(sys.argv.pop(1))
def end_with_batch():
    while os.getppid() == batch:
        time.sleep({_POLL_S})
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep({GRACE_S})
    os._exit(1)
threading.Thread(target=end_with_batch, daemon=True).start()
from usdenoise.__main__ import main
from usdenoise.system import processes
processes.WAIT_S += {GRACE_S}
main()
"""
"""The program ``usdenoise``, which ends when the batch has ended, also when the batch is killed: its parent is then another.
The signal lets it remove its temporary files. Should the exception of the signal be lost, or leave a lock behind, the
process still ends. The process of the same scan in a batch that was killed a moment ago holds the lock until it ends."""


def scan_words(scan: Scan, arguments: Mapping[str, Any]) -> list[str]:
    """Return the words that follow ``usdenoise run`` for a scan.

    Parameters
    ----------
    scan : Scan
        The scan.
    arguments : mapping
        Keyword arguments of :func:`usdenoise.run`: options, display, output, reading, and memory.
    """
    reading = ReadOptions(**arguments["reading"])
    groups = (arguments["options"], arguments["display"], arguments["output"], reading)
    words = [word for options in groups for word in as_flags(options)]
    if arguments.get("memory") is not None:
        words.append(f"--memory={arguments['memory']}")
    # The folder of a scan follows from the tree of the batch, also in a BIDS data set.
    return [
        *words,
        "--bids=none",
        "-qq",
        "--overwrite",
        f"--output={scan.folder.absolute()}",
        str(scan.path.absolute()),
    ]


def run_scan(scan: Scan, arguments: Mapping[str, Any], lock: Path) -> str | None:
    """Run ``usdenoise run`` in a process, and return why it failed; None if it did not.

    Parameters
    ----------
    scan : Scan
        The scan.
    arguments : mapping
        Keyword arguments of :func:`usdenoise.run`.
    lock : Path
        The locked file of the batch. The process is ended when it is removed.
    """
    if not lock.exists():
        return "the batch has ended"
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(os.getpid()), "run", *scan_words(scan, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                # The Ctrl-C of a terminal is for the batch alone, which then ends its processes.
                start_new_session=True,
            )
        except OSError as error:
            return f"the process of this scan cannot be started ({error.strerror}); run the batch again"
        # Wait until it has ended, or the batch has
        code = None
        while code is None and lock.exists():
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(_POLL_S)
        if code is None:
            process.terminate()
            try:
                code = process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        # Why it failed: the signal, or its last line
        if code == 0:
            return None
        if code < 0:
            hint = (
                "; run the batch again, with fewer jobs if memory is short" if code == -signal.SIGKILL else ""
            )
            return f"its process was ended by signal {-code} ({signal.strsignal(-code)}){hint}"
        errors.seek(0)
        lines = [line for line in errors.read().decode(errors="replace").split("\n") if line.strip()]
        return lines[-1].removeprefix("usdenoise: ") if lines else f"exit code {code}"


def run_scan_on_worker(scan: Scan, arguments: Mapping[str, Any], lock: Path) -> str | None:
    """Run a scan on a Dask worker, by default with the share of the worker's memory of one thread."""
    from distributed import get_worker

    worker = get_worker()
    limit = worker.memory_manager.memory_limit
    if limit and arguments.get("memory") is None:
        arguments = {**arguments, "memory": limit // worker.state.nthreads}
    return run_scan(scan, arguments, lock)


StartScan = Callable[[Scan, Mapping[str, Any]], Future[str | None]]
"""Starts a scan with arguments of :func:`usdenoise.run`; the result is why it failed, or None."""


@contextmanager
def scan_workers(jobs: int, dask: str | None, lock: Path) -> Iterator[tuple[StartScan, Callable[[], int]]]:
    """Yield a function that starts a scan, and one that returns the number of scans that can run at a time.

    Parameters
    ----------
    jobs : int
        Number of scans at a time on this machine.
    dask : str or None
        Dask workers that run the scans instead, one on each of their threads, as for :func:`dask_client`.
    lock : Path
        The locked file of the batch, in a folder that the workers see.
    """
    if dask is None:
        with ThreadPoolExecutor(jobs) as threads:
            yield lambda scan, arguments: threads.submit(run_scan, scan, arguments, lock), lambda: jobs
        return
    with dask_client(dask) as client:
        executor, lock = client.get_executor(pure=False), lock.resolve()

        # Dask cannot be interrupted safely.
        def start(scan: Scan, arguments: Mapping[str, Any]) -> Future[str | None]:
            whole = replace(scan, path=scan.path.absolute(), folder=scan.folder.absolute())
            with uninterrupted():
                future: Future[str | None] = executor.submit(run_scan_on_worker, whole, arguments, lock)
            return future

        def n_threads() -> int:
            # Workers may come and go.
            with uninterrupted():
                n_workers: int = sum(client.nthreads().values())
            return max(1, n_workers)

        yield start, n_threads
