"""The figures of a small scan are drawn in a process of their own; they are those that this process would draw."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from usdenoise.cli import main

SECOND = """
import json, sys
from usdenoise.cli import run
from usdenoise.cli.main import main
from usdenoise.system import helper_process

helpers = []
class Counted(helper_process.HelperProcess):
    def __init__(self, *arguments):
        helpers.append(self)
        super().__init__(*arguments)
helper_process.HelperProcess = Counted
if len(sys.argv) > 1 and sys.argv[1] == "--large":
    del sys.argv[1]
    run._SMALL_BYTES = 100
try:
    main()
finally:
    loaded = "matplotlib" in sys.modules
    print(json.dumps([len(helpers), [helper.peak_memory_bytes for helper in helpers], loaded]), file=sys.stderr)
"""
"""A command that says on stderr how many helpers it started, their memory, and whether it loaded matplotlib itself."""


def in_a_process(*arguments: Any, exit_code: int = 0) -> tuple[int, list[int], bool, str]:
    done = subprocess.run(
        [sys.executable, "-c", SECOND, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == exit_code, done.stderr
    *said, last = done.stderr.splitlines()
    n_helpers, peaks, loaded = json.loads(last)
    return n_helpers, peaks, loaded, "\n".join(said)


def test_a_small_scan_has_a_helper_that_draws_the_same(phantom_file: Path, tmp_path: Path) -> None:
    arguments = ("run", phantom_file, "--products", "power,velocity", "--figure-format", "png,svg")
    n_helpers, (peak,), loaded, _ = in_a_process(*arguments, "-o", tmp_path / "helper")
    assert n_helpers == 1
    assert not loaded
    done = CliRunner().invoke(main, [str(a) for a in (*arguments, "-o", tmp_path / "here")])
    assert done.exit_code == 0
    for name in ("power_doppler.png", "power_doppler.svg", "velocity.png", "power_doppler.tif"):
        here, there = (tmp_path / place / f"small_{name}" for place in ("here", "helper"))
        assert here.read_bytes() == there.read_bytes(), name
    # The memory of the helper, which has numpy and matplotlib, is part of that of the job.
    report = json.loads((tmp_path / "helper/small_report.json").read_text())
    assert peak > 40e6
    assert report["peak_memory_bytes"] > peak + 40e6


@pytest.mark.parametrize(
    ("before", "after"), [(("--large",), ()), ((), ("--window", "20"))], ids=["large", "windows"]
)
def test_other_scans_have_none(
    before: tuple[str, ...], after: tuple[str, ...], phantom_file: Path, tmp_path: Path
) -> None:
    n_helpers, _, loaded, _ = in_a_process(*before, "run", phantom_file, "-o", tmp_path, *after)
    assert n_helpers == 0
    assert loaded


def test_a_refusal_does_not_wait_for_the_helper(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["iq"] = np.zeros((3, 4))
    n_helpers, peaks, loaded, said = in_a_process("run", path, exit_code=1)
    assert (n_helpers, peaks, loaded) == (1, [0], False)
    assert said.startswith("usdenoise: ")
