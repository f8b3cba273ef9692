"""Zarr groups that are not full: chunks of the fill value are not written, and neither is what a recording did not reach."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tests.files.layouts import IQ, N_FRAMES
from usdenoise import load
from usdenoise.errors import InputError

SECTOR = np.ones(IQ.shape[1:], bool)
SECTOR[:2, :2] = SECTOR[4:, 2:] = False
"""Two chunks of one and of two rows of pixels are outside it."""

STOP = 9


def written(path: Path, values: Any, shape: tuple[int, ...] = IQ.shape, **more: Any) -> Path:
    """A group with an array of that shape, whose first frames are written."""
    settings = {"chunks": (3, 2, 2), "dtype": values.dtype, "dimension_names": ("time", "z", "x"), **more}
    if settings.get("zarr_format") == 2:
        del settings["dimension_names"]
    group = zarr.open_group(path, mode="w", zarr_format=settings.pop("zarr_format", 3))
    array = group.create_array("iq", shape=shape, **settings)
    array[: len(values)] = values
    array.attrs.update({"axes": "tzx", "frame_rate_hz": 500.0})
    return path


LAYOUTS: dict[str, dict[str, Any]] = {
    "version 3": {},
    "version 2": {"zarr_format": 2},
    "shards": {"shards": (6, 2, 2)},
    "dots": {"chunk_key_encoding": {"name": "default", "separator": "."}},
    "all frames in a chunk": {"chunks": (N_FRAMES, 2, 2)},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fill", [0, complex("nan+nanj"), -9])
def test_a_sector_image_whose_corners_were_not_written_is_read(layout, fill, tmp_path):
    values = np.where(SECTOR, IQ, np.complex64(fill))
    stack = load(written(tmp_path / "x.zarr", values, fill_value=fill, **LAYOUTS[layout]))
    outside = 0 if fill == 0 else complex("nan+nanj")
    np.testing.assert_array_equal(stack.iq, np.where(SECTOR, IQ, np.complex64(outside)))
    assert stack.assumptions == ()


@pytest.mark.parametrize("layout", ["version 3", "version 2", "shards", "dots"])
def test_frames_that_were_never_written_are_excluded(layout: str, tmp_path: Path) -> None:
    values = IQ[:STOP] * SECTOR
    path = written(tmp_path / "x.zarr", values, (2 * N_FRAMES, *IQ.shape[1:]), **LAYOUTS[layout])
    stack = load(path)
    np.testing.assert_array_equal(stack.iq, values)
    (note,) = stack.assumptions
    assert f"{STOP} to {2 * N_FRAMES - 1}" in note
    assert load(path, frames=slice(0, STOP)).assumptions == ()
    with pytest.raises(InputError, match="frames"):
        load(path, frames=slice(STOP, None))


def test_a_group_without_chunks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"all chunks of 'iq' in .* are missing"):
        load(written(tmp_path / "x.zarr", IQ[:0]))


def test_packed_numbers_and_times_are_unpacked(tmp_path: Path) -> None:
    packed = IQ.real.astype(np.int16)
    packed[3, 1, 2] = -999
    path = written(tmp_path / "x.zarr", packed, fill_value=-999)
    group = zarr.open_group(path)
    group["iq"].attrs.update({"scale_factor": 0.5, "add_offset": -1.0})
    del group["iq"].attrs["frame_rate_hz"]
    time = group.create_array("time", data=np.arange(N_FRAMES), dimension_names=["time"])
    time.attrs.update({"units": "s", "scale_factor": 0.002, "add_offset": 3.0})
    stack = load(path)
    wanted = np.where(packed == -999, np.nan, 0.5 * packed - 1).astype(np.float32)
    np.testing.assert_array_equal(stack.iq, wanted)
    assert stack.frame_rate_hz == pytest.approx(500)
    assert stack.coordinates["t"].values[0] == pytest.approx(3)
    assert not {"scale_factor", "add_offset"} & stack.attributes.keys()


@pytest.mark.parametrize(
    ("attribute", "factor"), [([0.5], 0.5), ([0.5, 0.1], 1), ([[1], 2], 1), (None, 1), ({"z": 0.5}, 1)]
)
def test_a_factor_that_is_not_a_number_is_ignored(attribute: Any, factor: float, tmp_path: Path) -> None:
    """JSON has lists: one of several numbers is no factor of all values."""
    path = written(tmp_path / "x.zarr", IQ)
    zarr.open_group(path)["iq"].attrs.update({"scale_factor": attribute, "_FillValue": [0, 1]})
    np.testing.assert_array_equal(load(path).iq, factor * IQ)
