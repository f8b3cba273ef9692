"""Where blocks of frames come from: an array in memory, or a lazy array.

A source gives the blocks of a stack in the order in which memory or file has the pixels, so that nothing is transposed as a
whole. Files are sources in :mod:`usdenoise.files`.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.acquisition import Acquisition, canonical_axes
from usdenoise.stack.frame_blocks import block_edges
from usdenoise.stack.lazy_arrays import is_dask_array
from usdenoise.stack.precision import checked_conversion


class FrameSource(Protocol):
    """A stack as blocks of frames.

    Attributes
    ----------
    stack : Acquisition
        Its axes, shape and scales.
    dtype : numpy.dtype
        Type of the values of the blocks.
    pixel_axes : str
        Spatial axes in the order in which a block numbers its pixels, the slowest first.
    target : (n_frames, n_pixels) array or None
        Where the filtered frames go, in the order of the pixels of a block; None if they are not kept.
    """

    stack: Any
    dtype: np.dtype[Any]
    pixel_axes: str

    @property
    def target(self) -> NDArray[Any] | None: ...  # noqa: D102

    def items(self) -> list[Any]:
        """Return the blocks in the order of time, each a :class:`FrameBlock` or a Dask value that becomes one."""
        ...


def pixel_numbers(stack: Any, pixel_axes: str) -> NDArray[np.intp] | None:
    """Return the index in a block of each pixel in the order z, x, y; None if that is the order of the block."""
    order = canonical_axes(pixel_axes)
    if pixel_axes == order:
        return None
    file_numbers = np.arange(math.prod(stack.shape_in(order))).reshape(stack.shape_in(pixel_axes))
    return file_numbers.transpose([pixel_axes.index(letter) for letter in order]).ravel()


def frames_as_stack(
    frames: NDArray[Any], stack: Any, pixel_axes: str, axes: str | None = None
) -> NDArray[Any]:
    """Return a view of frames, (n_frames, n_pixels), as a stack.

    Parameters
    ----------
    frames : (n_frames, n_pixels) array
        Frames whose pixels are numbered along `pixel_axes`, the slowest first.
    stack : Geometry or Acquisition
        Specifies the number of pixels along each axis.
    pixel_axes : str
        Spatial axes.
    axes : str, optional
        Axes of the result; by default the axes of the stack.
    """
    frame_axes = "t" + pixel_axes
    shaped = frames.reshape(len(frames), *stack.shape_in(pixel_axes))
    return shaped.transpose([frame_axes.index(letter) for letter in axes or stack.axes])


@dataclass(frozen=True)
class ArrayBlock:
    """Some frames of an array. A pickled block has no target for the filtered frames.

    Attributes
    ----------
    start, stop : int
        First frame, and the one after the last.
    values : array
        The frames first, then pixels along each axis.
    dtype : numpy.dtype
        Type of the values that are read.
    name : str
        Name of the stack, for messages.
    target : (n, n_pixels) array or None
        Where the filtered frames go.
    """

    start: int
    stop: int
    values: NDArray[Any]
    dtype: np.dtype[Any]
    name: str
    target: NDArray[Any] | None = None

    def read(self) -> NDArray[Any]:
        """Return the frames, (n, n_pixels); a view if memory has them in this order and type."""
        values = np.ma.filled(self.values, np.nan) if np.ma.isMaskedArray(self.values) else self.values
        with checked_conversion(values, self.dtype, self.name):
            return values.reshape(len(values), -1).astype(self.dtype, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "target": None}


class ArrayFrames:
    """The frames of an array in memory.

    Parameters
    ----------
    stack : Acquisition
        The stack.
    dtype : numpy.dtype
        Type of the values of the blocks.
    in_place : bool
        Whether the filtered frames take the memory of the stack, if their type is the same.

    Attributes
    ----------
    target : (n_frames, n_pixels) array
        Where the filtered frames go.
    """

    def __init__(self, stack: Acquisition, dtype: np.dtype[Any], in_place: bool) -> None:
        self.stack, self.dtype = stack, dtype
        time = stack.axes.index("t")
        # Memory has the slowest axis first.
        order = sorted(range(stack.iq.ndim), key=lambda axis: -abs(stack.iq.strides[axis]))
        spatial = [axis for axis in order if axis != time]
        self.pixel_axes = "".join(stack.axes[axis] for axis in spatial)
        self._frames = stack.iq.transpose(time, *spatial)
        is_own = in_place and stack.iq.dtype == dtype and stack.iq.flags.writeable
        if is_own and _is_matrix(self._frames):
            targets = self._frames
        elif time in (order[0], order[-1]):
            targets = np.empty_like(self._frames, dtype)
        else:
            targets = np.empty(self._frames.shape, dtype)
        self.target = _as_rows(targets)

    def items(self) -> list[ArrayBlock]:
        """Return the blocks in the order of time, each with a target."""
        edges = block_edges(self.stack.n_frames, self.stack.n_pixels)
        return [self.block(start, stop) for start, stop in pairwise(edges.tolist())]

    def block(self, start: int, stop: int) -> ArrayBlock:
        """Return the block of the frames [start, stop)."""
        target = self.target[start:stop]
        return ArrayBlock(start, stop, self._frames[start:stop], self.dtype, self.stack.name, target)


def _is_matrix(frames: NDArray[Any]) -> bool:
    """Return whether the pixels of a frame are evenly apart in memory."""
    try:
        _as_rows(frames)
    except AttributeError:
        return False
    return True


def _as_rows(frames: NDArray[Any]) -> NDArray[Any]:
    """Return a view of frames as (n, n_pixels)."""
    view = frames.view()
    # Other than reshape, this never copies.
    view.shape = (len(frames), frames[0].size)
    return view


class LazyFrames:
    """The frames of a Dask array, whose blocks are its chunks along time.

    Parameters
    ----------
    stack : Acquisition
        The stack; its array is a Dask array.
    dtype : numpy.dtype
        Type of the values of the blocks.
    """

    target = None

    def __init__(self, stack: Acquisition, dtype: np.dtype[Any]) -> None:
        self.stack, self.dtype = stack, dtype
        self.pixel_axes = canonical_axes(stack.spatial_axes)
        self._order = [stack.axes.index(letter) for letter in "t" + self.pixel_axes]
        iq: Any = stack.iq
        self._chunks = iq.chunks
        frames = iq.transpose(*self._order)
        # A block has whole frames.
        self._frames = frames.rechunk(dict.fromkeys(range(1, frames.ndim), -1))

    def items(self) -> list[Any]:
        """Return the blocks in the order of time, as Dask values that become an :class:`ArrayBlock`."""
        import dask

        make = dask.delayed(ArrayBlock, pure=False)
        edges = np.cumsum([0, *self._frames.chunks[0]])
        return [
            make(int(start), int(stop), chunk, self.dtype, self.stack.name)
            for start, stop, chunk in zip(
                edges[:-1], edges[1:], self._frames.to_delayed().ravel(), strict=True
            )
        ]

    def lazy_stack(self, filtered: list[Any]) -> Any:
        """Return filtered blocks, (n, n_pixels) Dask values, as a Dask array with the axes and chunks of the stack."""
        import dask.array as da

        lengths, shape = self._frames.chunks[0], self._frames.shape[1:]
        blocks = [
            da.from_delayed(values, (n, math.prod(shape)), self.dtype)
            for values, n in zip(filtered, lengths, strict=True)
        ]
        frames = da.concatenate([block.reshape(len(block), *shape) for block in blocks])
        return frames.transpose(*np.argsort(self._order).tolist()).rechunk(self._chunks)


IN_MEMORY = (("method", "svd", "another method"), ("refit", "none", "'all'"))
"""Options whose value needs the whole stack in memory, and what to choose for a lazy array instead."""


def check_options_of_lazy(options: DenoiseOptions, name: str) -> None:
    """Check that no option needs the whole of a lazy stack in memory.

    Raises
    ------
    OptionError
        If one does.
    """
    for option, value, allowed in IN_MEMORY:
        if getattr(options, option) == value:
            raise OptionError(
                f"{option} '{value}' requires the whole stack in memory, and '{name}' is in chunks; "
                f"choose {allowed}, or call compute() on the stack first"
            )


def frames_of(stack: Any, dtype: np.dtype[Any], in_place: bool) -> FrameSource:
    """Return the source of a stack: an acquisition in memory or lazy, or a source itself."""
    if not isinstance(stack, Acquisition):
        source: FrameSource = stack
        return source
    if is_dask_array(stack.iq):
        return LazyFrames(stack, dtype)
    return ArrayFrames(stack, dtype, in_place)
