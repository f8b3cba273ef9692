"""An open input: which errors are those of its file, and what is left of it when it is closed."""

import errno
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io

from tests.files.layouts import IQ, in_chunks, npz
from tests.jobs.inputs import WRITERS
from usdenoise.errors import InputError
from usdenoise.files.open_input import open_input


def test_a_closed_input_frees_an_array_that_was_loaded_whole(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((50, 40, 200)) + 0j
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": values})
    tracemalloc.start()
    try:
        with open_input(tmp_path / "x.mat") as source:
            acquisition = source.read()
            held = tracemalloc.get_traced_memory()[0]
            source.close()
            assert held - tracemalloc.get_traced_memory()[0] > 0.9 * values.nbytes
            source.check_unchanged()
            assert source.passes == 2
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(acquisition.iq, values)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left"), ValueError("not of the file"), MemoryError()]
)
@pytest.mark.parametrize("write", [WRITERS["Zarr"][0], npz(False, IQ=IQ), in_chunks(compression="gzip")])
def test_an_error_in_the_work_on_an_open_input_is_not_taken_for_a_damaged_file(write, error, tmp_path):
    def work() -> None:
        with open_input(write(tmp_path)) as source:
            source.read(0, 2)
            raise error

    with pytest.raises(type(error)) as caught:
        work()
    assert caught.value is error


def test_damage_that_shows_while_an_input_is_read(tmp_path: Path) -> None:
    path = in_chunks(compression="gzip")(tmp_path)
    with h5py.File(path) as file:
        chunk = file["group/iq"].id.get_chunk_info(2)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset : chunk.byte_offset + 40] = bytes(40)
    path.write_bytes(content)
    with open_input(path) as source:
        source.read(0, 4)
        with pytest.raises(InputError, match=r"x\.h5 is truncated or corrupt"):
            source.read(8, 12)
