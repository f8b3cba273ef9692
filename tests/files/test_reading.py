"""The same stack in many layouts reads as the same acquisition, and what the file does not say is guessed."""

import json
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import xarray
import zarr
from numpy.typing import NDArray

from tests.conftest import all_frames
from tests.files import layouts
from tests.files.layouts import IQ, LAYOUTS, VOLUMES, ZXT, confusius, hdf5, in_order, pairs, v5
from tests.stacks import write_stack
from usdenoise import load
from usdenoise.errors import InputError
from usdenoise.files import describe
from usdenoise.files.hdf5_writing import read_truth
from usdenoise.files.matlab_writing import write_v73
from usdenoise.frames.data_checks import guess_axes
from usdenoise.phantom import PhantomSettings
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.given_stack import as_acquisition, from_data_array

REAL = IQ.real.copy()


ORDERS = ["".join(order) for axes in ("tzx", "tzy", "tzxy") for order in permutations(axes)]
"""Every order of the axes of images, also without x, and of volumes."""

USUAL_ORDERS = ("tzx", "ztx", "zxt", "xzt", "tzxy", "ytxz")


def in_turn(selections: Sequence[slice | None]) -> list[tuple[str, slice | None]]:
    """Every order of the axes with one of the selections of frames, and the usual ones with all of them."""
    return [
        (axes, frames)
        for number, axes in enumerate(ORDERS)
        for place, frames in enumerate(selections)
        if axes in USUAL_ORDERS[::2] or place == number % len(selections)
    ]


def ordered(axes: str, frames: slice = slice(None)) -> NDArray[Any]:
    """Frames of a stack, or of one of volumes, with axes in that order."""
    stack, own = (IQ, "tzx" if "x" in axes else "tzy") if len(axes) == 3 else (VOLUMES, "tzxy")
    return in_order(axes, stack[frames], own)


TYPES: dict[str, tuple[NDArray[Any], NDArray[Any], str]] = {
    "complex64": (IQ, IQ, "c8"),
    "complex128": (IQ.astype("c16"), IQ.astype("c16"), "c16"),
    "big-endian": (IQ.astype(">c8"), IQ, ">c8"),
    "real, imag": (pairs(IQ, ("real", "imag")), IQ, "c8"),
    "r, i": (pairs(IQ, ("r", "i")), IQ, "c8"),
    "re, im": (pairs(IQ, ("re", "im")), IQ, "c8"),
    "I, Q": (pairs(IQ, ("I", "Q")), IQ, "c8"),
    "i, q double": (pairs(IQ, ("i", "q"), "f8"), IQ.astype("c16"), "c16"),
    "float32": (REAL, REAL, "f4"),
    "float64": (REAL.astype("f8"), REAL.astype("f8"), "f8"),
    "float16": (REAL.astype("f2"), REAL, "f2"),
    "int16": (REAL.astype("i2"), REAL, "i2"),
}
"""Values in a file, those that are read, and the type of the stored ones."""


@pytest.mark.parametrize("write", [scipy.io.savemat, write_v73], ids=["v5", "v7.3"])
@pytest.mark.parametrize("key", ["complex64", "complex128", "float64", "int16"])
def test_types_of_matlab(key: str, write: Callable[..., None], tmp_path: Path) -> None:
    values, expected, stored = TYPES[key]
    write(tmp_path / "x.mat", {"RF": in_order("zxt", values)})
    acquisition = load(tmp_path / "x.mat")
    assert (acquisition.axes, acquisition.name) == ("zxt", "RF")
    assert acquisition.iq.dtype == expected.dtype
    assert acquisition.stored_dtype == np.dtype(stored)
    assert np.array_equal(acquisition.frames, layouts.frames_by_loops(expected, "tzx"))


@pytest.mark.parametrize(
    "alias", ["frame_rate_hz", "frame_rate", "framerate", "compound_sampling_frequency", "FrameRateUF"]
)
def test_frame_rate_from_an_attribute(alias: str, tmp_path: Path) -> None:
    path = write_stack(tmp_path / "stack.h5", IQ, **{alias: 750.0})
    assert load(path).frame_rate_hz == 750.0
    assert load(path, frame_rate_hz=80.0).frame_rate_hz == 80.0


def test_of_several_frame_rates_the_nearest_counts(tmp_path: Path) -> None:
    path = hdf5(a__iq=IQ, frame_rate=100.0)(tmp_path)
    assert load(path).frame_rate_hz == 100.0
    for place, rate in (("a", 300.0), ("a/iq", 400.0)):
        with h5py.File(path, "r+") as file:
            file[place].attrs["frame_rate"] = rate
        assert load(path).frame_rate_hz == rate


@pytest.mark.parametrize(("name", "value"), [("spacing_mm", [0.1, 0.2]), ("pixel_spacing_mm", (0.1, 0.2))])
def test_spacing_from_an_attribute_is_in_the_order_of_the_file(name: str, value: Any, tmp_path: Path) -> None:
    path = write_stack(tmp_path / "stack.h5", in_order("xtz"), axes="xtz", **{name: value})
    assert load(path).spacing_mm == {"x": 0.1, "z": 0.2}
    assert load(path, spacing_mm=(0.3, 0.4)).spacing_mm == {"x": 0.3, "z": 0.4}
    assert load(path, spacing_mm=(0.5,)).spacing_mm == {"x": 0.5, "z": 0.5}
    one_for_all = write_stack(tmp_path / "volumes.h5", VOLUMES, axes="tzxy", spacing_mm=0.1)
    assert load(one_for_all).spacing_mm == {"z": 0.1, "x": 0.1, "y": 0.1}


@pytest.mark.parametrize("axes", ["tzx", "zxt"])
@pytest.mark.parametrize("shape", [(96, 24, 12), (60, 16, 32)])
def test_the_data_say_which_axis_is_time(shape: tuple[int, ...], axes: str, tmp_path: Path) -> None:
    """Both would be read as time first, being longest along depth; noise says nothing."""
    _, terms = all_frames(PhantomSettings(shape, seed=2))
    for name, stack, source in (("tissue", terms.iq, "the data"), ("noise", terms.noise, "assumed")):
        path = tmp_path / f"{name}.npy"
        np.save(path, stack if axes == "tzx" else np.moveaxis(stack, 0, -1))
        metadata = describe(path).metadata
        assert metadata.sources["axes"] == source
        if source == "the data":
            assert metadata.values["axes"] == axes


@pytest.mark.parametrize(("shape", "time_last", "axes"), [
    ((10, 20, 300), None, "zxt"), ((300, 10, 20), None, "tzx"), ((300, 10, 20), True, "zxt"),
    ((10, 20, 300), False, "tzx"), ((126, 126, 32), None, "zxt"), ((50, 90, 40), None, "zxt"),
    ((40, 40, 40), None, "zxt"), ((300, 8, 9, 10), None, "tzxy"), ((8, 9, 10, 300), None, "zxyt"),
    ((300, 8, 9, 10), True, "zxyt"),
])  # fmt: skip
def test_guess_axes(shape: tuple[int, ...], time_last: bool | None, axes: str) -> None:
    assert guess_axes(shape, time_last) == axes


@pytest.mark.parametrize("key", ["h5py", "PALA v5", "PALA v7.3"])
def test_guessed_axes_are_an_assumption(key: str, tmp_path: Path) -> None:
    path = LAYOUTS[key].write(tmp_path)
    (assumption,) = load(path).assumptions
    assert "set the axes" in assumption
    assert LAYOUTS[key].axes in assumption
    assert load(path, axes="xzt").assumptions == ()


@pytest.mark.parametrize("axes", ["ztx", np.bytes_("ztx")])
def test_axes_of_the_file_are_no_assumption(axes: Any, tmp_path: Path) -> None:
    acquisition = load(write_stack(tmp_path / "stack.h5", in_order("ztx"), axes=axes))
    assert acquisition.assumptions == ()
    assert acquisition.axes == "ztx"


BESIDE_IT = {"b_mode": REAL, "mask": np.ones(REAL.shape, "u1"), "picture": REAL[0]}
CHOICES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    **{
        f"called {name}": ({"a_filtered": 3 * IQ, "b_mode": REAL, name: IQ}, {}, name)
        for name in ("iq", "IQ", "data/iq")
    },
    **{
        f"asked for as {asked}": ({"iq": 3 * IQ, "a/b": IQ}, {"dataset": asked}, "a/b")
        for asked in ("a/b", "/a/b", "a/b/")
    },
    "the only complex one": ({**BESIDE_IT, "rotated": pairs(IQ, ("real", "imag"))}, {}, "rotated"),
    "the only one": ({"mask": REAL[0] > 0, "note": "text", "nothing": h5py.Empty("f4"), "rotated": REAL}, {}, "rotated"),
}  # fmt: skip


@pytest.mark.parametrize("key", CHOICES)
def test_the_stack_that_is_meant_is_read(key: str, tmp_path: Path) -> None:
    datasets, options, name = CHOICES[key]
    acquisition = load(hdf5(**datasets)(tmp_path), **options)
    assert acquisition.name == name
    assert np.array_equal(acquisition.iq, IQ if np.iscomplexobj(acquisition.iq) else REAL)


def test_what_is_beside_the_stack_does_no_harm(tmp_path: Path) -> None:
    """Names that are not UTF-8, and a type that NumPy lacks."""

    def fill(file: h5py.File) -> None:
        one = h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5a.create(file["iq"].id, b"fr\xe9quence", h5py.h5t.NATIVE_DOUBLE, one)
        h5py.h5d.create(file.id, b"\xb5m", h5py.h5t.NATIVE_DOUBLE, one)
        h5py.h5d.create(file.id, b"recorded", h5py.h5t.UNIX_D32LE, one)

    assert np.array_equal(load(hdf5(iq=IQ, fill=fill)(tmp_path)).iq, IQ)


def scales_of(stack: Acquisition) -> dict[str, Any]:
    """Its scales, without those that are not known."""
    scales = {"frame_rate_hz": stack.frame_rate_hz, "center_frequency_hz": stack.center_frequency_hz}
    return {name: value for name, value in {**scales, "spacing_mm": dict(stack.spacing_mm)}.items() if value}


@pytest.mark.parametrize(("write", "name", "right"), [
    (hdf5({"center_frequency": 15.0}, iq=IQ), "center_frequency_hz", "15000000 Hz"),
    (hdf5({"transmit_frequency": 15e3}, iq=IQ), "center_frequency_hz", "15000000 Hz"),
    (v5(IQ=ZXT, FrameRate=0.5), "frame_rate_hz", "500 Hz"),
    (v5(IQ=ZXT, FrameRate=0.0), "frame_rate_hz", "not used"),
    (v5(IQ=ZXT, UF={"TwFreq": 15e6}), "center_frequency_hz", "not used"),
    (hdf5({"spacing_mm": [5e-5, 1e-4]}, iq=IQ), "spacing_mm", "0.05, 0.1 mm"),
    (hdf5({"spacing_mm": 100.0}, iq=IQ), "spacing_mm", "0.1 mm"),
    (hdf5({"frame_rate": "500 Hz"}, iq=IQ), "frame_rate_hz", "'500 Hz'"),
    (hdf5({"spacing_mm": "0.05 mm, 0.1 mm"}, iq=IQ), "spacing_mm", "'0.05 mm, 0.1 mm'"),
], ids=["MHz", "kHz", "rate in kHz", "no rate", "TwFreq in Hz", "pitch in m", "pitch in um", "text", "list"])  # fmt: skip
def test_a_scale_in_another_unit_is_not_used_and_the_reason_is_given(write, name, right, tmp_path):
    path = write(tmp_path)
    stack, reasons = load(path), describe(path).metadata.ignored
    assert scales_of(stack) == {}
    assert [*reasons] == [name]
    assert right in reasons[name]
    assert reasons[name] in stack.assumptions
    # The option is the remedy.
    given = load(path, frame_rate=500.0, spacing=0.1, center_frequency=15e6)
    assert len(scales_of(given)) == 3
    assert reasons[name] not in given.assumptions


def test_scales_at_the_ends_of_what_is_plausible_are_used(tmp_path: Path) -> None:
    for rate, frequency, pitch in ((10.0, 0.5e6, 1e-3), (50e3, 100e6, 5.0)):
        scales = {"frame_rate": rate, "center_frequency": frequency, "spacing_mm": pitch}
        path = hdf5(scales, iq=IQ)(tmp_path)
        known = {"frame_rate_hz": rate, "center_frequency_hz": frequency}
        assert scales_of(load(path)) == {**known, "spacing_mm": {"z": pitch, "x": pitch}}
        assert describe(path).metadata.ignored == {}
    # A plausible value under another name of the same scale is used.
    path = hdf5({"frame_rate": 0.5, "frame_rate_hz": 500.0}, iq=IQ)(tmp_path)
    assert (load(path).frame_rate_hz, describe(path).metadata.ignored) == (500.0, {})


def test_positions_and_times_in_another_unit_are_not_used(tmp_path: Path) -> None:
    times = ("time", np.arange(len(IQ)) * 2.0)
    positions = {letter: (letter, np.arange(n) * 100.0) for letter, n in zip("zx", IQ.shape[1:], strict=True)}
    data = xarray.DataArray(IQ, dims=("time", "z", "x"), coords={"time": times, **positions})
    path = confusius()(tmp_path)
    zarr.open_array(path / "time", mode="r+")[:] = np.arange(len(IQ)) * 2.0
    attributes = json.loads((path / "iq/zarr.json").read_text())
    del attributes["attributes"]["compound_sampling_frequency"]
    (path / "iq/zarr.json").write_text(json.dumps(attributes))
    for stack, n_reasons in ((from_data_array(data), 2), (load(path), 1)):
        assert (stack.frame_rate_hz, "t" in stack.coordinates) == (None, False)
        assert sum("not used" in sentence for sentence in stack.assumptions) == n_reasons
        assert not any("uneven" in sentence for sentence in stack.assumptions)


def test_an_axis_of_length_2_is_i_and_q_unless_it_is_named(tmp_path: Path) -> None:
    pairs = np.stack([IQ.real, IQ.imag], 1)
    stack = load(hdf5({}, iq=pairs)(tmp_path))
    assert np.array_equal(stack.iq, IQ)
    assert "second axis" in stack.assumptions[0]
    # Two planes of RF, by the axes of the file, by the names of the dimensions and by the user.
    path = confusius(np.moveaxis(pairs, 1, -1))(tmp_path)
    of_the_file, of_the_user = load(hdf5({"axes": "tyzx"}, iq=pairs)(tmp_path)), {"axes": "tyzx"}
    for volume in (of_the_file, load(path), load(hdf5({}, iq=pairs)(tmp_path), **of_the_user)):
        assert (volume.axes, volume.iq.dtype.kind) == ("tyzx", "f")
        assert np.array_equal(volume.iq, pairs)
    # Which of two such axes within the array it would be is not known.
    assert load(hdf5({}, iq=pairs[:, :, :2])(tmp_path)).iq.dtype.kind == "f"


@pytest.mark.parametrize(("dtype", "offset"), [("u2", 32768), ("u2", 2048), ("u1", 128), ("f4", 4096)])
def test_unsigned_rf_is_refused_with_its_offset(dtype: str, offset: int, tmp_path: Path) -> None:
    rf = np.random.default_rng(0).normal(0, offset / 5, (20, 30, 40)).clip(-offset, offset - 1)
    unsigned = np.round(rf + offset).astype(dtype)
    np.save(tmp_path / "rf.npy", unsigned)
    for read in (lambda: load(tmp_path / "rf.npy"), lambda: as_acquisition(unsigned, "tzx")):
        with pytest.raises(InputError, match=f"subtract the offset {offset} "):
            read()
    assert load(tmp_path / "rf.npy", dataset="iq").iq.shape == rf.shape
    # An envelope is not symmetric, and signed RF is read.
    np.save(tmp_path / "rf.npy", np.abs(rf + 1j * rf[::-1]).astype(dtype))
    with pytest.raises(InputError, match="power Doppler"):
        load(tmp_path / "rf.npy")
    np.save(tmp_path / "rf.npy", rf.astype("f4"))
    assert load(tmp_path / "rf.npy").iq.shape == rf.shape


def test_the_truth_of_a_phantom_is_what_the_simulator_wrote(phantom_file, small_phantom):
    phantom, terms = small_phantom
    truth = read_truth(phantom_file, load(phantom_file))
    assert np.array_equal(truth.vessel_mask, phantom.mask)
    assert truth.blood_power == pytest.approx(np.mean(np.abs(terms.blood) ** 2, axis=0), rel=1e-4)


def test_a_file_has_no_truth_or_one_that_fits(tmp_path: Path) -> None:
    path = write_stack(tmp_path / "x.h5", np.ones((5, 4, 3), np.complex64), axes="tzx")
    assert read_truth(path, load(path)) is None
    with h5py.File(path, "r+") as file:
        file["truth/blood_power"] = np.ones((2, 2))
        file["truth/vessel_mask"] = np.ones((2, 2))
    with pytest.raises(InputError, match=r"the truth in .* has shape \(2, 2\) and the images \(4, 3\)"):
        read_truth(path, load(path))


@pytest.mark.parametrize(("names", "dtype"), [(("re", "im"), "f4"), (("Q", "I"), "i2"), (("a", "b"), "f4")])
def test_numpy_files_of_pairs_are_complex(names: tuple[str, str], dtype: str, tmp_path: Path) -> None:
    pairs_of = np.empty(IQ.shape, [(name, dtype) for name in names])
    real, imaginary = names if names[0] != "Q" else names[::-1]
    pairs_of[real], pairs_of[imaginary] = IQ.real, IQ.imag
    np.save(tmp_path / "x.npy", pairs_of)
    np.savez(tmp_path / "x.npz", iq=pairs_of, frame_rate_hz=500.0)
    for path in (tmp_path / "x.npy", tmp_path / "x.npz"):
        stack = load(path, axes="tzx")
        assert np.array_equal(stack.iq, IQ)
        assert any("the members a and b of 'iq'" in note for note in stack.assumptions) == (real == "a")


@pytest.mark.parametrize("text", ["0.1 0.2", "[0.1, 0.2]", "0.1;0.2", b"0.1,0.2"])
def test_numbers_in_text_are_numbers(text: str | bytes, tmp_path: Path) -> None:
    scales = {"spacing_mm": text, "frame_rate_hz": "500.0 ", "center_frequency_hz": "15 MHz"}
    packing = {"scale_factor": np.bytes_("0.5"), "add_offset": np.bytes_("none")}
    stack = load(write_stack(tmp_path / "x.h5", REAL, axes="tzx", **scales, **packing))
    assert (stack.frame_rate_hz, dict(stack.spacing_mm)) == (500, {"z": 0.1, "x": 0.2})
    assert any("the centre frequency '15 MHz'" in note for note in stack.assumptions)
    assert np.array_equal(stack.iq, REAL / 2)
