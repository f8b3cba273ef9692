"""``usdenoise model``: maps from the series of a session equal its maps, and maps from other power equal nilearn's."""

import json
import os
from pathlib import Path
from typing import Any

import confusius
import h5py
import nibabel
import numpy as np
import pytest
from nilearn.glm import compute_contrast
from nilearn.glm.first_level import run_glm
from numpy.typing import NDArray

from tests.cli.shared import cli, refused, report_of
from tests.sessions.scans import FOUR, LENGTH, RATE_HZ, scan, weakened, write_blocks, write_events
from usdenoise import PosesResult, SessionResult, model, session
from usdenoise.errors import InputError, OptionError
from usdenoise.sessions.design import Event, design_of

EVENTS = [(0.6, 0.6, "on"), (1.8, 0.6, "on")]
LEFT = {"left": np.indices((24, 24))[1] < 12}
"""The pixels in which nothing rises."""


@pytest.fixture(scope="module")
def found() -> SessionResult:
    """A session with a bad block and its activation."""
    made = weakened(scan(16, seed=5, blood=3.0, rise=1.0), 7)
    return session(made.stack, LENGTH, events=EVENTS, regions=LEFT, options=FOUR)


def assert_same(again: Any, found: Any) -> None:
    for name, wanted in found.activation.items():
        for image in ("t", "change", "active", "course"):
            np.testing.assert_array_equal(
                getattr(again.activation[name], image), getattr(wanted, image), image
            )
    np.testing.assert_equal(again.region_responses, found.region_responses)
    np.testing.assert_array_equal(again.bad, found.bad)


@pytest.mark.parametrize("suffix", ["h5", "mat", "zarr"])
def test_the_series_of_a_session_has_the_maps_that_the_session_has(suffix, found, tmp_path):
    assert found.bad.sum() == 1
    assert found.activation["on"].active.any()
    path = found.save(tmp_path / f"mouse_sequence.{suffix}")
    assert_same(model(path, events=EVENTS, regions=LEFT), found)


def test_another_model_of_a_result_is_that_of_another_session(found, tmp_path):
    other = {"delay": 0.2, "smoothing_mm": 0.3, "threshold": "t:2", "confounds": "none"}
    made = weakened(scan(16, seed=5, blood=3.0, rise=1.0), 7)
    wanted = session(made.stack, LENGTH, events=EVENTS, regions=LEFT, options=FOUR, **other)
    assert_same(model(found, events=EVENTS, regions=LEFT, **other), wanted)
    assert_same(model(found.save(tmp_path / "a.h5"), events=EVENTS, regions=LEFT, **other), wanted)


def test_positions_with_a_block_that_is_missing(tmp_path):
    by_pose = [scan(12, seed=30 + pose, blood=3.0, rise=1.0).blocks for pose in range(2)]
    folder = tmp_path / "mouse"
    write_blocks(folder, [by_pose[n % 2][n // 2] for n in range(24)], "b{:02d}.h5", 0.5)
    (folder / "b05.h5").unlink()
    # Only the second position shows the other type
    table = [
        *((onset, 1.0, "on") for onset in (1.0, 3.0, 5.0, 9.0)),
        (7.5, 0.2, "other"),
        (10.5, 0.2, "other"),
    ]
    events = write_events(tmp_path / "events.tsv", table)
    how = {"events": events, "regions": LEFT}
    found = session(folder, poses=2, pose_step_mm=0.4, options=FOUR, **how)
    again = model(found.save(tmp_path / "mouse.h5"), **how)
    assert isinstance(again, PosesResult)
    assert_same(again, found)
    assert_same(model(found, **how), found)
    np.testing.assert_array_equal(again.block_times, found.block_times)
    # NIfTI stores the times of the planes and the powers, and no confounds.
    from_nifti = model(found.save(tmp_path / "mouse.nii.gz"), **how)
    assert from_nifti.images["blood_power"].shape == found.images["blood_power"].shape
    np.testing.assert_allclose(from_nifti.block_times, found.block_times, atol=0.6 / RATE_HZ)


def test_the_command_writes_what_a_session_writes_of_its_events(tmp_path):
    write_blocks(tmp_path / "mouse", scan(12, seed=5, blood=3.0, rise=1.0).blocks, "b{:02d}.h5", 0.2)
    events = write_events(tmp_path / "events.tsv", EVENTS)
    asked = ("--events", events, "--region", "left=rect:0,0,24,12")
    cli("session", tmp_path / "mouse", "-o", tmp_path / "out", "-q", *asked, "--low-cutoff", "4")
    series = tmp_path / "out" / "mouse_sequence.h5"
    report = report_of("model", series, "-o", tmp_path / "model", *asked, "--nifti")
    before = json.loads((tmp_path / "out" / "mouse_report.json").read_text())
    assert report["sequence"]["activation"] == before["sequence"]["activation"]
    assert report["sequence"]["regions"] == before["sequence"]["regions"]
    names = {Path(name).name for name in report["output"].values()}
    assert "mouse_model_activation_on_stat-t_statmap.nii.gz" in names
    for name in ("activation_on.png", "regions.tsv", "region_responses.tsv"):
        written = (tmp_path / "model" / f"mouse_model_{name}").read_bytes()
        assert written == (tmp_path / "out" / f"mouse_{name}").read_bytes(), name
    with h5py.File(series) as old, h5py.File(tmp_path / "model" / "mouse_model_activation.h5") as new:
        np.testing.assert_array_equal(new["activation/on/t"], old["activation/on/t"])
        assert "blood_power" not in new
    page = (tmp_path / "model" / "mouse_model_report.html").read_text()
    assert "Activation: on" in page
    assert "general linear model" in page
    assert "Choice of the cutoff" not in page
    assert "smoothing_mm" in page
    assert "gain_correction" not in page
    refused(cli("model", series, "-o", tmp_path / "model", *asked), "exists")
    refused(
        cli("model", tmp_path / "mouse" / "b00.h5", "-o", tmp_path / "other", *asked),
        "is complex: it is a stack",
    )
    refused(
        cli("model", series, "-o", tmp_path / "other"),
        "there is nothing to model; give --events, --region or both",
    )


@pytest.mark.parametrize("command", ["model", "session"])
def test_events_of_a_pipe_are_those_of_the_file(command, found, tmp_path):
    write_blocks(tmp_path / "mouse", scan(12, seed=5, blood=3.0, rise=1.0).blocks, "b{:02d}.h5", 0.2)
    source = found.save(tmp_path / "mouse.h5") if command == "model" else tmp_path / "mouse"
    table = write_events(tmp_path / "events.tsv", EVENTS)
    reading, writing = os.pipe()
    os.write(writing, table.read_bytes())
    os.close(writing)
    for_all = () if command == "model" else ("--low-cutoff", "4")
    of_pipe, of_file = (
        report_of(command, source, "-o", tmp_path / name, "--events", events, *for_all)
        for name, events in (("pipe", f"/dev/fd/{reading}"), ("file", table))
    )
    os.close(reading)
    assert of_pipe["sequence"]["activation"] == of_file["sequence"]["activation"] != []


N, STEP_S = 60, 0.4
TIMES = STEP_S * (np.arange(N) + 0.5)
OTHERS = [(2.0, 2.0, "on"), (8.0, 3.0, "on"), (15.0, 2.0, "off"), (19.0, 2.0, "off")]


def power() -> NDArray[np.float64]:
    """Power (time, depth, lateral) whose noise changes its sign from block to block, and so is not whitened."""
    rng = np.random.default_rng(3)
    noise = 0.02 * rng.standard_normal((N, 6, 5))
    noise += 0.05 * rng.standard_normal((6, 5)) * (-1.0) ** np.arange(N)[:, None, None]
    shares = design_of([Event(*each) for each in OTHERS], TIMES, np.full(N, STEP_S), np.zeros(N, bool)).shares
    return 5 + noise + shares["on"][:, None, None]


def write_scan(folder: Path) -> Path:
    """The first format of Iconeus: depth, elevation, lateral, with the times at which images end."""
    with h5py.File(folder / "rest.scan", "w") as file:
        file["Data"] = power()[:, :, None]
        file["acqMetaData/time"] = (TIMES + STEP_S / 2)[None]
        file["acqMetaData/voxelsToProbe"] = np.diag([1e-4, 4e-4, -5e-5, 1])
        file["acqMetaData/acquisitionMode"] = [["2Dscan"]]
        for name, size in {"sizeX": 5, "sizeY": 1, "sizeZ": 6, "npose": 1, "nblockRepeat": N}.items():
            file[f"acqMetaData/imgDim/{name}"] = float(size)
        file["acqMetaData/probeToLab"] = np.eye(4)
        for name in (
            "Machine_SN",
            "Neuroscan_version",
            "Subject_tag",
            "Session_tag",
            "Scan_tag",
            "Project_tag",
            "Date",
        ):
            file[f"scanMetaData/{name}"] = [["x"]]
    return folder / "rest.scan"


def write_nifti(folder: Path) -> Path:
    image = nibabel.Nifti1Image(power()[:, None].transpose(3, 2, 1, 0), np.diag([0.1, 0.05, 0.4, 1]))
    image.header.set_zooms((0.1, 0.05, 0.4, STEP_S))
    image.header.set_xyzt_units("mm", "sec")
    nibabel.save(image, folder / "rest.nii.gz")
    return folder / "rest.nii.gz"


def write_by_confusius(folder: Path, name: str) -> Path:
    grid = {"dims": ("time", "k", "j", "i"), "spacing": (0.4, 0.05, 0.1)}
    confusius.save(
        confusius.create_voxeldata(power()[:, None], dt=STEP_S, name="power_doppler", **grid), folder / name
    )
    return folder / name


WRITERS = {
    "scan": write_scan,
    "nifti": write_nifti,
    "nifti of confusius": lambda folder: write_by_confusius(folder, "rest.nii.gz"),
    "zarr of confusius": lambda folder: write_by_confusius(folder, "rest.zarr"),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_power_of_others_has_the_maps_of_nilearn(kind, tmp_path):
    path = WRITERS[kind](tmp_path)
    if kind == "scan":
        np.testing.assert_array_equal(confusius.load(path).values[:, 0], power())
    found = model(path, events=OTHERS)
    np.testing.assert_allclose(found.time, TIMES, rtol=1e-6)
    assert not found.bad.any()
    matrix = design_of([Event(*each) for each in OTHERS], TIMES, np.full(N, STEP_S), np.zeros(N, bool)).matrix
    labels, fitted = run_glm(power().reshape(N, -1), matrix, noise_model="ols")
    for column, name in enumerate(("on", "off")):
        wanted = compute_contrast(labels, fitted, np.eye(matrix.shape[1])[column], stat_type="t").stat()
        # The maps are in single precision
        np.testing.assert_allclose(found.activation[name].t.ravel(), wanted, rtol=1e-6, atol=1e-6)
        assert found.activation[name].active.all() == (name == "on")


def test_the_command_and_the_files_of_the_power_of_others(tmp_path):
    path, events = write_scan(tmp_path), write_events(tmp_path / "events.tsv", OTHERS)
    report_of("model", path, "-o", tmp_path / "out", "--events", events)
    page = (tmp_path / "out" / "rest_model_report.html").read_text()
    assert "Power Doppler" in page
    assert "Blood map" not in page
    assert "Nothing doubtful was found." not in page
    found = model(path, events=OTHERS)
    assert set(found.to_xarray().data_vars) == {"power_doppler", "blood_power"}
    for suffix in ("h5", "mat", "zarr"):
        again = model(found.save(tmp_path / f"a.{suffix}"), events=OTHERS)
        np.testing.assert_allclose(again.time, found.time)
        assert_same(again, found)


def test_chosen_frames_have_their_own_times(tmp_path):
    path = write_by_confusius(tmp_path, "rest.zarr")
    part = model(path, regions={"all": np.ones((6, 5), bool)}, reading={"frames": slice(10, 40)})
    np.testing.assert_allclose(part.time, TIMES[:30], rtol=1e-6)
    np.testing.assert_array_equal(part.images["blood_power"], power()[10:40])


def write_positions(path: Path, n_y: int = 1) -> Path:
    """A .scan of two positions as MATLAB writes it: each sweep and position has three repetitions in turn."""
    planes = np.stack([power(), 2 * power()], 1).reshape(N // 3, 3, 2, 6, 1, 5).swapaxes(1, 2)
    ends = STEP_S * np.arange(1, 2 * N + 1).reshape(N, 2)
    stored = {"Data": planes.repeat(n_y, 4), "time": ends, "voxelsToProbe": np.diag([1e-4, 4e-4, -5e-5, 1])}
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in stored.items():
            array = file.create_dataset(name if name == "Data" else f"acqMetaData/{name}", data=values)
            array.attrs["MATLAB_class"] = np.bytes_("double")
    with path.open("r+b") as head:
        head.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return path


def test_a_scan_of_several_positions_has_the_times_of_each(tmp_path):
    regions = {"all": np.ones((6, 5), bool)}
    found = model(write_positions(tmp_path / "a.scan"), regions=regions)
    np.testing.assert_allclose(found.block_times, STEP_S * (np.arange(2 * N).reshape(N, 2) + 0.5), rtol=1e-12)
    for pose, factor in enumerate((1, 2)):
        np.testing.assert_array_equal(found.poses[pose].images["blood_power"], factor * power())
    assert found.geometry.spacing_mm == {"x": 0.1, "z": 0.05}
    with pytest.raises(InputError, match="volumes at several positions"):
        model(write_positions(tmp_path / "b.scan", n_y=2), regions=regions)


@pytest.mark.parametrize(
    ("sidecar", "begins"),
    [
        ({"SliceTiming": [0, 0.1]}, [0, 0.1]),
        ({"SliceTiming": [0, 0.1], "SliceEncodingDirection": "k-"}, [0.1, 0]),
        ({"BlockTiming": [[STEP_S * n + late for late in (0.2, 0)] for n in range(N)]}, [0.2, 0]),
        ({"SliceTiming": [0, 0]}, None),
        ({"SliceTiming": [0, 0.1], "SliceEncodingDirection": "j"}, None),
    ],
)
def test_slices_with_times_of_their_own_are_positions(sidecar, begins, tmp_path):
    image = nibabel.Nifti1Image(np.stack([power(), power()], 1).transpose(3, 2, 1, 0), np.eye(4))
    image.header.set_zooms((0.1, 0.05, 0.4, STEP_S))
    nibabel.save(image, tmp_path / "a.nii")
    regions = {"all": np.ones((2, 6, 5), bool)}
    with pytest.raises(OptionError, match=r"the times of the images .* are not known"):
        model(tmp_path / "a.nii", regions=regions)
    (tmp_path / "a.json").write_text(json.dumps({"RepetitionTime": STEP_S, **sidecar}))
    found = model(tmp_path / "a.nii", regions=regions)
    assert isinstance(found, PosesResult) == (begins is not None)
    if begins is None:
        np.testing.assert_allclose(found.time, TIMES)
    else:
        wanted = STEP_S / 4 + STEP_S * np.arange(N)[:, None] + begins
        np.testing.assert_allclose(found.block_times, wanted)


def test_a_stack_of_power_needs_its_times_and_no_negative_value(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["power"] = power()
        file["levels"] = -power()
    axes = {"axes": "tzx"}
    with pytest.raises(OptionError, match=r"the times of the images .* are not known"):
        model(tmp_path / "a.h5", events=OTHERS, reading=axes)
    found = model(tmp_path / "a.h5", events=OTHERS, reading=axes, block_interval_s=STEP_S)
    np.testing.assert_allclose(found.time, TIMES)
    with pytest.raises(InputError, match="negative"):
        model(
            tmp_path / "a.h5", events=OTHERS, reading={**axes, "dataset": "levels"}, block_interval_s=STEP_S
        )


def test_a_burst_in_the_power_of_others_is_a_bad_block(tmp_path):
    values = power()
    values[20] *= 50
    np.save(tmp_path / "a.npy", values)
    found = model(tmp_path / "a.npy", events=OTHERS, reading={"axes": "tzx"}, block_interval_s=STEP_S)
    assert np.flatnonzero(found.bad).tolist() == [20]


def test_the_responses_of_many_sessions_are_one_table(tmp_path):
    responses, head = [], "region\tn_pixels\ttrial_type\tchange\tstandard_error\tt\tp\n"
    for number, name in enumerate(("ses-2", "ses-10")):
        (tmp_path / "in" / name).mkdir(parents=True)
        row = f"left\t12\ton\t{number + 1.5}\t0.5\t{2 * number + 3}\t0.01\n"
        (tmp_path / "in" / name / f"{name}_region_responses.tsv").write_text(head + row)
        (tmp_path / "in" / name / f"{name}_report.json").write_text('{"input": {"mtime_ns": 86400000000000}}')
        responses.append(f"{name}\t1970-01-02\tn/a\t{row}")
    joined = report_of("model", "--collect", tmp_path / "in", "-o", tmp_path / "out")
    assert (joined["n_sessions"], joined["n_rows"]) == (2, 2)
    written = (tmp_path / "out" / "region_responses.tsv").read_text().splitlines(keepends=True)
    assert written == ["session\tday\tpose\t" + head, *responses]
    assert "left, on" in (tmp_path / "out" / "region_responses.html").read_text()
    # Sessions of one name are told apart; a free response has a column for each block.
    for folder, columns in {"day1": "change", "day2": "change_0\tchange_1"}.items():
        (tmp_path / "more" / folder).mkdir(parents=True)
        text = f"region\ttrial_type\t{columns}\nleft\ton\t1.5{chr(9) * columns.count(chr(9))}\n"
        (tmp_path / "more" / folder / "mouse_region_responses.tsv").write_text(text)
    joined = report_of("model", "--collect", tmp_path / "more", "-o", tmp_path / "both")
    assert joined["n_sessions"] == 2
    head, first, second = (tmp_path / "both" / "region_responses.tsv").read_text().splitlines()
    assert head == "session\tday\tpose\tregion\ttrial_type\tchange\tchange_0\tchange_1"
    assert first == "day1/mouse\tn/a\tn/a\tleft\ton\t1.5\tn/a\tn/a"
    assert second == "day2/mouse\tn/a\tn/a\tleft\ton\tn/a\t1.5\tn/a"
    refused(cli("model", "--collect", tmp_path / "out", "-o", tmp_path / "x"), "no table of responses")
