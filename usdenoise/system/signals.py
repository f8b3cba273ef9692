"""Being told to stop: which signals end a job, how to finish what must not be cut in two, and what need not finish."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """A signal asked the process to end.

    Attributes
    ----------
    number : int
        The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """What a shell expects of a process that a signal ended: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + (error.number if isinstance(error, Terminated) else signal.SIGINT)


def raise_terminated(number: int, frame: FrameType | None) -> None:
    """Handler of a signal: leave what is being done, as Ctrl-C does."""
    raise Terminated(number)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise :class:`Terminated` meanwhile, unless they are ignored as under nohup."""
    if not _in_main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    heard = [number for number in ENDING if before[number] == signal.SIG_DFL]
    for number in heard:
        signal.signal(number, raise_terminated)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP wait until the block has ended."""
    if not _in_main_thread():
        yield
        return
    waiting: list[int] = []
    # Masking them would not do: any thread of a BLAS can receive a signal, and Python then handles it here.
    heard = [number for number in (signal.SIGINT, *ENDING) if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda got, frame: waiting.append(got)) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(waiting):
            signal.raise_signal(late)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
