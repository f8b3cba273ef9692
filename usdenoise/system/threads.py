"""Work in a background thread, and the number of threads that BLAS runs on.

What a BLAS returns depends in its last digits on how many threads it takes, and its threads compete with ours for
the processors. So it runs on one thread while this package computes.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")


def run_in_background(work: Callable[..., Result], *arguments: Any) -> Future[Result]:
    """Call a function in a thread of its own, and return its future.

    The thread is a daemon: unlike the threads of an executor, it does not delay the end of the process.

    Parameters
    ----------
    work : callable
        What to call.
    *arguments
        Its arguments.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def available_threads() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_LOCK = Lock()
_n_inside = 0
_limits: dict[int, Any] = {}
"""Active limits, by the number of libraries that were loaded when they were set."""


@contextmanager
def blas_on_one_thread() -> Iterator[None]:
    """Keep every BLAS that is loaded on one thread until the context ends.

    Contexts may be nested and may overlap between threads; the last one to end restores the numbers of threads
    that the first one found.
    """
    global _n_inside
    with _LOCK:
        # NumPy's BLAS is always loaded. SciPy brings another one, and most jobs never load it.
        n_loaded = 1 + ("scipy.linalg" in sys.modules)
        if n_loaded not in _limits:
            _limits[n_loaded] = _controller_of_this_thread(n_loaded).limit(limits=1, user_api="blas")
        _n_inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _n_inside -= 1
            if _n_inside == 0:
                # The latest limit first: the first one restores the original numbers.
                while _limits:
                    n_loaded, limit = _limits.popitem()
                    _controller_of_this_thread(n_loaded)
                    limit.restore_original_limits()


def _controller_of_this_thread(n_loaded: int) -> ThreadpoolController:
    # From threadpoolctl 3.8 on, only the first thread that set numbers of threads may do so again.
    controller = _controller(n_loaded)
    for library in controller.lib_controllers:
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)
    return controller


@cache
def _controller(n_loaded: int) -> ThreadpoolController:
    # Looking for loaded libraries takes milliseconds, so each number of them is looked for once.
    return ThreadpoolController()
