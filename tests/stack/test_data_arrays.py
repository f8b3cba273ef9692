"""Labelled arrays of xarray in, labelled arrays out."""

import json
import sys
from pathlib import Path
from typing import Any

import confusius
import numpy as np
import pytest
import xarray

from tests.files.test_neighbours import N_X, N_Y, N_Z, TURNED, voxel_data
from tests.programs import python
from usdenoise import axial_velocity, denoise, load, power_doppler, session
from usdenoise.errors import InputError, OptionError
from usdenoise.stack import data_arrays
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.data_arrays import grid_attributes
from usdenoise.stack.given_stack import from_data_array
from usdenoise.xarray import Accessor

OPTIONS: dict[str, Any] = {"rank": 4, "iterations": 3, "low_cutoff": 1, "seed": 1, "bad_frames": "keep"}


def named(*dimensions: str, **coordinates: Any) -> xarray.DataArray:
    rng = np.random.default_rng(4)
    lengths = {"time": 30, "frame": 30, "z": 8, "depth": 8, "y": 4, "elevation": 4, "x": 6, "lateral": 6}
    values = rng.standard_normal([lengths.get(name, 5) for name in dimensions])
    iq = (values + 1j * values[::-1]).astype(np.complex64)
    return xarray.DataArray(iq, dims=dimensions, coords=coordinates)


@pytest.mark.parametrize("matrix", [None, TURNED], ids=["straight", "turned"])
@pytest.mark.parametrize("n_slices", [1, N_Y])
def test_images_have_the_labels_of_the_input(n_slices: int, matrix: Any) -> None:
    data = voxel_data(n_slices, matrix)
    before = data.copy(deep=True)
    result = denoise(data, **OPTIONS)
    values, axes = (data.values[:, 0], "tzx") if n_slices == 1 else (data.values, "tyzx")
    spacing = tuple(from_data_array(data).spacing_mm[letter] for letter in axes[1:])
    plain = denoise(values, axes=axes, spacing=spacing, **OPTIONS)
    for name in ("power_doppler", "blood_power", "noise_power"):
        image = getattr(result, name)
        assert isinstance(image, xarray.DataArray)
        assert image.dims == ("k", "j", "i")
        assert image.attrs["units"] == "square of the stack's unit"
        np.testing.assert_array_equal(image.values.reshape(getattr(plain, name).shape), getattr(plain, name))
        for coordinate in ("k", "j", "i", "z", "y", "x"):
            np.testing.assert_allclose(image[coordinate], data[coordinate], atol=1e-9, rtol=0)
        assert image.fusi.affine.units == "mm"
    xarray.testing.assert_identical(data, before)
    assert result.stack.dims == data.dims
    np.testing.assert_array_equal(result.stack["time"], data["time"])
    iq = plain.acquisition.iq
    np.testing.assert_array_equal(result.stack.values.reshape(iq.shape), iq)
    assert result.stack.attrs["transmit_frequency"] == data.attrs["transmit_frequency"]
    assert result.axial_velocity.attrs["units"] == "mm/s"
    scaled = from_data_array(data)
    scales = {"center_frequency_hz": 15.625e6, "sound_speed_m_s": 1510.0}
    expected = axial_velocity(Acquisition(iq, scaled.axes, scaled.frame_rate_hz, **scales)).values
    found = result.axial_velocity.values.reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_unobserved_entries_are_marked() -> None:
    data = voxel_data(1)
    data.values[3, 0, 2, 1] = np.nan
    result = denoise(data, **OPTIONS)
    assert int(result.unobserved.sum()) == 1
    assert bool(result.unobserved[3, 0, 2, 1])
    assert result.unobserved.dims == data.dims
    xarray.testing.assert_identical(result.to_xarray()["unobserved"], result.unobserved)
    assert not denoise(voxel_data(1), **OPTIONS).unobserved.any()


def test_the_dataset_of_a_result_says_how_it_was_made() -> None:
    dataset = voxel_data(1).usdenoise.denoise(**OPTIONS)
    assert set(dataset.data_vars) == {"iq", "power_doppler", "blood_power", "noise_power", "axial_velocity"}
    assert dataset.attrs["low_cutoff"] == 1
    assert "estimate:" in dataset.attrs["verdict"]
    for owner in (dataset, dataset["power_doppler"], dataset["iq"]):
        record = json.loads(owner.attrs["usdenoise_provenance"])
        assert record["parameters"]["seed"] == 1
        assert record["input"]["axes"] == "tzx"
    np.testing.assert_allclose(dataset["power_doppler"], (np.abs(dataset["iq"]) ** 2).mean("time"), rtol=1e-5)


@pytest.mark.parametrize("matrix", [None, TURNED], ids=["straight", "turned"])
def test_results_are_stored_as_netcdf_and_as_zarr_that_confusius_opens(matrix: Any, tmp_path: Path) -> None:
    data = voxel_data(N_Y, matrix)
    plain = Acquisition(data.values, "tyzx", frame_rate_hz=500.0, spacing_mm={"z": 0.05, "x": 0.1, "y": 0.3})
    for number, stack in enumerate((data, plain)):
        result = denoise(stack, **OPTIONS).to_xarray()
        # This engine, as netCDF4, stores attributes of one dimension only, and no complex numbers.
        images = result.drop_vars("iq")
        images.to_netcdf(tmp_path / "images.nc", engine="scipy")
        back = xarray.load_dataset(tmp_path / "images.nc")
        np.testing.assert_array_equal(back.blood_power, images.blood_power)
        result.to_netcdf(tmp_path / "whole.nc", engine="h5netcdf")
        read = load(tmp_path / "whole.nc")
        np.testing.assert_array_equal(read.iq, result["iq"].values)
        assert read.axes == "tyzx"
        assert read.spacing_mm == pytest.approx(from_data_array(result["iq"]).spacing_mm)
        result.to_zarr(tmp_path / f"{number}.zarr", consolidated=False)
        opened = confusius.load(tmp_path / f"{number}.zarr", variable="blood_power", consolidated=False)
        expected = grid_attributes(from_data_array(result["iq"]))["voxel_to_world"]
        np.testing.assert_allclose(opened.fusi.affine.voxel_to_world, expected)
        if stack is data:
            np.testing.assert_allclose(expected, data.fusi.affine.voxel_to_world)


def test_scales_for_arrays(tmp_path: Path) -> None:
    values = named("time", "z", "x").values
    scaled = denoise(values, axes="tzx", frame_rate=500, spacing=(0.1, 0.2), **OPTIONS).acquisition
    assert (scaled.frame_rate_hz, scaled.spacing_mm) == (500.0, {"z": 0.1, "x": 0.2})
    assert denoise(values, axes="tzx", spacing=0.3, **OPTIONS).acquisition.spacing_mm == {"z": 0.3, "x": 0.3}
    series = session(values, 15, axes="tzx", frame_rate=500, spacing=(0.1, 0.2), rank=4, low_cutoff=1)
    assert (series.time_unit, series.time.tolist()) == ("s", pytest.approx([0.014, 0.044]))
    series.to_xarray().to_netcdf(tmp_path / "series.nc", engine="scipy")
    np.testing.assert_allclose(xarray.load_dataset(tmp_path / "series.nc")["x"], 0.2 * np.arange(6))
    labelled = denoise(named("time", "z", "x"), frame_rate=250.0, **OPTIONS).acquisition
    assert labelled.frame_rate_hz == 250.0
    with pytest.raises(OptionError, match="frame_rate"):
        denoise(values, axes="tzx", frame_rate=-5)
    with pytest.raises(InputError, match="3 pixel pitches"):
        denoise(values, axes="tzx", spacing=(1, 2, 3))
    rate = scaled.frame_rate_hz
    with pytest.raises(OptionError, match=f"the acquisition has the frame_rate_hz {rate}; omit frame_rate"):
        denoise(scaled, frame_rate=2 * rate)
    found = denoise(scaled, frame_rate=rate, center_frequency=5e6, **OPTIONS)
    assert found.acquisition.center_frequency_hz == 5e6


def test_names_of_dimensions() -> None:
    names = {
        "tzx": "time z x", "xzt": "x y time", "zxt": "depth lateral frame",
        "tyzx": "time elevation depth lateral",
    }  # fmt: skip
    for axes, dimensions in names.items():
        assert named(*dimensions.split()).usdenoise.info()["axes"][0] == axes


def test_units_of_coordinates() -> None:
    places = {
        "time": (np.arange(30) * 2.0, "ms"), "z": (1e-3 * np.arange(8), "m"), "x": (np.arange(6) * 50, "um"),
    }  # fmt: skip
    labels = {name: (name, values, {"units": unit}) for name, (values, unit) in places.items()}
    data = named("time", "z", "x", **labels)
    stack = from_data_array(data)
    assert (stack.frame_rate_hz, stack.spacing_mm) == (500.0, {"z": 1.0, "x": 0.05})
    np.testing.assert_allclose(stack.coordinates["t"].values, np.arange(30) * 2e-3)
    assert data.usdenoise.info()["frame_rate_hz"] == (500.0, "file: coordinate time")


def test_what_labels_do_not_say() -> None:
    with pytest.raises(OptionError, match="the dimensions a, b, time do not identify the axes; give axes"):
        denoise(named("a", "b", "time"))
    with pytest.raises(InputError, match="the dimensions time, z, y, x do not identify depth"):
        denoise(named("time", "z", "y", "x"))
    assert denoise(named("a", "b", "time"), axes="zxt", low_cutoff=1).power_doppler.dims == ("a", "b")
    assert from_data_array(named("time", "z", "y", "x"), "tzyx").axes == "tzyx"
    assert from_data_array(voxel_data(1), "tyzx").axes == "tzx"


def test_the_accessor_gives_the_power() -> None:
    data = voxel_data(N_Y)
    assert isinstance(data.usdenoise, Accessor)
    image = data.usdenoise.power_doppler()
    assert image.dims == ("k", "j", "i")
    assert image.shape == (N_Y, N_Z, N_X)
    np.testing.assert_array_equal(image.values, power_doppler(data.values, axis=0))
    # The plain functions understand the labels, too.
    np.testing.assert_array_equal(image.values, power_doppler(data.transpose("k", "j", "time", "i")))
    np.testing.assert_array_equal(image["y"], data["y"])


def test_xarray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = load(Path(__file__).parents[2] / "sample_data/phantom.h5", frames=slice(0, 4))
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(OptionError, match="need the package xarray; run pip install xarray"):
        stack.to_xarray()
    assert not data_arrays.is_data_array(stack.iq)


def test_xarray_is_imported_only_where_it_is_used() -> None:
    script = (
        "import sys, usdenoise, numpy as np; usdenoise.denoise(np.random.rand(30, 6, 5) - 0.5, axes='tzx'); "
        "assert 'xarray' not in sys.modules"
    )
    done = python(script)
    assert done.returncode == 0, done.stderr


TIMES = np.arange(30) / 500


@pytest.mark.parametrize(
    "order", [np.arange(30)[::-1], np.random.default_rng(3).permutation(30), np.roll(np.arange(30), 4)]
)
def test_frames_that_go_back_in_time_are_refused(order: Any) -> None:
    data = named("time", "z", "x", time=TIMES)
    turned = data.isel(time=order)
    says = r"the times of the frames go back: frame \d+ is at .*; sort the array"
    with pytest.raises(InputError, match=says):
        denoise(turned, **OPTIONS)
    with pytest.raises(InputError, match="go back"):
        axial_velocity(turned)
    numbered = turned.assign_coords(time=("time", order.astype(np.uint16), {"units": "frames"}))
    with pytest.raises(InputError, match="go back"):
        denoise(numbered, **OPTIONS)
    sorted_again = denoise(turned.sortby("time"), **OPTIONS)
    xarray.testing.assert_identical(sorted_again.power_doppler, denoise(data, **OPTIONS).power_doppler)
    assert from_data_array(turned.drop_vars("time")).frame_rate_hz is None


@pytest.mark.parametrize("times", [
    np.datetime64("2026-01-01T12:00", "ns") + (TIMES * 1e9).astype("timedelta64[ns]"),
    (TIMES * 1e6).astype("timedelta64[us]"),
], ids=["dates", "durations"])  # fmt: skip
def test_dates_and_durations_give_the_frame_rate(times: Any) -> None:
    stack = from_data_array(named("time", "z", "x", time=times))
    assert (stack.frame_rate_hz, stack.assumptions) == (500.0, ())
    np.testing.assert_allclose(stack.coordinates["t"].values, TIMES, atol=1e-12)
    with pytest.raises(InputError, match="go back"):
        from_data_array(named("time", "z", "x", time=times[::-1]))


@pytest.mark.parametrize("odd", [TIMES[4], np.nan, 0.0091], ids=["twice", "unknown", "uneven"])
def test_uneven_times_give_no_frame_rate_and_say_so(odd: float) -> None:
    times = TIMES.copy()
    times[5] = odd
    data = named("time", "z", "x", time=times)
    stack = from_data_array(data)
    assert stack.frame_rate_hz is None
    assert stack.assumptions == (
        "the times of the frames are uneven, so the frame rate is not known: give it",
    )
    known = from_data_array(data.assign_attrs(frame_rate_hz=400.0))
    assert (known.frame_rate_hz, known.assumptions) == (400.0, ())


@pytest.mark.parametrize("name", ["power_doppler", "axial_velocity", "unobserved", "x"])
def test_a_stack_with_the_name_of_an_image_or_a_coordinate_stays(name: str) -> None:
    data = named("time", "z", "x", time=TIMES, x=np.arange(6) * 0.1)
    data[3, 1, 2] = np.nan
    plain, clashing = (stack.usdenoise.denoise(**OPTIONS) for stack in (data.rename("iq"), data.rename(name)))
    assert set(clashing.data_vars) == {*plain.data_vars} - {"iq"} | {"filtered_stack"}
    np.testing.assert_array_equal(clashing["filtered_stack"], plain["iq"])


def test_a_coordinate_with_the_name_of_an_image_makes_room() -> None:
    data = named("time", "z", "x", blood_power=("z", np.arange(8)), column=("x", np.arange(6)))
    dataset = data.usdenoise.denoise(**OPTIONS)
    assert dataset["blood_power"].dims == ("z", "x")
    assert set(dataset.coords) == {"column"}


def test_a_dataset_stands_for_the_one_stack_in_it() -> None:
    data = named("time", "z", "x", time=TIMES)
    result = denoise(data, **OPTIONS)
    dataset = data.to_dataset(name="iq").assign_attrs(sound_speed_m_s=1500.0, title="rat 3")
    for one in (dataset, dataset.assign(mask=(("z", "x"), np.ones((8, 6))))):
        np.testing.assert_array_equal(denoise(one, **OPTIONS).power_doppler, result.power_doppler)
        np.testing.assert_array_equal(power_doppler(one), power_doppler(data))
        assert denoise(one, **OPTIONS).acquisition.sound_speed_m_s == 1500.0
    again = denoise(result.to_xarray(), **OPTIONS)
    np.testing.assert_array_equal(again.power_doppler, denoise(result.stack, **OPTIONS).power_doppler)
    says = r"is the stack is ambiguous \(iq, other\); pass that array, for example"
    with pytest.raises(OptionError, match=says):
        denoise(dataset.assign(other=data))
    with pytest.raises(OptionError, match=r"is ambiguous \(nothing\)"):
        denoise(xarray.Dataset())
