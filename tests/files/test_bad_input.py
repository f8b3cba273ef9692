"""Whatever is wrong with a file, reading it ends with a known error and a single message."""

import contextlib
import json
import os
import shutil
import socket
import struct
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import usdenoise
from tests.conftest import SMALL
from tests.files.layouts import Write, confusius, hdf5, in_chunks, v5, v5_compressed, writer
from tests.programs import python
from tests.stacks import write_stack
from usdenoise import load, run_batch
from usdenoise.cli import main
from usdenoise.errors import InputError, OptionError, OutputError, UnreadableError, UsdenoiseError
from usdenoise.files import describe
from usdenoise.jobs.compare import compare_file
from usdenoise.jobs.run_job import run
from usdenoise.jobs.simulate_job import simulate_to_file

_RNG = np.random.default_rng(8)
IQ = (_RNG.standard_normal((9, 4, 3)) + 1j * _RNG.standard_normal((9, 4, 3))).astype(np.complex64)
MATLAB_IQ = IQ.transpose(1, 2, 0)
UF = {"FrameRateUF": 500.0, "TwFreq": 15.0}


# ---------------------------------------------------------------- the wrong file, or nothing to read in it


NUL: dict[str, tuple[type[UsdenoiseError], Callable[[Path, str], Any]]] = {
    "load": (InputError, lambda scan, path: load(path)),
    "describe": (InputError, lambda scan, path: describe(path)),
    "run": (InputError, lambda scan, path: run(path)),
    "compare_file": (InputError, lambda scan, path: compare_file(path, methods=["svd"])),
    "run_batch": (InputError, lambda scan, path: usdenoise.run_batch([path], "out")),
    "results of run": (OutputError, run),
    "results of run_batch": (OutputError, lambda scan, path: usdenoise.run_batch([scan], path)),
    "simulate": (OutputError, lambda scan, path: simulate_to_file(path, SMALL)),
}


@pytest.mark.parametrize("key", NUL)
def test_a_nul_in_a_path(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error, attempt = NUL[key]
    monkeypatch.chdir(tmp_path)
    path = write_stack(tmp_path / "scan.h5", IQ)
    says = r"^the path 'a\\x00b.h5' contains a NUL character, .* give another path$"
    with pytest.raises(error, match=says):
        attempt(path, "a\0b.h5")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("frames", [3, "0:4", slice(0, 4.0)], ids=repr)
def test_frames_that_are_no_slice(frames: Any, tmp_path: Path) -> None:
    path = write_stack(tmp_path / "x.h5", IQ)
    for read in (load, describe):
        with pytest.raises(OptionError, match="frames"):
            read(path, frames=frames)
    assert load(path, frames=slice(np.int64(1), np.int32(4))).iq.shape == (3, 4, 3)


def test_an_attribute_that_numpy_lacks_is_left_out(tmp_path: Path) -> None:
    path = write_stack(tmp_path / "x.h5", IQ)
    with h5py.File(path, "r+") as file:
        h5py.h5a.create(file["iq"].id, b"gain", odd_float(), h5py.h5s.create(h5py.h5s.SCALAR))
    assert np.array_equal(load(path).iq, IQ)


def test_axes_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    path = write_stack(tmp_path / "x.h5", IQ)
    with h5py.File(path, "r+") as file:
        file["iq"].attrs["axes"] = np.bytes_(b"\x80\xff")
    assert "set the axes" in load(path).assumptions[0]


# ---------------------------------------------------------------- one table of bad files


@writer
def raw(folder: Path, name: str, content: bytes = b"") -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@writer
def truncated(folder: Path, write: Write, left: float) -> Path:
    """The same without its end; what is left is a number of bytes, or a fraction."""
    path = write(folder)
    content = path.read_bytes()
    path.write_bytes(content[: left if isinstance(left, int) else int(left * len(content))])
    return path


@writer
def edited(folder: Path, write: Write, old: bytes, new: bytes) -> Path:
    """The same with other bytes in the place of some that it holds once."""
    path = write(folder)
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    return path


def v5_of_shape(*shape: int) -> Write:
    """A file of MATLAB before 7.3 whose header gives IQ another shape than it has."""
    headers = [struct.pack("<II3i", 5, 12, *sizes) for sizes in (MATLAB_IQ.shape, shape)]
    return edited(v5(IQ=MATLAB_IQ), *headers)


def odd_float() -> h5py.h5t.TypeFloatID:
    """A float that HDF5 can describe and numpy cannot."""
    kind = h5py.h5t.IEEE_F64LE.copy()
    kind.set_ebias(60_000)
    return kind


def odd_floats(file: h5py.File) -> None:
    h5py.h5d.create(file.id, b"iq", odd_float(), h5py.h5s.create_simple(IQ.shape))


def function_handle(file: h5py.File) -> None:
    group = file.create_group("IQ")
    group.attrs["MATLAB_class"] = np.bytes_("function_handle")
    group["function_handle"] = np.zeros((1, 6), np.uint16)


def table(file: h5py.File) -> None:
    dataset = file.create_dataset("IQ", data=np.zeros((3, 4, 6), np.uint32))
    dataset.attrs.update({"MATLAB_class": np.bytes_("table"), "MATLAB_object_decode": np.int32(3)})


def empty_cell(file: h5py.File) -> None:
    dataset = file.create_dataset("IQ", data=np.zeros((2, 3, 4), np.uint64))
    dataset.attrs.update({"MATLAB_class": np.bytes_("cell"), "MATLAB_empty": np.uint8(1)})


def cell_of_text(file: h5py.File) -> None:
    text = file.create_dataset("#refs#/a", data=np.zeros((3, 1), np.uint16))
    text.attrs["MATLAB_class"] = np.bytes_("char")
    references = np.full((2, 1), text.ref, h5py.ref_dtype)
    cell = file.create_dataset("IQ", data=references, dtype=h5py.ref_dtype)
    cell.attrs["MATLAB_class"] = np.bytes_("cell")


def npy_that_claims(folder: Path) -> Path:
    """A .npy file of 64 values whose header claims HUGE."""
    with (folder / "x.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<c8", "fortran_order": False, "shape": HUGE})
        file.write(bytes(512))
    return folder / "x.npy"


def zarr_that_claims(folder: Path) -> Path:
    """A Zarr array of HUGE shape with one chunk of a few bytes."""
    zarr.create_array(folder / "x.zarr", data=np.ones((4, 4, 4), np.complex64), chunks=(4, 4, 4))
    described = json.loads((folder / "x.zarr/zarr.json").read_text())
    described["shape"] = HUGE
    described["chunk_grid"]["configuration"]["chunk_shape"] = (1, 1000, 1250)
    (folder / "x.zarr/zarr.json").write_text(json.dumps(described))
    return folder / "x.zarr"


def zarr_of_another_codec(folder: Path) -> Path:
    zarr.create_array(folder / "x.zarr", data=IQ, chunks=IQ.shape)
    place = folder / "x.zarr/zarr.json"
    place.write_text(place.read_text().replace("zstd", "imagecodecs_jpegxl"))
    return folder / "x.zarr"


@writer
def archived(folder: Path, kind: str) -> Path:
    """An archive of a Zarr group."""
    confusius()(folder / "in")
    return Path(shutil.make_archive(str(folder / "x.zarr"), kind, folder / "in"))


def broken_zarr(folder: Path) -> Path:
    raw("zarr.json", b"{")(folder)
    return folder


def dead_links(file: h5py.File) -> None:
    file["iq"], file["soft"] = h5py.ExternalLink("absent.h5", "/iq"), h5py.SoftLink("/absent")


def half_recorded(file: h5py.File) -> None:
    file.create_dataset("iq", shape=IQ.shape, chunks=(4, 1, IQ.shape[2]), dtype="c8")[:, :3] = IQ[:, :3]


def reserved(shape: tuple[int, ...], chunks: tuple[int, ...] | None = None) -> Write:
    return hdf5(fill=lambda file: file.create_dataset("iq", shape=shape, chunks=chunks, dtype="c8"))


NOT_A_STACK: dict[str, Any] = {
    "scalar": np.float32(1),
    "2-D": IQ[0],
    "5-D": np.stack([IQ[..., None]] * 4, -1).repeat(2, -2),
    "strings": np.full((9, 4, 3), b"text"),
    "words": np.full((9, 4, 3), "text", h5py.string_dtype()),
    "truth values": np.ones((9, 4, 3), bool),
    "three members": np.zeros((9, 4, 3), [("r", "f4"), ("i", "f4"), ("j", "f4")]),
    "unlike members": np.zeros((9, 4, 3), [("r", "f4"), ("i", "f8")]),
    "text members": np.zeros((9, 4, 3), [("r", "S2"), ("i", "S2")]),
    "no frames": IQ[:0],
}

NO_STACK_OF_MATLAB: dict[str, Any] = {
    "vector": np.ones(5), "5-D": np.ones((5, 4, 3, 3, 3)), "char": "words",
    "cell": np.array([["a", 1.0]], object), "struct": UF, "empty": np.ones((5, 4, 0)),
    "logical": np.ones((5, 4, 3), bool),
}  # fmt: skip

HUGE = (10**6, 1000, 1250)
_RANDOM = np.random.default_rng(0).bytes

NO_STACK, SEVERAL, DAMAGED = ("holds no stack", "several stacks", "corrupt|damaged|is truncated|missing")
BAD: dict[str, tuple[Write, dict[str, Any], str]] = {
    "absent": (lambda folder: folder / "absent.h5", {}, "does not exist"),
    "a folder": (lambda folder: folder, {}, "is a folder"),
    **{f"empty {name}": (raw(name), {}, "is empty") for name in ("x.h5", "x.mat", "x")},
    **{
        f"{n} random bytes, {name}": (raw(name, _RANDOM(n)), {}, "unknown content")
        for name, n in (("x.h5", 5000), ("x.h5", 7), ("x.mat", 127), ("x.npy", 5000))
    },
    "random bytes of MATLAB": (raw("x.mat", _RANDOM(5000)), {}, f"{DAMAGED}|{NO_STACK}"),
    "no such dataset": (hdf5(first=IQ, second=IQ), {"dataset": "third"}, "first, second"),
    "no such variable": (v5(A=MATLAB_IQ, B=MATLAB_IQ), {"dataset": "C"}, "A, B"),
    "several in HDF5": (hdf5(A=IQ, B=IQ), {}, SEVERAL),
    "several in MATLAB": (v5(A=MATLAB_IQ, B=MATLAB_IQ), {}, SEVERAL),
    "several called iq": (hdf5(**{"a/iq": IQ, "b/IQ": IQ}), {}, SEVERAL),
    "nothing in HDF5": (hdf5(), {}, NO_STACK),
    "nothing in MATLAB": (v5(), {}, NO_STACK),
    "links that lead nowhere": (hdf5(fill=dead_links, other=IQ[0]), {}, NO_STACK),
    "floats that NumPy lacks": (hdf5(fill=odd_floats), {}, f"{DAMAGED}|{NO_STACK}"),
    **{
        f"{kind} in {file}{', by name' * bool(options)}": (write(IQ=values), options, sentence)
        for file, write, table in (("HDF5", hdf5, NOT_A_STACK), ("MATLAB", v5, NO_STACK_OF_MATLAB))
        for kind, values in table.items()
        for options, sentence in (({}, NO_STACK), ({"dataset": "IQ"}, "3 axes"))
    },
    **{
        f"MATLAB 7.3: {fill.__name__}": (hdf5(fill=fill, user_block=512), {}, NO_STACK)
        for fill in (function_handle, table, empty_cell, cell_of_text)
    },
    **{
        f"axes {axes!r} of {file}": (write(iq=values), {"axes": axes}, "axes")
        for write, values, file in ((hdf5, IQ, "HDF5"), (v5, MATLAB_IQ, "MATLAB"))
        for axes in ("abc", "TZX", "tzz", "zxy", "", "tz", "tzxy")
    },
    "axes in the file": (
        hdf5(fill=lambda file: file["iq"].attrs.update(axes="time"), iq=IQ),
        {},
        "axes 'time'",
    ),
    "one frame": (hdf5(iq=IQ[:1]), {"axes": "tzx"}, "1 frame"),
    **{
        f"frames {frames} of {file}": (write(iq=values), {"frames": frames}, "frames")
        for write, values, file in ((hdf5, IQ, "HDF5"), (v5, MATLAB_IQ, "MATLAB"))
        for frames in (slice(0, 1), slice(0, 9, 9), slice(5, 5), slice(100, 200), slice(None, None, -1))
    },
    "too many pitches": (hdf5(iq=IQ), {"spacing_mm": (0.1, 0.2, 0.3)}, "3 pixel pitches"),
    "more chunks than 64 bits count": (reserved((2**31,) * 3, (1, 1, 1)), {}, DAMAGED),
    "a recording of half of the pixels": (hdf5(fill=half_recorded), {}, DAMAGED),
    **{
        f"a header of MATLAB with {shape}": (v5_of_shape(*shape), {}, f"{DAMAGED}|{NO_STACK}")
        for shape in ((4, 3, 10), (4, 3, 8), (40, 30, 90), (-4, -3, 9), (0, 3, 9))
    },
    **{
        f"{left:.0%} of {what}": (truncated(write, left), {}, f"{DAMAGED}|{NO_STACK}")
        for what, write in (
            ("HDF5", hdf5(iq=IQ)),
            ("HDF5 in chunks", in_chunks(compression="gzip")),
            ("MATLAB", v5(UF=UF, IQ=MATLAB_IQ)),
            ("MATLAB, compressed", v5_compressed(UF=UF, IQ=MATLAB_IQ)),
        )
        for left in (0.3, 0.6, 0.99)
    },
    "Zarr with another codec": (
        zarr_of_another_codec,
        {},
        "codec that is not installed .*imagecodecs_jpegxl",
    ),
    "broken Zarr": (broken_zarr, {}, DAMAGED),
    **{
        f"an archive, {kind}": (archived(kind), {}, "is an archive.*unpack")
        for kind in ("zip", "tar", "gztar")
    },
    **{
        f"an address, {address[:5]}": (
            lambda folder, address=address: Path(address),
            {},
            "is an address: download",
        )
        for address in ("https://example.org/data/scan.zarr", "s3://bucket/scan.h5")
    },
}


@pytest.mark.parametrize("key", BAD)
def test_a_bad_file_is_refused_in_one_message(key: str, tmp_path: Path) -> None:
    write, options, says = BAD[key]
    path = write(tmp_path)
    with pytest.raises(InputError, match=says) as error:
        load(path, **options)
    assert "\n" not in str(error.value)


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "x.h5")
    return folder / "x.h5"


def socket_of(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(folder):
        made.bind("x.mat")
    return folder / "x.mat"


@pytest.mark.parametrize("write", [pipe, socket_of, lambda folder: Path("/dev/zero")])
def test_nothing_waits_for_what_is_no_file(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path)
    for read in (load, describe):
        with pytest.raises(InputError, match=r"is a pipe, a socket or a device; write its content to a file"):
            read(path)


def test_archives_in_a_folder_of_scans_are_listed_unless_they_are_unpacked(tmp_path: Path) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    archive = archived("zip")(tmp_path)
    for name in ("a.zarr.zip", "b.h5.gz", "c.zarr.tar.gz", "d.mat.tar", "e.h5.zip", "notes.zip", "f.txt.gz"):
        shutil.copy(archive, scans / name)
    write_stack(scans / "e.h5", IQ)
    (scans / "c.zarr").mkdir()
    done = run_batch(scans, tmp_path / "out")
    assert [row.scan for row in done.rows] == ["a.zarr.zip", "b.h5.gz", "d.mat.tar", "e.h5"]
    assert all("is an archive" in row.error for row in done.rows[:3])


def test_a_pipe_in_a_folder_of_scans_fails_alone(tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    folder.mkdir()
    pipe(folder)
    done = run_batch(folder, tmp_path / "out")
    assert [row.status for row in done.rows] == ["failed"]
    assert "is a pipe, a socket or a device" in done.rows[0].error


@pytest.mark.parametrize("stored", [v5, hdf5])
@pytest.mark.parametrize(
    "value", [1e-7, 1e13, np.nan, np.inf, -1.0, 0.0, "fast", [], [[1.0, 2.0, 3.0, 4.0]], 5 + 1j], ids=repr
)
def test_a_value_that_cannot_be_a_scale_is_none(stored: Any, value: Any, tmp_path: Path) -> None:
    scales = {"frame_rate_hz": value, "spacing_mm": value, "sound_speed_m_s": value}
    stack = load(stored(iq=IQ.transpose(1, 2, 0), **scales)(tmp_path))
    assert (stack.frame_rate_hz, dict(stack.spacing_mm), stack.sound_speed_m_s) == (None, {}, None)


def test_a_coordinate_of_millions_of_chunks_is_not_read(tmp_path: Path) -> None:
    path = confusius(IQ)(tmp_path)
    place = path / "time/zarr.json"
    known = json.loads(place.read_text())
    known["shape"], known["chunk_grid"]["configuration"]["chunk_shape"] = [1 << 22], [1]
    place.write_text(json.dumps(known))
    began = time.monotonic()
    assert "t" not in load(path).coordinates
    assert time.monotonic() - began < 20


# ---------------------------------------------------------------- files that claim more than they hold


CLAIMS: dict[str, Write] = {
    "npy": npy_that_claims, "Zarr": zarr_that_claims, "HDF5 in chunks": reserved(HUGE, (1, 1000, 1250)),
    "HDF5": reserved(HUGE),
}  # fmt: skip


@pytest.mark.parametrize("key", CLAIMS)
def test_a_small_file_that_claims_much_allocates_nothing(key: str, tmp_path: Path) -> None:
    path = CLAIMS[key](tmp_path)
    with pytest.raises(InputError):
        load(path)
    # Once more, now that modules are loaded.
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            load(path)
        # The sample by which the axis of time is recognised takes 12 MiB.
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def npz_with_a_long_header(folder: Path) -> Path:
    """An array whose header has 200 MiB, in a few hundred kB."""
    with (
        zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("iq.npy", "w") as file,
    ):
        file.write(b"\x93NUMPY\x02\x00" + (200 << 20).to_bytes(4, "little"))
        for _ in range(200):
            file.write(b" " * (1 << 20))
    return folder / "x.npz"


def npz_of_zeros(folder: Path) -> Path:
    np.savez_compressed(folder / "x.npz", iq=np.zeros((300, 200, 200), np.complex64))
    return folder / "x.npz"


def v5_of_zeros(folder: Path) -> Path:
    return v5_compressed(IQ=np.zeros((200, 200, 300), np.complex64))(folder)


@pytest.mark.parametrize(("write", "reason"), [
    (npz_with_a_long_header, "corrupt"), (npz_of_zeros, "is constant"), (v5_of_zeros, "is constant")
])  # fmt: skip
def test_what_is_compressed_beyond_reason_is_not_decompressed(write, reason, tmp_path):
    path = write(tmp_path)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=reason):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_a_large_empty_array_beside_the_stack_is_no_fault(tmp_path: Path) -> None:
    """Such as one that a script has reserved for its results, of 72 MB."""
    iq = np.random.default_rng(0).standard_normal((40, 30, 40)).astype(np.complex64)
    path = v5_compressed(PDI=np.zeros((1100, 8192)), IQ=iq)(tmp_path)
    np.testing.assert_array_equal(load(path, dataset="IQ").iq, iq)


def test_thousands_of_other_arrays_in_a_file_take_a_few_seconds(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        for number in range(3000):
            file[f"a{number}"] = 1.0
        file["rIQ"], file["iIQ"], file["normValue_IQ"] = IQ.real, IQ.imag, 2.0
        file["ticks"], file["frame_rate_hz"] = 0.002 * np.arange(len(IQ)), 500.0
        file["ticks"].make_scale("time")
        file["rIQ"].dims[0].attach_scale(file["ticks"])
    opened, original = [], h5py.Group.__getitem__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(h5py.Group, "__getitem__", lambda *each: opened.append(each) or original(*each))
        stack = load(tmp_path / "x.h5", axes="tzx")
    assert np.array_equal(stack.iq, 2 * IQ)
    assert stack.frame_rate_hz == 500
    assert np.array_equal(stack.coordinates["t"].values, 0.002 * np.arange(len(IQ)))
    # Some for the list of the contents, and for the marks of MATLAB and UFF
    assert len(opened) < 3 * 1000 + 20


def test_of_thousands_of_attributes_the_first_and_those_of_scales_are_read(tmp_path: Path) -> None:
    many = {f"a{number}": number for number in range(1100)} | {"frame_rate_hz": 500.0}
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        file["iq"] = IQ
        file["iq"].attrs.update(many)
    zarr.create_array(tmp_path / "x.zarr/iq", data=IQ, attributes=many)
    zarr.create_group(tmp_path / "x.zarr", attributes=many)
    for name in ("x.h5", "x.zarr"):
        stack = load(tmp_path / name, axes="tzx")
        assert stack.frame_rate_hz == 500
        assert stack.attributes["a1"] == 1
        assert len(stack.attributes) == 1000


def test_links_of_a_file_to_itself_are_followed_once(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["g/iq"] = IQ
        file["g/hard"], file["soft"], file["UF"] = file["/"], h5py.SoftLink("/"), h5py.SoftLink("/UF")
        file["external"], file["time"] = h5py.ExternalLink("x.h5", "/"), h5py.ExternalLink("x.h5", "/time")
    zarr.create_array(tmp_path / "x.zarr/g/iq", data=IQ)
    for folder in (tmp_path / "x.zarr", tmp_path / "x.zarr/g"):
        zarr.create_group(folder)
        (folder / "again").symlink_to(tmp_path / "x.zarr")
    for name in ("x.h5", "x.zarr"):
        assert [candidate.name for candidate in describe(tmp_path / name).candidates] == ["g/iq"]
    for dataset in ("soft/g/iq", "external/soft/g/hard/g/iq"):
        assert np.array_equal(load(tmp_path / "x.h5", dataset=dataset, axes="tzx").iq, IQ)


def test_a_stack_larger_than_any_memory_is_one_sentence(tmp_path: Path) -> None:
    path = v5_of_shape(10**5, 10**4, 10**3)(tmp_path)
    with pytest.raises(MemoryError):
        load(path)
    result = CliRunner().invoke(main, ["run", str(path), "-o", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_zarr_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zarr.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(UnreadableError, match=r"zarr is not installed; run pip install zarr"):
        load(tmp_path)


def test_pickles_are_never_read(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (exec, ("raise SystemExit('unpickled')",))

    values = np.full((9, 4, 3), Bomb(), object)
    np.save(tmp_path / "x.npy", values, allow_pickle=True)
    np.savez(tmp_path / "x.npz", iq=values)
    for name in ("x.npy", "x.npz"):
        with pytest.raises(InputError, match=r"holds no stack.*iq \(3-D pickled objects\)"):
            load(tmp_path / name)


POWER = (np.abs(IQ) ** 2).astype(np.float32)


@pytest.mark.parametrize("write", [
    lambda folder: write_stack(folder / "x.scan", POWER, "Data"),
    lambda folder: write_stack(folder / "x.h5", (POWER * 10).astype(np.uint16), "power"),
    lambda folder: write_stack(folder / "x.h5", np.where(POWER > 1, np.nan, POWER), "image"),
])  # fmt: skip
def test_power_doppler_is_said_to_be_that(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(InputError, match=r"nowhere negative: it is power Doppler already.*dataset to filter"):
        load(path)
    description = describe(path)
    assert "power Doppler already" in str(description.problem)
    assert load(path, dataset=description.candidates[0].name).iq.shape == POWER.shape


def test_a_damaged_heap_of_text_is_not_read_where_it_is_not_needed(tmp_path, child_reader):
    path = write_stack(tmp_path / "x.h5", IQ)
    with h5py.File(path, "r+") as file:
        file.attrs["note"] = "a note of variable length" * 4
        file["iq"].attrs["axes"] = np.bytes_("tzx")
    raw = bytearray(path.read_bytes())
    heap = raw.index(b"GCOL")
    raw[heap + 16 : heap + 4096] = bytes(len(raw[heap + 16 : heap + 4096]))
    path.write_bytes(raw)
    assert child_reader.outcome(path) == "loaded"


def test_several_damaged_members_of_a_group_are_one_sentence(tmp_path: Path) -> None:
    path = confusius()(tmp_path)
    metadata = sorted(path.rglob("zarr.json"))
    assert len(metadata) > 3
    for file in metadata:
        content = json.loads(file.read_bytes())
        if content["node_type"] == "group":
            content.pop("consolidated_metadata", None)
            file.write_text(json.dumps(content))
        else:
            file.write_bytes(b"\xff" + file.read_bytes())
    done = python("from usdenoise.cli import main; main()", "info", path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "is damaged: it cannot be read as a Zarr group" in done.stderr
