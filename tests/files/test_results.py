"""What a run leaves behind: the filtered stack in the input's own terms; after a failure, nothing at all."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import imageio.v3 as iio
import numpy as np
import pytest
import scipy.io
import tifffile
from numpy.typing import NDArray

from tests.files.matlab_variables import variables
from tests.programs import python
from tests.stacks import low_rank, run_in_windows, write_stack
from usdenoise import denoise, load
from usdenoise.errors import InputError, OutputError
from usdenoise.files.input_files import sha256
from usdenoise.files.matlab_writing import write_v73
from usdenoise.files.output_folder import OutputFolder
from usdenoise.jobs import run_job as job
from usdenoise.options import DenoiseOptions, Output
from usdenoise.progress import Progress

OPTIONS = DenoiseOptions(rank=3, iterations=3, low_cutoff=1, seed=11)


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest) -> None:
    """Only the tests that ask for `pictures` draw."""
    if "pictures" not in request.fixturenames:
        request.getfixturevalue("no_pictures")


@pytest.fixture
def pictures() -> None:
    """Let the job draw."""


SCALES = (500, 200, 80)
IQ = low_rank((30, 10, 9), SCALES, noise=0.1, seed=2)
VOLUMES = low_rank((30, 9, 8, 4), SCALES, noise=0.1, seed=3)


def run(path: Path, **more: Any) -> dict[str, Any]:
    report = job.run(path, path.parent / "out", options=more.pop("options", OPTIONS), **more)
    for name in report["output"].values():
        assert Path(name).is_file()
    return report


def mean_power(stack: NDArray[Any], axes: str) -> NDArray[np.float64]:
    power: NDArray[np.float64] = np.mean(np.abs(stack.astype(np.complex128)) ** 2, axis=axes.index("t"))
    return power


def read_back(report: dict[str, Any], name: str, values: NDArray[Any], axes: str) -> None:
    """Without a name the stack is found in its results, also beside 3-D images and the array of the holes."""
    back = load(report["output"]["denoised"])
    assert (back.name, back.axes, back.iq.shape) == (name, axes, values.shape)


def with_a_hole(stack: NDArray[Any]) -> NDArray[Any]:
    """The stack with one entry that was not observed."""
    stack = stack.copy()
    stack[2, 3, 4] = np.nan
    return stack


INPUTS = {
    "tzx complex64": ("iq", IQ, "tzx", "c8"),
    "zxt complex128": ("iq", IQ.transpose(1, 2, 0).astype("c16"), "zxt", "c16"),
    "xtz big-endian": ("iq", IQ.transpose(2, 0, 1).astype(">c8"), "xtz", "c8"),
    "in a group, with a hole": ("data/set 1/iq", with_a_hole(IQ), "tzx", "c8"),
    "int16": ("rf", IQ.real.astype("i2"), "tzx", "f4"),
    "float64": ("rf", IQ.real.astype("f8"), "tzx", "f8"),
    "volumes tzxy": ("iq", VOLUMES, "tzxy", "c8"),
    "volumes yxzt": ("iq", VOLUMES.transpose(3, 2, 1, 0), "yxzt", "c8"),
}


@pytest.mark.parametrize("key", INPUTS)
def test_the_stack_is_stored_as_it_came(key: str, tmp_path: Path) -> None:
    name, values, axes, dtype = INPUTS[key]
    report = run(write_stack(tmp_path / "x.h5", values, name, axes=axes))
    with h5py.File(report["output"]["denoised"]) as file:
        assert file[name].shape == values.shape
        assert file[name].dtype == np.dtype(dtype)
        assert file[name].attrs["axes"] == axes
        stack = file[name][()]
        power = file["power_doppler"][()]
        singular = file["singular_values"][()]
        assert ("unobserved" in file) == np.isnan(values).any()
    assert power.dtype == np.float32
    assert power.shape == tuple(n for n, letter in zip(values.shape, axes, strict=True) if letter != "t")
    np.testing.assert_allclose(power, mean_power(stack, axes), rtol=1e-5)
    assert singular.shape == (3,)
    assert np.all(np.diff(singular) < 0)
    np.testing.assert_allclose(singular, report["singular_values"])
    # The largest component is gone.
    assert 0 < np.linalg.norm(stack) < 0.9 * np.linalg.norm(np.nan_to_num(values).astype(np.complex128))
    read_back(report, name, values, axes)


def test_provenance_is_in_the_file_and_the_report(tmp_path: Path) -> None:
    path = write_stack(tmp_path / "x.h5", IQ)
    command = ["usdenoise", "run", "x.h5"]
    report = run(path, command=command)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert sha256(path) == digest
    with h5py.File(report["output"]["denoised"]) as file:
        provenance = json.loads(file.attrs["usdenoise_provenance"])
    for record in (provenance, report):
        assert record["input"]["sha256"] == digest
        assert record["input"]["path"] == str(path)
        assert record["input"]["dataset"] == "iq"
        assert record["input"]["shape"] == list(IQ.shape)
        assert record["input"]["axes"] == "tzx"
        assert record["command"] == command
        assert record["parameters"]["seed"] == 11
        assert {"usdenoise", "numpy", "scipy", "python"} <= set(record["software"])
    assert json.loads(Path(report["output"]["report"]).read_text()) == json.loads(json.dumps(report))
    assert report["input"]["bytes"] == path.stat().st_size
    assert report["input"]["mtime_ns"] == path.stat().st_mtime_ns
    assert report["requested"]["options"]["rank"] == 3
    assert "threads" not in report["requested"]["options"]
    sizes = {key: Path(name).stat().st_size for key, name in report["output"].items() if key != "report"}
    assert report["output_bytes"] == sizes


def test_attributes_are_carried(tmp_path: Path) -> None:
    attributes = {"probe": "L22-14v", "gain": 3, "angles": [-2.0, 0.0, 2.0], "labels": ["a", "b"]}
    path = write_stack(tmp_path / "x.h5", IQ, frame_rate=500.0, spacing_mm=[0.1, 0.2], **attributes)
    with h5py.File(path, "r+") as file:
        # What cannot be carried does no harm.
        file["iq"].attrs["self"] = file["iq"].ref
        file["iq"].attrs["nothing"] = h5py.Empty("f4")
    report = run(path)
    with h5py.File(report["output"]["denoised"]) as file:
        carried = dict(file["iq"].attrs)
    for name, value in attributes.items():
        assert np.array_equal(carried[name], value)
    result = load(report["output"]["denoised"])
    assert result.frame_rate_hz == 500.0
    assert result.spacing_mm == {"z": 0.1, "x": 0.2}


# ---------------------------------------------------------------- MATLAB


@pytest.mark.parametrize(("name", "values", "dtype"), [
    ("IQ", with_a_hole(IQ.transpose(1, 2, 0)), "c8"),
    ("IQData", IQ.transpose(1, 2, 0).astype("c16"), "c16"),
    ("RF", IQ.transpose(1, 2, 0).real.astype("i2"), "f4"),
    ("V", VOLUMES.transpose(1, 2, 3, 0), "c8"),
])  # fmt: skip
@pytest.mark.parametrize("version", ["5", "7.3"])
def test_matlab_in_matlab_out(version, name, values, dtype, tmp_path):
    path = tmp_path / "x.mat"
    if version == "5":
        scipy.io.savemat(path, {name: values})
    else:
        write_v73(path, {name: values})
    report = run(path)
    assert report["output"]["denoised"].endswith("x_denoised.mat")
    contents = variables(Path(report["output"]["denoised"]))
    assert contents[name].shape == values.shape
    assert contents[name].dtype == np.dtype(dtype)
    assert contents["power_doppler"].dtype == np.float32
    if name == "IQ":
        assert np.array_equal(contents["unobserved"] != 0, np.isnan(values))
    axes = "zxyt" if values.ndim == 4 else "zxt"
    np.testing.assert_allclose(contents["power_doppler"], mean_power(contents[name], axes), rtol=1e-5)
    assert np.all(np.diff(contents["singular_values"].ravel()) < 0)
    provenance = json.loads(contents["usdenoise_provenance"])
    assert provenance["input"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    read_back(report, name, values, axes)


def test_matlab_results_keep_their_axes_and_scales(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"IQ": IQ, "UF": {"FrameRateUF": 500.0, "TwFreq": 15.0}})
    report = run(path, reading={"axes": "tzx", "spacing_mm": (0.1, 0.2)})
    result = load(report["output"]["denoised"])
    assert result.frame_rate_hz == 500.0
    assert result.center_frequency_hz == pytest.approx(15e6)
    assert result.spacing_mm == {"z": 0.1, "x": 0.2}
    assert (result.iq.shape, result.axes, result.assumptions) == (IQ.shape, "tzx", ())


@pytest.mark.parametrize(
    "values", [IQ, IQ.astype("c16"), IQ.real, IQ.real.astype("f8")], ids=lambda v: v.dtype.name
)
def test_v73_is_what_h5py_and_matlab_expect(values: NDArray[Any], tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    write_v73(path, {"IQ": values, "line": np.arange(3.0), "note": "text"})
    assert path.read_bytes()[:19] == b"MATLAB 7.3 MAT-file"
    assert path.read_bytes()[124:128] == b"\x00\x02IM"
    with h5py.File(path) as file:
        assert file.userblock_size == 512
        stored = file["IQ"]
        assert stored.shape == values.shape[::-1]
        member = np.dtype(values.real.dtype)
        assert stored.attrs["MATLAB_class"] == {4: b"single", 8: b"double"}[member.itemsize]
        if np.iscomplexobj(values):
            assert stored.dtype == np.dtype([("real", member), ("imag", member)])
            content = stored["real"] + 1j * stored["imag"]
        else:
            content = stored[()]
        assert np.array_equal(content, values.transpose())
        assert file["line"].shape == (1, 3)
        assert file["note"].attrs["MATLAB_class"] == b"char"
        assert file["note"][()].tobytes().decode("utf-16-le") == "text"


# ---------------------------------------------------------------- pictures


@pytest.mark.parametrize(("values", "axes", "order"), [
    (IQ, "tzx", (0, 1)), (IQ.transpose(2, 1, 0), "xzt", (1, 0)), (VOLUMES, "tzxy", (2, 0, 1))
], ids=["tzx", "xzt", "volume"])  # fmt: skip
def test_tiff_is_the_power_doppler_with_depth_downwards_and_a_page_for_each_elevation(
    values, axes, order, tmp_path
):
    report = run(write_stack(tmp_path / "x.h5", values, axes=axes, spacing_mm=0.4))
    with h5py.File(report["output"]["denoised"]) as file:
        power = file["power_doppler"][()]
    with tifffile.TiffFile(report["output"]["blood_power_tif"]) as file:
        assert (file.imagej_metadata["unit"], file.series[0].shape[-2:]) == (
            "mm",
            power.transpose(order).shape[-2:],
        )
    pages = np.stack(list(iio.imiter(report["output"]["power_doppler_tif"], plugin="pillow")))
    assert pages.dtype == np.float32
    assert np.array_equal(pages if len(order) == 3 else pages[0], power.transpose(order))


@pytest.mark.parametrize(("values", "axes", "stem"), [
    (IQ, "tzx", r"a$_$ b\frac c{}% 1.5 mm.tar"), (VOLUMES, "tzxy", "大鼠 line\nbreak \udcff")
], ids=["image", "volume"])  # fmt: skip
@pytest.mark.usefixtures("pictures")
def test_png_is_a_picture_with_any_file_name_in_its_title(values, axes, stem, tmp_path):
    # Warnings, as of a letter that no font has, are errors here; on the command line they would be on stderr.
    report = run(write_stack(tmp_path / f"{stem}.h5", values, axes=axes, spacing_mm=0.1))
    picture = Path(report["output"]["power_doppler_png"])
    assert picture.name == f"{stem}_power_doppler.png"
    image = iio.imread(picture)
    assert image.dtype == np.uint8
    assert min(image.shape[:2]) > 100
    assert len(np.unique(image[::5, ::5].reshape(-1, image.shape[-1]), axis=0)) > 50


# ---------------------------------------------------------------- unobserved entries


@pytest.mark.parametrize("high", ["rank", "none"])
@pytest.mark.parametrize("axes", ["tzx", "xzt"])
def test_unobserved_entries_are_marked_and_filled(axes: str, high: str, tmp_path: Path) -> None:
    values = IQ.transpose(["tzx".index(letter) for letter in axes]).copy()
    missing = np.random.default_rng(1).random(values.shape) < 0.02
    values[missing] = np.nan
    values[0, 0, 0], missing[0, 0, 0] = np.inf, True
    values[1, 1, 1], missing[1, 1, 1] = complex(1, np.nan), True
    options = DenoiseOptions(rank=3, iterations=20, high_cutoff=high, tissue="recorded")
    report = run(write_stack(tmp_path / "x.h5", values, axes=axes), options=options)
    assert report["n_unobserved"] == np.count_nonzero(missing)
    with h5py.File(report["output"]["denoised"]) as file:
        assert np.array_equal(file["unobserved"][()] != 0, missing)
        stack = file["iq"][()]
        assert np.isfinite(stack).all()
        assert np.isfinite(file["power_doppler"][()]).all()
    # The stack is of rank 3 and little noise: what was missing is known.
    truth = IQ.transpose(["tzx".index(letter) for letter in axes])
    assert np.abs(stack - truth)[missing].max() < 0.02 * np.abs(truth).max()


# ---------------------------------------------------------------- all or nothing


@pytest.mark.parametrize(
    ("was_there", "failure"), [(False, None), (False, KeyboardInterrupt), (True, None), (True, InputError)]
)
def test_nothing_is_left_without_a_commit(was_there, failure, tmp_path):
    folder = tmp_path / "on/the/way"
    if was_there:
        folder.mkdir(parents=True)
    expected = nullcontext() if failure is None else pytest.raises(failure)
    with expected, OutputFolder(folder) as outputs:
        outputs.reserve("a").write_text("a")
        outputs.reserve("b")
        if failure is not None:
            raise failure("x")
    # Folders that were made go only after a failure.
    assert folder.exists() == (was_there or failure is None)
    assert (tmp_path / "on").exists() == folder.exists()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


PICTURES = ("x_power_doppler.png", "x_power_doppler.tif", "x_blood_power.png", "x_blood_power.tif")
RESULTS = ("x_denoised.h5", *PICTURES, "x_frames.tsv", "x_frames.json", "x_report.html", "x_report.json")


def test_an_existing_result_is_refused_and_left_alone(tmp_path: Path) -> None:
    path, out = write_stack(tmp_path / "x.h5", IQ), tmp_path / "out"
    out.mkdir()
    for name in RESULTS:
        (out / name).write_text("precious")
        says = rf"{name} exists; give overwrite to replace it, or another"
        with pytest.raises(OutputError, match=says):
            run(path)
        assert os.listdir(out) == [name]
        assert (out / name).read_text() == "precious"
        (out / name).unlink()
    for name in RESULTS:
        (out / name).write_text("precious")
    run(path, overwrite=True)
    assert sorted(os.listdir(out)) == sorted(RESULTS)
    assert all((out / name).read_bytes() != b"precious" for name in RESULTS)


class AtStage(Progress):
    """A watcher that does something when a stage begins."""

    def __init__(self, stage: str, action: Callable[[], Any]) -> None:
        self._stage, self._action = stage, action

    def stage(self, name: str) -> None:
        if name == self._stage:
            self._action()


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("stage", ["load", "write"])
def test_an_interrupted_job_leaves_old_results_alone(stage: str, tmp_path: Path) -> None:
    path = write_stack(tmp_path / "x.h5", IQ)
    (tmp_path / "out").mkdir()
    for name in RESULTS:
        (tmp_path / "out" / name).write_text("precious")
    with pytest.raises(KeyboardInterrupt):
        run(path, overwrite=True, watcher=AtStage(stage, interrupt))
    assert sorted(os.listdir(tmp_path / "out")) == sorted(RESULTS)
    assert all((tmp_path / "out" / name).read_text() == "precious" for name in RESULTS)


FEW = Output(products=("power",))

# As on a disk that fills up: at once, and behind the stack.
ON_A_FULL_DISK = """
import sys
from contextlib import ExitStack
from usdenoise.jobs import run_job as job
from usdenoise.errors import OutputError
from tests.files.test_results import FEW, OPTIONS, AtStage
from tests.programs import files_of_at_most
for path in sys.argv[2:]:
    for size in (300, 21_700):
        try:
            with ExitStack() as stack:
                full = lambda: stack.enter_context(files_of_at_most(size))
                job.run(path, sys.argv[1], options=OPTIONS, output=FEW, watcher=AtStage("write", full))
        except OutputError as error:
            print(error)
"""


def test_a_disk_that_fills_up_while_writing(tmp_path: Path) -> None:
    paths = write_stack(tmp_path / "x.h5", IQ), tmp_path / "x.mat"
    scipy.io.savemat(paths[1], {"IQ": IQ.transpose(1, 2, 0)})
    done = python(ON_A_FULL_DISK, tmp_path / "out", *paths)
    # Neither a traceback nor, at the end of the process, a crash in the HDF5 library.
    assert done.stderr == ""
    assert done.returncode == 0
    says = r"(the results could not be written to .*out \(File too large\).*\n){4}"
    assert re.fullmatch(says, done.stdout)
    assert sorted(os.listdir(tmp_path)) == ["x.h5", "x.mat"]


@pytest.mark.parametrize("below", [(), ("deeper", "still")])
def test_a_folder_that_cannot_be_made(below: tuple[str, ...], tmp_path: Path) -> None:
    path = write_stack(tmp_path / "x.h5", IQ)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(OutputError, match=r"file"):
        job.run(path, tmp_path.joinpath("file", *below), options=OPTIONS)
    assert (tmp_path / "file").read_text() == "precious"


def test_no_temporary_name_is_seen_by_a_reader(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def look() -> None:
        seen.append([name for name in os.listdir(tmp_path / "out") if not name.startswith(".")])

    for stage in ("load", "write"):
        run(write_stack(tmp_path / "x.h5", IQ), watcher=AtStage(stage, look))
        assert sorted(os.listdir(tmp_path / "out")) == sorted(RESULTS)
        shutil.rmtree(tmp_path / "out")
    assert seen == [[]] * 2


# ---------------------------------------------------------------- records of what was written


def test_the_record_goes_first_and_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "record"):
        (tmp_path / name).write_text("old")
    replaced, replace_file = [], os.replace

    def stop_at_b(waiting: Path, final: Path) -> None:
        if final.parent != tmp_path:
            # The plan of the names
            return replace_file(waiting, final)
        assert not (tmp_path / "record").exists()
        replaced.append(final.name)
        if final.name == "b":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def write_all() -> None:
        with OutputFolder(tmp_path, True) as outputs:
            for name in ("a", "b", "record"):
                outputs.reserve(name).write_text("new")
            monkeypatch.setattr(os, "replace", stop_at_b)
            outputs.commit()

    with pytest.raises(OutputError, match="Input/output error"):
        write_all()
    assert replaced == ["a", "b"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("value", [1e60, -1e60j])
def test_values_beyond_the_precision_are_refused(value: complex, tmp_path: Path) -> None:
    values = IQ.astype(np.complex128)
    values[3, 4, 5], values[0, 0, 0] = value, np.nan
    path = write_stack(tmp_path / "x.h5", values)
    attempts: list[Callable[[], Any]] = [
        lambda: run(path), lambda: run_in_windows(path, tmp_path / "out", 6),
        lambda: load(path, dtype="single"), lambda: denoise(load(path), options=OPTIONS),
        lambda: denoise(values, axes="tzx", options=OPTIONS),
    ]  # fmt: skip
    says = r"'iq' holds a value of magnitude 1e\+60, and single precision ends at 3\.4e\+38; scale the stack first"
    for attempt in attempts:
        with pytest.raises(InputError, match=f"^{says}$"):
            attempt()
    assert np.nanmax(np.abs(load(path, dtype="double").iq)) == 1e60
    assert os.listdir(tmp_path) == ["x.h5"]
