"""Passes over the blocks of a stack: a function of a block, mapped by an executor, and an ordered sum.

So results do not depend on the number of threads or workers. Arrays by pixel come in and go out in the order z, x, y; a
block has the order of its memory or file.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.executor import Executor
from usdenoise.pipeline.frame_sources import FrameSource, pixel_numbers
from usdenoise.stack.acquisition import canonical_axes


class Passes:
    """The blocks of a source, and an executor for them.

    Parameters
    ----------
    source : FrameSource
        The stack.
    executor : Executor
        Maps functions over its blocks.
    threads : Executor
        Maps functions over arrays in the memory of this process.
    items : sequence, optional
        The blocks; by default the blocks of the source.
    """

    def __init__(
        self,
        source: FrameSource,
        executor: Executor,
        threads: Executor,
        items: Sequence[Any] | None = None,
    ) -> None:
        self.source, self.executor, self.threads = source, executor, threads
        self.items = source.items() if items is None else list(items)
        self._numbers = pixel_numbers(source.stack, source.pixel_axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Pixels along each axis, in the order z, x, y."""
        stack = self.source.stack
        shape: tuple[int, ...] = stack.shape_in(canonical_axes(stack.spatial_axes))
        return shape

    def map(self, function: Callable[..., Any], *constants: Any, own: Sequence[Any] = ()) -> Iterator[Any]:
        """Yield function(block, own value, *constants) for each block, in order.

        Parameters
        ----------
        function : callable
            A function of a module, which other processes can import.
        *constants
            Arguments that are the same for all blocks.
        own : sequence, optional
            An argument for each block; by default there is none.
        """
        items = list(zip(self.items, *([own] if own else []), strict=True))
        return self.executor.map(_on_block, items, function, constants)

    def lazy(self, function: Callable[..., Any], *constants: Any, own: Sequence[Any]) -> list[Any]:
        """Return the Dask values of what :meth:`map` would yield."""
        import dask

        task = dask.delayed(function, pure=False)
        shared = [dask.delayed(constant, pure=False, traverse=False) for constant in constants]
        return [task(item, value, *shared) for item, value in zip(self.items, own, strict=True)]

    def places(self, pixels: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the indices of pixels in a block."""
        return pixels if self._numbers is None else self._numbers[pixels]

    def by_pixel(self, values: NDArray[Any], axis: int = 0) -> NDArray[Any]:
        """Return values in the order of a block as values in the order z, x, y."""
        return values if self._numbers is None else np.take(values, self._numbers, axis=axis)

    def in_block(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values in the order z, x, y as values in the order of a block."""
        if self._numbers is None:
            return values
        placed = np.empty_like(values)
        placed[self._numbers] = values
        return placed


def _on_block(arguments: tuple[Any, ...], function: Callable[..., Any], constants: tuple[Any, ...]) -> Any:
    return function(*arguments, *constants)
