"""Recordings of Iconeus scanners, as the package of the manufacturer reads them."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyiconeus
import pytest
from numpy.typing import NDArray

import usdenoise
from tests.stacks import low_rank, write_stack
from usdenoise import load
from usdenoise.errors import InputError, OptionError
from usdenoise.files import describe
from usdenoise.files.input_files import acquisition_files

N_BLOCKS, N_FRAMES, N_X, N_Z = 3, 40, 7, 9
RATE = 500.0


def recording(
    path: Path, n_angles: int = 1, n_y: int = 1, legacy: bool = False, n_blocks: int = N_BLOCKS
) -> NDArray[np.complex64]:
    """Write the two files of a recording, and return its values: frame, angle, x, y and z."""
    values = low_rank((n_blocks * N_FRAMES, n_angles, N_X, n_y, N_Z))
    path.write_bytes(b"?" * 117 * legacy + values.tobytes())
    fields: list[Any] = [15.625, 5500, 1510, RATE, [1, 128], [3, 3 + 0.05 * N_Z], np.arange(n_angles)]
    fields += [[0.1, 0.4, 0.05], [N_X, n_y, N_Z, n_angles, N_FRAMES], 1, n_blocks, float(legacy)]
    with h5py.File(path.with_suffix(".hraw"), "w") as file:
        for number, value in enumerate(fields, 1):
            file[f"F{number}"] = np.atleast_2d(np.multiply(value, 1005.0 * number) + 72).T
        file["F13"] = np.bytes_("2Dscan")
    return values


@pytest.mark.parametrize(("n_y", "legacy"), [(1, False), (1, True), (2, False)])
def test_blocks_are_those_that_the_manufacturer_reads(n_y: int, legacy: bool, tmp_path: Path) -> None:
    path = tmp_path / "scan.raw"
    recording(path, n_y=n_y, legacy=legacy)
    for block in range(N_BLOCKS):
        theirs = pyiconeus.open_path(path, path.with_suffix(".hraw"), block + 1, block + 1)
        stack = load(path, frames=slice(block * N_FRAMES, (block + 1) * N_FRAMES))
        assert np.array_equal(stack.iq, theirs.data.T)
        assert stack.assumptions == ()
    about = theirs.metadata
    assert stack.axes == ("txz" if n_y == 1 else "txyz")
    assert stack.frame_rate_hz == pytest.approx(about.frameRate)
    assert stack.center_frequency_hz == pytest.approx(1e6 * about.transmitFrequency)
    assert stack.sound_speed_m_s == pytest.approx(about.speedOfSound)
    assert stack.spacing_mm["x"] == pytest.approx(about.voxDim.dx)
    assert stack.spacing_mm["z"] == pytest.approx(about.voxDim.dz)
    assert stack.coordinates["z"].values[0] == pytest.approx(about.depth.depthNear)


def test_the_first_block_is_read_and_the_way_to_the_others_is_named(tmp_path: Path) -> None:
    path = tmp_path / "scan.raw"
    values = recording(path)
    stack = load(path)
    assert np.array_equal(stack.iq, values[:N_FRAMES, 0, :, 0])
    assert f"{N_FRAMES}:{2 * N_FRAMES}" in stack.assumptions[0]
    described = describe(path)
    assert described.notes == stack.assumptions
    assert described.candidates[0].shape == (N_BLOCKS * N_FRAMES, N_X, N_Z)
    # A recording of one block is read whole, without a word.
    recording(path, n_blocks=1)
    assert load(path).assumptions == ()


def test_the_angles_of_a_frame_are_compounded(tmp_path: Path) -> None:
    path = tmp_path / "scan.RAW"
    values = recording(path, n_angles=3)
    path.with_suffix(".hraw").rename(path.with_suffix(".HRAW"))
    stack = load(path, frames=slice(5, 20, 3))
    np.testing.assert_allclose(stack.iq, values[5:20:3, :, :, 0].mean(1), rtol=1e-5)
    assert "3 angles" in stack.assumptions[0]


def test_a_session_has_the_blocks_of_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "scan.raw"
    values = recording(path)[:, 0, :, 0]
    about: dict[str, Any] = {"axes": "txz", "frame_rate_hz": RATE, "spacing_mm": [0.1, 0.05]}
    blocks = np.split(values, N_BLOCKS)
    files = [write_stack(tmp_path / f"block{n}.h5", block, **about) for n, block in enumerate(blocks)]
    how = {"low_cutoff": 2, "block_interval_s": 0.5}
    series, wanted = usdenoise.session(path, **how), usdenoise.session(files, **how)
    np.testing.assert_allclose(series.time, wanted.time)
    np.testing.assert_allclose(series.power_doppler, wanted.power_doppler, rtol=1e-5)
    # Windows that cut the blocks keep their times.
    halves = usdenoise.session(path, window=N_FRAMES // 2, **how)
    np.testing.assert_allclose(halves.time[::2], wanted.time - N_FRAMES / 4 / RATE)
    np.testing.assert_allclose(halves.time[1::2], wanted.time + N_FRAMES / 4 / RATE)
    # Without an interval, blocks follow each other; no window has frames of two blocks.
    blocks = usdenoise.session(path, window=16, low_cutoff=2, reading={"frames": slice(10, None)}).blocks
    assert blocks["first_frame"] == [0, 16, 30, 46, 62, 70, 86, 102]
    assert blocks["n_frames"] == [16, 14, 16, 16, 8, 16, 16, 8]
    with pytest.raises(OptionError, match="window"):
        usdenoise.session(path, window=N_FRAMES + 1)


def test_recordings_that_stopped_or_have_no_header(tmp_path: Path) -> None:
    path = tmp_path / "scan.raw"
    values = recording(path)
    path.write_bytes(values[: 2 * N_FRAMES + 5].tobytes())
    stack = load(path, frames=slice(None))
    assert np.array_equal(stack.iq, values[: 2 * N_FRAMES, 0, :, 0])
    assert "2 of 3 blocks" in stack.assumptions[0]
    path.write_bytes(values.tobytes() + bytes(24))
    stack = load(path, frames=slice(None))
    assert np.array_equal(stack.iq, values[:, 0, :, 0])
    assert [note for note in stack.assumptions if "24 bytes more" in note]
    path.write_bytes(values[:5].tobytes())
    with pytest.raises(InputError, match="truncated"):
        load(path)
    with pytest.raises(InputError, match="header"):
        load(path.with_suffix(".hraw"))
    assert list(acquisition_files(tmp_path, tmp_path / "out", ())) == [path]
    path.with_suffix(".hraw").rename(tmp_path / "other.hraw")
    with pytest.raises(InputError, match=r"scan\.hraw"):
        load(path)
    assert list(acquisition_files(tmp_path, tmp_path / "out", ())) == []
