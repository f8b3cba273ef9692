"""A second process of this program, which calls functions for it while it does something else."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import IO, Any, Protocol, Self, TypeVar

from usdenoise.system.memory import peak_memory_bytes

Result = TypeVar("Result")


class Caller(Protocol):
    """What calls functions: this process, or a helper."""

    def call(self, function: Callable[..., Result], *arguments: Any, **settings: Any) -> Result:
        """Return the result of a function of a module, which is the same in any process."""
        ...

    @property
    def peak_memory_bytes(self) -> int:
        """Largest resident size of the helper so far in bytes; 0 for this process."""
        ...


class ThisProcess:
    """Calls functions in this process."""

    peak_memory_bytes = 0

    def call(self, function: Callable[..., Result], *arguments: Any, **settings: Any) -> Result:
        """Return the result of a function."""
        return function(*arguments, **settings)


HERE = ThisProcess()
"""This process."""


class HelperProcess:
    """A process that calls functions, one after the other.

    As a context it ends the process, which also ends when this one does.

    Parameters
    ----------
    module, function : str
        A function without arguments that it calls at once, to load what the others need.
    """

    def __init__(self, module: str, function: str) -> None:
        code = f"from {__name__} import serve; serve({module!r}, {function!r})"
        pipe = subprocess.PIPE
        self._process = start_python(code, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self._answers = True
        self._peak = 0

    def call(self, function: Callable[..., Result], *arguments: Any, **settings: Any) -> Result:
        """Return the result of a function: from the helper, or from this process where the helper does not answer.

        So what a function raises is raised here, too.
        """
        calls, results = self._process.stdin, self._process.stdout
        if self._answers and calls is not None and results is not None:
            try:
                pickle.dump((function, arguments, settings), calls)
                calls.flush()
                result: Result
                result, self._peak = pickle.load(results)
                return result
            except (OSError, EOFError, pickle.PickleError):
                self._answers = False
        return HERE.call(function, *arguments, **settings)

    @property
    def peak_memory_bytes(self) -> int:
        """Largest resident size of the helper when it last answered, in bytes."""
        return self._peak

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        # A call that was not sent fails once more when its pipe is closed.
        with suppress(OSError):
            self._process.__exit__(kind, error, trace)


def start_python(code: str, **streams: Any) -> "subprocess.Popen[bytes]":
    """Start another process of this Python, which finds the same modules.

    Parameters
    ----------
    code : str
        What it executes.
    **streams
        Arguments `stdin`, `stdout` and `stderr` of :class:`subprocess.Popen`.
    """
    # The current folder may hold modules of any name.
    folders = [folder for folder in sys.path if folder]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.Popen([sys.executable, "-P", "-c", code], env=env, **streams)


def serve(module: str, function: str) -> None:
    """Call a function of a module, and then what comes in on stdin until it ends; results go to stdout."""
    calls, results = sys.stdin.buffer, _own_stdout()
    getattr(import_module(module), function)()
    with suppress(EOFError):
        while True:
            called, arguments, settings = pickle.load(calls)
            pickle.dump((called(*arguments, **settings), peak_memory_bytes()), results)
            results.flush()


def _own_stdout() -> IO[bytes]:
    """Return stdout as a stream for results alone; what is printed goes nowhere."""
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return results
