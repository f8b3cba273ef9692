"""A .mat result is a copy of its input with another stack: same version, other variables, names and form."""

import struct
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io

from tests.files.layouts import cell, put_cell, put_structs, put_v73, structs, v73
from tests.files.matlab_variables import variables
from tests.files.test_results import IQ, OPTIONS
from tests.stacks import run_in_windows
from usdenoise import load
from usdenoise.errors import InputError, OptionError
from usdenoise.files import matlab_writing
from usdenoise.files.matlab_reading import elements
from usdenoise.jobs import run_job as job
from usdenoise.options.job_options import Output

ZXT = IQ.transpose(1, 2, 0)


pytestmark = pytest.mark.usefixtures("no_pictures")


def other_variables() -> dict[str, Any]:
    cell = np.empty((1, 2), object)
    cell[0, 0], cell[0, 1] = np.arange(3.0), "text"
    return {
        "UF": {"FrameRateUF": 500.0, "TwFreq": 15.0, "NbFrames": 30.0, "Name": "bubbles", "Angles": np.arange(3.0),
               "Inner": {"deep": np.int16(7)}},
        "PData": {"PDelta": np.array([[1.0, 0.0, 0.5]]), "Size": np.array([[10.0, 9.0, 1.0]])},
        "mask": np.array([[True, False], [False, True]]),
        "labels": cell,
        "note": "a note",
        "weights": np.arange(6.0).reshape(2, 3) + 1j,
    }  # fmt: skip


def run(path: Path, **more: Any) -> Path:
    report = job.run(path, path.parent / "out", options=OPTIONS, overwrite=True, **more)
    return Path(report["output"]["denoised"])


@pytest.mark.parametrize("is_series", [False, True])
def test_all_other_variables_come_along(is_series: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"IQ": ZXT, **other_variables()})
    if is_series:
        report = run_in_windows(path, tmp_path / "out", 15, options=OPTIONS)
        written = Path(report["output"]["sequence"])
    else:
        written = run(path)
    before, after = scipy.io.loadmat(path), scipy.io.loadmat(written)
    for name in ("mask", "note", "weights"):
        assert np.array_equal(after[name], before[name])
        assert after[name].dtype == before[name].dtype
    types, wanted = ([str(item.dtype) for item in each["labels"][0]] for each in (after, before))
    assert types == wanted
    for name in ("UF", "PData"):
        assert after[name].dtype.names == before[name].dtype.names
        for field in after[name].dtype.names:
            if field != "Inner":
                assert np.array_equal(after[name][field][0, 0], before[name][field][0, 0])
    assert after["UF"]["Inner"][0, 0]["deep"][0, 0] == 7
    assert ("IQ" in after) == (not is_series)


def sparse_of_octave(name: bytes = b"flags") -> bytes:
    """The unit matrix as Octave saves its sparse truth values: of the class of uint8, with the elements of a sparse one."""

    def element(kind: int, data: bytes) -> bytes:
        return struct.pack("<II", kind, len(data)) + data.ljust(-(-len(data) // 8) * 8, b"\0")

    parts = [
        element(6, struct.pack("<II", 9 | 2 << 8, 0)),
        element(5, struct.pack("<ii", 2, 2)),
        element(1, name),
        *(element(5, np.array(numbers, "<i4").tobytes()) for numbers in ([0, 1], [0, 1, 2])),
        element(2, b"\1\1"),
    ]
    return element(14, b"".join(parts))


def name_fields(struct: h5py.Group, *names: str) -> None:
    """Give a struct the attribute in which MATLAB keeps the order of its fields."""
    letters = np.empty(len(names), object)
    for place, name in enumerate(names):
        letters[place] = np.array([*name], "S1")
    struct.attrs.create("MATLAB_fields", letters, dtype=h5py.vlen_dtype(np.dtype("S1")))


def fields_of(struct: h5py.Group) -> list[str]:
    return [b"".join(letters).decode() for letters in struct.attrs["MATLAB_fields"]]


def test_a_result_of_version_7_3_has_all_other_variables(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        put_cell(file, "labels", np.arange(3.0)[None], np.arange(5.0)[None])
        put_v73(file, "PData/Tx/gain", 2.0)
        put_cell(file, "several/rate", np.ones((1, 1)), np.full((1, 1), 7.0))
        handle = file.create_dataset("f", data=np.zeros((1, 1)))
        handle.attrs["MATLAB_class"] = np.bytes_("function_handle")
        empty = file.create_dataset("empty", data=np.zeros(2, np.uint64))
        empty.attrs["MATLAB_class"], empty.attrs["MATLAB_empty"] = np.bytes_("cell"), np.uint8(1)
        name_fields(file["PData"], "PDelta", "Tx")
        put_v73(file, "axial_velocity", np.ones((3, 3)))

    written = run(v73(fill, IQ=ZXT, weights=np.arange(6.0).reshape(2, 3) + 1j)(tmp_path))
    stack = load(written)
    assert stack.frame_rate_hz == 500.0
    with h5py.File(written) as file, h5py.File(tmp_path / "x.mat") as before:
        assert file.userblock_size == 512
        np.testing.assert_array_equal(file["IQ"][()]["real"].transpose(), stack.iq.real)
        assert not np.array_equal(file["IQ"][()], before["IQ"][()])
        for name in ("UF/FrameRateUF", "PData/PDelta", "PData/Tx/gain", "weights", "f", "empty"):
            np.testing.assert_array_equal(file[name][()], before[name][()])
            assert dict(file[name].attrs).keys() == dict(before[name].attrs).keys()
        assert fields_of(file["PData"]) == ["PDelta", "Tx"]
        for name, lengths in (("labels", [3, 5]), ("several/rate", [1, 1])):
            found = [file[reference][()] for reference in file[name][()].flat]
            assert [values.size for values in found] == lengths
        assert found[1].item() == 7.0
        assert "axial_velocity" not in file
        assert file["power_doppler"].attrs["MATLAB_class"] == b"single"


def test_a_stack_in_a_cell_or_a_struct_is_replaced_there(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        put_v73(file, "Bf/gain", 3.0)
        name_fields(file["Bf"], "gain", "IQ")
        put_cell(file, "labels", np.arange(3.0)[None])

    written = run(v73(fill, **{"Bf/IQ": ZXT})(tmp_path))
    with h5py.File(written) as file:
        assert (file["Bf/gain"][()].item(), file["Bf"].attrs["MATLAB_class"]) == (3.0, b"struct")
        assert fields_of(file["Bf"]) == ["gain", "IQ"]
        assert file["Bf/IQ"].shape == IQ.transpose(0, 2, 1).shape
    written = run(v73(fill, IQData=[ZXT[..., :7], ZXT[..., 7:]])(tmp_path))
    with h5py.File(written) as file:
        assert [*file["#refs#"]] == ["labels0"]
        assert file[file["labels"][0, 0]].size == 3
    assert load(written).iq.shape == ZXT.shape
    halves = {"IQ": [ZXT[..., :7], ZXT[..., 7:]], "t": [0.0, 0.1]}
    written = run(v73(lambda file: put_structs(file, "b", **halves))(tmp_path))
    with h5py.File(written) as file:
        assert [file[each][()].item() for each in file["b/t"][()].flat] == [0.0, 0.1]
        assert file["b/t"].attrs["MATLAB_class"] == b"cell"
        assert len(file["#refs#"]) == 2
    assert load(written).iq.shape == ZXT.shape
    scipy.io.savemat(tmp_path / "x.mat", {"b": structs(**halves)})
    after = scipy.io.loadmat(run(tmp_path / "x.mat"))["b"]
    assert after["IQ"][0, 0].shape == ZXT.shape
    assert [time.item() for time in after["t"][0, 0].flat] == [0.0, 0.1]
    scipy.io.savemat(tmp_path / "x.mat", {"Bf": {"IQ": ZXT[:, :, None, None], "gain": 3.0}})
    after = scipy.io.loadmat(run(tmp_path / "x.mat"))["Bf"]
    assert after["gain"][0, 0].item() == 3.0
    assert after["IQ"][0, 0].shape == (10, 9, 1, 1, 30)
    scipy.io.savemat(tmp_path / "x.mat", {"IQData": cell(ZXT[..., :7], ZXT[..., 7:]), "gain": 3.0})
    after = scipy.io.loadmat(run(tmp_path / "x.mat"))
    assert (after["IQData"].shape, after["gain"].item()) == (ZXT.shape, 3.0)


@pytest.mark.parametrize("version", ["5", "7.3"])
def test_i_and_q_and_axes_of_length_1_come_back_as_they_came(version: str, tmp_path: Path) -> None:
    parts = {"IData": ZXT.real[:, :, None], "QData": ZXT.imag[:, :, None]}
    if version == "5":
        scipy.io.savemat(tmp_path / "x.mat", parts)
    else:
        v73(**parts)(tmp_path)
    written = run(tmp_path / "x.mat")
    assert h5py.is_hdf5(written) == (version == "7.3")
    after = variables(written)
    assert "IQData" not in after
    for name, part in parts.items():
        assert (after[name].shape, after[name].dtype) == (part.shape, part.dtype)
    stack = load(written)
    assert (stack.axes, stack.name) == ("zxt", "IQData")
    np.testing.assert_array_equal(stack.iq, (after["IData"] + 1j * after["QData"])[:, :, 0])


@pytest.mark.parametrize("compress", [False, True])
def test_variables_that_scipy_cannot_read_or_write_are_copied(compress: bool, tmp_path: Path) -> None:
    empty = {"s": {}, "UF": {"FrameRateUF": 500.0, "Tx": {}}, "axial_velocity": np.ones(3)}
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT, **empty}, do_compression=compress)
    packed = zlib.compress(sparse_of_octave())
    flags = struct.pack("<II", 15, len(packed)) + packed if compress else sparse_of_octave()
    # Objects and function handles have their content in an element without a name, whose place is in the header.
    content = sparse_of_octave(b"")
    with (tmp_path / "x.mat").open("r+b") as file:
        file.seek(116)
        file.write(struct.pack("<Q", (tmp_path / "x.mat").stat().st_size + len(flags)))
        file.seek(0, 2)
        file.write(flags + content)
    written = run(tmp_path / "x.mat")
    raw = written.read_bytes()
    (place,) = struct.unpack_from("<Q", raw, 116)
    assert raw[place : place + len(content)] == content
    assert flags in raw
    assert len(elements(written)) == len(scipy.io.whosmat(written))
    after = scipy.io.loadmat(written, variable_names=["UF", "s", "axial_velocity", "power_doppler"])
    assert after["UF"]["FrameRateUF"][0, 0].item() == 500.0
    assert after["s"].tolist() == after["UF"]["Tx"][0, 0].tolist() == [[None]]
    assert "axial_velocity" not in after
    assert after["power_doppler"].shape == (10, 9)


def test_a_result_too_large_for_version_5_is_of_version_7_3_and_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(matlab_writing, "V5_LIMIT_BYTES", 100)
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT, "UF": {"FrameRateUF": 500.0}})
    report = job.run(tmp_path / "x.mat", tmp_path / "out", options=OPTIONS)
    written = Path(report["output"]["denoised"])
    assert h5py.is_hdf5(written)
    assert (load(written).frame_rate_hz, load(written).iq.shape) == (500.0, ZXT.shape)
    assert [note.split()[0] for note in report["notes"]] == ["UF"]


def test_a_damaged_scale_is_not_passed_over(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT})
    with (tmp_path / "x.mat").open("ab") as file:
        file.write(sparse_of_octave(b"axes"))
    with pytest.raises(InputError, match=r"x\.mat is truncated or corrupt"):
        load(tmp_path / "x.mat")


@pytest.mark.parametrize("parts", [False, True], ids=["complex", "in parts"])
def test_the_stack_has_the_name_that_the_next_program_reads(parts: bool, tmp_path: Path) -> None:
    stored = {"IData": ZXT.real, "QData": ZXT.imag} if parts else {"IQ": ZXT}
    others = {"UF": {"FrameRateUF": 500.0}, "iqSvdFiltered": np.arange(3.0)}
    scipy.io.savemat(tmp_path / "x.mat", {**stored, **others})
    plain = load(run(tmp_path / "x.mat")).iq
    found = scipy.io.loadmat(run(tmp_path / "x.mat", output=Output(stack_name="iqSvdFiltered")))
    assert np.array_equal(found["iqSvdFiltered"], plain)
    # The input's own stack, and its variable of that name, do not come along; the others do.
    assert not {"IQ", "IData", "QData"} & set(found)
    assert found["UF"]["FrameRateUF"][0, 0] == 500.0


def test_names_that_are_no_variables_are_refused() -> None:
    for name in ("1st", "with space", "a/b", "x" * 64, ""):
        with pytest.raises(OptionError, match="stack_name"):
            Output(stack_name=name)
    with pytest.raises(OptionError, match="stack"):
        Output(stack_name="iq", stack=False)
