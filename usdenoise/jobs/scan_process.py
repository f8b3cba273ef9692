"""A scan as a process of ``usdenoise run``, on this machine or on Dask workers: its outcome is its report."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from usdenoise.clutter.clutter_cutoff import CommonCutoff
from usdenoise.jobs.batch_table import Scan
from usdenoise.jobs.workers import dask_client
from usdenoise.options import ReadOptions
from usdenoise.options.declaration import Options
from usdenoise.system.processes import GRACE_S


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


def _flag_value(value: object) -> str:
    if isinstance(value, slice):
        ends = (value.start, value.stop) if value.step is None else (value.start, value.stop, value.step)
        return ":".join("" if end is None else str(end) for end in ends)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


_POLL_S = 0.2
"""Seconds between two checks whether the batch has ended."""

_PROGRAM = "from usdenoise.__main__ import main_of_batch; main_of_batch()"


def scan_words(scan: Scan, arguments: Mapping[str, Any], common: CommonCutoff | None = None) -> list[str]:
    """Return the words that follow ``usdenoise run`` for a scan.

    Parameters
    ----------
    scan : Scan
        The scan.
    arguments : mapping
        Keyword arguments of :func:`usdenoise.run`: options, display, output, reading, and memory.
    common : CommonCutoff, optional
        How the low cutoff of the options follows from the scans; by default it was given.
    """
    reading = ReadOptions(**arguments["reading"])
    groups = (arguments["options"], arguments["display"], arguments["output"], reading)
    words = [word for options in groups for word in as_flags(options)]
    if arguments.get("memory") is not None:
        words.append(f"--memory={arguments['memory']}")
    if common is not None:
        words.append(f"--common-cutoff={common.text}")
    # The folder of a scan follows from the tree of the batch, also in a BIDS data set.
    return [
        *words,
        "--bids=none",
        "-qq",
        "--overwrite",
        f"--output={scan.folder.absolute()}",
        str(scan.path.absolute()),
    ]


def run_scan(words: Sequence[str], lock: Path) -> str | None:
    """Run ``usdenoise run`` in a process, and return why it failed; None if it did not.

    Parameters
    ----------
    words : sequence of str
        The words that follow ``usdenoise run``.
    lock : Path
        The locked file of the batch, which all workers see. The process is ended when it is removed.
    """
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, "run", *words],
                # The process ends when this pipe is closed, also if this process is killed.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                # The Ctrl-C of a terminal is for the batch alone, which then ends its processes.
                start_new_session=True,
            )
        except OSError as error:
            return f"the process of this scan cannot be started ({error.strerror}); run the batch again"
        with process:
            while process.poll() is None and lock.exists():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
            # If the batch has ended, close the pipe. A process that is stopped cannot end itself.
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=2 * GRACE_S)
            process.kill()
        # Why it failed: the signal, or its last line
        code = process.returncode
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


def run_scan_on_worker(words: Sequence[str], lock: Path) -> str | None:
    """Run a scan on a Dask worker, by default with the share of the worker's memory of one thread."""
    from distributed import get_worker

    worker = get_worker()
    limit = worker.memory_manager.memory_limit
    if limit and not any(word.startswith("--memory=") for word in words):
        words = [f"--memory={limit // worker.state.nthreads}", *words]
    return run_scan(words, lock)


StartScan = Callable[[Sequence[str], Path], Future[str | None]]
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
        with ThreadPoolExecutor(jobs) as threads:
            yield lambda words, lock: threads.submit(run_scan, words, lock), lambda: jobs
    else:
        with dask_client(dask) as client:
            executor = client.get_executor(pure=False)
            # Workers may come and go.
            start: StartScan = partial(executor.submit, run_scan_on_worker)
            yield start, lambda: sum(client.nthreads().values())
