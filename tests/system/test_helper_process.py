"""A helper calls functions as this process would, and ends with it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from usdenoise.pictures.doppler_pictures import power_doppler_png
from usdenoise.pictures.figures import load_libraries
from usdenoise.system.helper_process import HERE, HelperProcess


def helper() -> HelperProcess:
    return HelperProcess("os", "getpid")


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_functions_are_called_in_the_other_process() -> None:
    with helper() as other:
        assert other.call(os.getpid) != os.getpid()
        assert other.call(divmod, 17, 5) == (3, 2)
        assert other.call(sorted, "bca", reverse=True) == ["c", "b", "a"]
        assert 5e6 < other.peak_memory_bytes < 500e6
    assert HERE.call(os.getpid) == os.getpid()
    assert HERE.peak_memory_bytes == 0


def test_pictures_are_the_same() -> None:
    levels = np.linspace(-30, 0, 600).reshape(20, 30)
    with HelperProcess(load_libraries.__module__, load_libraries.__name__) as other:
        assert other.call(power_doppler_png, levels, "zx", title="same") == power_doppler_png(
            levels, "zx", title="same"
        )


def test_what_is_printed_does_not_get_among_the_results(capfd: pytest.CaptureFixture[str]) -> None:
    with helper() as other:
        assert other.call(print, "noise", flush=True) is None
        assert other.call(os.system, "echo more noise") == 0
        assert other.call(abs, -3) == 3
    assert capfd.readouterr().out == ""


def test_errors_are_raised_here() -> None:
    with helper() as other:
        with pytest.raises(ZeroDivisionError):
            other.call(divmod, 1, 0)
        # The helper has ended; this process goes on alone.
        assert other.call(os.getpid) == os.getpid()


@pytest.mark.parametrize("module", ["no_such_module", "os"])
def test_a_helper_that_ends_is_not_missed(module: str) -> None:
    with HelperProcess(module, "abort") as other:
        assert other.call(os.getpid) == os.getpid()
        assert other.call(divmod, 17, 5) == (3, 2)


def test_it_ends_with_its_context() -> None:
    with helper() as other:
        pid = other.call(os.getpid)
        assert is_alive(pid)
    assert not is_alive(pid)


def test_it_ends_with_a_process_that_is_killed() -> None:
    code = (
        "import os\n"
        "from usdenoise.system.helper_process import HelperProcess\n"
        "print(HelperProcess('os', 'getpid').call(os.getpid), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -9
    ends = time.monotonic() + 20
    while is_alive(int(done.stdout)):
        assert time.monotonic() < ends, "the helper outlives the process that started it"
        time.sleep(0.05)


def test_modules_of_the_current_folder_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    with helper() as other:
        assert other.call(os.getpid) != os.getpid()
