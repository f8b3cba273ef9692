"""Chunks written straight into the file equal those that the HDF5 library writes."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from usdenoise.formats.hdf5.hdf5_chunks import reserve_dataset, write_chunks, write_chunks_plainly
from usdenoise.formats.hdf5.hdf5_writing import create_file


def normal(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    parts = np.random.default_rng(0).standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1] if dtype.kind == "c" else parts[0]).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((12, 6, 8), (4, 3, 8)),
        ((11, 7, 5), (4, 3, 2)),
        ((5, 1, 9), (5, 1, 4)),
        ((3, 4, 5), (1, 1, 1)),
        ((6, 5, 4, 3), (4, 5, 3, 2)),
    ],
    ids=["whole chunks", "ragged", "an axis of 1", "chunks of one entry", "3-D + time"],
)
@pytest.mark.parametrize("order", ["as stored", "reversed", "time last in memory", "every second"])
@pytest.mark.parametrize("dtype", ["<f4", "<c8", "<c16"])
def test_both_ways_give_the_same_file(
    shape: tuple[int, ...], chunks: tuple[int, ...], order: str, dtype: str, tmp_path: Path
) -> None:
    kind = np.dtype(dtype)
    if order == "as stored":
        values = normal(shape, kind)
    elif order == "reversed":
        values = normal(shape[::-1], kind).transpose()
    elif order == "time last in memory":
        values = np.moveaxis(normal((*shape[1:], shape[0]), kind), -1, 0)
    else:
        values = normal((*shape[:-1], 2 * shape[-1]), kind)[..., ::2]
    assert values.shape == shape
    directly, plainly = tmp_path / "directly.h5", tmp_path / "plainly.h5"
    with create_file(directly) as file:
        _, places = reserve_dataset(file, "iq", shape, kind, chunks)
    write_chunks(directly, places, chunks, values, kind)
    with create_file(plainly) as file:
        dataset, _ = reserve_dataset(file, "iq", shape, kind, chunks)
        write_chunks_plainly(dataset, values)
    with h5py.File(directly) as ours, h5py.File(plainly) as theirs:
        assert ours["iq"].dtype == theirs["iq"].dtype == kind
        assert ours["iq"].chunks == theirs["iq"].chunks == chunks
        assert np.array_equal(ours["iq"], values)
        assert np.array_equal(theirs["iq"], values)
    assert directly.read_bytes() == plainly.read_bytes()
