"""Map a pure function over items on a few threads, in order.

BLAS runs on one thread while a function is mapped, so that the threads here are the only ones. The result of an
item does not depend on the thread that computed it, and results are consumed in the order of the items. So sums
over items are the same for any number of threads. Another executor, out of core or on a cluster, has the
method `map` and the attribute `local`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self, TypeVar

from usdenoise.system.resources import available_threads, blas_on_one_thread

Item = TypeVar("Item")
Result = TypeVar("Result")


class Executor(Protocol):
    """Anything that maps a function over items and yields the results in the order of the items.

    Attributes
    ----------
    local : ThreadExecutor
        Maps over arrays in the memory of this process.
    """

    @property
    def local(self) -> "ThreadExecutor": ...  # noqa: D102

    def map(
        self, function: Callable[..., Result], items: Iterable[Item], *constants: object
    ) -> Iterator[Result]:
        """Yield function(item, *constants) for each item, in order."""
        ...


class ThreadExecutor:
    """A pool of threads, with BLAS on one thread.

    As a context it keeps BLAS on one thread outside of mapped functions, too: the last digits of a BLAS result
    depend on how many threads BLAS takes.

    Parameters
    ----------
    threads : int, optional
        Number of threads; by default one for each processor that this process may use.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or available_threads()
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self._limit = ExitStack()

    def map(
        self, function: Callable[..., Result], items: Iterable[Item], *constants: object
    ) -> Iterator[Result]:
        """Yield function(item, *constants) for each item, in order, with BLAS on one thread."""
        with blas_on_one_thread():
            if self._pool is None:
                yield from (function(item, *constants) for item in items)
                return
            # One result waits while all threads work: in long stacks it takes tens of megabytes.
            ahead: deque[Future[Result]] = deque()
            try:
                for item in items:
                    ahead.append(self._pool.submit(function, item, *constants))
                    if len(ahead) > self.threads:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()

    @property
    def local(self) -> "ThreadExecutor":
        """The executor itself."""
        return self

    def __enter__(self) -> Self:
        self._limit.enter_context(blas_on_one_thread())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit.close()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
