"""What a run can leave behind beside the plain stack: factors, Zarr, structs, compression, chunks."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import zarr

from tests.files.layouts import LAYOUTS, confusius
from tests.files.test_results import IQ, OPTIONS
from tests.stacks import write_stack
from usdenoise import denoise, load
from usdenoise.files.hdf5_writing import create_file, write_values
from usdenoise.files.recordings import describe
from usdenoise.files.results import ResultFile, write_result
from usdenoise.jobs import run_job as job
from usdenoise.options import Output
from usdenoise.stack.acquisition import Acquisition

pytestmark = pytest.mark.usefixtures("no_pictures")


def run(path: Path, **more: Any) -> Path:
    report = job.run(path, path.parent / "out", options=more.pop("options", OPTIONS), **more)
    return Path(report["output"]["denoised"])


def as_zarr(folder: Path) -> Path:
    return confusius(IQ[:12, :5, :4])(folder)


def test_zarr_in_zarr_out(tmp_path: Path) -> None:
    path = as_zarr(tmp_path)
    written = run(path)
    assert written.name == "x_denoised.zarr"
    back, before = load(written), load(path)
    expected = denoise(before, options=OPTIONS)
    np.testing.assert_allclose(back.iq, expected.acquisition.iq, rtol=1e-6)
    assert (back.axes, back.name, back.frame_rate_hz) == (before.axes, before.name, before.frame_rate_hz)
    assert back.spacing_mm == pytest.approx(before.spacing_mm)
    assert back.center_frequency_hz == before.center_frequency_hz
    root = zarr.open_group(written, mode="r")
    np.testing.assert_allclose(root["power_doppler"][0], expected.power_doppler, rtol=1e-6)
    assert root["power_doppler"].attrs["formula"] == "mean over frames of |s|^2"
    assert tuple(root["iq"].metadata.dimension_names) == ("time", "k", "j", "i")
    assert json.loads(str(root.attrs["usdenoise_provenance"]))["input"]["dataset"] == "iq"
    # Once more over the same folder.
    job.run(path, tmp_path / "out", options=OPTIONS, overwrite=True)
    assert np.array_equal(load(written).iq, back.iq)


@pytest.mark.parametrize("key", ["UFF", "zea", "rIQ, iIQ, normValue", "npz", "npy"])
def test_other_containers_come_back_as_hdf5(key: str, tmp_path: Path) -> None:
    how = LAYOUTS[key]
    (tmp_path / "in").mkdir()
    path = how.write(tmp_path / "in")
    report = job.run(path, tmp_path / "out", options=OPTIONS)
    written = Path(report["output"]["denoised"])
    assert written.suffix == ".h5"
    back, before = load(written), load(path)
    assert (back.name, back.axes) == (before.name, before.axes)
    assert back.frame_rate_hz == before.frame_rate_hz
    assert back.center_frequency_hz == before.center_frequency_hz
    assert back.spacing_mm == pytest.approx(before.spacing_mm)
    assert len(report["input"]["sha256"]) == 64


@pytest.mark.parametrize(("dtype", "chunks"), [
    ("<f4", (4, 3, 5)), (">f8", (7, 11, 13)), ("<c8", (3, 11, 1)), ("<c16", (1, 1, 1)), ("<c8", None)
])  # fmt: skip
def test_the_values_of_a_dataset_are_written(dtype, chunks, tmp_path):
    values = np.random.default_rng(0).standard_normal((2, 11, 13, 7)).transpose(0, 3, 1, 2)
    values = values[0] + 1j * values[1] if "c" in dtype else values[0]
    with create_file(tmp_path / "x.h5") as file:
        dataset = file.create_dataset("iq", values.shape, dtype, chunks=chunks)
        dataset.attrs["axes"] = "tzx"
        write_values(dataset, values)
        file["beside"] = np.arange(5)
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["iq"].dtype == dtype
        assert file["iq"].chunks == chunks
        assert np.array_equal(file["iq"], values.astype(dtype))
        assert np.array_equal(file["beside"], np.arange(5))


def test_the_file_of_a_result_is_the_same_each_time(tmp_path: Path) -> None:
    stack = Acquisition(IQ.copy(), "tzx")
    for name in "ab":
        write_result(tmp_path / f"{name}.h5", ".h5", ResultFile(stack, {}, "{}"))
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def as_mat(folder: Path, name: str) -> Path:
    scipy.io.savemat(folder / "x.mat", {name: IQ.transpose(1, 2, 0)})
    return folder / "x.mat"


def as_hdf5(folder: Path, name: str) -> Path:
    return write_stack(folder / "x.h5", IQ.transpose(1, 2, 0), name, axes="zxt")


def as_group(folder: Path, name: str) -> Path:
    root = zarr.open_group(folder / "x.zarr", mode="w")
    root.create_array(name, data=IQ.transpose(1, 2, 0)).attrs["axes"] = "zxt"
    return folder / "x.zarr"


@pytest.fixture(scope="module")
def plain_stack(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What becomes of the stack under a name of its own."""
    folder = tmp_path_factory.mktemp("plain")
    output = Output(products=("power",))
    report = job.run(as_hdf5(folder, "iq"), folder / "out", options=OPTIONS, output=output)
    return load(report["output"]["denoised"]).iq


@pytest.mark.parametrize(("make", "name"), [
    *((as_mat, name) for name in ("power_doppler", "axes")),
    *((as_hdf5, name) for name in ("blood_power", "unobserved", "axes", "time")),
    (as_group, "singular_values"),
])  # fmt: skip
def test_a_stack_with_a_name_of_the_results_is_kept(name, make, plain_stack, tmp_path):
    report = job.run(make(tmp_path, name), tmp_path / "out", options=OPTIONS, reading={"dataset": name})
    written = Path(report["output"]["denoised"])
    is_taken = name not in ("unobserved", "time") and (name != "axes" or make is as_mat)
    stack = load(written, dataset=None if is_taken else name)
    assert stack.name == ("filtered_stack" if is_taken else name)
    # Sums over the pixels are rounded in the order of the file.
    np.testing.assert_allclose(stack.iq, plain_stack, atol=1e-5 * np.abs(plain_stack).max())
    assert [note.split("'")[1] for note in report["notes"]] == ([name] if is_taken else [])
    for image in ("power_doppler", "blood_power"):
        if image != name:
            assert describe(written, dataset=image).problem is not None
