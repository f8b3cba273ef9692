"""Being told to stop, and finishing first what must not be cut in two."""

import errno
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from tests.programs import python
from usdenoise.errors import is_out_of_memory
from usdenoise.system.processes import Terminated, exit_code, terminable, uninterrupted
from usdenoise.system.resources import run_in_background


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


def test_background_work_returns_its_result_or_raises_its_error() -> None:
    assert run_in_background(divmod, 17, 5).result() == (3, 2)
    with pytest.raises(ZeroDivisionError):
        run_in_background(divmod, 1, 0).result()


def test_background_work_does_not_delay_the_end_of_the_process() -> None:
    code = "import time; from usdenoise.system.resources import run_in_background; run_in_background(time.sleep, 600)"
    python(code).check_returncode()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        ImportError("libjpeg.so: failed to map segment from shared object"),
        SystemError("error return without exception set"),
    ],
)
def test_errors_that_mean_out_of_memory(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_other_errors_are_not_out_of_memory() -> None:
    assert not is_out_of_memory(SystemError("bad argument to internal function"))
    assert not is_out_of_memory(OSError(errno.EACCES, "Permission denied"))
