"""The number of threads that BLAS runs on.

What a BLAS returns depends in its last digits on how many threads it takes, and its threads compete with ours for
the processors. So it runs on one thread while this package computes.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController

from usdenoise.system.process_wide import ProcessWideSetting


def available_threads() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def blas_on_one_thread() -> AbstractContextManager[None]:
    """Keep every BLAS that is loaded on one thread until the context ends.

    Contexts may be nested and may overlap between threads; the last one to end restores the numbers of threads
    that the first one found.
    """
    return _BLAS_ON_ONE_THREAD.changed()


def _limit() -> Callable[[], None]:
    global _n_limited
    controller = _controller(_n_loaded())
    _take_control(controller)
    limiter = controller.limit(limits=1, user_api="blas")
    _n_limited = _n_loaded()

    def restore() -> None:
        _take_control(controller)
        limiter.restore_original_limits()

    return restore


def _take_control(controller: ThreadpoolController) -> None:
    """Let this thread set numbers of threads: from threadpoolctl 3.8 on, only the first thread that did may do so."""
    for library in controller.lib_controllers:
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)


def _n_loaded() -> int:
    # NumPy's is always loaded. SciPy brings another one, and most jobs never load it.
    return 1 + ("scipy.linalg" in sys.modules)


@cache
def _controller(n_loaded: int) -> ThreadpoolController:
    # Looking for loaded libraries takes milliseconds, so each number of them is looked for once.
    return ThreadpoolController()


_n_limited = 0
_BLAS_ON_ONE_THREAD = ProcessWideSetting(_limit, lambda: _n_loaded() != _n_limited)
