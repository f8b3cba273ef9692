"""Devices: the chunks of a recording are copied to a GPU when they are read, by CuPy.

Each thread has a stream of its own, and copies through pinned memory, so that one chunk is copied while another one is
filtered.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.linalg.array_library import is_of_library
from usdenoise.linalg.tall_matrices import row_blocks
from usdenoise.pipeline.recording import ArrayFrames, Chunk, Frames, Recording

HOST = "cpu"
"""The device of arrays of NumPy."""

HELD_COPIES = 10
"""Copies of a chunk in the memory of a device while it is filtered, at most: the chunk, the filtered frames with and without
excluded ones, their spectra, and the terms of these."""

PINNED_BYTES = 8 << 20
"""Bytes of pinned memory of which each thread has two parts."""

_threads = threading.local()


def cupy_on(device: str) -> Any:
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
    return cupy


def to_device(x: Any, device: str) -> Any:
    """Return a chunk on a device; an array of another library than NumPy stays where it is."""
    if device == HOST or is_of_library(x):
        return x
    cupy = cupy_on(device)
    stream, is_by_pixel = cupy.cuda.get_current_stream(), x.strides[0] < x.strides[1]
    # As it is in memory
    values = np.ascontiguousarray(x.T if is_by_pixel else x)
    there = cupy.empty(values.shape, values.dtype)
    if not hasattr(_threads, "pinned"):
        _threads.pinned = [cupy.cuda.alloc_pinned_memory(PINNED_BYTES) for _ in range(2)]
    copied: list[Any] = []
    for part in row_blocks(values.size, PINNED_BYTES // values.itemsize):
        # A part is copied into pinned memory while the one before is copied to the device.
        if len(copied) > 1:
            copied[-2].synchronize()
        entries = values.reshape(-1)[part]
        pinned = np.frombuffer(_threads.pinned[len(copied) % 2], x.dtype, len(entries))
        pinned[:] = entries
        there.reshape(-1)[part].set(pinned, stream)
        copied.append(stream.record())
    stream.synchronize()
    return cupy.ascontiguousarray(there.T if is_by_pixel else there)


def most_entries(device: str, dtype: np.dtype[Any], n_threads: int) -> int | None:
    """Return the largest number of entries of a chunk of which each thread filters one; None for no limit."""
    if device == HOST:
        return None
    cupy = cupy_on(device)
    cupy.get_default_memory_pool().free_all_blocks()
    free, _ = cupy.cuda.Device().mem_info
    return int(free) // (HELD_COPIES * n_threads * dtype.itemsize)


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


@dataclass(frozen=True)
class DeviceFrames:
    """Frames that are copied to a device when they are read.

    Attributes
    ----------
    frames : Frames
        The frames on the host.
    device : str
        The device.
    """

    frames: Frames
    device: str

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.frames.n_frames

    def read(self) -> Any:
        """Return all frames as a chunk on the device."""
        return to_device(self.frames.read(), self.device)

    def pick(self, numbers: NDArray[np.intp]) -> NDArray[Any]:
        """Return some frames as a chunk on the host."""
        return self.frames.pick(numbers)

    def cut(self, first: int, stop: int) -> "DeviceFrames":
        """Return the frames [first, stop)."""
        return replace(self, frames=self.frames.cut(first, stop))


def on_device(recording: Recording, device: str, n_threads: int | None) -> Recording:
    """Return the recording of a scan whose chunks are read onto a device.

    Parameters
    ----------
    recording : Recording
        The chunks. If the memory of the device is small, they are cut into shorter ones.
    device : str
        The device.
    n_threads : int or None
        Threads that filter a chunk each; None for workers, whose devices this process does not know.
    """
    is_there = any(
        isinstance(one.frames, ArrayFrames) and is_of_library(one.frames.values) for one in recording.chunks
    )
    if device == HOST or is_there:
        return recording
    most = None if n_threads is None else most_entries(device, recording.dtype, n_threads)
    length = recording.geometry.n_frames if most is None else most // recording.geometry.n_pixels
    if not length:
        raise _too_small(device)
    chunks = []
    for chunk in recording.chunks:
        for first in range(0, chunk.frames.n_frames, length):
            part = chunk.frames.cut(first, min(first + length, chunk.frames.n_frames))
            chunks.append(Chunk(chunk.first + first, DeviceFrames(part, device)))
    return Recording.of_chunks(recording.geometry, recording.dtype, chunks)
