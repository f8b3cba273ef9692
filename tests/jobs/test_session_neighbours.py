"""The series of a session opens in xarray, ConfUSIus, nibabel and Octave, with its times, places and units."""

import json
from pathlib import Path
from typing import Any

import confusius
import h5py
import nibabel
import numpy as np
import pytest
import scipy.io
import xarray as xr

from tests.files.test_octave import needs_octave, octave
from tests.sessions.scans import FOUR, LENGTH, RATE_HZ, Scan, scan, write_blocks, write_pala
from usdenoise import session
from usdenoise.jobs.session_job import run_session
from usdenoise.options import Output, SessionOptions

SHAPE, N_BLOCKS = (20, 16), 4
INTERVAL_S = 0.5
MIDDLES = INTERVAL_S * np.arange(N_BLOCKS) + (LENGTH - 1) / 2 / RATE_HZ
PLACES = {"z": 0.1 * np.arange(20), "x": 0.2 * np.arange(16)}

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def made() -> Scan:
    return scan(N_BLOCKS, shape=SHAPE)


@pytest.fixture(scope="module")
def results(made: Scan, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All files of a session of four block files that begin every 0.5 s."""
    folder = tmp_path_factory.mktemp("neighbours")
    blocks, every = (
        write_blocks(folder / "mouse", made.blocks),
        SessionOptions(block_interval_s=INTERVAL_S, zarr=True),
    )
    output = Output(nifti=True)
    report = run_session([blocks], folder / "out", options=FOUR, output=output, session_options=every)
    return {key: Path(name) for key, name in report["output"].items()}


@pytest.fixture(scope="module")
def series(results: dict[str, Path]) -> Any:
    """The blood power of the HDF5 file."""
    with h5py.File(results["sequence"]) as file:
        assert file["time"].attrs["units"] == "s"
        return file["blood_power"][()]


def test_xarray_opens_hdf5_and_zarr(results: dict[str, Path], series: Any) -> None:
    for opened in (
        xr.open_dataset(results["sequence"], engine="h5netcdf", decode_timedelta=False),
        xr.open_zarr(results["zarr"], consolidated=False, decode_timedelta=False),
    ):
        blood = opened["blood_power"].squeeze()
        np.testing.assert_array_equal(blood, series)
        np.testing.assert_allclose(opened["time"], MIDDLES)
        assert opened["time"].attrs["units"] == "s"
        assert blood.attrs["units"] == "square of the stack's unit"
        assert opened["tsnr"].squeeze().shape == SHAPE
        assert opened["bad"].values.tolist() == [0] * N_BLOCKS
        opened.close()


def test_confusius_opens_hdf5_zarr_and_nifti(results: dict[str, Path], series: Any) -> None:
    for key in ("zarr", "blood_nifti"):
        more = {"variable": "blood_power"} if key == "zarr" else {}
        opened = confusius.load(results[key], **more)
        confusius.validation.validate_voxeldata(opened)
        assert opened.dims == ("time", "k", "j", "i")
        np.testing.assert_array_equal(opened.squeeze(), series)
        # BIDS has the times at which the blocks begin.
        begin = 0 if key == "zarr" else (LENGTH - 1) / 2 / RATE_HZ
        np.testing.assert_allclose(opened["time"], MIDDLES - begin, rtol=1e-5, atol=1e-6)
        assert opened["time"].attrs["units"] == "s"
        duration = opened["time"].attrs["volume_acquisition_duration"]
        assert duration == pytest.approx(LENGTH / RATE_HZ)
        np.testing.assert_allclose(opened["y"].isel(k=0, i=0), PLACES["z"], atol=1e-6)
        np.testing.assert_allclose(opened["x"].isel(k=0, j=0), PLACES["x"], atol=1e-6)
        assert opened.fusi.affine.units == "mm"


def test_nibabel_opens_nifti(results: dict[str, Path], series: Any) -> None:
    image = nibabel.load(results["blood_nifti"])
    np.testing.assert_array_equal(np.asarray(image.dataobj)[:, :, 0], series.transpose(2, 1, 0))
    assert image.header.get_zooms() == pytest.approx((0.2, 0.1, 1.0, INTERVAL_S))
    assert image.header.get_xyzt_units() == ("mm", "sec")
    sidecar = json.loads(results["blood_nifti_json"].read_text())
    assert sidecar["VolumeTiming"] == pytest.approx(list(INTERVAL_S * np.arange(N_BLOCKS)))
    assert sidecar["FrameAcquisitionDuration"] == pytest.approx(LENGTH / RATE_HZ)
    assert sidecar["ClutterFilters"] == ["low-rank, 4 leading components removed in each block"]


@pytest.mark.slow
@needs_octave
def test_octave_opens_a_session_of_mat_files(made: Scan, series: Any, tmp_path: Path) -> None:
    """The filtered blocks keep the other variables of their files."""
    write_pala(tmp_path / "pala", made.blocks)
    how: dict[str, Any] = {"options": FOUR, "output": Output(), "reading": {"spacing_mm": (0.1, 0.2)}}
    every = SessionOptions(block_interval_s=INTERVAL_S, stacks=True)
    run_session([tmp_path / "pala"], tmp_path / "out", session_options=every, **how)
    said = octave(
        tmp_path,
        """
        s = load('out/pala_sequence.mat'); b = load('out/IQ_2_denoised.mat');
        printf('%g ', size(s.blood_power), s.time, size(b.IQ), b.UF.FrameRateUF);
        printf('%s %s', s.time_unit, b.note);
        power = mean(abs(b.IQ).^2, 3) ./ squeeze(s.power_doppler(3, :, :));
        assert(max(abs(power(:) - 1)) < 1e-4);
        blood = s.blood_power; save('-v7', 'back.mat', 'blood');
        """,
    )
    *numbers, unit, block, number = said.split()
    sizes = [N_BLOCKS, *SHAPE, *MIDDLES, *SHAPE, LENGTH, RATE_HZ]
    assert [float(value) for value in numbers] == pytest.approx(sizes, rel=1e-4)
    assert (unit, block, number) == ("s", "block", "2")
    back = scipy.io.loadmat(tmp_path / "back.mat")["blood"]
    np.testing.assert_allclose(back, series, rtol=1e-4, atol=1e-4)


def test_a_session_of_confusius_is_a_dataset(made: Scan, series: Any, results: dict[str, Path]) -> None:
    """In memory: labelled, saved in each format, and the same as from the files."""
    found = session(made.stack.to_xarray(), LENGTH, options=FOUR)
    np.testing.assert_allclose(np.asarray(found.blood_power).reshape(series.shape), series, atol=1e-4)
    np.testing.assert_allclose(found.time, LENGTH / RATE_HZ * np.arange(N_BLOCKS) + MIDDLES[0])
    assert found.power_doppler.dims == ("time", "k", "j", "i")
    dataset = found.to_xarray()
    assert dataset["blood_power"].dims == ("time", "k", "j", "i")
    np.testing.assert_allclose(dataset["time"], found.time)
    assert dataset["time"].attrs["units"] == "s"
    folder = results["sequence"].parent / "saved"
    folder.mkdir()
    for suffix in (".h5", ".mat", ".zarr"):
        assert found.save(folder / f"x{suffix}").exists()
    opened = confusius.load(folder / "x.zarr", variable="blood_power").squeeze()
    np.testing.assert_allclose(opened, series, atol=1e-4)
    assert repr(found) == "<SessionResult: 4 blocks, 0 bad; 20 x 16 pixels; doubts: none>"
