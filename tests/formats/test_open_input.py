"""An open input: what is left of it when it is closed."""

import tracemalloc
from pathlib import Path

import numpy as np
import scipy.io

from usdenoise.formats.open_input import open_input


def test_a_closed_input_frees_an_array_that_was_loaded_whole(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((50, 40, 200)) + 0j
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": values})
    tracemalloc.start()
    try:
        with open_input(tmp_path / "x.mat") as source:
            stack = source.read()
            held = tracemalloc.get_traced_memory()[0]
            source.close()
            assert held - tracemalloc.get_traced_memory()[0] > 0.9 * values.nbytes
            source.check_unchanged()
            assert source.passes == 2
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(stack.iq, values)
