"""An input that is truncated or written while it is read: one sentence, and no file is left."""

import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.batch.shared import QUICK, environment

SHAPE = (24, 12, 10)
"""Frames, lateral and axial pixels of the stacks."""


def stack() -> Any:
    rng = np.random.default_rng(0)
    matrix = sum(
        scale * np.multiply.outer(rng.standard_normal(SHAPE[0]), rng.standard_normal(SHAPE[1:]))
        for scale in (300, 30, 10)
    )
    return (matrix + rng.standard_normal(SHAPE) + 1j * rng.standard_normal(SHAPE)).astype(np.complex64)


def write_npy(folder: Path) -> Path:
    np.save(folder / "scan.npy", stack())
    return folder / "scan.npy"


def write_autc(folder: Path) -> Path:
    values = np.ascontiguousarray(stack().transpose(1, 2, 0))
    header = struct.pack("<10i", 1, values.size, values.shape[1], values.shape[0], SHAPE[0], *[0] * 5)
    (folder / "bf0part000.dat").write_bytes(header + values.tobytes())
    return folder / "bf0part000.dat"


def write_echoframe(folder: Path) -> Path:
    values = stack()
    header = struct.pack("<5Q", 1, 40, 1, values.size, 0)
    (folder / "scan.dat").write_bytes(header + values.tobytes())
    with h5py.File(folder / "ScanParameters.mat", "w") as file:
        file["ReconSpec/xAxis"], file["ReconSpec/zAxis"] = 0.1 * np.arange(12), 0.05 * np.arange(10)
        file["ReceiveSpec/nRepeats"] = np.array([SHAPE[0]], np.int32)
    return folder / "scan.dat"


WRITERS = {"npy": write_npy, "AUTC": write_autc, "EchoFrame": write_echoframe}

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


@pytest.mark.parametrize("container", WRITERS)
def test_an_input_that_is_truncated_while_it_is_read(container: str, tmp_path: Path) -> None:
    path = WRITERS[container](tmp_path)
    script = TRUNCATING.replace("PATH", repr(str(path)))
    command = [sys.executable, "-c", script, "run", path, "-o", tmp_path / "out", *QUICK]
    process = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert process.returncode == 1, process.stderr
    assert process.stdout == ""
    assert re.fullmatch(
        rf"usdenoise: {re.escape(str(path))} became shorter while it was read: it ends before byte \d+; run again "
        r"when nothing writes to it any more\n",
        process.stderr.splitlines(keepends=True)[-1],
    )
    assert not (tmp_path / "out").exists()
