"""Zarr works in a thread of its own: what does not start there is started again, and what fails there prints nothing."""

import json
from pathlib import Path

import numpy as np

from tests.formats import layouts
from tests.programs import python

PROGRAM = """
import sys, threading
import numpy as np
import usdenoise

start, refused = threading.Thread.start, []

def without_memory(thread):
    if thread.name == "zarr_io" and not refused:
        refused.append(thread)
        raise RuntimeError("can't start new thread")
    start(thread)

threading.Thread.start = without_memory
try:
    usdenoise.load(sys.argv[1])
except Exception as error:
    print(type(error).__name__)
print(len(refused), np.abs(usdenoise.load(sys.argv[1]).iq).sum())
"""


def test_a_thread_that_could_not_be_started_is_started_again(tmp_path: Path) -> None:
    path = layouts.confusius()(tmp_path)
    done = python(PROGRAM, path)
    first, second = done.stdout.splitlines()
    assert first.endswith("Error")
    n_refused, total = second.split()
    assert n_refused == "1"
    np.testing.assert_allclose(float(total), np.abs(layouts.IQ).sum(), rtol=1e-5)


def test_several_damaged_members_of_a_group_are_one_sentence(tmp_path: Path) -> None:
    path = layouts.confusius()(tmp_path)
    metadata = sorted(path.rglob("zarr.json"))
    assert len(metadata) > 3
    for file in metadata:
        content = json.loads(file.read_bytes())
        if content["node_type"] == "group":
            content.pop("consolidated_metadata", None)
            file.write_text(json.dumps(content))
        else:
            file.write_bytes(b"\xff" + file.read_bytes())
    done = python("from usdenoise.cli import main; main()", "info", path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "is damaged: it cannot be read as a Zarr group" in done.stderr
