"""Recordings: their blocks, the chunks of frames that are in memory at once, and the loop over the chunks.

A chunk is an array (n_frames, n_pixels) of floating-point numbers, with pixels in the order z, x, y and NaN where an entry
is unobserved. Frames are brought into this form when they are read. Files are read by :mod:`usdenoise.files`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

import numpy as np
from array_api_compat import is_cupy_array
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.frames.gains import calibrated, divided
from usdenoise.frames.still_tissue import TissueMotion
from usdenoise.linalg.array_library import (
    Array,
    Numbers,
    dtype_of,
    is_by_pixel,
    is_foreign_array,
    namespace,
    to_host,
    to_library,
)
from usdenoise.linalg.executor import Executor, Item, Result, ThreadExecutor
from usdenoise.linalg.tall_matrices import HELD_ENTRIES, slices_of
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.arrays import checked_conversion
from usdenoise.stack.geometry import Geometry, GriddedStack, as_frames

Value = TypeVar("Value")

PIXELS_A_THREAD = 2048
"""Pixels of all frames of a chunk that a thread works on before it takes the next ones."""

LEAST_CHUNK_FRAMES = 32
"""Frames of a chunk, about, at least, if memory allows: with 8 frames of a volume of 10^6 voxels, products of lags across
the borders of the chunks and the sums over chunks took half of the time of all, with 40 frames a tenth."""

STORAGE = {("single", False): np.float32, ("single", True): np.complex64}
STORAGE |= {("double", False): np.float64, ("double", True): np.complex128}
"""Type of the entries by precision, and by whether the stack is complex."""


class Frames(Protocol):
    """Consecutive frames that can be read: of an array, of a file, from a device, or without the flicker of their lines.

    It can be sent to another process: frames of a file without their values, frames of an array with them.

    Attributes
    ----------
    n_frames : int
        Number of frames.
    """

    @property
    def n_frames(self) -> int: ...  # noqa: D102

    def read(self) -> Array:
        """Return all frames as a chunk, which must not be changed; of NumPy, or of the library of its device."""
        ...

    def pick(self, numbers: NDArray[np.intp]) -> Numbers:
        """Return some frames as a chunk on the host; `numbers` increase from 0."""
        ...

    def cut(self, first: int, stop: int) -> "Frames":
        """Return the frames [first, stop)."""
        ...


@dataclass(frozen=True)
class ArrayFrames:
    """Frames of an array.

    Attributes
    ----------
    values : array or masked array
        The frames; of any library, in which they are read.
    axes : str
        Axis letters of the array.
    dtype : numpy.dtype
        Type of the values that are read.
    name : str
        Name of the stack, for messages.
    is_copied : bool
        Whether a copy is read, because the filtered frames overwrite the array while it is used; by default not.
    """

    values: Array
    axes: str
    dtype: np.dtype[np.inexact]
    name: str
    is_copied: bool = False

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return int(self.values.shape[self.axes.index("t")])

    def read(self) -> Array:
        """Return all frames as a chunk: a view if memory has them in this order and type."""
        if is_foreign_array(self.values):
            return self._read_there()
        values = np.ma.filled(self.values, np.nan) if np.ma.isMaskedArray(self.values) else self.values
        with checked_conversion(values, self.dtype, self.name):
            return as_frames(values, self.axes).astype(self.dtype, order="K", copy=self.is_copied)

    def pick(self, numbers: NDArray[np.intp]) -> Numbers:
        """Return some frames as a chunk on the host."""
        at = self.axes.index("t")
        picked = namespace(self.values).take(self.values, to_library(numbers, self.values), axis=at)
        return to_host(replace(self, values=picked).read())

    def _read_there(self) -> Array:
        """Return the frames of another library than NumPy."""
        if is_cupy_array(self.values):
            # A thread begins on the first device.
            self.values.device.use()
        xp, frames = namespace(self.values), as_frames(self.values, self.axes)
        x = xp.astype(frames, getattr(xp, self.dtype.name), copy=False)
        if dtype_of(x) != self.dtype:
            raise InputError(
                f"this {xp.__name__} has no {self.dtype.name}",
                remedy="choose single precision with {precision}",
            )
        if self.dtype.itemsize < dtype_of(frames).itemsize and not xp.all(
            xp.isfinite(x) == xp.isfinite(frames)
        ):
            with checked_conversion(to_host(frames), self.dtype, self.name):
                to_host(frames).astype(self.dtype)
        return x

    def chunks(self) -> list["Chunk"]:
        """Return the frames as the chunks of a block."""
        n_pixels = math.prod(self.values.shape) // self.n_frames
        edges = chunk_edges(self.n_frames, n_pixels).tolist()
        return [Chunk(first, self.cut(first, stop)) for first, stop in pairwise(edges)]

    def cut(self, first: int, stop: int) -> "ArrayFrames":
        """Return the frames [first, stop)."""
        at = self.axes.index("t")
        return replace(self, values=self.values[(*[slice(None)] * at, slice(first, stop), ...)])


@dataclass(frozen=True)
class CalibratedFrames:
    """Frames without the flicker of their lines.

    Attributes
    ----------
    frames : Frames
        The frames as they are.
    shape : tuple of int
        Shape of the image.
    axis : int
        Axis of the lines.
    gains : (n_frames, n_lines) array or None
        Their gains; None for all frames of a block, which are measured when they are read.
    """

    frames: Frames
    shape: tuple[int, ...]
    axis: int
    gains: Numbers | None

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.frames.n_frames

    def read(self) -> Array:
        """Return all frames as a chunk on the host."""
        x = to_host(self.frames.read())
        if self.gains is None:
            return calibrated(x, self.shape, self.axis)
        return divided(x, self.gains, self.shape, self.axis)

    def pick(self, numbers: NDArray[np.intp]) -> Numbers:
        """Return some frames as a chunk on the host."""
        if self.gains is None:
            picked: Numbers = self.read()[numbers]
            return picked
        return divided(self.frames.pick(numbers), self.gains[numbers], self.shape, self.axis)

    def cut(self, first: int, stop: int) -> "CalibratedFrames":
        """Return the frames [first, stop), with the gains by which all are calibrated."""
        gains = None if self.gains is None else self.gains[first:stop]
        return replace(self, frames=self.frames.cut(first, stop), gains=gains)


@dataclass(frozen=True)
class StillFrames:
    """Frames whose tissue is held still.

    Attributes
    ----------
    frames : Frames
        The frames as recorded, or the still frames if `is_held`.
    motion : TissueMotion
        Motion of the tissue in the frames of the block up to the last of these.
    first : int
        Number of the first of these frames in the block.
    start : (n_pixels,) array or None
        The turn of the frame before it; None if it is computed when it is needed.
    is_held : bool
        Whether the frames are still already; by default not.
    """

    frames: Frames
    motion: TissueMotion
    first: int = 0
    start: Numbers | None = None
    is_held: bool = False

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.frames.n_frames

    def read(self) -> Array:
        """Return all frames as a chunk, times conj(e)."""
        return self.frames.read() if self.is_held else self._turned(self.frames.read(), None, None, False)

    def pick(self, numbers: NDArray[np.intp]) -> Numbers:
        """Return some frames as a chunk on the host, still as well; all are read for it."""
        return to_host(self.read())[numbers]

    def cut(self, first: int, stop: int) -> "StillFrames":
        """Return the frames [first, stop)."""
        motion, start = self.motion.cut(0, self.first + stop), self.start if first == 0 else None
        return StillFrames(self.frames.cut(first, stop), motion, self.first + first, start, self.is_held)

    def moving(self, y: Array, out: Numbers | None = None, executor: ThreadExecutor | None = None) -> Array:
        """Return filtered frames, (n, n_pixels), times e: with the tissue as recorded.

        Parameters
        ----------
        y : (n, n_pixels) array
            The filtered frames of a chunk of all these frames.
        out : (n, n_pixels) array of NumPy, optional
            Gets the result; it may be `y`.
        executor : ThreadExecutor, optional
            Turns rows of pixels side by side.
        """
        return self._turned(y, out, executor, True)

    def held(self, out: Numbers, executor: ThreadExecutor) -> None:
        """Write the still frames into an array, (n, n_pixels), which may have the recorded ones."""
        self._turned(self.frames.read(), out, executor, False)

    def _turned(self, x: Array, out: Numbers | None, executor: ThreadExecutor | None, is_back: bool) -> Array:
        start = self.start
        if start is None and self.first:
            start = self.motion.cut(0, self.first).end(None)
        motion = self.motion.cut(self.first, len(self.motion.steps))
        return motion.still(x, start, out, is_back=is_back, executor=executor)


@dataclass(frozen=True)
class Chunk:
    """Frames of a block that are in memory at once.

    Attributes
    ----------
    first : int
        Number of the first frame in the block.
    frames : Frames
        The frames.
    """

    first: int
    frames: Frames

    @property
    def stop(self) -> int:
        """Number of the frame after the last one."""
        return self.first + self.frames.n_frames

    def read(self) -> Array:
        """Return the frames, (n_frames, n_pixels)."""
        return self.frames.read()

    def still(self, motion: TissueMotion, start: Numbers | None) -> "Chunk":
        """Return the chunk with its tissue held still; see :class:`StillFrames`."""
        return replace(self, frames=StillFrames(self.frames, motion.cut(0, self.stop), self.first, start))


@dataclass(frozen=True)
class Window:
    """Consecutive frames that are a block.

    Attributes
    ----------
    start, stop : int
        First frame, and the one after the last.
    complete : bool
        Whether it has all frames of a window. The last one may be shorter, or a few frames longer.
    """

    start: int
    stop: int
    complete: bool

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.stop - self.start

    @property
    def middle(self) -> float:
        """Mean time of its frames, counted in frames from the first one of the acquisition."""
        return (self.start + self.stop - 1) / 2


@dataclass(frozen=True, kw_only=True)
class Block:
    """Consecutive frames that give one map.

    Attributes
    ----------
    chunks : sequence of Chunk
        Its frames, in the order of time, or Dask values that become chunks. Most blocks are one chunk; a block that cannot
        be read has none.
    window : Window
        Its frames in the file or the array.
    start_s : float
        Time of the first frame, in s or in frames, from the first frame of the recording; by default 0.
    name : str
        Name of its file; empty (the default) for an array.
    file : int
        Number of its file, as files of several folders may have one name; by default 0.
    problem : str
        Why it cannot be read, in words; empty (the default) if it can.
    """

    chunks: Sequence[Chunk]
    window: Window
    start_s: float = 0.0
    name: str = ""
    file: int = 0
    problem: str = ""

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.window.n_frames

    def read(self) -> Array:
        """Return the frames of a block of one chunk, (n_frames, n_pixels)."""
        (chunk,) = self.chunks
        return chunk.read()

    def pick(self, numbers: NDArray[np.intp]) -> Numbers:
        """Return some frames of a block of one chunk on the host; `numbers` increase from 0."""
        (chunk,) = self.chunks
        return chunk.frames.pick(numbers)


@dataclass(frozen=True)
class Recording:
    """A recording: the geometry that all of its blocks have, and the blocks.

    Attributes
    ----------
    geometry : Geometry
        Axes, shape and scales; of a session, the shape of its first block.
    dtype : numpy.dtype
        Type of the values of the chunks.
    blocks : list of Block
        The blocks, in the order of time: one for a scan, many for a session.
    frame_time : float
        Time from one frame to the next, in s, or in frames of the file if the frame rate is not known; by default 1.
    in_memory : ArrayFrames or None
        All frames of the only block, if they are an array of NumPy in memory, of which threads filter pixels: a chunk of
        all frames costs nothing then. None (the default) if they are not.
    positions : tuple of int
        Number of the blocks of each position of the probe, if each has its own, one position after the other; empty (the
        default) otherwise.
    motion : TissueMotion or None
        Motion of the tissue in the only block, whose tissue is held still by it; None (the default) as recorded.
    """

    geometry: Geometry
    dtype: np.dtype[np.inexact]
    blocks: list[Block]
    frame_time: float = 1.0
    in_memory: ArrayFrames | None = None
    positions: tuple[int, ...] = ()
    motion: TissueMotion | None = None

    @classmethod
    def of_chunks(
        cls,
        geometry: Geometry,
        dtype: np.dtype[np.inexact],
        chunks: Sequence[Chunk],
        in_memory: ArrayFrames | None = None,
    ) -> "Recording":
        """Return the recording of a scan, whose only block has these chunks."""
        block = Block(chunks=chunks, window=Window(0, geometry.n_frames, True))
        return cls(geometry, dtype, [block], in_memory=in_memory)

    @property
    def block_times(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Middle and duration of each block, (n_blocks,) each, in the unit of `frame_time`."""
        lengths = np.array([block.n_frames for block in self.blocks])
        starts = np.array([block.start_s for block in self.blocks])
        return starts + (lengths - 1) / 2 * self.frame_time, lengths * self.frame_time

    def calibrated(self, axis: int, gains: Numbers | None) -> "Recording":
        """Return the recording without the flicker of its lines along an axis; itself if its chunks are Dask values.

        `gains` are those of the only block, (n_frames, n_lines); None if each block is measured when it is read.
        """
        shape, blocks = self.geometry.pixel_shape, []
        for block in self.blocks:
            if not all(isinstance(chunk, Chunk) for chunk in block.chunks):
                return self
            chunks = []
            for chunk in block.chunks:
                frames = chunk.frames
                own = None if gains is None else gains[chunk.first : chunk.stop]
                if (
                    isinstance(frames, CalibratedFrames)
                    and frames.axis == axis
                    and frames.gains is not None
                    and own is not None
                ):
                    # Measured again on what was calibrated by these gains
                    own, frames = own * frames.gains, frames.frames
                chunks.append(replace(chunk, frames=CalibratedFrames(frames, shape, axis, own)))
            blocks.append(replace(block, chunks=chunks))
        return replace(self, blocks=blocks, in_memory=None)

    @property
    def chunks(self) -> Sequence[Chunk]:
        """The chunks of the only block."""
        (block,) = self.blocks
        return block.chunks

    @property
    def at_once(self) -> Chunk | None:
        """All frames of the only block as one chunk, if they are in memory."""
        if self.in_memory is None or self.motion is None:
            return None if self.in_memory is None else Chunk(0, self.in_memory)
        return Chunk(0, StillFrames(self.in_memory, self.motion, is_held=True))

    def still(
        self, motion: TissueMotion, firsts: Sequence[int], executor: Executor, target: Numbers | None = None
    ) -> "Recording":
        """Return the recording of a scan with its tissue held still.

        Parameters
        ----------
        motion : TissueMotion
            Motion of the tissue in its frames.
        firsts : sequence of int
            Number of the first frame of each chunk.
        executor : Executor
            Turns the frames.
        target : (n_frames, n_pixels) array of NumPy, optional
            Gets the still frames of a recording in memory, so that they are turned once. By default they are turned
            whenever they are read.
        """
        (block,) = self.blocks
        if self.in_memory is not None and target is not None:
            StillFrames(self.in_memory, motion).held(target, executor.local)
            whole = replace(self.in_memory, values=target, axes="tz")
            chunks = [
                Chunk(first, StillFrames(whole.cut(first, stop), motion.cut(0, stop), first, None, True))
                for first, stop in pairwise([*firsts, self.geometry.n_frames])
            ]
            return replace(self, blocks=[replace(block, chunks=chunks)], in_memory=whole, motion=motion)
        parts = [motion.cut(*edges) for edges in pairwise(firsts)]
        starts = list[Numbers | None]([None])
        for end in executor.local.map(TissueMotion.end, parts, None):
            before = starts[-1]
            starts.append(end if before is None else before * end)
        still = [chunk.still(motion, start) for chunk, start in zip(block.chunks, starts, strict=True)]
        return replace(self, blocks=[replace(block, chunks=still)], in_memory=None, motion=motion)

    def by_pixels(self) -> list[Chunk]:
        """Return the frames in memory as chunks of PIXELS_A_THREAD pixels over all frames."""
        assert self.in_memory is not None
        x, frames = self.in_memory.read(), self.in_memory
        return [
            Chunk(0, replace(frames, values=x[:, pixels], axes="tz"))
            for pixels in slices_of(x.shape[1], PIXELS_A_THREAD)
        ]


def map_chunks(
    function: Callable[..., Result], chunks: Iterable[Item], executor: Executor, *constants: object
) -> Iterator[Result]:
    """Yield function(chunk, *constants) for each chunk, in order: the one loop over the frames of a recording.

    Results do not depend on the executor, as they come in the order of the chunks.

    Parameters
    ----------
    function : callable
        A function of a module, which other processes can import.
    chunks : iterable of Chunk, Block, or what holds one
        What it is called with; Dask values become chunks first.
    executor : Executor
        Threads, Dask workers, or Dask values that are still to be computed.
    *constants
        Arguments that are the same for all chunks.
    """
    return executor.map(function, chunks, *constants)


class ProcessLocal(Generic[Value]):
    """A value for this process alone. A copy in another process, such as a worker, has None."""

    def __init__(self, value: Value | None = None) -> None:
        self.value = value

    def __reduce__(self) -> tuple[type["ProcessLocal[Value]"], tuple[()]]:
        return ProcessLocal, ()


def working_type(stack: GriddedStack, precision: str) -> np.dtype[np.inexact]:
    """Return the type in which a stack is filtered, for a precision "single" or "double"."""
    return np.dtype(STORAGE[precision, stack.is_complex])


def chunk_edges(
    n_frames: int, n_pixels: int, firsts: NDArray[np.intp] | None = None, most_entries: float = np.inf
) -> NDArray[np.intp]:
    """Return the first frame of each chunk of a block, and the number of frames.

    There is an even number of chunks of about one size, unless there are too few frames. They have HELD_ENTRIES entries, or
    LEAST_CHUNK_FRAMES frames, about, whichever is more.

    Parameters
    ----------
    n_frames, n_pixels : int
        Size of the block.
    firsts : (n,) array of int, optional
        Frames at which a chunk can begin, increasing from 0; by default all.
    most_entries : float
        Entries that a chunk may have for the sake of LEAST_CHUNK_FRAMES; unlimited by default.

    Examples
    --------
    >>> chunk_edges(1500, 10000), chunk_edges(1500, 10000, np.array([0, 600, 1200]))
    (array([   0,  375,  750, 1125, 1500]), array([   0,  600, 1200, 1500]))
    """
    if firsts is None:
        firsts = np.arange(n_frames)
    entries = max(HELD_ENTRIES, min(LEAST_CHUNK_FRAMES * n_pixels, most_entries))
    count = min(2 * max(1, round(n_frames * n_pixels / (2 * entries))), len(firsts))
    chosen = np.linspace(0, len(firsts), count + 1).astype(np.intp)[:-1]
    return np.append(firsts[chosen], n_frames)


def array_recording(
    stack: Acquisition, precision: str, in_place: bool = False
) -> tuple[Recording, Numbers | None]:
    """Return the recording of an array in memory, and memory for the filtered frames, (n_frames, n_pixels).

    An array of another library than NumPy has no such memory: its filtered frames are new arrays of this library.

    Parameters
    ----------
    stack : Acquisition
        The stack.
    precision : str
        "single" or "double".
    in_place : bool
        Whether the filtered frames take the memory of the stack, if its type and its order allow it; by default not.
    """
    dtype = working_type(stack, precision)
    frames = ArrayFrames(stack.iq, stack.axes, dtype, stack.name)
    if is_foreign_array(stack.iq):
        return Recording.of_chunks(stack.geometry, dtype, frames.chunks()), None
    own: Numbers = as_frames(stack.iq, stack.axes)
    is_view = stack.iq.dtype == dtype and np.may_share_memory(own, stack.iq)
    # Some pixels of all frames are far apart in a file
    is_in_memory = is_view and not isinstance(stack.iq, np.memmap | np.ma.MaskedArray)
    whole = frames if is_in_memory else None
    recording = Recording.of_chunks(stack.geometry, dtype, frames.chunks(), whole)
    if not (in_place and is_view and stack.iq.flags.writeable):
        own = np.empty(own.shape, dtype, order="F" if is_by_pixel(own) else "C")
    return recording, own


def cut_into_windows(
    n_frames: int, length: int, stride: int | None = None, shortest: int = 1
) -> list[Window]:
    """Return the windows of an acquisition.

    If whole windows do not reach the last frame, a shorter window starts a stride after the last of them. If it
    would have fewer than `shortest` frames, the last whole window takes the remaining frames instead.

    Parameters
    ----------
    n_frames : int
        Frames of the acquisition.
    length : int
        Frames of a window.
    stride : int, optional
        Frames from one window to the next, at most `length`; by default `length`.
    shortest : int
        Fewest frames of a window of its own, at least 1; by default 1.

    Returns
    -------
    list of Window
        Together they cover every frame.

    Raises
    ------
    OptionError
        If the acquisition is shorter than a window.
    """
    step = length if stride is None else stride
    if n_frames < length:
        raise OptionError(
            f"window {length} is longer than the {n_frames} frames of the stack", remedy="lower {window}"
        )
    windows = [Window(start, start + length, True) for start in range(0, n_frames - length + 1, step)]
    last = windows[-1]
    if last.stop == n_frames:
        return windows
    if n_frames - (last.start + step) < shortest:
        return [*windows[:-1], replace(last, stop=n_frames)]
    return [*windows, Window(last.start + step, n_frames, False)]
