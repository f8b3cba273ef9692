"""Devices: the chunks of a recording are copied to a GPU when they are read, by CuPy, and held there if they fit.

Each thread has a stream of its own, and copies through pinned memory, so that one chunk is copied while another one is
filtered.
"""

import math
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.linalg.array_library import Array, Numbers, is_foreign_array, namespace
from usdenoise.linalg.tall_matrices import HELD_ENTRIES, slices_of
from usdenoise.pipeline.recording import ArrayFrames, Block, Chunk, Frames, Recording
from usdenoise.system.resources import held_bytes, most_side_by_side

HOST = "cpu"
"""The device of arrays of NumPy."""

HELD_SHARE = 0.5
"""Part of the free memory of a device up to which a whole scan is held there."""

_threads = threading.local()


def cupy_on(device: str) -> ModuleType:
    """Return the module CuPy with a device as the current one of this thread.

    Parameters
    ----------
    device : str
        "cuda" or "cuda:N".

    Raises
    ------
    OptionError
        If CuPy is not installed, or the device does not exist.
    """
    remedy = "run pip install 'usdenoise[gpu]' on a machine with an NVIDIA GPU, or use the device cpu"
    try:
        import cupy
    except ImportError as error:
        raise OptionError("needs the package CuPy", option="device", remedy=remedy) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise OptionError(f"finds no GPU ({error})", option="device", remedy=remedy) from error
    number = int(device.partition(":")[2] or 0)
    if number >= count:
        raise OptionError(f"{device} is not there: the number of GPUs is {count}", option="device")
    cupy.cuda.Device(number).use()
    if threading.current_thread() is not threading.main_thread() and not hasattr(_threads, "stream"):
        _threads.stream = cupy.cuda.Stream()
        _threads.stream.use()
    module: ModuleType = cupy
    return module


def to_device(x: Array, device: str) -> Array:
    """Return a chunk on a device; an array of another library than NumPy stays where it is."""
    if device == HOST or is_foreign_array(x):
        return x
    cupy = cupy_on(device)
    stream, is_by_pixel = cupy.cuda.get_current_stream(), x.strides[0] < x.strides[1]
    # As it is in memory
    values = np.ascontiguousarray(x.T if is_by_pixel else x)
    there = cupy.empty(values.shape, values.dtype)
    # Two parts of pinned memory a thread, as many bytes
    if not hasattr(_threads, "pinned"):
        _threads.pinned = [cupy.cuda.alloc_pinned_memory(HELD_ENTRIES) for _ in range(2)]
    copied: list[Any] = []
    for part in slices_of(values.size, HELD_ENTRIES // values.itemsize):
        # A part is copied into pinned memory while the one before is copied to the device.
        if len(copied) > 1:
            copied[-2].synchronize()
        entries = values.reshape(-1)[part]
        pinned = np.frombuffer(_threads.pinned[len(copied) % 2], x.dtype, len(entries))
        pinned[:] = entries
        there.reshape(-1)[part].set(pinned, stream)
        copied.append(stream.record())
    there = cupy.ascontiguousarray(there.T if is_by_pixel else there)
    # Other threads may use it in their streams.
    stream.synchronize()
    return there


def free_bytes(device: str) -> int:
    """Return the free memory of a GPU."""
    cupy = cupy_on(device)
    cupy.get_default_memory_pool().free_all_blocks()
    free, _ = cupy.cuda.Device().mem_info
    return int(free)


def most_blocks(device: str, dtype: np.dtype[np.inexact], entries: int) -> float:
    """Return the largest number of blocks of some entries that are filtered side by side; infinite on the processor.

    One block is filtered in any case, and fails if it does not fit.
    """
    if device == HOST:
        return math.inf
    of_block = held_bytes(device_chunk=entries * dtype.itemsize)
    return max(1, most_side_by_side(free_bytes(device), of_block, of_block))


@contextmanager
def device_memory(device: str) -> Iterator[None]:
    """Raise an OptionError if the memory of the device runs out within the context."""
    try:
        yield
    except MemoryError as error:
        if device == HOST or not type(error).__module__.startswith("cupy"):
            raise
        raise _too_small(device) from error


def _too_small(device: str) -> OptionError:
    return OptionError(
        f"the memory of the device {device} is too small for this stack",
        remedy="filter shorter blocks, or use the device cpu",
    )


class HeldFrames:
    """Frames on a device that were copied last, so that what several windows or passes use is read and copied once.

    Threads that ask for the same frames at once wait for one of them.

    Parameters
    ----------
    device : str
        The device.
    most : int
        Number of frames that are held, at most, beside those that are in use.
    """

    def __init__(self, device: str, most: int) -> None:
        self.device, self._most = device, most
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, tuple[int, Future[Array]]] = OrderedDict()

    def read(self, key: Hashable, frames: Frames) -> Array:
        """Return all of some frames as a chunk on the device; `key` says which they are."""
        # A thread begins on the first device.
        cupy_on(self.device)
        with self._lock:
            is_new = key not in self._held
            if is_new:
                self._held[key] = frames.n_frames, Future()
            self._held.move_to_end(key)
            found = self._held[key][1]
            while sum(n_frames for n_frames, _ in self._held.values()) > self._most:
                self._held.popitem(last=False)
        if is_new:
            try:
                found.set_result(to_device(frames.read(), self.device))
            except BaseException as error:
                with self._lock:
                    self._held.pop(key, None)
                found.set_exception(error)
        return found.result()


@dataclass(frozen=True)
class DeviceFrames:
    """Frames that are copied to a device when they are read.

    Attributes
    ----------
    frames : Frames
        The frames on the host.
    device : str
        The device.
    held : HeldFrames or None
        Holds their pieces there; None (the default) if they are copied each time.
    pieces : sequence of (hashable, Frames)
        The same frames in pieces, and what `held` knows each of them by.
    """

    frames: Frames
    device: str
    held: HeldFrames | None = None
    pieces: Sequence[tuple[Hashable, Frames]] = ()

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.frames.n_frames

    def read(self) -> Array:
        """Return all frames as a chunk on the device."""
        if self.held is None:
            return to_device(self.frames.read(), self.device)
        parts = [self.held.read(key, frames) for key, frames in self.pieces]
        if len(parts) == 1:
            return parts[0]
        x = namespace(parts[0]).concat(parts)
        # Once they are not held, the pieces are free for other streams.
        cupy_on(self.device).cuda.get_current_stream().synchronize()
        return x

    def pick(self, numbers: NDArray[np.intp]) -> Numbers:
        """Return some frames as a chunk on the host."""
        return self.frames.pick(numbers)

    def cut(self, first: int, stop: int) -> "DeviceFrames":
        """Return the frames [first, stop)."""
        return DeviceFrames(self.frames.cut(first, stop), self.device)


def _is_there(chunk: Chunk) -> bool:
    """Return whether a chunk is of an array of another library than NumPy, which stays where it is."""
    return isinstance(chunk.frames, ArrayFrames) and is_foreign_array(chunk.frames.values)


def on_device(recording: Recording, device: str, n_threads: int | None) -> Recording:
    """Return the recording of a scan whose chunks are read onto a device.

    Parameters
    ----------
    recording : Recording
        The chunks. If the memory of the device is small, they are cut into shorter ones; if it has room for all of them,
        they are read once for all passes.
    device : str
        The device.
    n_threads : int or None
        Threads that filter a chunk each; None for workers, whose devices this process does not know.
    """
    if device == HOST or _is_there(recording.chunks[0]):
        return recording
    geometry, held = recording.geometry, None
    length, of_frame = geometry.n_frames, geometry.n_pixels * recording.dtype.itemsize
    if n_threads is not None:
        free = free_bytes(device)
        if length * of_frame <= HELD_SHARE * free:
            held, free = HeldFrames(device, length), free - length * of_frame
        length = int(free // held_bytes(device_chunk=n_threads * of_frame))
    if not length:
        raise _too_small(device)
    chunks = []
    for chunk in recording.chunks:
        for first in range(0, chunk.frames.n_frames, length):
            part = chunk.frames.cut(first, min(first + length, chunk.frames.n_frames))
            number = chunk.first + first
            chunks.append(Chunk(number, DeviceFrames(part, device, held, [(number, part)])))
    return Recording.of_chunks(geometry, recording.dtype, chunks)


def windows_on_device(recording: Recording, device: str, n_threads: int) -> Recording:
    """Return a session whose overlapping blocks are read onto a device, where each frame is copied once.

    Parameters
    ----------
    recording : Recording
        The blocks.
    device : str
        The device. If it has no room for the frames of the blocks side by side, nothing is held.
    n_threads : int
        Threads that filter a block each.
    """
    whole = [block for block in recording.blocks if block.chunks]
    steps = [
        after.window.start - before.window.start
        for before, after in pairwise(whole)
        if before.file == after.file and after.window.start < before.window.stop
    ]
    if device == HOST or not steps or _is_there(whole[0].chunks[0]):
        return recording
    longest = max(block.n_frames for block in whole)
    # All blocks side by side, and the next one
    most = longest + (n_threads + 1) * max(steps)
    of_frame = recording.geometry.n_pixels * recording.dtype.itemsize
    if most * of_frame + held_bytes(device_chunk=n_threads * longest * of_frame) > free_bytes(device):
        return recording
    held, ends = HeldFrames(device, most), dict[int, set[int]]()
    for block in whole:
        ends.setdefault(block.file, set()).update((block.window.start, block.window.stop))
    edges = {file: sorted(of_file) for file, of_file in ends.items()}

    def in_pieces(block: Block) -> Block:
        (chunk,), start, stop, own = block.chunks, block.window.start, block.window.stop, edges[block.file]
        pieces = [
            ((block.file, first), chunk.frames.cut(first - start, last - start))
            for first, last in pairwise(own[bisect_left(own, start) : bisect_left(own, stop) + 1])
        ]
        return replace(block, chunks=[Chunk(0, DeviceFrames(chunk.frames, device, held, pieces))])

    blocks = [in_pieces(block) if block.chunks else block for block in recording.blocks]
    return replace(recording, blocks=blocks)
