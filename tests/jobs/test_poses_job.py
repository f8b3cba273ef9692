"""``usdenoise session --poses``: files in, one series of all positions out, and the results of each position beside it."""

import csv
import json
import shutil
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import quote

import confusius
import h5py
import nibabel
import nilearn.image
import numpy as np
import pandas as pd
import pytest
import xarray
from confusius.glm import FirstLevelModel
from numpy.typing import NDArray

from tests.cli.shared import report_of
from tests.sessions import scans
from tests.sessions.scans import BLOCK_S, FOUR, IMAGE, LENGTH, RATE_HZ, scan, write_blocks
from usdenoise import PosesResult, session
from usdenoise.errors import InputError, OptionError, OutputError, UsdenoiseError
from usdenoise.jobs.session_job import run_session
from usdenoise.options import Output, SessionOptions
from usdenoise.progress import Progress

N_POSES, N_SWEEPS, INTERVAL_S, STEP_MM = 3, 4, 0.5, 0.4
N_MORE = 7
"""Sweeps of a session with two events."""


@pytest.fixture(scope="module")
def blocks() -> list[NDArray[np.complex64]]:
    """Those of the longer session."""
    by_pose = [scan(N_MORE, seed=30 + pose, blood=3.0, rise=1.0).blocks for pose in range(N_POSES)]
    return [by_pose[pose][sweep] for sweep in range(N_MORE) for pose in range(N_POSES)]


@pytest.fixture(scope="module")
def folder(blocks: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the first sweeps. Read only."""
    few = blocks[: N_SWEEPS * N_POSES]
    return write_blocks(tmp_path_factory.mktemp("poses") / "mouse", few, "b{:02d}.h5", INTERVAL_S)


@pytest.fixture(scope="module")
def wanted(folder: Path) -> PosesResult:
    """The session of the files in Python."""
    return session(folder, poses=N_POSES, pose_step_mm=STEP_MM, options=FOUR)


def run(folder: Path, out: Path, poses: Any = N_POSES, **more: Any) -> dict[str, Any]:
    options = SessionOptions(poses=poses, **{"pose_step_mm": STEP_MM, **more.pop("session", {})})
    paths = more.pop("paths", [folder])
    return run_session(paths, out, options=FOUR, session_options=options, **{"overwrite": True, **more})


def test_the_command_writes_one_series_and_a_page_for_each_position(blocks, tmp_path):
    # A block of the second position is without contact
    shown = [0.1 * block if number == 4 else block for number, block in enumerate(blocks)]
    folder = write_blocks(tmp_path / "mouse", shown, "b{:02d}.h5", INTERVAL_S)
    sweep_s, out = N_POSES * INTERVAL_S, tmp_path / "out"
    events = scans.write_events(
        tmp_path / "events.tsv", [(first * sweep_s, sweep_s, "on") for first in (1, 4)]
    )
    np.save(tmp_path / "own.npy", np.arange(N_POSES)[:, None, None] == np.full(IMAGE, 1))
    flags = f"--poses {N_POSES} --pose-step {STEP_MM} --confounds none --zarr --nifti".split()
    flags += ["--region", f"own={tmp_path / 'own.npy'}", "--region", "rect=rect:0,0,9,9"]
    report = report_of("session", folder, "--events", events, *flags, "-o", out)
    assert [pose["name"] for pose in report["sequence"]["poses"]] == ["0", "1", "2"]
    assert [pose["position_mm"] for pose in report["sequence"]["poses"]] == pytest.approx(
        [0, STEP_MM, 2 * STEP_MM]
    )
    assert len(report["sequence"]["time"]) == N_MORE
    names = {path.name for path in out.iterdir()}
    results = {f"mouse_{end}" for end in ("sequence.h5", "sequence.zarr", "blood.nii.gz", "report.html")}
    assert {*results, "poses"} <= names
    assert not any(name.endswith("_spectra") for name in names)
    page = (out / "mouse_report.html").read_text()
    # It is the page of a session: bad blocks with their reasons, the model, and the methods.
    assert [pose["n_bad"] for pose in report["sequence"]["poses"]] == [0, 1, 0]
    assert "Pose 1: block 1 (b04.h5) is bad: the image is 10 dB weaker" in page
    assert f"1 of {N_POSES * N_MORE} blocks are bad" in page
    assert "Their condition number is" in page
    assert f"{N_POSES * N_MORE} blocks of {LENGTH} frames in {N_MORE} sweeps over {N_POSES} positions" in page
    for pose in range(N_POSES):
        address = f"poses/mouse_pose-{pose}_report.html"
        assert f'href="./{address}"' in page
        assert (out / address).exists()
        assert f"Blocks of pose {pose}, {pose * STEP_MM:g} mm" in page
    # A mask of the volume is in its planes, one of a plane in each.
    wanted = {"whole image": "012", "own": "1", "rect": "012"}
    assert {(region["name"], region["pose"]) for region in report["sequence"]["regions"]} == {
        (name, pose) for name, poses in wanted.items() for pose in poses
    }
    with (out / "mouse_region_responses.tsv").open() as file:
        found = list(csv.DictReader(file, delimiter="\t"))
    assert [row["pose"] for row in found] == [*"".join(wanted.values())]
    assert all(f"rect, pose {pose}</th><td>81<" in page for pose in range(N_POSES))
    with h5py.File(out / "mouse_sequence.h5") as file:
        assert file["blood_power"].shape == (N_MORE, N_POSES, *IMAGE)
        assert file["activation/on/t"].shape == (N_POSES, *IMAGE)
        assert file["bad"].shape == (N_MORE, N_POSES)
        starts = file["slice_time"][()] - (LENGTH - 1) / 2 / RATE_HZ
        np.testing.assert_allclose(starts.ravel(), np.arange(N_MORE * N_POSES) * INTERVAL_S)
        with h5py.File(out / "poses/mouse_pose-1_sequence.h5") as one:
            np.testing.assert_array_equal(file["blood_power"][:, 1], one["blood_power"])
            np.testing.assert_array_equal(file["activation/on/t"][1], one["activation/on/t"])
    with (out / "mouse_blocks.tsv").open() as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert [row["pose"] for row in table] == [str(number % N_POSES) for number in range(len(table))]
    assert [row["sweep"] for row in table] == [str(number // N_POSES) for number in range(len(table))]
    assert [row["file"] for row in table] == sorted(path.name for path in folder.iterdir())


@pytest.mark.usefixtures("no_pictures")
def test_nifti_and_xarray_have_the_planes_and_their_times(folder, wanted, tmp_path):
    """In BIDS each position has the entity pose."""
    name, more = "sub-01_task-rest", {"output": Output(nifti=True), "session": {"zarr": True}}
    report = run(folder, tmp_path / "out", bids=name, **more)
    images = {path.name for path in (tmp_path / "out").rglob("*_desc-blood_pwd.nii.gz")}
    poses = {f"{name}_pose-{pose}_desc-blood_pwd.nii.gz" for pose in range(N_POSES)}
    assert images == {f"{name}_desc-blood_pwd.nii.gz", *poses}
    with h5py.File(report["output"]["sequence"]) as file:
        blood = file["blood_power"][()]
    image = nibabel.load(report["output"]["blood_nifti"])
    assert image.shape == (IMAGE[1], IMAGE[0], N_POSES, N_SWEEPS)
    np.testing.assert_array_equal(image.get_fdata(dtype=np.float32), blood.transpose(3, 2, 1, 0))
    np.testing.assert_allclose(image.affine, np.diag([0.2, 0.1, STEP_MM, 1.0]), rtol=1e-6)
    assert image.header.get_zooms()[3] == pytest.approx(N_POSES * INTERVAL_S)
    sidecar = json.loads(Path(report["output"]["blood_nifti_json"]).read_text())
    np.testing.assert_allclose(sidecar["VolumeTiming"], np.arange(N_SWEEPS) * N_POSES * INTERVAL_S)
    np.testing.assert_allclose(sidecar["SliceTiming"], np.arange(N_POSES) * INTERVAL_S)
    assert sidecar["SliceEncodingDirection"] == "k"
    # Each slice, of which programs take the interval for the duration, ends within the volume.
    assert sidecar["FrameAcquisitionDuration"] == pytest.approx(N_POSES * INTERVAL_S)
    with warnings.catch_warnings(action="ignore"):
        loaded = confusius.load(report["output"]["blood_nifti"])
        FirstLevelModel(hrf_model=None, drift_model=None).fit(
            loaded, events=pd.DataFrame({"onset": [1.5], "duration": [1.5], "trial_type": ["on"]})
        )
    assert nilearn.image.mean_img(report["output"]["blood_nifti"], copy_header=True).shape == image.shape[:3]
    with xarray.open_zarr(report["output"]["zarr"]) as group:
        assert group["blood_power"].dims == ("time", "k", "j", "i")
        assert "slice_time" in group["blood_power"].coords
        np.testing.assert_allclose(group["z"], STEP_MM * np.arange(N_POSES))
    # In Python the same
    found = wanted.to_xarray()
    assert found["slice_time"].dims == ("time", "k")
    np.testing.assert_array_equal(found["blood_power"].values, blood)


@pytest.mark.usefixtures("no_pictures")
def test_a_folder_for_each_position(folder: Path, wanted: PosesResult, tmp_path: Path) -> None:
    paths = [tmp_path / f"scan/plane_{pose}" for pose in range(N_POSES)]
    for number, path in enumerate(sorted(folder.iterdir())):
        target = paths[number % N_POSES] / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    report = run(folder, tmp_path / "out", "paths", paths=paths)
    assert Path(report["output"]["sequence"]).name == "scan_sequence.h5"
    with h5py.File(report["output"]["sequence"]) as file:
        np.testing.assert_array_equal(file["blood_power"], wanted.blood_power)
        # The files have one clock.
        np.testing.assert_allclose(file["slice_time"], wanted.block_times)
    for path in (file for each in paths for file in each.iterdir()):
        with h5py.File(path, "r+") as file:
            del file["iq"].attrs["start_s"]
    alone = session(paths, poses="paths", options=FOUR)
    np.testing.assert_allclose(np.ptp(alone.block_times, axis=1), 0, atol=1e-9)
    assert any("first frame of each position is taken" in note for note in alone.geometry.assumptions)


@pytest.mark.usefixtures("no_pictures")
def test_a_stopped_session_goes_on(folder: Path, tmp_path: Path) -> None:
    """Also in a folder that has results of its positions."""
    out = tmp_path / "out"

    def powers(report: dict[str, Any]) -> list[Any]:
        with h5py.File(report["output"]["sequence"]) as file:
            return [file[name][()] for name in ("blood_power", "mean_blood_power", "bad")]

    wanted = powers(run(folder, out))
    for path in out.glob("mouse_*"):
        path.unlink()
    with pytest.raises(OutputError, match=r"mouse_pose-\d_report\.json exists"):
        run(folder, out, overwrite=False)

    class Stop(Progress):
        def blocks(self, done: int, total: int) -> None:
            assert total == N_POSES * N_SWEEPS
            if done == N_SWEEPS + 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(folder, out, watcher=Stop())
    # A command that cannot be right leaves what was stored
    with pytest.raises(OptionError, match="requires a path for each position"):
        run(folder, out, "paths")
    assert len(list(out.glob("mouse_spectra/*/block_*"))) == N_SWEEPS + 2
    for one, other in zip(powers(run(folder, out)), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not (out / "mouse_spectra").exists()


@pytest.mark.usefixtures("no_pictures")
def test_a_table_of_files(folder: Path, wanted: PosesResult, tmp_path: Path) -> None:
    names, table = sorted(path.name for path in folder.iterdir()), tmp_path / "poses.csv"
    poses = [number % N_POSES for number in range(len(names))]
    lines = [f"{name},{'abc'[pose]},{-0.3 * pose}" for name, pose in zip(names, poses, strict=True)]
    table.write_text("\n".join(["file,pose,position_mm", *lines]))
    found = session(folder, poses=table, options=FOUR)
    assert found.names == ("c", "b", "a")
    np.testing.assert_allclose(found.geometry.coordinates["y"].values, [-0.6, -0.3, 0])
    np.testing.assert_array_equal(found.blood_power, wanted.blood_power[:, ::-1])
    table.write_text("file,plane\nb00.h5,1\n")
    with pytest.raises(InputError, match="has no column pose"):
        session(folder, poses=table, options=FOUR)


@pytest.mark.usefixtures("no_pictures")
def test_an_error_in_a_position_names_it(blocks: Any, tmp_path: Path) -> None:
    shown = [block.copy() for block in blocks[: N_SWEEPS * N_POSES]]
    for number in range(1, len(shown), N_POSES):
        # No copy of another one
        shown[number][:], shown[number][0, 0, 0] = np.nan, number
    write_blocks(tmp_path / "mouse", shown, "b{:02d}.h5", INTERVAL_S)
    with pytest.raises(UsdenoiseError, match="pose 1: "):
        run(tmp_path / "mouse", tmp_path / "out", session={"skip_bad_files": True})


@pytest.mark.usefixtures("no_pictures")
def test_chosen_blocks_keep_their_positions(folder: Path, wanted: PosesResult) -> None:
    some = session(folder, poses=N_POSES, blocks=slice(4, None), options=FOUR)
    np.testing.assert_allclose(some.block_times, wanted.block_times[1:])
    missing = np.zeros_like(some.bad_blocks)
    missing[0, 0] = True
    np.testing.assert_array_equal(np.isnan(some.blood_power).any(axis=(2, 3)), missing)


@pytest.mark.usefixtures("no_pictures")
def test_positions_one_after_the_other_have_the_events_of_each(blocks: Any, tmp_path: Path) -> None:
    planes = [np.concatenate(blocks[pose::N_POSES]) for pose in range(2)]
    paths = sorted(write_blocks(tmp_path, planes, "plane{}.h5", 1000.0).iterdir())
    events = [(first * BLOCK_S, BLOCK_S, "on") for first in (1, 4)]
    how: dict[str, Any] = {"events": events, "confounds": "none", "options": FOUR}
    found = session(paths, LENGTH, poses="paths", **how)
    np.testing.assert_allclose(np.ptp(found.block_times, axis=1), 0, atol=1e-9)
    alone = session(paths[1], LENGTH, **how)
    np.testing.assert_allclose(
        found.activation["on"].statistic[1], alone.activation["on"].statistic, rtol=1e-5, atol=1e-6
    )
    with pytest.raises(UsdenoiseError, match="is in two positions"):
        session([paths[0], paths[0]], LENGTH, poses="paths")
    with pytest.raises(UsdenoiseError, match="requires a path for each position"):
        session(paths[:1], LENGTH, poses="paths")


def test_names_of_positions_that_are_no_names_of_files(folder: Path, tmp_path: Path) -> None:
    names = ["a/b", r"$\bad$", "A/B"]
    table = tmp_path / "poses.tsv"
    lines = [f"{number}\t{names[number % N_POSES]}" for number in range(N_POSES * N_SWEEPS)]
    table.write_text("\n".join(["block\tpose", *lines]))
    report = run(folder, tmp_path / "out", table, session={"pose_step_mm": None})
    assert [pose["name"] for pose in report["sequence"]["poses"]] == names
    pages = sorted(path.name for path in (tmp_path / "out/poses").glob("*_report.html"))
    assert len({name.lower() for name in pages}) == N_POSES
    shown = (tmp_path / "out/mouse_report.html").read_text()
    assert all(f"./poses/{quote(name)}" in shown for name in pages)
