"""A .mat result keeps what its input has: the other variables, the names and the form of the stack."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from tests.formats.layouts import v73
from tests.formats.matlab_variables import variables
from tests.formats.test_results import IQ, OPTIONS
from usdenoise import load
from usdenoise.errors import InputError, OptionError
from usdenoise.formats.matlab import matlab_carried
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
    return Path(report["output"]["sequence" if "output" in more and more["output"].window else "denoised"])


@pytest.mark.parametrize("output", [{}, {"output": Output(window=15)}], ids=["stack", "sequence"])
def test_all_other_variables_come_along(output: dict[str, Any], tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT, **other_variables()})
    before, after = (
        scipy.io.loadmat(path) for path in (tmp_path / "x.mat", run(tmp_path / "x.mat", **output))
    )
    for name in ("mask", "note", "weights"):
        assert np.array_equal(after[name], before[name])
        assert after[name].dtype == before[name].dtype
    assert [str(item.dtype) for item in after["labels"][0]] == [
        str(item.dtype) for item in before["labels"][0]
    ]
    for name in ("UF", "PData"):
        assert after[name].dtype.names == before[name].dtype.names
        for field in after[name].dtype.names:
            if field != "Inner":
                assert np.array_equal(after[name][field][0, 0], before[name][field][0, 0])
    assert after["UF"]["Inner"][0, 0]["deep"][0, 0] == 7
    assert ("IQ" in after) == (not output)


def test_those_of_a_file_of_version_7_3_come_along(matlab_version: str, tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        flags = file.create_dataset("mask", data=np.array([[1, 0, 1]], np.uint8).T)
        flags.attrs["MATLAB_class"] = np.bytes_("logical")
        text = file.create_dataset(
            "note", data=np.frombuffer("übung".encode("utf-16-le"), np.uint16)[:, None]
        )
        text.attrs["MATLAB_class"] = np.bytes_("char")
        for name in ("f", "Probe/callback"):
            handle = file.create_dataset(name, data=np.zeros((1, 1)))
            handle.attrs["MATLAB_class"] = np.bytes_("function_handle")

    others = {
        "weights": np.arange(6.0).reshape(2, 3) + 1j,
        "counts": np.arange(4, dtype=np.int16)[None],
        "labels": [np.arange(3.0)[None], np.arange(5.0)[None]],
        "Probe/pitch": 0.1,
    }
    written = run(v73(fill, IQ=ZXT, **others)(tmp_path))
    after = variables(written)
    assert after["UF/FrameRateUF"].item() == 500.0
    assert after["PData/PDelta"].tolist() == [[1.0, 0.0, 0.5]]
    np.testing.assert_array_equal(after["weights"], np.arange(6.0).reshape(2, 3) + 1j)
    assert after["mask"].tolist() == [[1, 0, 1]]
    assert after["note"] == "übung"
    assert (after["counts"].dtype, after["Probe/pitch"].item()) == (np.int16, 0.1)
    assert not {"f", "Probe/callback"} & set(after)
    if matlab_version == "v5":
        assert [item.shape for item in after["labels"].reshape(-1)] == [(1, 3), (1, 5)]
    else:
        with h5py.File(written) as file:
            assert file["UF"].attrs["MATLAB_class"] == b"struct"
            assert file["mask"].attrs["MATLAB_class"] == b"logical"
        assert "labels" not in after
        assert notes_of(written)[0].startswith("Probe/callback, f, labels of the input")
    assert load(written).frame_rate_hz == 500.0


def test_what_is_too_large_or_an_old_result_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matlab_carried, "CARRIED_BYTES", 4000)
    old = {"axial_velocity": np.ones((10, 9)), "usdenoise_provenance": "old"}
    large = {"raw": np.zeros(1000), "small": np.ones(7), **old}
    for compress in (False, True):
        scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT, **large}, do_compression=compress)
        after = scipy.io.loadmat(run(tmp_path / "x.mat"))
        assert "raw" not in after
        assert "axial_velocity" not in after
        assert after["small"].size == 7
        assert [note.split()[0] for note in notes_of(tmp_path / "out/x_denoised.mat")] == ["raw"]
        assert "old" not in str(after["usdenoise_provenance"])


def test_functions_of_matlab_stay_behind_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.io.matlab import MatlabFunction

    function = MatlabFunction(np.zeros((1, 1), [("function_handle", object)]))
    struct = np.zeros((1, 1), [("rate", object), ("callback", object)])
    struct[0, 0] = (np.array([[500.0]]), function)
    several = np.concatenate([struct, struct])
    found = {"UF": struct, "f": function, "several": several, "__function_workspace__": np.zeros(8, np.uint8)}
    monkeypatch.setattr(
        matlab_carried, "_variables_of_v5", lambda path: ((n, 8, lambda n=n: found[n]) for n in found)
    )
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT})
    after = scipy.io.loadmat(run(tmp_path / "x.mat"))
    assert after["UF"].dtype.names == ("rate",)
    assert after["UF"]["rate"][0, 0].item() == 500.0
    assert not {"f", "several", "__function_workspace__"} & set(after)
    assert notes_of(tmp_path / "out/x_denoised.mat")[0].startswith("UF/callback, f, several of the input")


def test_a_damaged_variable_stays_behind_alone(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).random(50000)
    scipy.io.savemat(tmp_path / "a.mat", {"IQ": ZXT, "noise": noise}, do_compression=True)
    first = (tmp_path / "a.mat").stat().st_size
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT, "noise": noise, "gain": 2.0}, do_compression=True)
    with (tmp_path / "x.mat").open("r+b") as raw:
        raw.seek(first - 20000)
        raw.write(b"\xff" * 2000)
    after = scipy.io.loadmat(run(tmp_path / "x.mat"))
    assert "noise" not in after
    assert after["gain"].item() == 2.0


@pytest.mark.usefixtures("matlab_version")
def test_i_and_q_and_axes_of_length_1_come_back_as_they_came(tmp_path: Path) -> None:
    parts = {"IData": ZXT.real[:, :, None], "QData": ZXT.imag[:, :, None]}
    scipy.io.savemat(tmp_path / "x.mat", parts)
    written = run(tmp_path / "x.mat")
    after = variables(written)
    assert "IQData" not in after
    for name, part in parts.items():
        assert (after[name].shape, after[name].dtype) == (part.shape, part.dtype)
    stack = load(written)
    assert (stack.axes, stack.name) == ("zxt", "IQData")
    np.testing.assert_array_equal(stack.iq, (after["IData"] + 1j * after["QData"])[:, :, 0])


def test_a_struct_keeps_its_other_fields(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "x.mat", {"Bf": {"IQ": ZXT[:, :, None, None], "gain": 3.0}})
    after = scipy.io.loadmat(run(tmp_path / "x.mat"))["Bf"]
    assert after["gain"][0, 0].item() == 3.0
    assert after["IQ"][0, 0].shape == (10, 9, 1, 1, 30)


def notes_of(written: Path) -> list[str]:
    notes: list[str] = json.loads((written.parent / "x_report.json").read_text())["notes"]
    return notes


def test_structs_without_fields_come_along(tmp_path: Path) -> None:
    cell = np.empty((1, 2), object)
    cell[0, 0], cell[0, 1] = {}, np.zeros((0, 0))
    several = np.zeros((1, 2), [("inner", object)])
    several["inner"] = cell
    others = {"s": {}, "UF": {"FrameRateUF": 500.0, "Tx": {}}, "cell": cell, "several": several}
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT, **others})
    before = scipy.io.loadmat(tmp_path / "x.mat")
    written = run(tmp_path / "x.mat")
    after = scipy.io.loadmat(written)
    # scipy reads a struct without fields as an array of one None.
    for value in (after["s"], after["UF"]["Tx"][0, 0], after["cell"][0, 0], after["several"]["inner"][0, 0]):
        assert value.tolist() == [[None]]
    assert after["several"]["inner"][0, 1].shape == after["cell"][0, 1].shape == (0, 0)
    assert after["several"].dtype == before["several"].dtype
    assert notes_of(written) == []


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


@pytest.mark.parametrize("compress", [False, True])
def test_a_variable_that_scipy_cannot_read_stays_behind_and_is_named(compress: bool, tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT, "frame_rate_hz": 500.0}, do_compression=compress)
    with (tmp_path / "x.mat").open("ab") as file:
        packed = zlib.compress(sparse_of_octave())
        file.write(struct.pack("<II", 15, len(packed)) + packed if compress else sparse_of_octave())
    written = run(tmp_path / "x.mat")
    after = scipy.io.loadmat(written)
    assert "flags" not in after
    assert after["frame_rate_hz"].item() == 500.0
    (note,) = notes_of(written)
    assert note.startswith("flags of the input did not come along into the result: too large, damaged, or")


def test_a_damaged_scale_is_not_passed_over(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT})
    with (tmp_path / "x.mat").open("ab") as file:
        file.write(sparse_of_octave(b"axes"))
    with pytest.raises(InputError, match=r"x\.mat is truncated or corrupt"):
        load(tmp_path / "x.mat")


def test_sparse_matrices_of_version_7_3_come_along(tmp_path: Path) -> None:
    sparse = scipy.sparse.csc_matrix(np.array([[0, 2, 0], [0, 0, 5]]))

    def fill(file: h5py.File) -> None:
        for name, kind, values in (
            ("weights", "double", [2.0, 5.0]),
            ("sparse_flags", "logical", np.ones(2, np.uint8)),
            ("wrong", "double", [1.0]),
        ):
            group = file.create_group(name)
            group.attrs["MATLAB_class"], group.attrs["MATLAB_sparse"] = np.bytes_(kind), np.uint64(2)
            group["data"], group["ir"], group["jc"] = values, sparse.indices, sparse.indptr
        empty = file.create_group("empty")
        empty.attrs["MATLAB_class"], empty.attrs["MATLAB_sparse"] = np.bytes_("double"), np.uint64(2)
        empty["jc"] = np.zeros(4, np.uint64)

    written = run(v73(fill, IQ=ZXT)(tmp_path))
    after = scipy.io.loadmat(written)
    assert after["weights"].toarray().tolist() == [[0, 2, 0], [0, 0, 5]]
    assert [kind for name, _, kind in scipy.io.whosmat(written) if name == "sparse_flags"] == ["logical"]
    assert after["sparse_flags"].toarray().tolist() == [[0, 1, 0], [0, 0, 1]]
    assert after["empty"].shape == (2, 3)
    assert notes_of(written)[0].startswith("wrong of the input")


def test_structs_within_one_another_are_no_damage(tmp_path: Path) -> None:
    inner: dict[str, Any] = {"gain": 3.0}
    for _ in range(12):
        inner = {"s": inner}
    scipy.io.savemat(tmp_path / "x.mat", {"IQ": ZXT, **inner})
    value = scipy.io.loadmat(run(tmp_path / "x.mat"))
    for _ in range(12):
        value = value["s"][0, 0]
    assert value["gain"][0, 0].item() == 3.0


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
        with pytest.raises(OptionError, match="is no name of a variable; give stack_name up to 63 letters"):
            Output(stack_name=name)
    with pytest.raises(OptionError, match="there is no stack to name"):
        Output(stack_name="iq", stack=False)
