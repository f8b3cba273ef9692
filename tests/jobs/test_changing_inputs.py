"""An input that is truncated or written while it is read: one sentence, and no file is left."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.batch.shared import QUICK, environment
from tests.jobs.inputs import WRITERS, write_autc, write_echoframe, write_npy
from usdenoise.errors import InputError
from usdenoise.jobs.progress import Silence
from usdenoise.jobs.run_job import run

ONE_FILE = {"npy": write_npy, "AUTC": write_autc, "EchoFrame": write_echoframe}

TRUNCATING = """
import os
import usdenoise.formats.layout as layout
from usdenoise.cli import main

layout.SLAB_BYTES = 1 << 11
copy = layout.copy_by_lines

def truncated(target, source):
    copy(target, source)
    os.truncate(PATH, 4096)

layout.copy_by_lines = truncated
main()
"""


@pytest.mark.parametrize("container", ONE_FILE)
def test_an_input_that_is_truncated_while_it_is_read(container: str, tmp_path: Path) -> None:
    path = ONE_FILE[container](tmp_path)
    part = path / "bf0part000.dat" if path.is_dir() else path
    script = TRUNCATING.replace("PATH", repr(str(part)))
    command = [sys.executable, "-c", script, "run", path, "-o", tmp_path / "out", *QUICK]
    process = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert process.returncode == 1, process.stderr
    assert process.stdout == ""
    assert re.fullmatch(
        rf"usdenoise: {re.escape(str(part))} became shorter while it was read: it ends before byte \d+; run again "
        r"when nothing writes to it any more\n",
        process.stderr.splitlines(keepends=True)[-1],
    )
    assert not (tmp_path / "out").exists()


CHANGING = """
import os
import usdenoise.formats.open_input as loading
from usdenoise.cli import main

read = loading.read_stack

def changed(*arguments):
    stack = read(*arguments)
    CHANGE
    return stack

loading.read_stack = changed
main()
"""
CHANGES = {
    "is written again": "os.utime(path, ns=(7, 7))",
    "goes": "os.unlink(path)",
    "comes": "open(path + '.more', 'wb').close()",
}
CASES = [
    *((kind, "is written again", window) for kind in WRITERS for window in ((), ("--window", "8"))),
    *((kind, "goes", ()) for kind in WRITERS),
    ("Zarr", "comes", ()),
]


@pytest.mark.parametrize(("kind", "change", "window"), CASES)
def test_a_file_of_an_input_that_changes_while_it_is_read(
    kind: str, change: str, window: tuple[str, ...], tmp_path: Path
) -> None:
    write, name = WRITERS[kind]
    path = write(tmp_path)
    script = CHANGING.replace("CHANGE", CHANGES[change].replace("path", repr(str(tmp_path / name))))
    command = [sys.executable, "-c", script, "run", path, "-o", tmp_path / "out", *QUICK, *window]
    process = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert process.returncode == 1, process.stderr
    assert process.stdout == ""
    assert re.fullmatch(
        rf"usdenoise: {re.escape(str(path))} (changed while it was read; run again when nothing writes to it any more|"
        r"cannot be read any more \(No such file or directory\); check the disk)",
        process.stderr.splitlines()[-1],
    )
    assert not (tmp_path / "out").exists()


def test_a_stack_that_changes_while_it_is_read_is_not_filtered(tmp_path: Path) -> None:
    path, stages = write_npy(tmp_path), []

    class Changing(Silence):
        def stage(self, name: str) -> None:
            stages.append(name)

        def read(self, done: int, total: int) -> None:
            os.utime(path, ns=(7, 7))

    with pytest.raises(InputError, match="changed while it was read"):
        run(path, tmp_path / "out", reading={"axes": "txz"}, watcher=Changing())
    assert stages == ["load"]
