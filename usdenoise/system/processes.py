"""Signals that end a job, blocks of code that they must not interrupt, and locks of output folders."""

import errno
import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from usdenoise.errors import OutputError, check_path

ALL_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that request the end of a process."""

INTERRUPTED = "interrupted; no incomplete result was written"
"""Message of a program that a signal has ended, after its name."""


class Terminated(KeyboardInterrupt):
    """A signal requested the end of the process.

    Attributes
    ----------
    number : int
        Number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of a process that a signal ended: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + (error.number if isinstance(error, Terminated) else signal.SIGINT)


def raise_terminated(number: int, frame: FrameType | None) -> None:
    """Raise :class:`Terminated`, as the handler of a signal."""
    raise Terminated(number)


@contextmanager
def _handled(handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], None]]) -> Iterator[None]:
    """Handle signals by some functions in the context; in the main thread, no other thread may."""
    may = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number, handler in handlers.items() if may}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP raise :class:`Terminated` in the context.

    Signals that are ignored, as under nohup, and those with handlers of another library are left alone.
    """
    usual = (signal.SIG_DFL, signal.default_int_handler)
    with _handled({number: raise_terminated for number in ALL_ENDING if signal.getsignal(number) in usual}):
        yield


@contextmanager
def uninterrupted() -> Iterator[list[int]]:
    """Delay SIGINT, SIGTERM and SIGHUP until the context ends; yield the list of the numbers that have arrived so far."""
    waiting: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        waiting.append(number)

    # A mask would not help: any thread of a BLAS can receive the signal, and Python then handles it in the main thread.
    try:
        with _handled({number: wait for number in ALL_ENDING if callable(signal.getsignal(number))}):
            yield waiting
    finally:
        if waiting:
            signal.raise_signal(waiting[0])


@contextmanager
def blocked_in_children(numbers: Iterable[int] = ALL_ENDING) -> Iterator[None]:
    """Start processes, and threads that start processes, which do not receive some signals.

    The Ctrl-C of a terminal reaches all processes, and is for the first one, which then ends all other ones. Signals to this
    process are not lost.
    """
    # Most programs start no process.
    from multiprocessing import resource_tracker

    # The tracker unblocks signals when it starts, so it must run before.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


GRACE_S = 5.0
"""Seconds that a process has to remove its temporary files before it ends."""


def end_with_stdin() -> None:
    """End this process when its stdin is closed, which the kernel does when the process at the other end is killed.

    The signal lets it remove its temporary files. Should the exception of the signal be lost, or leave a lock behind, the
    process still ends.
    """

    def watch() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


LOCK = ".usdenoise.lock"
"""Name of the locked file."""

PARTIAL = ".usdenoise-partial-"
"""Beginning of the names of temporary folders, and of locked files for results: of killed processes, both are leftovers."""

WAIT_S = 0.2
"""Seconds to wait for a lock: another process holds it for a moment while it looks whether its holder has ended."""

_RETRY_S = 0.02
"""Seconds between two tries."""


def unwritable(folder: Path, error: OSError) -> OutputError:
    """Return the error about an output folder that the system does not let be written."""
    remedy = "choose another output folder"
    if error.errno == errno.ENAMETOOLONG:
        remedy = "shorten the names of the folder and of the input"
    return OutputError(f"the folder {folder} cannot be written ({error.strerror or error})", remedy=remedy)


@contextmanager
def locked(folder: Path, name: str = "", wait_s: float | None = None) -> Iterator[Path]:
    """Lock an output folder until the context ends, and create the folder if it does not exist.

    The kernel releases the lock when this process ends, also by SIGKILL.

    Parameters
    ----------
    folder : Path
        The folder.
    name : str
        Beginning of the names of results, which then are locked, and not the folder: other results may be written to it
        side by side. By default the folder is locked for batches and sessions.
    wait_s : float, optional
        Seconds to wait for the lock; by default WAIT_S.

    Yields
    ------
    Path
        The locked file, which exists as long as the folder is locked.

    Raises
    ------
    OutputError
        If another process holds the lock, or the folder cannot be created or written.
    """
    check_path(folder, OutputError)
    path = folder / (f"{PARTIAL}{name}.lock" if name else LOCK)
    created = [each for each in (folder, *folder.absolute().parents) if not os.path.exists(each)]
    deadline = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # The file of a killed process of another user can be locked, but not opened for writing.
            is_theirs = path.exists() and not os.access(path, os.W_OK)
            descriptor = os.open(path, os.O_RDONLY if is_theirs else os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            # Another process may have removed the folder after it was created here.
            if isinstance(error, FileNotFoundError) and time.monotonic() < deadline:
                continue
            raise unwritable(folder, error) from error
        # The previous holder may have removed the file after it was opened here.
        if lock(descriptor) is not False and os.fstat(descriptor).st_nlink:
            break
        os.close(descriptor)
        if time.monotonic() > deadline:
            who = f"run or session of '{name}'" if name else "batch or session"
            raise OutputError(
                f"another {who} is writing to the folder {folder}",
                remedy="wait until it has ended, or choose another output folder",
            )
        time.sleep(_RETRY_S)
    try:
        yield path
    finally:
        # A batch that is interrupted removes its file, and another one may have made a new one.
        if os.fstat(descriptor).st_nlink:
            with suppress(OSError):
                path.unlink()
        os.close(descriptor)
        # A folder that contains results stays.
        with suppress(OSError):
            for folder_path in created:
                folder_path.rmdir()


def lock(descriptor: int) -> bool | None:
    """Lock an open file or folder until it is closed, or its process ends.

    Returns
    -------
    bool or None
        Whether it is locked; False if another process holds it. None on a file system without locks: results are
        committed as a whole in any case.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
