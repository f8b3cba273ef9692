"""An input that is truncated or written while it is read: one sentence, and no file is left."""

import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.shared import QUICK, cli, refused
from tests.jobs.inputs import WRITERS, stack, write_npy
from usdenoise.errors import InputError, OutputError
from usdenoise.files.layout import FrameReader
from usdenoise.jobs.run_job import run
from usdenoise.progress import Progress

pytestmark = pytest.mark.usefixtures("no_pictures")


def write_again(path: Path) -> None:
    newer = time.time_ns()
    os.utime(path, ns=(newer, newer))


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def add_a_file(path: Path) -> None:
    path.with_name(f"{path.name}.more").touch()


CASES = [(kind, write_again, window) for kind in WRITERS for window in (False, True)]
CASES += [*((kind, append, False) for kind in WRITERS), ("Zarr", add_a_file, False)]


@pytest.mark.parametrize(("kind", "change", "window"), CASES)
def test_a_file_of_an_input_that_changes_while_it_is_read(kind, change, window, tmp_path, monkeypatch):
    write, name = WRITERS[kind]
    path, read = write(tmp_path), FrameReader.read

    def read_and_change(*arguments: Any) -> Any:
        values = read(*arguments)
        change(tmp_path / name)
        return values

    # It reads a stack whole, and a block of a session.
    monkeypatch.setattr(FrameReader, "read", read_and_change)
    command = ("session", "--window", 8, "--low-cutoff", 0) if window else ("run", *QUICK)
    changed = "changed while it was read; run again when no program writes to it"
    gone = r"cannot be read any more \(No such file or directory\); check the disk"
    says = rf"{re.escape(str(path))} ({changed}|{gone})"
    refused(cli(*command, path, "-o", tmp_path / "out"), says)
    assert not (tmp_path / "out").exists()


def test_a_stack_that_changes_while_it_is_read_is_not_filtered(tmp_path: Path) -> None:
    path, stages = write_npy(tmp_path), []

    class Changing(Progress):
        def stage(self, name: str) -> None:
            stages.append(name)

        def read(self, done: int, total: int) -> None:
            os.utime(path, ns=(7, 7))

    with pytest.raises(InputError, match="changed while it was read"):
        run(path, tmp_path / "out", reading={"axes": "tzx"}, watcher=Changing())
    assert stages == ["load"]


def test_a_second_run_of_the_same_results_is_refused_and_another_one_is_not(tmp_path: Path) -> None:
    path, other = write_npy(tmp_path), tmp_path / "y.npy"
    np.save(other, stack(seed=1))
    arguments: dict[str, Any] = {"reading": {"axes": "tzx"}, "overwrite": True}

    class Second(Progress):
        def stage(self, name: str) -> None:
            if name == "write":
                with pytest.raises(OutputError, match=f"another .* '{path.stem}' is writing to the folder"):
                    run(path, tmp_path / "out", **arguments)
                run(other, tmp_path / "out", **arguments)

    run(path, tmp_path / "out", **arguments, watcher=Second())
    assert len(list((tmp_path / "out").glob("*_report.json"))) == 2
    assert not list((tmp_path / "out").glob(".*"))
