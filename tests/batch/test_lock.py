"""One batch at a time in a folder, whoever died in it before."""

import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from usdenoise.batch.lock import locked
from usdenoise.batch.plan import BatchFile
from usdenoise.errors import OutputError


def test_the_lock_says_who_holds_it_and_goes(tmp_path: Path) -> None:
    folder = tmp_path / "a/b"
    holder = re.escape(f"process {os.getpid()} on {platform.node()} since ")
    with locked(folder):
        with pytest.raises(OutputError, match=f"{holder}.*; wait until it has ended"), locked(folder):
            raise AssertionError("two hold it")
        assert [path.name for path in folder.iterdir()] == [BatchFile.LOCK]
    assert list(folder.iterdir()) == []


def test_the_lock_goes_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path):
        pass


def test_the_lock_of_a_killed_batch_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from usdenoise.batch.lock import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('locked', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as batch:
        assert batch.stdout is not None
        assert batch.stdout.readline() == "locked\n"
        with pytest.raises(OutputError, match=f"process {batch.pid} on"), locked(tmp_path):
            raise AssertionError("two hold it")
        batch.send_signal(signal.SIGKILL)
    assert (tmp_path / BatchFile.LOCK).exists()
    with locked(tmp_path):
        assert f"process {os.getpid()} on" in (tmp_path / BatchFile.LOCK).read_text()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    says = r"cannot be made, written or locked \(Not a directory\); choose another one"
    with pytest.raises(OutputError, match=says), locked(tmp_path / "file/below"):
        raise AssertionError("it was made")
