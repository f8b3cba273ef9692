"""The same stack in many layouts reads as the same acquisition, and what the file does not say is guessed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from numpy.typing import NDArray

from usdenoise import load
from usdenoise.formats import describe, layout
from usdenoise.formats.description import guess_axes
from usdenoise.formats.matlab.matlab_writing import write_v73
from usdenoise.jobs import run_job as job
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.casorati import casorati

N_FRAMES, N_Z, N_X = 12, 5, 4
_RNG = np.random.default_rng(5)
# Small whole numbers: every layout, int16 too, holds them without rounding.
REAL = _RNG.integers(-99, 99, (N_FRAMES, N_Z, N_X)).astype(np.float32)
IQ = (REAL + 1j * _RNG.integers(-99, 99, REAL.shape)).astype(np.complex64)
VOLUMES = (_RNG.standard_normal((N_FRAMES, 3, 4, 2)) + 1j).astype(np.complex64)
FAST = DenoiseOptions(rank=2, iterations=2)

Writer = Callable[[Path], None]


def in_order(axes: str, stack: NDArray[Any] = IQ, own: str = "tzx") -> NDArray[Any]:
    return stack.transpose([own.index(letter) for letter in axes])


def hdf5(name: str, values: Any, **attributes: Any) -> Writer:
    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset(name, data=values).attrs.update(attributes)

    return write


def compound(names: tuple[str, str], member: str = "f4") -> NDArray[Any]:
    pairs = np.empty(IQ.shape, [(name, member) for name in names])
    pairs[names[0]], pairs[names[1]] = IQ.real, IQ.imag
    return pairs


def mat_v5(variables: dict[str, Any], compress: bool = False) -> Writer:
    return lambda path: scipy.io.savemat(path, variables, do_compression=compress)


def mat_v73(path: Path) -> None:
    """As MATLAB lays it out, in h5py's own words."""
    reverse = in_order("zxt").transpose()
    pairs = np.empty(reverse.shape, [("real", "f4"), ("imag", "f4")])
    pairs["real"], pairs["imag"] = reverse.real, reverse.imag
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("IQ", data=pairs).attrs["MATLAB_class"] = np.bytes_("single")
        group = file.create_group("UF")
        group.attrs["MATLAB_class"] = np.bytes_("struct")
        for name, value in (("FrameRateUF", 500.0), ("TwFreq", 15.0), ("NbFrames", 12.0)):
            group.create_dataset(name, data=[[value]]).attrs["MATLAB_class"] = np.bytes_("double")
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


UF = {"FrameRateUF": 500.0, "TwFreq": 15.0, "NbFrames": 12.0}


@dataclass(frozen=True)
class Layout:
    """A way to store a stack, and how it should come back."""

    write: Writer
    expected: NDArray[Any]
    axes: str
    stored: str
    name: str = "iq"
    suffix: str = ".h5"


LAYOUTS = {
    "complex64": Layout(hdf5("iq", IQ), IQ, "tzx", "c8"),
    "complex128": Layout(hdf5("iq", IQ.astype("c16")), IQ.astype("c16"), "tzx", "c16"),
    "big-endian": Layout(hdf5("iq", IQ.astype(">c8")), IQ, "tzx", ">c8"),
    "time last": Layout(hdf5("iq", in_order("zxt")), in_order("zxt"), "zxt", "c8"),
    "chunked": Layout(
        lambda path: h5py.File(path, "w").create_dataset("iq", data=IQ, compression="gzip").file.close(),
        IQ,
        "tzx",
        "c8",
    ),
    "real, imag": Layout(hdf5("iq", compound(("real", "imag"))), IQ, "tzx", "c8"),
    "r, i": Layout(hdf5("iq", compound(("r", "i"))), IQ, "tzx", "c8"),
    "re, im": Layout(hdf5("iq", compound(("re", "im"))), IQ, "tzx", "c8"),
    "I, Q": Layout(hdf5("iq", compound(("I", "Q"))), IQ, "tzx", "c8"),
    "i, q double": Layout(hdf5("iq", compound(("i", "q"), "f8")), IQ.astype("c16"), "tzx", "c16"),
    "v5": Layout(mat_v5({"IQ": in_order("zxt"), "UF": UF}), in_order("zxt"), "zxt", "c8", "IQ", ".mat"),
    "v5 compressed": Layout(
        mat_v5({"IQ": in_order("zxt"), "UF": UF}, compress=True), in_order("zxt"), "zxt", "c8", "IQ", ".mat"
    ),
    "v7.3": Layout(mat_v73, in_order("zxt"), "zxt", "c8", "IQ", ".mat"),
    "v7.3 of ours": Layout(
        lambda path: write_v73(path, {"IQ": in_order("zxt")}), in_order("zxt"), "zxt", "c8", "IQ", ".mat"
    ),
    "float32": Layout(hdf5("iq", REAL), REAL, "tzx", "f4"),
    "float64": Layout(hdf5("iq", REAL.astype("f8")), REAL.astype("f8"), "tzx", "f8"),
    "float16": Layout(hdf5("iq", REAL.astype("f2")), REAL, "tzx", "f2"),
    "int16": Layout(hdf5("iq", REAL.astype("i2")), REAL, "tzx", "i2"),
    "int16 v5": Layout(
        mat_v5({"RF": in_order("zxt", REAL).astype("i2")}), in_order("zxt", REAL), "zxt", "i2", "RF", ".mat"
    ),
    "float64 v7.3": Layout(
        lambda path: write_v73(path, {"RF": in_order("zxt", REAL).astype("f8")}),
        in_order("zxt", REAL).astype("f8"),
        "zxt",
        "f8",
        "RF",
        ".mat",
    ),
}


@pytest.mark.parametrize("key", LAYOUTS)
def test_reads_back_what_was_written(key: str, tmp_path: Path) -> None:
    how = LAYOUTS[key]
    path = tmp_path / f"stack{how.suffix}"
    how.write(path)
    acquisition = load(path)
    assert acquisition.axes == how.axes
    assert acquisition.name == how.name
    assert acquisition.iq.dtype == how.expected.dtype
    assert acquisition.stored_dtype == np.dtype(how.stored)
    assert np.array_equal(acquisition.iq, how.expected)


@pytest.mark.parametrize("key", LAYOUTS)
def test_casorati_is_a_view_and_the_same_for_every_layout(key: str, tmp_path: Path) -> None:
    how = LAYOUTS[key]
    path = tmp_path / f"stack{how.suffix}"
    how.write(path)
    acquisition = load(path)
    matrix = casorati(acquisition)
    content = IQ if np.iscomplexobj(how.expected) else REAL
    assert np.array_equal(matrix, content.reshape(N_FRAMES, -1).T)
    assert matrix.flags.c_contiguous
    assert np.shares_memory(matrix, acquisition.iq)


@pytest.mark.parametrize("axes", ["tzxy", "zxyt", "ytxz"])
def test_volumes_in_any_order_give_one_casorati_matrix(axes: str, tmp_path: Path) -> None:
    path = tmp_path / "volumes.h5"
    values = in_order(axes, VOLUMES, "tzxy")
    hdf5("iq", values, axes=axes)(path)
    acquisition = load(path)
    assert acquisition.axes == axes
    assert np.array_equal(acquisition.iq, values)
    matrix = casorati(acquisition)
    assert np.array_equal(matrix, VOLUMES.reshape(N_FRAMES, -1).T)
    assert np.shares_memory(matrix, acquisition.iq)


def test_volumes_of_matlab(tmp_path: Path) -> None:
    values = in_order("zxyt", VOLUMES, "tzxy")
    scipy.io.savemat(tmp_path / "v5.mat", {"IQ": values})
    write_v73(tmp_path / "v73.mat", {"IQ": values})
    for name in ("v5.mat", "v73.mat"):
        acquisition = load(tmp_path / name)
        assert acquisition.axes == "zxyt"
        assert np.array_equal(acquisition.iq, values)


@pytest.mark.parametrize("key", ["complex64", "time last", "v7.3", "r, i", "int16"])
def test_slab_size_does_not_matter(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = LAYOUTS[key]
    path = tmp_path / f"stack{how.suffix}"
    how.write(path)
    monkeypatch.setattr(layout, "SLAB_BYTES", 400)
    assert np.array_equal(load(path).iq, how.expected)
    frames = slice(1, None, 3)
    expected = how.expected[frames] if how.axes[0] == "t" else how.expected[..., frames]
    assert np.array_equal(load(path, frames=frames).iq, expected)


@pytest.mark.parametrize(("precision", "dtypes"), [("single", ("c8", "f4")), ("double", ("c16", "f8"))])
def test_precision_converts_on_reading(precision: str, dtypes: tuple[str, str], tmp_path: Path) -> None:
    for values, dtype in zip((IQ.astype("c16"), REAL.astype("i2")), dtypes, strict=True):
        hdf5("iq", values)(tmp_path / "stack.h5")
        acquisition = load(tmp_path / "stack.h5", dtype=precision)
        assert acquisition.iq.dtype == np.dtype(dtype)
        assert acquisition.stored_dtype == values.dtype
        assert np.array_equal(acquisition.iq, values)


@pytest.mark.parametrize("wanted", ["a/b", "/a/b", "a/b/"])
def test_dataset_in_a_group(wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    with h5py.File(path, "w") as file:
        file["iq"] = IQ
        file["a/b"] = 2 * IQ
    acquisition = load(path, dataset=wanted)
    assert acquisition.name == "a/b"
    assert np.array_equal(acquisition.iq, 2 * IQ)


def test_dataset_of_matlab(tmp_path: Path) -> None:
    path = tmp_path / "stack.mat"
    scipy.io.savemat(path, {"IQ": in_order("zxt"), "other": 2 * in_order("zxt")})
    assert np.array_equal(load(path, dataset="other").iq, 2 * in_order("zxt"))


@pytest.mark.parametrize("axes", ["ztx", "txz", "xzt", "tzx"])
def test_axes_option_names_the_axes_of_the_file(axes: str, tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    hdf5("iq", in_order(axes))(path)
    acquisition = load(path, axes=axes)
    assert acquisition.axes == axes
    assert np.array_equal(acquisition.iq, in_order(axes))
    assert np.array_equal(casorati(acquisition), IQ.reshape(N_FRAMES, -1).T)


def test_axes_option_is_in_matlab_order_for_its_files(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "v5.mat", {"IQ": in_order("ztx")})
    write_v73(tmp_path / "v73.mat", {"IQ": in_order("ztx")})
    for name in ("v5.mat", "v73.mat"):
        acquisition = load(tmp_path / name, axes="ztx")
        assert np.array_equal(acquisition.iq, in_order("ztx"))
        assert np.array_equal(casorati(acquisition), IQ.reshape(N_FRAMES, -1).T)


@pytest.mark.parametrize(
    "frames", [slice(2, 9), slice(None, None, 3), slice(1, 11, 4), slice(-5, None), slice(3, 999)], ids=str
)
@pytest.mark.parametrize("axes", ["tzx", "ztx", "zxt"])
def test_frames_option(frames: slice, axes: str, tmp_path: Path) -> None:
    expected = in_order(axes, IQ[frames])
    hdf5("iq", in_order(axes))(tmp_path / "stack.h5")
    scipy.io.savemat(tmp_path / "v5.mat", {"IQ": in_order(axes)})
    write_v73(tmp_path / "v73.mat", {"IQ": in_order(axes)})
    for name in ("stack.h5", "v5.mat", "v73.mat"):
        acquisition = load(tmp_path / name, axes=axes, frames=frames)
        assert np.array_equal(acquisition.iq, expected)
        assert np.shares_memory(casorati(acquisition), acquisition.iq)


@pytest.mark.parametrize(
    "alias", ["frame_rate_hz", "frame_rate", "framerate", "compound_sampling_frequency", "FrameRateUF"]
)
def test_frame_rate_from_an_attribute(alias: str, tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    hdf5("iq", IQ, **{alias: 750.0})(path)
    assert load(path).frame_rate_hz == 750.0
    assert load(path, frame_rate_hz=80.0).frame_rate_hz == 80.0


def test_of_several_frame_rates_the_nearest_counts(tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    with h5py.File(path, "w") as file:
        file["a/iq"] = IQ
        file["frame_rate"] = 100.0
    assert load(path).frame_rate_hz == 100.0
    for place, rate in (("a", 300.0), ("a/iq", 400.0)):
        with h5py.File(path, "r+") as file:
            file[place].attrs["frame_rate"] = rate
        assert load(path).frame_rate_hz == rate


@pytest.mark.parametrize("key", ["v5", "v5 compressed", "v7.3"])
def test_struct_of_pala(key: str, tmp_path: Path) -> None:
    path = tmp_path / "stack.mat"
    LAYOUTS[key].write(path)
    acquisition = load(path)
    assert acquisition.frame_rate_hz == 500.0
    assert acquisition.center_frequency_hz == pytest.approx(15e6)
    assert load(path, frame_rate_hz=90.0).frame_rate_hz == 90.0


@pytest.mark.parametrize(("name", "value"), [("spacing_mm", [0.1, 0.2]), ("pixel_spacing_mm", (0.1, 0.2))])
def test_spacing_from_an_attribute_is_in_the_order_of_the_file(name: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    hdf5("iq", in_order("xtz"), axes="xtz", **{name: value})(path)
    assert load(path).spacing_mm == {"x": 0.1, "z": 0.2}
    assert load(path, spacing_mm=(0.3, 0.4)).spacing_mm == {"x": 0.3, "z": 0.4}
    assert load(path, spacing_mm=(0.5,)).spacing_mm == {"x": 0.5, "z": 0.5}


def test_one_spacing_is_for_every_axis(tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    hdf5("iq", VOLUMES, axes="tzxy", spacing_mm=0.1)(path)
    assert load(path).spacing_mm == {"z": 0.1, "x": 0.1, "y": 0.1}


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, "fast", [], [1.0] * 9])
def test_a_scale_that_makes_no_sense_is_left_out(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    hdf5("iq", IQ, frame_rate=value, spacing_mm=value)(path)
    acquisition = load(path)
    assert acquisition.frame_rate_hz is None
    assert acquisition.spacing_mm == {}


@pytest.mark.parametrize("value", ["L22-14v", [], np.nan, -15.0])
def test_a_transmit_frequency_that_makes_no_sense_is_left_out(value: Any, tmp_path: Path) -> None:
    hdf5("iq", IQ, TwFreq=value)(tmp_path / "stack.h5")
    scipy.io.savemat(tmp_path / "stack.mat", {"IQ": in_order("zxt"), "UF": {**UF, "TwFreq": value}})
    for name in ("stack.h5", "stack.mat"):
        assert load(tmp_path / name).center_frequency_hz is None


def test_sources_say_where_each_piece_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    hdf5("iq", IQ, frame_rate=500.0)(path)
    sources = describe(path, spacing_mm=(0.1,)).metadata.sources
    assert sources["axes"] == "assumed"
    assert sources["spacing_mm"] == "option"
    assert sources["frame_rate_hz"].startswith("file: ")
    assert "frame_rate" in sources["frame_rate_hz"]
    assert describe(path, frame_rate_hz=1.0).metadata.sources["frame_rate_hz"] == "option"


@pytest.mark.parametrize(
    ("shape", "time_last", "axes"),
    [
        ((10, 20, 300), None, "zxt"),
        ((300, 10, 20), None, "tzx"),
        ((300, 10, 20), True, "zxt"),
        ((10, 20, 300), False, "tzx"),
        ((32, 126, 126), None, "tzx"),
        ((126, 126, 32), None, "zxt"),
        ((50, 90, 40), None, "zxt"),
        ((40, 90, 50), None, "zxt"),
        ((300, 20, 300), None, "zxt"),
        ((40, 40, 40), None, "zxt"),
        ((300, 300, 20), None, "zxt"),
        ((300, 8, 9, 10), None, "tzxy"),
        ((8, 9, 10, 300), None, "zxyt"),
        ((4, 8, 8, 8), None, "tzxy"),
        ((8, 8, 8, 4), None, "zxyt"),
        ((300, 8, 9, 10), True, "zxyt"),
    ],
)
def test_guess_axes(shape: tuple[int, ...], time_last: bool | None, axes: str) -> None:
    assert guess_axes(shape, time_last) == axes


@pytest.mark.parametrize("key", ["complex64", "v5", "v7.3"])
def test_guessed_axes_are_an_assumption(key: str, tmp_path: Path) -> None:
    path = tmp_path / f"stack{LAYOUTS[key].suffix}"
    LAYOUTS[key].write(path)
    (assumption,) = load(path).assumptions
    assert "--axes" in assumption
    assert LAYOUTS[key].axes in assumption
    assert load(path, axes="xzt").assumptions == ()


@pytest.mark.parametrize("axes", ["ztx", np.bytes_("ztx")])
def test_axes_of_the_file_are_no_assumption(axes: Any, tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    hdf5("iq", in_order("ztx"), axes=axes)(path)
    acquisition = load(path)
    assert acquisition.assumptions == ()
    assert acquisition.axes == "ztx"


@pytest.mark.parametrize("name", ["iq", "IQ", "data/iq"])
def test_the_dataset_called_iq_is_preferred(name: str, tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    with h5py.File(path, "w") as file:
        file["a_filtered"] = 3 * IQ
        file["b_mode"] = REAL
        file[name] = IQ
    acquisition = load(path)
    assert acquisition.name == name
    assert np.array_equal(acquisition.iq, IQ)


def test_the_variable_called_iq_is_preferred(tmp_path: Path) -> None:
    path = tmp_path / "stack.mat"
    scipy.io.savemat(path, {"A": 2 * in_order("zxt"), "IQ": in_order("zxt"), "Z": 3 * in_order("zxt")})
    assert load(path).name == "IQ"


def test_then_the_only_complex_one(tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    with h5py.File(path, "w") as file:
        file["b_mode"] = REAL
        file["mask"] = np.ones(REAL.shape, np.uint8)
        file["rotated"] = compound(("real", "imag"))
        file["picture"] = REAL[0]
    assert load(path).name == "rotated"


def test_then_the_only_one(tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    with h5py.File(path, "w") as file:
        file["envelope"] = REAL
        file["mask"] = REAL[0] > 0
        file["note"] = "text"
        file["nothing"] = h5py.Empty("f4")
    assert load(path).name == "envelope"


@pytest.mark.parametrize(
    ("name", "suffix"), [("iq", ".h5"), ("stack", ".h5"), ("IQ", ".mat"), ("bf", ".mat")]
)
def test_our_results_are_read_back_without_a_name(name: str, suffix: str, tmp_path: Path) -> None:
    # One NaN: the results then hold the 3-D array `unobserved` as well.
    values = in_order("zxt").copy()
    values[1, 2, 3] = np.nan
    path = tmp_path / f"x{suffix}"
    if suffix == ".mat":
        scipy.io.savemat(path, {name: values, "UF": UF})
    else:
        hdf5(name, values)(path)
    report = job.run(path, tmp_path / "out", options=FAST)
    acquisition = load(report["output"]["denoised"])
    assert acquisition.name == name
    assert acquisition.axes == "zxt"
    assert acquisition.iq.shape == values.shape


@pytest.mark.parametrize("suffix", [".h5", ".mat"])
def test_volume_results_are_read_back_without_a_name(suffix: str, tmp_path: Path) -> None:
    # The power Doppler of volumes is 3-D, like a stack.
    values = in_order("zxyt", VOLUMES, "tzxy")
    path = tmp_path / f"v{suffix}"
    if suffix == ".mat":
        scipy.io.savemat(path, {"bf": values})
    else:
        hdf5("bf", values)(path)
    report = job.run(path, tmp_path / "out", options=FAST)
    assert load(report["output"]["denoised"]).name == "bf"


def test_phantoms_with_terms_are_read_without_a_name(phantom_file: Path) -> None:
    acquisition = load(phantom_file)
    assert acquisition.name == "iq"
    assert acquisition.axes == "tzx"
    assert acquisition.assumptions == ()
    assert acquisition.frame_rate_hz == 500.0


@pytest.mark.parametrize("term", ["truth/blood", "truth/tissue"])
def test_terms_of_a_phantom_can_be_asked_for(term: str, phantom_file: Path) -> None:
    assert load(phantom_file, dataset=term).name == term


def add_raw(file: h5py.File, name: bytes, kind: Any) -> None:
    h5py.h5d.create(file.id, name, kind, h5py.h5s.create(h5py.h5s.SCALAR))


def test_an_attribute_whose_name_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    with h5py.File(path, "w") as file:
        file["iq"] = IQ
        scalar = h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5a.create(file["iq"].id, b"fr\xe9quence", h5py.h5t.NATIVE_DOUBLE, scalar)
    assert np.array_equal(load(path).iq, IQ)


def test_a_dataset_whose_name_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    with h5py.File(path, "w") as file:
        file["iq"] = IQ
        add_raw(file, b"\xb5m", h5py.h5t.NATIVE_DOUBLE)
    assert np.array_equal(load(path).iq, IQ)


def test_a_type_that_numpy_lacks_beside_the_stack(tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    with h5py.File(path, "w") as file:
        file["iq"] = IQ
        add_raw(file, b"recorded", h5py.h5t.UNIX_D32LE)
    assert np.array_equal(load(path).iq, IQ)


def test_reading_again_gives_an_array_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "stack.h5"
    hdf5("iq", IQ)(path)
    first, second = load(path), load(str(path))
    first.iq[...] = 0
    assert np.array_equal(second.iq, IQ)
