"""HDF5 datasets that are not full, that another program writes, or whose numbers are packed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray

from tests.files.layouts import IQ, N_FRAMES
from tests.stacks import low_rank
from usdenoise import load, session
from usdenoise.errors import InputError
from usdenoise.files import describe

SHAPE, STOP = (2 * N_FRAMES, *IQ.shape[1:]), 9
"""A recording for which twice the frames were reserved, and which stopped after some."""


def recorded(
    path: Path, chunks: tuple[int, ...], fill: Any = None, dtype: str = "c8", last: int = STOP
) -> Path:
    """A file of the frames of a recording before `last`."""
    with h5py.File(path, "w") as file:
        whole = file.create_dataset("iq", SHAPE, dtype, chunks=chunks, fillvalue=fill)
        whole[:last] = IQ[:last].astype(dtype)
        whole.attrs.update({"axes": "tzx", "frame_rate_hz": 500.0})
    return path


@pytest.mark.parametrize("chunks", [(1, 5, 4), (3, 2, 4), (7, 5, 4)])
@pytest.mark.parametrize("fill", [None, np.complex64(-9 - 9j)])
def test_frames_that_were_never_written_are_excluded(chunks, fill, tmp_path):
    path = recorded(tmp_path / "x.h5", chunks, fill)
    stack = load(path)
    assert np.array_equal(stack.iq, IQ[:STOP])
    (note,) = stack.assumptions
    assert f"{STOP} to {2 * N_FRAMES - 1}" in note
    assert (note,) == describe(path).notes
    # A selection of written frames is read without a word, and one beyond them as far as they reach.
    assert load(path, frames=slice(2, 8)).assumptions == ()
    assert np.array_equal(load(path, frames=slice(2, 20, 2)).iq, IQ[2:STOP:2])
    with pytest.raises(InputError, match="frames"):
        load(path, frames=slice(STOP, None))


def test_a_full_recording_is_read_as_it_is(tmp_path: Path) -> None:
    with h5py.File(recorded(tmp_path / "x.h5", (3, 5, 4), last=N_FRAMES), "r+") as file:
        file["iq"][N_FRAMES:] = 0
    stack = load(tmp_path / "x.h5")
    assert stack.n_frames == SHAPE[0]
    assert stack.assumptions == ()


def test_unwritten_frames_of_matlab_between_others_and_of_real_and_imaginary_parts(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as file:
        for name, part in (("I", IQ.real), ("Q", IQ.imag)):
            data = file.create_dataset(name, SHAPE, "f4", chunks=(2, *IQ.shape[1:]))
            data[:4], data[6:10] = part[:4], part[6:10]
            data.attrs["MATLAB_class"] = np.bytes_("single")
    stack = load(tmp_path / "x.mat", axes="xzt")
    assert stack.shape == (4, 5, 10)
    wanted = IQ[:10].copy()
    wanted[4:6] = 0
    assert np.array_equal(stack.iq, wanted.transpose())
    assert "frames 4 to 5, 10 to 23" in stack.assumptions[0]


@pytest.mark.parametrize(("mode", "libver"), [("r+", None), ("swmr", "latest")])
def test_a_file_that_another_program_writes_is_not_called_corrupt(mode, libver, tmp_path):
    path = recorded(tmp_path / "x.h5", (1, 5, 4))
    script = (
        f"import h5py; f = h5py.File({str(path)!r}, 'r+', libver={libver!r}, locking=True); "
        f"{'f.swmr_mode = True; ' * (mode == 'swmr')}print('open', flush=True); input()"
    )
    if mode == "swmr":
        with h5py.File(path, "w", libver="latest") as file:
            file.create_dataset("iq", data=IQ, chunks=(1, 5, 4))
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1) as writer:
        assert writer.stdout.readline() == b"open\n"
        with pytest.raises(InputError, match="open for writing in another program"):
            load(path)
        writer.communicate(b"\n")
    assert load(path, axes="tzx").n_frames


FILTER = 31999
"""Number of a filter that is not registered anywhere."""

PLUGIN = f"""
import ctypes, h5py
Filter = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
                          ctypes.c_void_p, ctypes.c_void_p)
class Class(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int), ("id", ctypes.c_int), ("encodes", ctypes.c_uint), ("decodes", ctypes.c_uint),
                ("name", ctypes.c_char_p), ("fits", ctypes.c_void_p), ("local", ctypes.c_void_p), ("filter", Filter)]
own = Class(1, {FILTER}, 1, 1, b"own", None, None, Filter(lambda flags, n, values, size, room, buffer: size))
h5py.h5z.register_filter(ctypes.addressof(own))
"""
"""A package hdf5plugin whose one filter changes nothing."""


def test_a_filter_that_is_not_installed_is_named_and_hdf5plugin_is_used(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, values in (("iq", IQ), ("frame_rate_hz", np.array([500.0]))):
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk(values.shape)
            properties.set_filter(FILTER, h5py.h5z.FLAG_OPTIONAL)
            kind, space = h5py.h5t.py_create(values.dtype, logical=True), h5py.h5s.create_simple(values.shape)
            whole = h5py.h5d.create(file.id, name.encode(), kind, space, properties)
            whole.write_direct_chunk((0,) * values.ndim, values.tobytes())
        file["iq"].attrs["axes"] = "tzx"
        file["view/iq"] = h5py.SoftLink("/iq")
    for dataset in (None, "view/iq"):
        with pytest.raises(InputError, match=rf"filter {FILTER} .*run pip install hdf5plugin"):
            load(tmp_path / "x.h5", dataset=dataset)
    monkeypatch.delitem(sys.modules, "hdf5plugin")
    (tmp_path / "hdf5plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    stack = load(tmp_path / "x.h5")
    assert np.array_equal(stack.iq, IQ)
    assert stack.frame_rate_hz == 500
    h5py.h5z.unregister_filter(FILTER)
    del sys.modules["hdf5plugin"]


def test_packed_numbers_are_unpacked_as_xarray_unpacks_them(tmp_path: Path) -> None:
    packed = np.random.default_rng(0).integers(-99, 99, SHAPE).astype(np.int16)
    packed[3, 1, 2] = -9999
    attributes = {"scale_factor": 0.25, "add_offset": -1.5, "_FillValue": np.int16(-9999)}
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["rf"] = packed
        file["rf"].attrs.update({**attributes, "axes": "tzx"})
        pairs = file.create_dataset("pairs/iq", SHAPE, np.dtype([("i", "i2"), ("q", "i2")]))
        pairs[...] = np.stack([packed, packed], -1).view(pairs.dtype)[..., 0]
        pairs.attrs.update({**attributes, "axes": "tzx"})
    wanted = np.where(packed == -9999, np.nan, 0.25 * packed - 1.5).astype(np.float32)
    stack = load(tmp_path / "x.h5", dataset="rf")
    np.testing.assert_array_equal(stack.iq, wanted)
    assert stack.iq.dtype == np.float32
    # They would be applied again to what is written.
    assert not attributes.keys() & stack.attributes.keys()
    iq = load(tmp_path / "x.h5", dataset="pairs/iq").iq
    assert np.isnan(iq[3, 1, 2])
    np.testing.assert_array_equal(iq.imag[iq == iq], wanted[iq == iq])
    np.testing.assert_array_equal(iq.real[iq == iq], wanted[iq == iq])


TIMES, DEPTHS, LATERAL = 0.5 + np.arange(N_FRAMES) / 500, 3 + 0.05 * np.arange(5), 0.1 * np.arange(4)


@pytest.mark.parametrize("group", ["", "scales/"])
def test_dimension_scales_give_axes_and_scales(group: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        iq = file.create_dataset("iq", data=IQ.transpose(1, 2, 0))
        scales = {"Depth": (DEPTHS / 1e3, "m"), "lateral": (LATERAL, "mm"), "time": (TIMES * 1e3, "ms")}
        for axis, (name, (values, unit)) in enumerate(scales.items()):
            file[group + name] = values
            file[group + name].attrs["units"] = unit
            file[group + name].make_scale(name)
            iq.dims[axis].attach_scale(file[group + name])
    stack = load(tmp_path / "x.h5")
    assert stack.axes == "zxt"
    assert stack.frame_rate_hz == pytest.approx(500)
    assert stack.spacing_mm == pytest.approx({"z": 0.05, "x": 0.1})
    assert stack.coordinates["t"].values[0] == pytest.approx(0.5)
    assert stack.assumptions == ()
    assert load(tmp_path / "x.h5", frame_rate=100).frame_rate_hz == 100


@pytest.mark.parametrize(("values", "unit", "rate"), [
    (TIMES, "", 500), (TIMES * 1e6, "us", 500), (np.arange(N_FRAMES), "", None), (TIMES[:-1], "s", None),
    (np.sqrt(TIMES - 0.5), "s", None),
])  # fmt: skip
def test_times_beside_the_stack_give_its_frame_rate_and_axis(values, unit, rate, tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/iq"], file["a/Time"] = IQ.transpose(1, 2, 0), values
        file["a/Time"].attrs["units"] = unit
    stack = load(tmp_path / "x.h5")
    assert stack.axes == "zxt"
    assert stack.frame_rate_hz == (rate and pytest.approx(rate))


def test_times_of_frames_that_were_not_written_do_not_count(tmp_path: Path) -> None:
    with h5py.File(recorded(tmp_path / "x.h5", (3, 5, 4)), "r+") as file:
        del file["iq"].attrs["frame_rate_hz"]
        file["time"] = np.pad(TIMES[:STOP], (0, SHAPE[0] - STOP))
    stack = load(tmp_path / "x.h5")
    assert stack.frame_rate_hz == pytest.approx(500)
    np.testing.assert_array_equal(stack.coordinates["t"].values, TIMES[:STOP])


PAUSED = TIMES + (np.arange(N_FRAMES) >= STOP)
"""Times in s whose first STOP are even."""


@pytest.mark.parametrize(("times", "stop", "rate", "is_rate"), [
    (PAUSED, None, None, False), (PAUSED, STOP, None, True), (TIMES, None, 0.5, True),
    (TIMES, None, 400.0, False),
], ids=["uneven", "selected", "rate in kHz", "rate in Hz"])  # fmt: skip
def test_times_in_another_unit_are_not_used_even_if_they_give_no_rate(times, stop, rate, is_rate, tmp_path):
    for unit, is_known in ((1, True), (1e3, False)):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["iq"], file["time"] = IQ, 0.25 + times * unit
            file["iq"].attrs.update({"axes": "tzx"} | ({"frame_rate_hz": rate} if rate else {}))
        stack = load(tmp_path / "x.h5", frames=slice(0, stop))
        wanted = 500 if is_known and is_rate else 400 if rate == 400 else None
        assert stack.frame_rate_hz == (wanted and pytest.approx(wanted))
        assert ("t" in stack.coordinates) == is_known
        assert sum("is not used" in note for note in stack.assumptions) == (not is_known)
        given = load(tmp_path / "x.h5", frames=slice(0, stop), frame_rate=300)
        assert (given.frame_rate_hz, given.assumptions) == (300, ())


def test_packed_netcdf_of_xarray_is_read_as_xarray_reads_it(tmp_path: Path) -> None:
    rf = IQ.real.copy()
    rf[2, 3, 1] = np.nan
    places = {"time": (TIMES, "s"), "z": (DEPTHS, "mm"), "x": (LATERAL, "mm")}
    labels = {name: (name, values, {"units": unit}) for name, (values, unit) in places.items()}
    array = xarray.DataArray(rf, dims=("time", "z", "x"), coords=labels)
    packing = {"dtype": "int16", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -32768}
    packed = {"rf": packing, "time": {"dtype": "int32", "scale_factor": 0.002, "add_offset": 0.5}}
    array.to_dataset(name="rf").to_netcdf(tmp_path / "x.nc", engine="h5netcdf", encoding=packed)
    stack = load(tmp_path / "x.nc")
    with xarray.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as back:
        np.testing.assert_array_equal(stack.iq, back["rf"].values)
        np.testing.assert_array_equal(stack.coordinates["t"].values, back["time"].values)
    assert (stack.axes, stack.frame_rate_hz) == ("tzx", pytest.approx(500))
    assert stack.spacing_mm == pytest.approx({"z": 0.05, "x": 0.1})


def test_a_session_names_the_unwritten_frames_of_its_files(tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.h5" for n in range(3)]
    for number, (path, stop) in enumerate(zip(files, (40, 30, 40), strict=True)):
        values = low_rank((stop, 6, 5), seed=number)
        with h5py.File(path, "w") as file:
            file.create_dataset("iq", (60, 6, 5), "c8", chunks=(5, 6, 5))[:stop] = values
            file["iq"].attrs.update({"axes": "tzx", "frame_rate_hz": 500.0})
    series = session(files, low_cutoff=2)
    assert series.blocks["n_frames"] == [40, 30, 40]
    np.testing.assert_allclose(series.time, [0.039, 0.109, 0.179])
    notes = series.geometry.assumptions
    assert "frames 40 to 59" in notes[0]
    assert "1.h5: frames 30 to 59" in notes[1]
