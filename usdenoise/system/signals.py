"""Signals that end a job, and blocks of code that they must not interrupt."""

import _thread
import _weakrefset
import functools
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

ALL_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a process to end."""

INTERRUPTED = "interrupted; no result was left half written"
"""What the program says when a signal has ended it, after its name."""

_DEAF = ("<frozen importlib._bootstrap>", functools.__file__, weakref.__file__, _weakrefset.__file__)
"""File names of the code of import statements, of the making of classes, and of callbacks of weak references."""

_LATER_S = 0.01
"""Seconds after which a signal that came there is sent again."""


class Terminated(KeyboardInterrupt):
    """A signal asked the process to end.

    Attributes
    ----------
    number : int
        Number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of a process that a signal ended, as shells have it: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + (error.number if isinstance(error, Terminated) else signal.SIGINT)


def end_at_once(number: int, frame: FrameType | None) -> None:
    """End the process with a sentence on stderr and no clean-up, as the handler of a signal."""
    os.write(2, f"usdenoise: {INTERRUPTED}\n".encode())
    os._exit(128 + number)


def end_at_once_when_told() -> None:
    """Let SIGINT, SIGTERM and SIGHUP end the process at once, unless they are ignored or have handlers already.

    This is for a program that still imports its modules: there is nothing to clean up.
    """
    for number in ALL_ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, end_at_once)


def raise_terminated(number: int, frame: FrameType | None) -> None:
    """Raise :class:`Terminated`, as the handler of a signal; in code where an exception does harm, a moment later.

    In an import statement it can leave the lock of all imports held, so that other threads wait forever; while a class is
    made, as in many imports, Python 3.11 makes a RuntimeError of it; and in a callback of a weak reference it is lost.
    """
    if frame is not None and frame.f_code.co_filename in _DEAF:
        _thread.start_new_thread(_send_later, (number,))
    else:
        raise Terminated(number)


def _send_later(number: int) -> None:
    time.sleep(_LATER_S)
    os.kill(os.getpid(), number)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP raise :class:`Terminated` in the context.

    Signals that are ignored, as under nohup, and those that have handlers of others are left alone.
    """
    if not _in_main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ALL_ENDING}
    usual = (signal.SIG_DFL, signal.default_int_handler, end_at_once)
    handled = [number for number in ALL_ENDING if before[number] in usual]
    for number in handled:
        signal.signal(number, raise_terminated)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


@contextmanager
def uninterrupted() -> Iterator[list[int]]:
    """Delay SIGINT, SIGTERM and SIGHUP until the context has ended; yield the numbers of those that have come so far."""
    waiting: list[int] = []
    if not _in_main_thread():
        yield waiting
        return
    # A mask would not help: any thread of a BLAS can receive the signal, and Python then handles it in this one.
    handled = [number for number in ALL_ENDING if callable(signal.getsignal(number))]
    before = {
        number: signal.signal(number, lambda number, frame: waiting.append(number)) for number in handled
    }
    try:
        yield waiting
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(waiting):
            signal.raise_signal(late)


@contextmanager
def blocked_in_children(numbers: Iterable[int] = ALL_ENDING) -> Iterator[None]:
    """Start processes, and threads that start processes, which do not receive some signals.

    The Ctrl-C of a terminal reaches all processes, and is for the first one, which then ends the others. Signals to this
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


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
