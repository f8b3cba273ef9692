"""One batch at a time in a folder, whoever died in it before."""

import fcntl
import json
import os
import platform
from pathlib import Path

import pytest

from usdenoise.batch.lock import hold
from usdenoise.batch.plan import BatchFile
from usdenoise.errors import OutputError


def test_the_lock_says_who_holds_it_and_goes(tmp_path: Path) -> None:
    with hold(tmp_path / "a/b"):
        holder = json.loads((tmp_path / "a/b" / BatchFile.LOCK).read_text())
        assert (holder["pid"], holder["host"]) == (os.getpid(), platform.node())
        with pytest.raises(OutputError, match=f"process {os.getpid()} on .* since "), hold(tmp_path / "a/b"):
            raise AssertionError("two hold it")
        assert (tmp_path / "a/b" / BatchFile.LOCK).exists()
    assert list((tmp_path / "a/b").iterdir()) == []


def test_the_lock_goes_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold(tmp_path):
        raise ZeroDivisionError
    with hold(tmp_path):
        pass


def test_the_lock_of_a_dead_batch_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / BatchFile.LOCK).write_text(
        json.dumps({"pid": os.getpid(), "host": "here", "since": "yesterday"}) + " " * 99
    )
    with hold(tmp_path):
        assert json.loads((tmp_path / BatchFile.LOCK).read_text())["host"] == platform.node()


def test_a_holder_who_has_not_said_who_it_is(tmp_path: Path) -> None:
    with (tmp_path / BatchFile.LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="held by another batch; wait until"), hold(tmp_path):
            raise AssertionError("two hold it")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    says = r"cannot be made, written or locked \(Not a directory\)"
    with pytest.raises(OutputError, match=says), hold(tmp_path / "file/below"):
        raise AssertionError("it was made")
