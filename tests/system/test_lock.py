"""One batch or session at a time writes to an output folder, and one command to the results of a name."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from usdenoise.errors import OutputError
from usdenoise.system.processes import locked


def test_a_locked_folder_is_refused_and_a_new_one_goes_if_it_is_empty(tmp_path: Path) -> None:
    folder = tmp_path / "a/b"
    with locked(folder) as lock:
        assert lock.exists()
        with pytest.raises(OutputError), locked(folder):
            raise AssertionError("two hold it")
        assert lock.exists()
    assert list(tmp_path.iterdir()) == []
    with locked(folder):
        (folder / "result").touch()
    assert [path.name for path in folder.iterdir()] == ["result"]


def test_results_of_other_names_are_written_side_by_side(tmp_path: Path) -> None:
    with locked(tmp_path), locked(tmp_path, "a"), locked(tmp_path, "b"):
        held = sorted(path.name for path in tmp_path.iterdir())
        with pytest.raises(OutputError, match="another run or session of 'a'"):
            locked(tmp_path, "a").__enter__()
    assert held == [".usdenoise-partial-a.lock", ".usdenoise-partial-b.lock", ".usdenoise.lock"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "x"])
def test_the_lock_of_a_killed_process_is_free(name: str, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from usdenoise.system.processes import locked\n"
        "with locked(Path(sys.argv[1]), sys.argv[2]):\n    print('locked', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path, name], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(OutputError), locked(tmp_path, name):
            raise AssertionError("two hold it")
        holder.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 1
    with locked(tmp_path, name):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError), locked(tmp_path / "file/below"):
        raise AssertionError("it was made")
