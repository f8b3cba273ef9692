"""Files of ConfUSIus and xarray are read and written; the tests open them with the real packages."""

from pathlib import Path
from typing import Any

import confusius
import h5py
import numpy as np
import pytest
import xarray
import zarr
from confusius.xarray import create_voxeldata

from tests.stacks import low_rank, run_in_windows, write_stack
from usdenoise import load
from usdenoise.errors import InputError
from usdenoise.files import describe
from usdenoise.jobs import run_job as job
from usdenoise.options import DenoiseOptions, Output

SPACING, ORIGIN = (0.4, 0.05, 0.1), (0.3, 2.0, -0.7)
TURNED = np.array([[0.3, 0, -0.08, 0.3], [0, 0.05, 0, 2.0], [0.24, 0, 0.06, -0.7], [0, 0, 0, 1.0]])
SCALES = {"transmit_frequency": 15.625e6, "beamforming_sound_velocity": 1510.0}
N_FRAMES, N_Z, N_X, N_Y = 40, 9, 7, 5
OPTIONS = DenoiseOptions(rank=4, iterations=3, low_cutoff=0, seed=1, bad_frames="keep")


pytestmark = pytest.mark.usefixtures("no_pictures")


def voxel_data(n_slices: int, matrix: Any = None) -> xarray.DataArray:
    """IQ in the order time, elevation, depth, lateral; the deepest row of the rightmost column is the brightest."""
    rng = np.random.default_rng(n_slices)
    shape = (N_FRAMES, n_slices, N_Z, N_X)
    iq = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    # A single bright pixel would be excluded for its noise.
    to_corner = sum(np.ogrid[tuple(slice(1 - n, 1) for n in shape[1:])])
    iq *= 1 + 29 * np.exp(0.9 * to_corner)
    place = {"spacing": SPACING, "origin": ORIGIN} if matrix is None else {"voxel_to_world": matrix}
    times = 1.5 + np.arange(N_FRAMES) / 500 + rng.uniform(-1e-6, 1e-6, N_FRAMES)
    labels = {"dims": ("time", "k", "j", "i"), "time": times, "name": "iq", "attrs": dict(SCALES)}
    return create_voxeldata(iq.astype(np.complex64), **labels, **place)


def saved(folder: Path, data: xarray.DataArray) -> Path:
    confusius.save(data, folder / "x.zarr")
    return folder / "x.zarr"


def denoised(path: Path, **output: Any) -> Path:
    report = job.run(path, path.parent / "out", options=OPTIONS, output=Output(**output), overwrite=True)
    return Path(report["output"]["denoised"])


def in_windows(path: Path, window: int) -> Path:
    report = run_in_windows(path, path.parent / "out", window, options=OPTIONS, overwrite=True)
    return Path(report["output"]["sequence"])


@pytest.mark.parametrize(("n_slices", "axes"), [(1, "tzx"), (N_Y, "tyzx")])
def test_a_group_of_confusius_is_read_with_depth_along_j(n_slices: int, axes: str, tmp_path: Path) -> None:
    data = voxel_data(n_slices)
    stack = load(saved(tmp_path, data))
    assert stack.axes == axes
    assert np.array_equal(stack.iq, data.values.reshape(stack.iq.shape))
    wanted = {"z": 0.05, "x": 0.1, "y": 0.4}
    assert stack.spacing_mm == pytest.approx({letter: wanted[letter] for letter in axes[1:]}, rel=1e-12)
    assert stack.frame_rate_hz == pytest.approx(500, rel=1e-4)
    assert (stack.center_frequency_hz, stack.sound_speed_m_s) == (15.625e6, 1510.0)
    np.testing.assert_allclose(stack.coordinates["t"].values, data["time"], atol=1e-12)
    np.testing.assert_allclose(stack.coordinates["z"].values, 2.0 + 0.05 * np.arange(N_Z), atol=1e-12)
    np.testing.assert_allclose(stack.coordinates["y"].values, 0.3 + 0.4 * np.arange(n_slices), atol=1e-12)


@pytest.mark.parametrize("matrix", [None, TURNED], ids=["straight", "turned"])
@pytest.mark.parametrize("n_slices", [1, N_Y])
def test_coordinates_come_back_to_confusius(n_slices: int, matrix: Any, tmp_path: Path) -> None:
    data = voxel_data(n_slices, matrix).isel(j=slice(2, None))
    out = denoised(saved(tmp_path, data), products=("power", "velocity"))
    for name in (None, "power_doppler", "blood_power", "noise_power", "axial_velocity"):
        back = confusius.load(out, variable=name)
        confusius.validation.validate_voxeldata(back)
        assert back.name == (name or "iq")
        for coordinate in ("k", "j", "i", "z", "y", "x", *(["time"] if name is None else [])):
            np.testing.assert_allclose(back[coordinate], data[coordinate], atol=1e-9, rtol=0)
        assert back.fusi.affine.units == "mm"
    stack = confusius.load(out)
    assert stack.dims == ("time", "k", "j", "i")
    assert stack.attrs["transmit_frequency"] == 15.625e6
    for key in ("units", "volume_acquisition_reference", "volume_acquisition_duration"):
        assert stack["time"].attrs[key] == data["time"].attrs[key]
    power = confusius.load(out, variable="power_doppler")
    np.testing.assert_allclose(power, (np.abs(stack) ** 2).mean("time"), rtol=1e-5)
    assert load(out).iq.shape == load(tmp_path / "x.zarr").iq.shape


@pytest.mark.parametrize("n_slices", [1, N_Y])
def test_a_sequence_is_a_time_series_of_confusius(n_slices: int, tmp_path: Path) -> None:
    data = voxel_data(n_slices)
    power = confusius.load(in_windows(saved(tmp_path, data), 20), variable="power_doppler")
    confusius.validation.validate_voxeldata(power)
    assert power.dims == ("time", "k", "j", "i")
    np.testing.assert_allclose(power["time"], [9.5 / 500, 29.5 / 500], rtol=1e-4)
    assert power["time"].attrs["volume_acquisition_duration"] == pytest.approx(20 / 500, rel=1e-4)
    for coordinate in ("z", "y", "x"):
        np.testing.assert_allclose(power[coordinate], data[coordinate], atol=1e-9, rtol=0)


@pytest.mark.filterwarnings("error")
def test_planes_of_several_positions_have_their_times_in_confusius(tmp_path: Path) -> None:
    path = saved(tmp_path, voxel_data(1))
    how = {"poses": 2, "pose_step_mm": 0.3, "options": OPTIONS, "output": Output(nifti=True)}
    output = run_in_windows(path, tmp_path / "out", 10, **how)["output"]
    power = confusius.load(output["sequence"], variable="blood_power")
    confusius.validation.validate_voxeldata(power)
    assert confusius.multipose.correct_slice_timings(power).shape == power.shape
    # What it makes of the slice timing of NIfTI lacks attributes that it validates
    for data in (power, confusius.load(output["blood_nifti"])):
        assert data.dims == ("time", "k", "j", "i")
        assert data.sizes["k"] == data.sizes["time"] == 2
        starts = data["slice_time"].values - data["slice_time"].values[0, 0]
        np.testing.assert_allclose(starts, np.array([[0, 10], [20, 30]]) / 500, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(np.ptp(data["z"].values), 0.3, rtol=1e-5)


def test_the_group_opens_in_xarray_with_positions_and_units(tmp_path: Path) -> None:
    data = voxel_data(1)
    data.values[3, 0, 2, 1] = np.nan
    with xarray.open_zarr(denoised(saved(tmp_path, data))) as group:
        assert next(iter(group.data_vars)) == "iq"
        assert group["power_doppler"].dims == ("k", "j", "i")
        assert group["unobserved"].dims == ("time", "k", "j", "i")
        assert int(group["unobserved"].sum()) == 1
        assert bool(group["unobserved"][3, 0, 2, 1])
        assert group["singular_values"].dims == ("component",)
        assert group["y"].dims == ("j",)
        np.testing.assert_allclose(group["y"], 2.0 + 0.05 * np.arange(N_Z), atol=1e-9)
        units = {"time": "s", "x": "mm", "y": "mm", "z": "mm"}
        assert {name: group[name].attrs["units"] for name in units} == units
        brightest = group["power_doppler"].isel(k=0).argmax(...)
        assert {name: int(place) for name, place in brightest.items()} == {"j": N_Z - 1, "i": N_X - 1}


def test_a_stack_of_no_known_scale_opens_all_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    iq = rng.standard_normal((20, 6, 5)) + 1j * rng.standard_normal((20, 6, 5))
    zarr.create_array(tmp_path / "x.zarr", data=iq.astype(np.complex64))
    back = confusius.load(denoised(tmp_path / "x.zarr"))
    confusius.validation.validate_voxeldata(back)
    assert back.fusi.affine.units == "pixel"
    assert back["time"].attrs["units"] == "frame"
    np.testing.assert_allclose(back["y"][0, :, 0], np.arange(6))
    assert load(tmp_path / "out/x_denoised.zarr").spacing_mm == {}


@pytest.mark.parametrize("n_slices", [1, N_Y])
def test_one_pose_of_the_probe_is_no_axis(n_slices: int, tmp_path: Path) -> None:
    plain = voxel_data(n_slices)
    labels = {
        "dims": ("time", "pose", "k", "j", "i"), "time": plain["time"].values, "pose": [0], "name": "iq",
    }  # fmt: skip
    matrix = np.asarray(plain.fusi.affine.voxel_to_world)[None]
    path = saved(tmp_path, create_voxeldata(plain.values[:, None], voxel_to_world=matrix, **labels))
    stack, expected = load(path), load(saved(tmp_path / "plain", plain))
    assert (stack.axes, stack.spacing_mm) == (expected.axes, expected.spacing_mm)
    np.testing.assert_array_equal(stack.iq, expected.iq)
    back = confusius.load(denoised(path), variable="power_doppler")
    np.testing.assert_allclose(back["y"], plain["y"], atol=1e-9)


def plain_group(folder: Path, **long_names: str) -> Path:
    """Volumes under the names of dimensions alone, as xarray writes them."""
    values = np.random.default_rng(2).standard_normal((20, 4, 6, 5))
    places = {"z": np.arange(4) * 0.4, "y": np.arange(6) * 0.05, "x": np.arange(5) * 0.1}
    data = xarray.DataArray(values, dims=("time", "z", "y", "x"), coords=places, name="iq")
    for name, long_name in long_names.items():
        data[name].attrs["long_name"] = long_name
    data.to_zarr(folder / "x.zarr", consolidated=False)
    return folder / "x.zarr"


def test_volumes_that_do_not_say_which_axis_is_depth_are_refused(tmp_path: Path) -> None:
    path = plain_group(tmp_path)
    with pytest.raises(InputError, match="do not identify depth"):
        load(path)
    assert describe(path).problem is not None
    for axes in ("tyzx", "tzyx"):
        spacing = dict(zip(axes[1:], (0.4, 0.05, 0.1), strict=True))
        stack = load(path, axes=axes)
        assert (stack.axes, stack.spacing_mm) == (axes, spacing)
        assert stack.coordinates["z"].values[-1] == pytest.approx(spacing["z"] * (3 if axes == "tzyx" else 5))


def test_a_resampled_volume_is_refused_unless_the_axes_are_given(tmp_path: Path) -> None:
    path = saved(tmp_path, voxel_data(N_Y, TURNED[[1, 0, 2, 3]]))
    with pytest.raises(InputError, match="voxel_to_world"):
        load(path)
    assert load(path, axes="tyzx").axes == "tyzx"


def test_pitches_of_the_user_replace_the_place_of_the_voxels(tmp_path: Path) -> None:
    path = saved(tmp_path, voxel_data(1))
    stack = load(path, spacing_mm=(0.2, 0.3), frame_rate_hz=1000.0, frames=slice(0, 20, 2))
    assert (stack.spacing_mm, stack.frame_rate_hz) == ({"z": 0.2, "x": 0.3}, 500.0)
    assert stack.coordinates == {}
    assert "voxel_to_world" not in stack.attributes


def test_hdf5_results_open_in_xarray_with_positions_and_units(tmp_path: Path) -> None:
    scales = {"spacing_mm": [0.4, 0.05, 0.1], "frame_rate_hz": 500.0, "unit": "V"}
    path = write_stack(tmp_path / "x.h5", voxel_data(N_Y).values, "data/iq", axes="tyzx", **scales)
    out = denoised(path, products=("power", "velocity"))
    with xarray.open_dataset(out, engine="h5netcdf") as file:
        for name in ("power_doppler", "blood_power", "noise_power", "axial_velocity"):
            image = file[name]
            assert image.dims == ("y", "z", "x")
            assert (image.attrs["axes"], image.attrs["units"]) == ("yzx", image.attrs["unit"])
            np.testing.assert_allclose(image.attrs["spacing_mm"], [0.4, 0.05, 0.1])
            np.testing.assert_allclose(image["z"], 0.05 * np.arange(N_Z), atol=1e-12)
            np.testing.assert_allclose(image["y"], 0.4 * np.arange(N_Y), atol=1e-12)
        assert {name: file[name].attrs["units"] for name in "zxy"} == dict.fromkeys("zxy", "mm")
        assert file["singular_values"].dims == ("component",)
        assert file["singular_values"].attrs["units"] == "the stack's unit"
    with xarray.open_datatree(out, engine="h5netcdf") as tree:
        stack = tree["data/iq"]
        assert stack.dims == ("time", "y", "z", "x")
        assert (stack.attrs["units"], stack.attrs["unit"]) == ("unit of the input", "V")
        np.testing.assert_allclose(tree["data"].dataset["time"], np.arange(N_FRAMES) / 500, atol=1e-12)
    with h5py.File(out) as file:
        assert [axis.label for axis in file["power_doppler"].dims] == ["y", "z", "x"]
        assert file["power_doppler"].dims[1][0] == file["z"]
    # Scales are no metadata of the stack, and no array of the file is taken for one.
    back = load(out)
    assert (back.axes, back.spacing_mm) == ("tyzx", {"y": 0.4, "z": 0.05, "x": 0.1})
    assert not {"time", "x", "y", "z", "DIMENSION_LIST"} & set(back.attributes)


def test_an_hdf5_sequence_opens_in_xarray_with_its_times(tmp_path: Path) -> None:
    scales = {"spacing_mm": [0.05, 0.1], "frame_rate_hz": 500.0}
    # The name of an axis as the name of the stack.
    write_stack(tmp_path / "x.h5", voxel_data(1).values[:, 0], "x", axes="tzx", **scales)
    with xarray.open_dataset(in_windows(tmp_path / "x.h5", 20), engine="h5netcdf") as file:
        assert file["power_doppler"].dims == ("time", "z", "x")
        assert file["power_doppler"].attrs["axes"] == "tzx"
        np.testing.assert_allclose(file["time"], np.array([9.5, 29.5]) / 500)
        assert file["time"].attrs["units"] == "s"
        assert file["complete"].dims == ("time",)
        np.testing.assert_allclose(file["x"], 0.1 * np.arange(N_X))
    with h5py.File(denoised(tmp_path / "x.h5")) as file:
        assert file["x"].shape == (N_FRAMES, N_Z, N_X)
        assert file["power_doppler"].dims[1][0] == file["x_axis"]


def test_without_scales_the_axes_of_hdf5_count_pixels(tmp_path: Path) -> None:
    write_stack(tmp_path / "x.h5", voxel_data(1).values[:, 0])
    with xarray.open_dataset(denoised(tmp_path / "x.h5"), engine="h5netcdf") as file:
        assert (file["z"].attrs["units"], file["time"].attrs["units"]) == ("pixel", "frame")
        np.testing.assert_array_equal(file["z"], np.arange(N_Z))


def timed_group(folder: Path, times: Any) -> Path:
    iq = low_rank((20, 6, 5), seed=2)
    data = xarray.DataArray(iq, dims=("time", "z", "x"), coords={"time": times}, name="iq")
    data.to_zarr(folder / "x.zarr", consolidated=False)
    return folder / "x.zarr"


def test_a_group_whose_frames_go_back_in_time_is_refused(tmp_path: Path) -> None:
    path = timed_group(tmp_path, np.roll(np.arange(20) / 500, 8))
    with pytest.raises(InputError, match="frame 8 is at 0"):
        load(path)
    assert "go back" in str(describe(path).problem)
    assert load(path, frames=slice(8, None)).iq.shape[0] == 12
    assert load(path, frame_rate_hz=500.0).frame_rate_hz == 500.0


@pytest.mark.parametrize("kind", ["datetime64[ns]", "timedelta64[ns]"])
def test_dates_and_durations_of_a_group_give_the_frame_rate(kind: str, tmp_path: Path) -> None:
    steps = (np.arange(20) * 250_000).astype("timedelta64[ns]")
    times = steps if kind[0] == "t" else np.datetime64("2026-01-01T12:00", "ns") + steps
    assert load(timed_group(tmp_path, times)).frame_rate_hz == 4000.0


def test_a_group_with_uneven_times_says_that_it_has_no_frame_rate(tmp_path: Path) -> None:
    stack = load(timed_group(tmp_path, (np.arange(20) / 500) ** 2))
    assert stack.frame_rate_hz is None
    assert len(stack.assumptions) == 1
