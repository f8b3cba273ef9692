"""One writer to a folder or a name, being told to stop, and finishing first what must not be cut in two."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import python
from usdenoise.errors import OutputError
from usdenoise.system.processes import Terminated, exit_code, locked, terminable, uninterrupted


def test_a_locked_folder_or_one_that_cannot_be_made_is_refused_and_a_new_one_goes_if_it_is_empty(
    tmp_path: Path,
) -> None:
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
    with pytest.raises(OutputError), locked(folder / "result/below"):
        raise AssertionError("it was made")


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
    command = [sys.executable, "-c", code, tmp_path, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(OutputError), locked(tmp_path, name):
            raise AssertionError("two hold it")
        holder.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 1
    with locked(tmp_path, name):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """Handlers as a program has them when it starts."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in numbers[1:]:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_raises_while_it_is_terminable(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Terminated) as caught, terminable():
        os.kill(os.getpid(), number)
    assert exit_code(caught.value) == code
    assert signal.getsignal(number) == before


def test_ctrl_c_while_modules_are_imported_has_no_traceback() -> None:
    code = (
        "import os, signal, sys; import usdenoise.__main__ as program\n"
        "class Imports:\n    def find_spec(*arguments):\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Imports)\nprogram.main()\n"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_ignored_signals_stay_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with terminable():
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_signals_wait_for_the_end_of_the_block() -> None:
    reached = []

    def work() -> None:
        with terminable(), uninterrupted():
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGTERM)
            reached.append("end")

    with pytest.raises(Terminated):
        work()
    assert reached == ["end"]


def test_other_threads_keep_their_handlers() -> None:
    done = []

    def work() -> None:
        with terminable(), uninterrupted():
            done.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.SIG_DFL]
