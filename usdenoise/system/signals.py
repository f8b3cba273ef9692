"""Signals that end a job, and blocks of code that they must not interrupt."""

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ALL_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a process to end."""

INTERRUPTED = "interrupted; no result was left half written"
"""What the program says when a signal has ended it, after its name."""

_AGAIN_S = 0.02
"""Time in s until a signal that came within an import is delivered again."""

_LONGEST_IMPORT_S = 10.0
"""Time in s for which a signal may be delayed by imports; those of a command take about a second."""


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
    """Raise :class:`Terminated`, as the handler of a signal.

    A signal that comes within an import is delivered again when the import may be over. The exception could be lost
    there: libraries catch what their modules raise, and the interpreter prints what its own callbacks raise.
    """
    if _is_importing(frame) and _deliver_again(number):
        return
    _delayed_since.pop(number, None)
    raise Terminated(number)


_delayed_since: dict[int, float] = {}
"""Time at which each signal came first, for those that wait for the end of an import."""


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib._bootstrap"):
            return True
        frame = frame.f_back
    return False


def _deliver_again(number: int) -> bool:
    """Start a thread that sends a signal again, and return whether that was possible and is not late."""
    if time.monotonic() - _delayed_since.setdefault(number, time.monotonic()) > _LONGEST_IMPORT_S:
        return False

    def deliver() -> None:
        time.sleep(_AGAIN_S)
        os.kill(os.getpid(), number)

    try:
        # A handler may not take the locks of the module threading: the code that it interrupts may hold them.
        _thread.start_new_thread(deliver, ())
    except RuntimeError:
        # There is no memory for a thread.
        return False
    return True


@contextmanager
def none_is_lost() -> Iterator[None]:
    """Deliver a signal again whose :class:`Terminated` is lost in the context.

    The interpreter can only print what a destructor or a callback of a weak reference raises, and then goes on.
    """
    before = sys.unraisablehook

    def deliver_or_print(lost: "sys.UnraisableHookArgs") -> None:
        if isinstance(lost.exc_value, Terminated):
            signal.signal(lost.exc_value.number, raise_terminated)
            _deliver_again(lost.exc_value.number)
        else:
            before(lost)

    sys.unraisablehook = deliver_or_print
    try:
        yield
    finally:
        sys.unraisablehook = before


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
        with none_is_lost():
            yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP until the context has ended."""
    if not _in_main_thread():
        yield
        return
    waiting: list[int] = []
    # A mask would not help: any thread of a BLAS can receive the signal, and Python then handles it in this one.
    handled = [number for number in ALL_ENDING if callable(signal.getsignal(number))]
    before = {
        number: signal.signal(number, lambda number, frame: waiting.append(number)) for number in handled
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(waiting):
            signal.raise_signal(late)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
