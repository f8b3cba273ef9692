"""An open input: which errors are those of its file, and what is left of it when it is closed."""

import errno
import hashlib
import os
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import zarr

from tests.files.layouts import IQ, in_chunks, npz
from tests.jobs.inputs import WRITERS
from usdenoise.errors import InputError
from usdenoise.files.input_files import file_state, sha256, size_on_disk
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


STACK = np.random.default_rng(0).standard_normal((12, 5, 4)).astype(np.complex64)


def npy(folder: Path) -> tuple[Path, Path]:
    """An input, and a file of it."""
    np.save(folder / "x.npy", STACK)
    return folder / "x.npy", folder / "x.npy"


def zarr_array(folder: Path) -> tuple[Path, Path]:
    """An input, and a file of it."""
    zarr.create_array(folder / "x.zarr", data=STACK, chunks=(4, 5, 4), zarr_format=3)
    return folder / "x.zarr", folder / "x.zarr/c/1/0/0"


@pytest.mark.parametrize("write", [npy, zarr_array])
def test_a_change_while_an_input_is_read_is_an_error(write, tmp_path):
    path, part = write(tmp_path)
    content = part.read_bytes()
    for change in (
        lambda: part.write_bytes(content + b"1"),
        lambda: os.utime(part, ns=(0, file_state(path)["mtime_ns"] + 1)),
        part.unlink,
    ):
        part.write_bytes(content)
        with open_input(path) as source:
            source.check_unchanged()
            change()
            with pytest.raises(InputError, match="changed while it was read"):
                source.check_unchanged()


def test_the_state_and_the_digest_of_a_folder_are_those_of_its_files(tmp_path: Path) -> None:
    path, part = zarr_array(tmp_path)
    files = [file for file in path.rglob("*") if file.is_file()]
    assert file_state(path) == {
        "bytes": size_on_disk(path),
        "mtime_ns": max(file.stat().st_mtime_ns for file in files),
    }
    assert size_on_disk(path) == sum(file.stat().st_size for file in files)
    before = sha256(path)
    moved = path.rename(tmp_path / "moved.zarr")
    assert sha256(moved) == before
    part = moved / part.relative_to(path)
    part.write_bytes(bytes(part.stat().st_size))
    assert sha256(moved) != before


def test_the_digest_of_a_file_is_that_of_its_content(tmp_path: Path) -> None:
    path, _ = npy(tmp_path)
    assert sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_is_absent_has_no_state(tmp_path: Path) -> None:
    assert file_state(tmp_path / "absent") is None
    assert size_on_disk(tmp_path / "absent") is None
    with pytest.raises(InputError, match="absent became unreadable"):
        sha256(tmp_path / "absent")
