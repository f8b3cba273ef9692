"""Chunks that could expand to much are read here instead of by the HDF5 library, with the same values."""

import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from usdenoise import load
from usdenoise.errors import InputError
from usdenoise.formats.hdf5 import hdf5_expansion
from usdenoise.formats.hdf5.hdf5_expansion import BoundedReader

_RNG = np.random.default_rng(4)
VALUES = (_RNG.standard_normal((13, 7, 9)) + 1j * _RNG.standard_normal((13, 7, 9))).astype(np.complex64)
PARTS = np.zeros(VALUES.shape, [("real", "<f4"), ("imag", "<f4")])
PARTS["real"], PARTS["imag"] = VALUES.real, VALUES.imag


@pytest.fixture(autouse=True)
def _every_chunk_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5_expansion, "HARMLESS_BYTES", 100)


parts = st.tuples(
    *(st.tuples(st.integers(0, n - 1), st.integers(1, n), st.integers(1, 5)) for n in VALUES.shape)
)


@pytest.mark.parametrize(
    "how", [{}, {"shuffle": True}, {"fletcher32": True}, {"shuffle": True, "fletcher32": True}]
)
@pytest.mark.parametrize(
    "values", [VALUES, PARTS, VALUES.real.astype(">f8"), (VALUES.real * 99).astype("i2")]
)
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(wanted=parts)
def test_any_part_is_that_of_the_library(
    wanted: Any, values: NDArray[Any], how: dict[str, Any], tmp_path: Path
) -> None:
    index = tuple(slice(start, max(start + 1, stop), step) for start, stop, step in wanted)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("iq", data=values, chunks=(4, 3, 5), compression="gzip", **how)
        read = BoundedReader(dataset)(index)
        assert read.dtype == values.dtype
        assert np.array_equal(read, values[index])


def with_chunk(folder: Path, content: bytes, skipped: int = 0, **how: Any) -> Path:
    """A dataset in one chunk of that content, which has skipped some filters (a bit for each)."""
    with h5py.File(folder / "x.h5", "w") as file:
        dataset = file.create_dataset(
            "iq", VALUES.shape, "c8", chunks=VALUES.shape, compression="gzip", **how
        )
        dataset.id.write_direct_chunk((0, 0, 0), content, skipped)
    return folder / "x.h5"


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_chunk_that_skipped_filters(shuffle: bool, tmp_path: Path) -> None:
    path = with_chunk(tmp_path, VALUES.tobytes(), 3 if shuffle else 1, shuffle=shuffle)
    # The library knows what a chunk has skipped once the file is opened again.
    with h5py.File(path) as file:
        read = BoundedReader(file["iq"])(tuple(slice(0, n, 1) for n in VALUES.shape))
        assert np.array_equal(read, VALUES)
        assert np.array_equal(file["iq"][()], VALUES)


MORE = zlib.compress(bytes(VALUES.nbytes + 5000))
EXPANDS = rf"a chunk of 'iq' in .*x.h5 expands to more than its {VALUES.nbytes} bytes.*write it again"


@pytest.mark.parametrize(
    ("content", "how", "says"),
    [
        (MORE, {}, EXPANDS),
        (MORE, {"fletcher32": True}, EXPANDS),
        (b"x" * 2000, {}, "is truncated or corrupt: the HDF5 library could not read it"),
    ],
    ids=["expands to more", "with a checksum", "damaged"],
)
def test_a_bad_chunk_is_refused(content: bytes, how: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        load(with_chunk(tmp_path, content, **how))
