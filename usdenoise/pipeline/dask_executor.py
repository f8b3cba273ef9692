"""Map functions over blocks on the Dask scheduler that is active."""

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from usdenoise.system.blas_threads import blas_on_one_thread

Result = TypeVar("Result")

BLOCKS_PER_THREAD = 2
"""Blocks that are in work or wait to be fetched, for each thread of the workers: more would take their memory."""


class DaskExecutor:
    """The workers of the active Dask client, or the local scheduler of Dask if there is no client.

    The results are the same as with threads, in the order of the items. The items of a lost worker are done
    again.
    """

    def map(self, function: Callable[..., Result], items: Iterable[Any], *constants: Any) -> Iterator[Result]:
        """Yield function(item, *constants) for each item, in order; an item may hold Dask values."""
        import dask

        client = _client()
        task = dask.delayed(_on_one_thread, pure=False)
        # The constants travel once, and not with every item that needs them.
        shared = dask.delayed(constants, pure=False, traverse=False)
        if client is not None:
            shared = _without_warning(lambda: client.persist(shared))
        n_ahead = BLOCKS_PER_THREAD * (1 if client is None else max(1, sum(client.nthreads().values())))
        tasks = (task(function, item, shared) for item in items)
        ahead: deque[Any] = deque()
        while True:
            for one in islice(tasks, n_ahead - len(ahead)):
                ahead.append(one if client is None else _without_warning(partial(client.compute, one)))
            if not ahead:
                return
            if client is not None:
                yield ahead.popleft().result()
            else:
                yield from _without_warning(lambda: dask.compute(*ahead))
                ahead.clear()


def _client() -> Any:
    """Return the active client; None without one, or without the package distributed."""
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


def _without_warning(function: Callable[[], Any]) -> Any:
    # The factors of a pass travel with its tasks, and so do blocks of frames that workers cannot read.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")
        return function()


def _on_one_thread(function: Callable[..., Result], item: Any, constants: tuple[Any, ...]) -> Result:
    with blas_on_one_thread():
        return function(item, *constants)
