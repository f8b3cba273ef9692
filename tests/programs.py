"""Python code in a process of its own, and a process that may write no large files."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def as_from_a_shell() -> None:
    """Let Ctrl-C interrupt: tests in the background of a script have SIGINT ignored, and hand that down."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def python(
    code: str,
    *arguments: Any,
    timeout_s: float | None = 300,
    before: Callable[[], None] = as_from_a_shell,
    **environment: str,
) -> "subprocess.CompletedProcess[str]":
    """Run code that sees the tests, with these words as its command line."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True,
        cwd=Path(__file__).parents[1], env={**os.environ, **environment}, preexec_fn=before,
        timeout=timeout_s,
    )  # fmt: skip


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Larger files fail as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
