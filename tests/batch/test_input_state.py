"""A batch skips a scan only while every file that the scan is read from stays the same."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.batch.shared import ARGUMENTS
from tests.jobs.inputs import WRITERS
from usdenoise.batch import Decision, Status, plan_batch, run_batch
from usdenoise.formats.file_state import file_state, sha256


def batch(path: Path) -> Any:
    """The row of the scan in a batch."""
    (row,) = run_batch([path], path.parent / "out", arguments=ARGUMENTS).rows
    return row


def decision(path: Path) -> Decision:
    """What the same batch would do now."""
    (found,) = plan_batch([path], path.parent / "out", arguments=ARGUMENTS).values()
    return found


@pytest.mark.parametrize("kind", WRITERS)
def test_a_change_of_any_file_is_seen(kind: str, tmp_path: Path) -> None:
    write, name = WRITERS[kind]
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    path = write(here)
    place = here / name
    assert batch(path).status == Status.DONE
    assert (decision(path).action, decision(path).reason) == ("skip", "complete")
    # A scan may be moved with its results.
    shutil.copytree(here, there)
    assert decision(there / path.name).action == "skip"
    report = json.loads((here / "out/x/x_report.json").read_text())
    assert report["input"]["bytes"] == sum(
        file.stat().st_size for file in {path, *path.rglob("*"), place, *here.glob("part*")} if file.is_file()
    )
    # Another date alone is no other content.
    os.utime(place, ns=(7, 7))
    assert (decision(path).action, decision(path).reason) == ("skip", "complete")
    # Content of the same length, older than the newest file.
    data = bytearray(place.read_bytes())
    data[-100] ^= 1
    place.write_bytes(data)
    os.utime(place, ns=(8, 8))
    assert (decision(path).action, decision(path).reason) == ("run", "the input changed")
    write(here, seed=1)
    assert batch(path).status == Status.DONE
    again = json.loads((here / "out/x/x_report.json").read_text())
    assert again["input"]["sha256"] != report["input"]["sha256"]
    place.unlink()
    reason = "the input changed" if place != path else "the input is not there"
    assert (decision(path).action, decision(path).reason) == ("run", reason)


@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind != "HDF5"])
def test_a_file_that_comes_back_is_another_input(kind: str, tmp_path: Path) -> None:
    write, name = WRITERS[kind]
    path = write(tmp_path)
    place = tmp_path / name
    place.rename(tmp_path / "away")
    row = batch(path)
    assert row.status == Status.FAILED
    assert decision(path).action == "keep failed"
    assert batch(path).error == row.error
    (tmp_path / "away").rename(place)
    assert (decision(path).action, decision(path).reason) == ("run", "new")
    assert batch(path).status == Status.DONE


def test_the_digest_of_one_file_is_its_own(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(0))
    assert sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert file_state(tmp_path / "absent") is None
