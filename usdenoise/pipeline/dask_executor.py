"""Dask: chunks are mapped on the scheduler that is active, and lazy stacks are recordings."""

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from usdenoise.errors import OptionError
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.pipeline.recording import ArrayFrames, Chunk, Recording, working_type
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.resources import blas_on_one_thread

Result = TypeVar("Result")

TASKS_PER_THREAD = 2
"""Tasks that are in work or wait to be fetched, for each thread of the workers: more would take their memory."""


@dataclass(frozen=True)
class DaskExecutor:
    """The workers of the active Dask client, or the local scheduler of Dask if there is no client.

    The results are the same as with threads, in the order of the items. The items of a lost worker are done
    again.

    Attributes
    ----------
    threads : int or None
        Threads of this process, which map over arrays in its memory; None (the default) for one for each processor.
    """

    threads: int | None = None

    @cached_property
    def local(self) -> ThreadExecutor:
        """Maps over arrays in the memory of this process."""
        return ThreadExecutor(self.threads)

    def map(
        self, function: Callable[..., Result], items: Iterable[object], *constants: object
    ) -> Iterator[Result]:
        """Yield function(item, *constants) for each item, in order; an item may hold Dask values."""
        import dask

        client = _client()
        task = dask.delayed(_on_one_thread, pure=False)
        # The constants travel once, and not with every item that needs them.
        shared = dask.delayed(constants, pure=False, traverse=False)
        if client is not None:
            shared = _without_warning(lambda: client.persist(shared))
        n_ahead = TASKS_PER_THREAD * (1 if client is None else max(1, sum(client.nthreads().values())))
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


@dataclass(frozen=True)
class LazyExecutor:
    """An executor whose results are Dask values, which are computed when they are needed."""

    local: ThreadExecutor = field(default_factory=lambda: ThreadExecutor(1))

    def map(self, function: Callable[..., Any], items: Iterable[object], *constants: object) -> Iterator[Any]:
        """Yield the Dask value of function(item, *constants) for each item, in order."""
        import dask

        task = dask.delayed(function, pure=False)
        shared = [dask.delayed(constant, pure=False, traverse=False) for constant in constants]
        return (task(item, *shared) for item in items)


def _client() -> Any:
    """Return the active client; None without one, or without the package distributed."""
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


def _without_warning(function: Callable[[], Any]) -> Any:
    # The factors of a pass travel with its tasks, and so do frames that workers cannot read.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")
        return function()


def _on_one_thread(function: Callable[..., Result], item: Any, constants: tuple[Any, ...]) -> Result:
    with blas_on_one_thread():
        return function(item, *constants)


def lazy_recording(stack: Acquisition, precision: str) -> Recording:
    """Return the recording of a Dask array, whose chunks are the chunks of the array along time."""
    import dask

    iq: Any = stack.iq
    # A chunk has whole frames.
    whole = iq.rechunk({stack.axes.index(letter): -1 for letter in stack.spatial_axes})
    dtype, lengths = working_type(stack, precision), whole.chunks[stack.axes.index("t")]
    make, make_chunk = dask.delayed(ArrayFrames, pure=False), dask.delayed(Chunk, pure=False)
    chunks = [
        make_chunk(int(first), make(values, stack.axes, dtype, stack.name))
        for first, values in zip(np.cumsum([0, *lengths]), whole.to_delayed().ravel(), strict=False)
    ]
    return Recording.of_chunks(stack.geometry, dtype, chunks)


def lazy_stack(filtered: Iterable[Any], stack: Acquisition, dtype: np.dtype[np.inexact]) -> Any:
    """Return filtered chunks, (n, n_pixels) Dask values, as a Dask array with the axes and chunks of a stack."""
    import dask.array as da

    iq: Any = stack.iq
    parts = [
        da.from_delayed(values, (n, stack.n_pixels), dtype)
        for values, n in zip(filtered, iq.chunks[stack.axes.index("t")], strict=True)
    ]
    whole: Any = stack.as_stack(da.concatenate(parts))
    return whole.rechunk(iq.chunks)


IN_MEMORY = (("method", "svd", "another method"), ("refit", "none", "'all'"))
"""Options whose value needs the whole stack in memory, and what to choose for a lazy array instead."""


def check_options_of_lazy(options: Any, name: str) -> None:
    """Check that no option needs the whole of a lazy stack in memory.

    Raises
    ------
    OptionError
        If one does.
    """
    if options.device != "cpu":
        raise OptionError(
            "does not apply to a stack of Dask", option="device", remedy="give its file, or an array of CuPy"
        )
    for option, value, allowed in IN_MEMORY:
        if getattr(options, option) == value:
            raise OptionError(
                f"{option} '{value}' requires the whole stack in memory, and '{name}' is in chunks; "
                f"choose {allowed}, or call compute() on the stack first"
            )
