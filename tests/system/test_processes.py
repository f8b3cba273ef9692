"""Calls in processes of their own: each fails alone, and none is left."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from tests.batch.shared import environment, wait_for
from usdenoise.system.processes import ProcessDiedError, ProcessExecutor, ask


def killed() -> None:
    signal.raise_signal(signal.SIGKILL)


def ended() -> None:
    os._exit(3)


def failed() -> None:
    raise ArithmeticError("no number")


class Heavy:
    """A result for whose message there is no memory."""

    def __reduce__(self) -> Any:
        raise MemoryError


def asking(number: int) -> Any:
    return ask({"number": number})


def waiting(place: Path) -> None:
    place.touch()
    try:
        time.sleep(600)
    finally:
        place.unlink()


def test_each_call_is_made_elsewhere_and_may_ask() -> None:
    with ProcessExecutor(2, answer=lambda pid, message: (pid, message["number"] + 1)) as executor:
        futures = [executor.submit(asking, number) for number in range(3)]
        answers = [future.result() for future in futures]
    assert [number for _, number in answers] == [1, 2, 3]
    assert len({pid for pid, _ in answers} | {os.getpid()}) == 4
    # Here is no executor that could answer.
    assert ask("anything") is None


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (killed, ProcessDiedError, "was ended by SIGKILL, as the system does when memory runs out"),
        (ended, ProcessDiedError, "was ended without a message"),
        (failed, ArithmeticError, "no number"),
        (Heavy, MemoryError, "^$"),
    ],
)
def test_what_fails_fails_alone(function: Callable[[], None], error: type[Exception], says: str) -> None:
    with ProcessExecutor(1) as executor:
        bad, good = executor.submit(function), executor.submit(divmod, 17, 5)
        with pytest.raises(error, match=says):
            bad.result()
        assert good.result() == (3, 2)


@pytest.mark.parametrize(
    ("refusal", "error", "says"),
    [
        (EOFError("unexpected EOF"), ProcessDiedError, r"could not be started \(unexpected EOF\)"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), MemoryError, "Cannot allocate memory"),
    ],
)
def test_a_process_that_cannot_be_started(
    refusal: Exception, error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: ForkServerProcess) -> None:
        raise refusal

    with ProcessExecutor(1) as executor:
        with monkeypatch.context() as patched:
            patched.setattr(ForkServerProcess, "start", refuse)
            with pytest.raises(error, match=says):
                executor.submit(divmod, 17, 5).result()
        assert executor.submit(divmod, 17, 5).result() == (3, 2)


def test_a_call_that_takes_too_long(tmp_path: Path) -> None:
    with ProcessExecutor(1, timeout_s=0.5) as executor, pytest.raises(TimeoutError):
        executor.submit(waiting, tmp_path / "place").result()


def test_calls_end_with_the_executor_and_clean_up(tmp_path: Path) -> None:
    with ProcessExecutor(1) as executor:
        running, queued = executor.submit(waiting, tmp_path / "place"), executor.submit(divmod, 17, 5)
        wait_for((tmp_path / "place").exists)
    # A process that had to be killed would have left it.
    assert not (tmp_path / "place").exists()
    with pytest.raises(ProcessDiedError):
        running.result()
    with pytest.raises(CancelledError):
        queued.result()


SCRIPT = """
import sys, time
from pathlib import Path
from tests.system.test_processes import waiting
from usdenoise.system.processes import ProcessExecutor
executor = ProcessExecutor(1)
executor.submit(waiting, Path(sys.argv[1]))
time.sleep(600)
"""


def test_a_script_is_not_run_again_and_its_calls_end_when_it_is_killed(tmp_path: Path) -> None:
    script, place = tmp_path / "script.py", tmp_path / "place"
    script.write_text(SCRIPT)
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen([sys.executable, script, place], env=environment(PYTHONPATH=root))
    wait_for(lambda: place.exists() or process.poll() is not None)
    assert process.poll() is None
    process.kill()
    process.wait()
    wait_for(lambda: not place.exists())
