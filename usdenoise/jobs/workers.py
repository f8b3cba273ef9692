"""The Dask workers of a job: processes of its own, or those of a scheduler that runs already."""

import logging
import math
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from multiprocessing import active_children
from typing import Any

from usdenoise.errors import OptionError
from usdenoise.system.memory import available_bytes
from usdenoise.system.signals import uninterrupted

CONNECT_S = 10
"""Seconds that a scheduler has to answer."""

WORKERS_S = 60
"""Seconds in which the first worker has to come up."""

DEATHS = 1
"""Workers that may die with the same task before it fails: a task that kills two is not given to a third one."""


@contextmanager
def dask_client(where: str) -> Iterator[Any]:
    """Yield a client of Dask workers, on which Dask arrays are made until the block ends.

    Parameters
    ----------
    where : str
        A number of worker processes to start here, each with one thread and its share of the memory; or the address
        of a scheduler, such as tcp://node1:8786.

    Raises
    ------
    OptionError
        If Dask is not installed, or no scheduler answers.
    """
    if not where.strip() or (where.isdigit() and not int(where)):
        raise OptionError(
            f"--dask is '{where}', and must be a number of workers from 1 on, or the address of a scheduler"
        )
    if find_spec("distributed") is None:
        raise OptionError("--dask needs the packages dask and distributed; run pip install 'usdenoise[dask]'")
    with ExitStack() as stack, warnings.catch_warnings():
        # An interruption leaves tasks of the client behind, about which asyncio would write.
        messages = logging.getLogger("asyncio")
        stack.callback(messages.setLevel, messages.level)
        messages.setLevel(logging.CRITICAL)
        # The page of the scheduler takes another port where 8787 is in use.
        warnings.filterwarnings("ignore", "Port 8787 is already in use")
        # Neither package is made to be interrupted while it starts.
        with uninterrupted():
            client = _started(where, stack)
        yield client


def _started(where: str, stack: ExitStack) -> Any:
    """Return a client with a worker at least; the stack ends it, and the workers that are started here."""
    import dask
    from distributed import Client

    scheduler: Any = where
    if where.isdigit():
        stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": DEATHS}))
        scheduler = stack.enter_context(_local_cluster(int(where)))
    try:
        client = stack.enter_context(Client(scheduler, timeout=CONNECT_S))
        client.wait_for_workers(int(where) if where.isdigit() else 1, timeout=WORKERS_S)
    except (OSError, ValueError, TypeError) as error:
        raise OptionError(
            f"no Dask scheduler with workers answers at {where}; start one with dask scheduler and dask worker, or give "
            "--dask a number of workers"
        ) from error
    return client


@contextmanager
def _local_cluster(n_workers: int) -> Iterator[Any]:
    """Yield a scheduler in this process with worker processes, each with one thread and its share of the memory."""
    from distributed import LocalCluster

    available = available_bytes()
    share = int(available) // n_workers if math.isfinite(available) else "auto"
    with LocalCluster(
        n_workers=0, threads_per_worker=1, memory_limit=share, silence_logs="CRITICAL"
    ) as cluster:
        before = len(active_children())
        with _interrupts_ignored():
            cluster.scale(n_workers)
            deadline = time.monotonic() + CONNECT_S
            while len(active_children()) < before + n_workers and time.monotonic() < deadline:
                time.sleep(0.005)
        yield cluster


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore SIGINT, also in the processes that are started meanwhile: a few hundredths of a second.

    The Ctrl-C of a terminal reaches all of them, and is for the first one, which then ends its workers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
