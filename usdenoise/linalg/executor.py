"""Mapping a pure function over row blocks on a few threads, and adding up what comes back.

BLAS runs on one thread inside a mapped function, so that the threads here are the only ones. What a block
returns does not depend on which thread ran it and results are consumed in block order, so sums are the
same for any number of threads. Another executor (out of core, a cluster) needs only this one method.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self, TypeVar

from usdenoise.system.blas_threads import available_threads, blas_on_one_thread

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executor(Protocol):
    """Anything that maps a function over items and yields the results in their order."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Results of `function` over `items`, in order."""
        ...


class ThreadExecutor:
    """A pool of threads, each with a BLAS of its own width of one.

    As a context it keeps BLAS on one thread outside of mapped functions, too: what a BLAS returns depends in
    its last digits on how many threads it takes.

    Parameters
    ----------
    threads : int, optional
        Number of threads; by default one for each processor that this process may use.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or available_threads()
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self._limit = ExitStack()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Results of `function` over `items`, in order, with BLAS on one thread meanwhile."""
        with blas_on_one_thread():
            if self._pool is None:
                yield from map(function, items)
            else:
                yield from self._pool.map(function, items)

    def __enter__(self) -> Self:
        self._limit.enter_context(blas_on_one_thread())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit.close()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
