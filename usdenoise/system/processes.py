"""Functions that are called in processes of their own.

A call that crashes, is killed or finds no memory fails alone, and the system gets all of its memory back.
"""

import _thread
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import ForkingPickler
from threading import Event, Lock
from types import FrameType, ModuleType
from typing import Any

from usdenoise.errors import is_out_of_memory
from usdenoise.system.memory import use_one_heap
from usdenoise.system.signals import ALL_ENDING, Terminated, blocked_in_children, raise_terminated

GRACE_S = 5.0
"""Seconds that a process has to remove its temporary files after it was asked to end."""

_LOOK_S = 0.1
"""Seconds after which a thread that waits for its process looks whether the executor was shut down."""

_ASKS, _RETURNS, _RAISES = "asks", "returns", "raises"
"""What a process sends: a message that waits for its answer, the result of the call, or the exception that it raised."""

_CONTEXT = multiprocessing.get_context("forkserver")
_BOOKKEEPING = Lock()
"""Held while a process is started or its end is noted: multiprocessing keeps a list of all processes without a lock."""

_to_parent: Connection | None = None


class ProcessDiedError(Exception):
    """The process of a call ended without a result; the text, such as "was ended by SIGKILL", says how."""


class ProcessExecutor(Executor):
    """An executor that calls each function in a process of its own.

    The processes are forked from a server that has the libraries loaded, so one starts within milliseconds. A script
    that makes them is not run again in them.

    Parameters
    ----------
    jobs : int
        Largest number of processes at a time.
    preload : sequence of str
        Modules that the server loads. It is started with the first process of this program.
    answer : callable, optional
        Called with the id of a process and a message of :func:`ask`, in one of several threads; what it returns is the
        answer. By default the answer is None.
    timeout_s : float, optional
        Longest time of a call in s, after which its future raises TimeoutError; by default none.
    """

    def __init__(
        self,
        jobs: int,
        preload: Sequence[str] = (),
        answer: Callable[[int, Any], Any] = lambda pid, message: None,
        timeout_s: float | None = None,
    ) -> None:
        self._threads = ThreadPoolExecutor(jobs)
        self._is_ended = Event()
        self._answer = answer
        self._timeout_s = float("inf") if timeout_s is None else timeout_s
        _CONTEXT.set_forkserver_preload(["usdenoise.system.server_process", *preload])

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **settings: Any) -> Future[Any]:
        """Call a function of a module in a process of its own, and return the future of its result.

        The future raises :class:`ProcessDiedError` if the process ends without a result or cannot be started, and
        MemoryError if there is no memory to start it.
        """
        return self._threads.submit(self._call, partial(function, *arguments, **settings))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `cancel_futures` also end the running ones, by SIGKILL after :data:`GRACE_S`."""
        if cancel_futures:
            self._is_ended.set()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)

    def __exit__(self, *error: object) -> None:
        self.shutdown(cancel_futures=True)

    def _call(self, call: Callable[[], Any]) -> Any:
        pipe, far_end = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(far_end, call), daemon=True)
        with pipe:
            # The parent's copy of the far end must be closed: only then does the pipe end when the process ends.
            with far_end:
                _start(process)
            try:
                return self._result(process, pipe)
            finally:
                _end(process)

    def _result(self, process: ForkServerProcess, pipe: Connection) -> Any:
        deadline, is_told = time.monotonic() + self._timeout_s, False
        while True:
            if self._is_ended.is_set() and not is_told:
                process.terminate()
                deadline, is_told = time.monotonic() + GRACE_S, True
            left = deadline - time.monotonic()
            if left < 0:
                process.kill()
                raise TimeoutError
            if not pipe.poll(min(left, _LOOK_S)):
                continue
            try:
                kind, value = pipe.recv()
                if kind == _ASKS:
                    pipe.send(self._answer(process.pid or 0, value))
            except (EOFError, OSError):
                _end(process)
                raise ProcessDiedError(_how_it_ended(process.exitcode)) from None
            if kind == _RETURNS:
                return value
            if kind == _RAISES:
                raise value


def ask(message: Any) -> Any:
    """Send a message to the executor that called for this process, and return its answer; None in other processes."""
    if _to_parent is None:
        return None
    _to_parent.send((_ASKS, message))
    return _to_parent.recv()


def _start(process: ForkServerProcess) -> None:
    try:
        with _BOOKKEEPING, _main_hidden(), blocked_in_children():
            process.start()
    except (OSError, EOFError) as error:
        if is_out_of_memory(error):
            raise MemoryError(str(error)) from error
        raise ProcessDiedError(f"could not be started ({error})") from error


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Hide the script of the caller from multiprocessing, which would run it again in the new process."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _end(process: ForkServerProcess) -> None:
    """Wait until a process has ended, and kill it after :data:`GRACE_S`."""
    if not wait([process.sentinel], GRACE_S):
        process.kill()
    with _BOOKKEEPING:
        process.join(GRACE_S)


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return "was ended without a message"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    why = ", as the system does when memory runs out" if -exit_code == signal.SIGKILL else ""
    return f"was ended by {name}{why}"


def _serve(pipe: Connection, call: Callable[[], Any]) -> None:
    """Make a call in the process that was started for it, and send what comes of it."""
    global _to_parent
    _to_parent = pipe
    # A terminal's Ctrl-C reaches every process; only the parent acts on it, and ends the others with SIGTERM.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate_once)
    use_one_heap()
    # Made now: later there may be no memory to make it.
    out_of_memory = ForkingPickler.dumps((_RAISES, MemoryError()))
    try:
        # They were blocked until there were handlers.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL_ENDING)
        try:
            # Thread.start would wait forever for a thread that finds no memory for its first step.
            _thread.start_new_thread(_follow_parent, ())
            outcome = _RETURNS, call()
        except Exception as error:
            outcome = _RAISES, error
        try:
            pipe.send(outcome)
        except MemoryError:
            pipe.send_bytes(out_of_memory)
    except (KeyboardInterrupt, OSError):
        # The parent asked this process to end, or has ended itself.
        return
    finally:
        # What is left is the end of the interpreter, which may be cut short.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate_once(number: int, frame: FrameType | None) -> None:
    """Raise :class:`Terminated`, and ignore the signal from then on: one to the whole group comes twice."""
    try:
        raise_terminated(number, frame)
    except Terminated:
        signal.signal(number, signal.SIG_IGN)
        raise


def _follow_parent() -> None:
    """Wait until the parent process ends; then end this one, with time to remove its temporary files."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_S)
        os._exit(1)
