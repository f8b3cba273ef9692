"""The Dask workers of a job: processes of its own, or the workers of a running scheduler."""

import logging
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from usdenoise.errors import OptionError, UsdenoiseError
from usdenoise.pipeline.dask_executor import DaskExecutor
from usdenoise.system.processes import blocked_in_children, uninterrupted
from usdenoise.system.resources import PROCESS_BYTES, available_bytes

CONNECT_S = 10
"""Seconds that a scheduler has to answer."""

WORKERS_S = 60
"""Seconds in which the workers have to come up."""

LOOK_S = 0.5
"""Seconds between two looks whether the workers are there, or a signal has come."""

DEATHS = 1
"""Workers that may die with the same task before it fails: a task that kills two is not given to a third one."""


@contextmanager
def dask_client(where: str) -> Iterator[Any]:
    """Yield a client of Dask workers, which compute Dask arrays until the context ends.

    Parameters
    ----------
    where : str
        A number of worker processes to start here, each with one thread and its share of the memory; or the address
        of a scheduler, such as tcp://node1:8786.

    Raises
    ------
    OptionError
        If `where` is empty or 0, Dask is not installed, no scheduler answers, the workers do not come up or would have too
        little memory, the scheduler is lost within the context, or all workers that begin a task are killed.
    """
    if not where.strip() or (where.isdecimal() and not int(where)):
        raise OptionError(
            f"is '{where}', and must be a number of workers from 1 on, or the address of a scheduler",
            option="dask",
        )
    if find_spec("distributed") is None:
        raise OptionError(
            "needs the packages dask and distributed",
            option="dask",
            remedy="run pip install 'usdenoise[dask]'",
        )
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    client = None
    with ExitStack() as stack, warnings.catch_warnings():
        # An interruption leaves tasks of the client behind, about which asyncio would write. Our errors contain
        # the messages of the client.
        for name in ("asyncio", "distributed", "distributed.client"):
            messages = logging.getLogger(name)
            stack.callback(messages.setLevel, messages.level)
            messages.setLevel(logging.CRITICAL)
        # The page of the scheduler takes another port where 8787 is in use.
        warnings.filterwarnings("ignore", "Port 8787 is already in use")
        try:
            # Neither package is made to be interrupted while it starts.
            with uninterrupted() as signals:
                client = _connected(where, stack)
                _wait_for_workers(client, where, signals)
            yield client
        except Exception as error:
            if isinstance(error, KilledWorker):
                raise OptionError(
                    "a part of the work killed every Dask worker that began it, probably because memory ran out",
                    remedy="give {dask} fewer workers, or give the workers more memory",
                ) from error
            is_lost = isinstance(error, CommClosedError) or (client and client.status != "running")
            if isinstance(error, UsdenoiseError) or not is_lost:
                raise
            notes = "".join(f" ({note})" for note in getattr(error, "__notes__", []))
            raise OptionError(
                f"the connection to the Dask scheduler at {where} was lost; start it and this command again{notes}"
            ) from error


@contextmanager
def dask_executor(where: str | None, threads: int | None = None) -> Iterator[DaskExecutor | None]:
    """Yield an executor on the workers of :func:`dask_client` until the block ends; None without an address.

    This process has `threads` threads; by default one for each processor.
    """
    if where is None:
        yield None
        return
    with dask_client(where):
        yield DaskExecutor(threads)


def _connected(where: str, stack: ExitStack) -> Any:
    """Return a client of a scheduler, whose workers may still be starting; the stack ends both that are started here."""
    import dask
    from distributed import Client, LocalCluster
    from distributed.system import MEMORY_LIMIT

    # A client whose scheduler was lost may remain the default client of all Dask arrays.
    stack.enter_context(dask.config.set(scheduler=dask.config.get("scheduler", None)))
    scheduler: Any = where
    if where.isdecimal():
        # A scheduler in this process with worker processes, each with one thread and its share of the memory
        n_workers = int(where)
        share = int(min(available_bytes(), MEMORY_LIMIT)) // n_workers
        if share < PROCESS_BYTES:
            raise OptionError(
                f"{n_workers} leaves {share >> 20} MiB of memory for each worker, and a worker requires about "
                f"{PROCESS_BYTES >> 20} MiB without its part of the stack",
                option="dask",
                remedy="give {dask} fewer workers",
            )
        stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": DEATHS}))
        # Workers inherit the mask of the thread that starts them, which the cluster starts.
        with blocked_in_children([signal.SIGINT]):
            scheduler = LocalCluster(
                n_workers=0, threads_per_worker=1, memory_limit=share, silence_logs="CRITICAL"
            )
        stack.enter_context(scheduler)
        scheduler.scale(n_workers)
    try:
        return stack.enter_context(Client(scheduler, timeout=CONNECT_S))
    # Another server, such as the page of a scheduler, is understood as a message of any size.
    except (OSError, ValueError, TypeError, MemoryError) as error:
        # Collected while another client starts, one that did not connect would wait for that one for ever.
        with suppress(ValueError):
            client = Client.current()
            if client.status == "connecting":
                client.close()
        raise OptionError(
            f"no Dask scheduler with workers answers at {where}",
            remedy="start one with dask scheduler and dask worker, or give {dask} a number of workers",
        ) from error


def _wait_for_workers(client: Any, where: str, signals: Sequence[int]) -> None:
    """Wait for all workers that are started here, or for the first one of another scheduler, until a signal has come."""
    is_ours, deadline = where.isdecimal(), time.monotonic() + WORKERS_S
    started = client.cluster.workers if is_ours else {}
    while not signals:
        try:
            client.wait_for_workers(int(where) if is_ours else 1, timeout=LOOK_S)
            return
        except TimeoutError:
            is_late = time.monotonic() > deadline
        if any(worker.status.name == "failed" for worker in started.values()):
            raise OptionError(
                "a Dask worker was killed at its start, probably because memory ran out",
                remedy="give {dask} fewer workers",
            )
        if is_late:
            problem = f"the Dask scheduler at {where} has no workers"
            remedy = "start one with the program dask worker, or give {dask} a number of workers"
            if is_ours:
                problem = f"the {where} Dask workers did not all start within {WORKERS_S} s"
                remedy = "give {dask} fewer workers"
            raise OptionError(problem, remedy=remedy)
