"""Threads and memory: work in the background, the threads of BLAS, free and used memory, what the work on arrays takes.

What a BLAS returns depends in its last digits on how many threads it takes, and its threads compete with ours for
the processors. So it runs on one thread while this package computes.
"""

import ctypes
import math
import os
import re
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")


def run_in_background(work: Callable[..., Result], *arguments: object) -> Future[Result]:
    """Call a function in a thread of its own, and return its future.

    The thread is a daemon: unlike the threads of an executor, it does not delay the end of the process.

    Parameters
    ----------
    work : callable
        What to call.
    *arguments
        Its arguments.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def available_threads() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_LOCK = Lock()
_n_inside = 0
_restorers: dict[int, Callable[[], None]] = {}
"""Functions that end an active limit, by the number of libraries that were loaded when it was set."""


@contextmanager
def blas_on_one_thread() -> Iterator[None]:
    """Keep every BLAS that is loaded on one thread until the context ends.

    Contexts may be nested and may overlap between threads; the last one to end restores the numbers of threads
    that the first one found.
    """
    global _n_inside
    with _LOCK:
        # NumPy's BLAS is always loaded. SciPy brings another one, and most jobs never load it.
        n_loaded = 1 + ("scipy.linalg" in sys.modules)
        if n_loaded not in _restorers:
            limit = _controller_of_this_thread(n_loaded).limit(limits=1, user_api="blas")
            _restorers[n_loaded] = limit.restore_original_limits
        _n_inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _n_inside -= 1
            if _n_inside == 0:
                # The latest limit first: the first one restores the original numbers.
                while _restorers:
                    n_loaded, restore = _restorers.popitem()
                    _controller_of_this_thread(n_loaded)
                    restore()


def _controller_of_this_thread(n_loaded: int) -> ThreadpoolController:
    # From threadpoolctl 3.8 on, only the first thread that set numbers of threads may do so again.
    controller = _controller(n_loaded)
    for library in controller.lib_controllers:
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)
    return controller


@cache
def _controller(n_loaded: int) -> ThreadpoolController:
    # Looking for loaded libraries takes milliseconds, so each number of them is looked for once.
    return ThreadpoolController()


PROCESS_BYTES = 256 << 20
"""Memory of a process with its libraries, without arrays. On stacks of 128 MB the peak of every method was 120 to 180 MB
above twice the stack; a Dask worker without chunks takes 250 MiB."""

LEAST_BYTES = 300 << 20
"""Least memory of a job besides the storage chunks of its file. With 0.6 GiB in a temporary file, three jobs with 270 to 500
MiB took 296 to 301."""

HELD_STACK = 2.0
"""Bytes in memory for each byte of a stack that is filtered in memory."""

HELD_PIXEL, HELD_PIXEL_A_THREAD = 1200, 350
"""Bytes in memory for each pixel of a scan besides the frames: lags of both halves in double precision, and maps; and those
of lags for each thread that filters a chunk of a scan, if that is read in chunks. Volumes of 10^6 voxels with 60 and 160
frames took 820 to 1180, and one in chunks 1550 on two threads. The memory of a process contains those of USUAL_PIXELS."""

USUAL_PIXELS = 1 << 16
"""Pixels of an image, at most, whose maps the memory of a process contains."""

HELD_CHUNKS = 4
"""Storage chunks in memory at once while a file is read in chunks. With one chunk of 94 MiB the peak was 370 MiB."""

HELD_BLOCK, HELD_SAMPLE = 3.3, 2.1
"""Bytes in memory for each byte of a block of a session that is filtered, and of the sampled frames. A block as read, as it
is in the reference, and with its tissue held still are in memory; blocks of 128 x 128 x 300 that are not shifted took 1.2 to
1.3 times their size beside the block as read, and 1.95 times while their frames were sampled."""

HELD_LIVE = 18.0
"""Bytes in memory for each byte of a block of a live session while one is filtered and the clutter is estimated from a
sample, which is in memory too. With blocks of 128 x 128 x 300 sessions in control groups of 600 and 700 MiB were killed, and
none of four in 800 to 1000 MiB."""

HELD_ON_DEVICE = 10
"""Copies of a chunk in the memory of a device while it is filtered, at most: the chunk, the filtered frames with and without
excluded ones, their spectra, and the terms of these."""

_ONE_HEAP = {-8: 1, -3: 32 << 20, -1: 256 << 20}
"""Settings of glibc's mallopt: one heap (M_ARENA_MAX), the bytes from which an array has pages of its own (M_MMAP_THRESHOLD,
its largest value), and the free bytes at the end of the heap from which they are returned (M_TRIM_THRESHOLD)."""

_GROUP_FILES = {
    "memory": ("sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")),
    "": ("sys/fs/cgroup", ("memory.max", "memory.current", "")),
}
"""Control groups of version 1, by their controller, and of version 2, which have none: the folder of all, the files of the
limit and of the used memory, and the beginning of the entries of memory.stat that count the groups below."""


def available_bytes(root: Path = Path("/")) -> float:
    """Return the memory that can be taken without swapping, by the system and by the control groups of this process.

    Parameters
    ----------
    root : Path
        Folder that holds proc and sys; another one than "/" in tests.

    Returns
    -------
    float
        Bytes; infinite if the system does not report it (anything but Linux).
    """
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _file_text(root / "proc/meminfo"), re.MULTILINE)
    system = int(match[1]) * 1024 if match else math.inf
    return min(system, _group_bytes(root))


@dataclass(frozen=True, kw_only=True)
class ScanMemory:
    """The memory of a job on a scan, by the arrays that it holds, each in the type in which it is filtered.

    Attributes
    ----------
    stack : int
        Bytes of the stack; 0 (the default) if it is not known.
    pixels : int
        Its pixels; 0 (the default) if they are not known.
    chunk : int
        Bytes of a storage chunk of its file; 0 (the default) if the file has none.
    threads : int
        Threads that filter a chunk each; 1 by default.
    """

    stack: int = 0
    pixels: int = 0
    chunk: int = 0
    threads: int = 1

    @property
    def whole(self) -> float:
        """Bytes of the job with the stack in memory."""
        return PROCESS_BYTES + max(HELD_STACK * self.stack, self.stack + self._of_pixels(0))

    @property
    def in_parts(self) -> float:
        """Least bytes of the job with the stack in a temporary file."""
        return LEAST_BYTES + self.chunks + self._of_pixels(self.threads)

    @property
    def chunks(self) -> int:
        """Bytes of the storage chunks that are in memory at once."""
        return HELD_CHUNKS * self.chunk

    def reads_chunks(self, most: float) -> bool:
        """Return whether its storage chunks fit into `most` bytes, or at least take no more than the process."""
        return self.chunks <= max(most, PROCESS_BYTES)

    def most_a_part(self, most: float) -> float:
        """Return the bytes that each part of the stack may have, of `most` bytes of the job."""
        free = max(most - LEAST_BYTES - self._of_pixels(self.threads), 0)
        # A part for each thread, and its results, which wait for others
        return free / max(HELD_CHUNKS, 2 * self.threads)

    def _of_pixels(self, threads: int) -> int:
        return (HELD_PIXEL + HELD_PIXEL_A_THREAD * threads) * max(self.pixels - USUAL_PIXELS, 0)


def held_bytes(
    *, block: float = 0, sample: float = 0, live_block: float = 0, device_chunk: float = 0
) -> float:
    """Return the bytes that work on blocks needs, without the process itself.

    Parameters
    ----------
    block, sample, live_block, device_chunk : float
        Bytes of a block of a session, of the frames that are sampled from a session, of the first block of a live session,
        and of a chunk that is filtered on a device, each in the type in which it is filtered; 0 by default.
    """
    return HELD_BLOCK * block + HELD_SAMPLE * sample + HELD_LIVE * live_block + HELD_ON_DEVICE * device_chunk


def most_side_by_side(free: float, first: float, each: float) -> int:
    """Return how often work fits into memory side by side; 0 if it does not fit once.

    Parameters
    ----------
    free : float
        Free bytes, which may be infinite.
    first, each : float
        Bytes of the first one with what all have in common, and of each further one.
    """
    return 0 if first > free else int(min(sys.maxsize, 1 + (free - first) / each))


WATCH_S = 0.02
"""Seconds between two looks at the memory of this process, of 50 us each."""


class _Watch:
    """The contexts that watch the memory of this process, and the peak that they have seen."""

    def __init__(self) -> None:
        self.n_inside, self.peak, self.ended = 0, 0, threading.Event()

    def look(self) -> None:
        """Look at the memory now."""
        status = _file_text(Path("/proc/self/status"))
        kinds = re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.MULTILINE)
        self.peak = max(self.peak, 1024 * sum(map(int, kinds)))

    def follow(self, ended: threading.Event) -> None:
        """Look again and again."""
        while not ended.wait(WATCH_S):
            self.look()


_watch = _Watch()


@contextmanager
def memory_watched() -> Iterator[None]:
    """Watch the memory of this process for :func:`peak_memory_bytes`. Contexts may overlap."""
    with _LOCK:
        if _watch.n_inside == 0:
            _watch.peak, _watch.ended = 0, threading.Event()
            threading.Thread(target=_watch.follow, args=(_watch.ended,), daemon=True).start()
        _watch.n_inside += 1
    try:
        yield
    finally:
        with _LOCK:
            _watch.n_inside -= 1
            if _watch.n_inside == 0:
                _watch.ended.set()


def peak_memory_bytes() -> int:
    """Return the largest memory of this process while it was watched that counts against a limit, in bytes.

    Pages of mapped files, as of the temporary file of a large stack, do not count: the kernel writes them to the disk when
    memory is short. Those of a file system in memory count. If it is not watched, or the system does not report this
    (anything but Linux), it is the largest resident size so far, and 0 if that is not reported.
    """
    if _watch.n_inside:
        _watch.look()
        if _watch.peak:
            return _watch.peak
    # getrusage starts at the size of the process that started this one; VmHWM does not.
    peak = re.search(r"^VmHWM:\s+(\d+) kB", _file_text(Path("/proc/self/status")), re.MULTILINE)
    if peak is not None:
        return int(peak[1]) * 1024
    largest = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return largest if sys.platform == "darwin" else largest * 1024


def release_freed_memory() -> None:
    """Return freed memory to the system, where the C library can; otherwise it keeps some of it for later."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def use_one_heap() -> None:
    """Let all threads of this process take memory from one heap, where the C library would give each its own.

    What a thread frees in a heap of its own is not given to others. The heap keeps freed memory for the next array, until
    :func:`release_freed_memory`: the system clears each page that it gives. These are settings of the process, for programs.
    """
    with suppress(AttributeError, OSError, TypeError):
        for setting, value in _ONE_HEAP.items():
            ctypes.CDLL(None).mallopt(setting, value)


def _group_bytes(root: Path) -> float:
    """Return the bytes that the control groups of this process leave, of either version, with all that hold them.

    Pages of files that the kernel can drop count as free: all that were not used again, and half of those that were, since
    the programs are among them.
    """
    left = math.inf
    for controllers, path in re.findall(
        r"^\d+:(.*?):/?(.*)$", _file_text(root / "proc/self/cgroup"), re.MULTILINE
    ):
        if controllers and "memory" not in controllers.split(","):
            continue
        top, (limit_name, used_name, prefix) = _GROUP_FILES["memory" if controllers else ""]
        # A container may see its own group at the top, below the name that the group has outside.
        parts = Path(path).parts
        for depth in range(len(parts) + 1):
            group = root.joinpath(top, *parts[:depth])
            limit, used = _file_text(group / limit_name).strip(), _file_text(group / used_name).strip()
            if limit.isdigit() and used.isdigit():
                counts = _file_text(group / "memory.stat")
                pages = dict(re.findall(rf"^{prefix}(\w+)_file (\d+)$", counts, re.MULTILINE))
                dropped = int(pages.get("inactive", 0)) + int(pages.get("active", 0)) // 2
                left = min(left, max(0, int(limit) - int(used) + dropped))
    return left


def _file_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
