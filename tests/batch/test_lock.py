"""One batch at a time in a folder, whoever died in it before."""

import fcntl
import json
import os
import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from usdenoise.batch.lock import FolderLock
from usdenoise.batch.plan import BatchFile
from usdenoise.errors import OutputError
from usdenoise.system.signals import Terminated, terminable


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    with FolderLock(folder) as lock:
        lock.acquire()
        yield


def test_the_lock_says_who_holds_it_and_goes(tmp_path: Path) -> None:
    with locked(tmp_path / "a/b"):
        holder = json.loads((tmp_path / "a/b" / BatchFile.LOCK).read_text())
        assert (holder["pid"], holder["host"]) == (os.getpid(), platform.node())
        with (
            pytest.raises(OutputError, match=f"process {os.getpid()} on .* since "),
            locked(tmp_path / "a/b"),
        ):
            raise AssertionError("two hold it")
        assert (tmp_path / "a/b" / BatchFile.LOCK).exists()
    assert list((tmp_path / "a/b").iterdir()) == []


def test_the_lock_goes_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path):
        pass


def test_the_lock_of_a_dead_batch_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / BatchFile.LOCK).write_text(
        json.dumps({"pid": os.getpid(), "host": "here", "since": "yesterday"}) + " " * 99
    )
    with locked(tmp_path):
        assert json.loads((tmp_path / BatchFile.LOCK).read_text())["host"] == platform.node()


def test_a_holder_who_has_not_said_who_it_is(tmp_path: Path) -> None:
    with (tmp_path / BatchFile.LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="held by another batch; wait until"), locked(tmp_path):
            raise AssertionError("two hold it")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    says = r"cannot be made, written or locked \(Not a directory\)"
    with pytest.raises(OutputError, match=says), locked(tmp_path / "file/below"):
        raise AssertionError("it was made")


def test_a_signal_at_any_line_before_the_batch_leaves_no_lock(tmp_path: Path) -> None:
    def lines_to_lock(signal_at: int | None = None) -> int:
        """Lock, with a signal at the line of that number; return the number of lines until the folder was locked."""
        lines = 0

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal lines
            if event == "line":
                lines += 1
                if lines == signal_at:
                    signal.raise_signal(signal.SIGTERM)
            return trace

        with terminable():
            sys.settrace(trace)
            try:
                with FolderLock(tmp_path) as lock:
                    lock.acquire()
                    sys.settrace(None)
            finally:
                sys.settrace(None)
        return lines

    n_lines = lines_to_lock()
    assert n_lines > 40
    for number in range(1, n_lines + 1):
        # The error keeps the frames of the traceback alive, as at the end of the program.
        with pytest.raises(Terminated) as error:
            lines_to_lock(number)
        assert list(tmp_path.iterdir()) == [], error.traceback[-1]
