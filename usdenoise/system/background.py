"""Work in a background thread."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_in_background(work: Callable[..., Result], *arguments: Any) -> Future[Result]:
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
