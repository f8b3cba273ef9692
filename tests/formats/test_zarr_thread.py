"""Zarr works in a thread of its own: where that cannot be started, the next reading does not wait for it."""

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
