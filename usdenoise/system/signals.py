"""Signals that end a job, and blocks of code that they must not interrupt."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

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
def terminable() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP raise :class:`Terminated` in the context.

    Signals that are ignored, as under nohup, and those with handlers of another library are left alone.
    """
    if not _in_main_thread():
        yield
        return
    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in ALL_ENDING}
    handled = {number: handler for number, handler in before.items() if handler in usual}
    for number in handled:
        signal.signal(number, raise_terminated)
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)


@contextmanager
def uninterrupted() -> Iterator[list[int]]:
    """Delay SIGINT, SIGTERM and SIGHUP until the context ends; yield the list of the numbers that have arrived so far."""
    waiting: list[int] = []
    if not _in_main_thread():
        yield waiting
        return
    # A mask would not help: any thread of a BLAS can receive the signal, and Python then handles it in the main thread.
    handled = [number for number in ALL_ENDING if callable(signal.getsignal(number))]
    before = {
        number: signal.signal(number, lambda number, frame: waiting.append(number)) for number in handled
    }
    try:
        yield waiting
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
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


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
