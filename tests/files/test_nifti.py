"""NIfTI files and their sidecars, as nibabel and ConfUSIus read them."""

import gzip
import json
from pathlib import Path
from typing import Any

import confusius
import nibabel
import numpy as np
import pandas as pd
import pytest
from confusius.bids import validate_metadata

from tests.cli.shared import report_of
from tests.files.test_neighbours import N_X, N_Y, N_Z, OPTIONS, TURNED, saved, voxel_data
from tests.sessions import scans
from tests.sessions.scans import FOUR, LENGTH
from tests.stacks import run_in_windows, write_stack
from usdenoise import load, save, session
from usdenoise.errors import OptionError, OutputError
from usdenoise.files import bids
from usdenoise.files.bids import describe_derivative, judge_recordings
from usdenoise.files.images import write_nifti
from usdenoise.jobs import run_job as job
from usdenoise.options.job_options import Output
from usdenoise.stack.acquisition import Acquisition

pytestmark = pytest.mark.usefixtures("no_pictures")


def run(path: Path, **more: Any) -> dict[str, Path]:
    report = run_in_windows(path, path.parent / "out", 20, options=OPTIONS, output=Output(nifti=True), **more)
    return {key: Path(name) for key, name in report["output"].items()}


@pytest.mark.parametrize("matrix", [None, TURNED], ids=["straight", "turned"])
@pytest.mark.parametrize("n_slices", [1, N_Y])
def test_confusius_reads_the_same_voxels_at_the_same_place(n_slices, matrix, tmp_path):
    data = voxel_data(n_slices, matrix)
    out = run(saved(tmp_path, data))
    series = confusius.load(out["sequence"], variable="power_doppler")
    back = confusius.load(out["nifti"])
    confusius.validation.validate_voxeldata(back)
    assert back.dims == ("time", "k", "j", "i")
    np.testing.assert_array_equal(back.values, series.values)
    for coordinate in ("z", "y", "x"):
        np.testing.assert_allclose(back[coordinate], data[coordinate], atol=1e-6, rtol=0)
    # The times of BIDS are those at which the windows begin.
    np.testing.assert_allclose(back["time"], [0, 20 / 500], rtol=1e-3, atol=1e-6)
    assert back["time"].attrs["volume_acquisition_duration"] == pytest.approx(20 / 500, rel=1e-4)
    assert back.attrs["transmit_frequency"] == 15.625e6
    assert back.attrs["beamforming_sound_velocity"] == 1510.0
    for name in ("clutter_filter_window_duration", "clutter_filter_window_stride"):
        assert back.attrs[name] == pytest.approx(20 / 500, rel=1e-4)
    assert back.attrs["power_doppler_integration_duration"] == pytest.approx(20 / 500, rel=1e-4)


def test_nibabel_sees_lateral_depth_and_elevation_in_mm(tmp_path: Path) -> None:
    out = run(saved(tmp_path, voxel_data(N_Y)))
    image = nibabel.load(out["nifti"])
    assert image.shape == (N_X, N_Z, N_Y, 2)
    values = np.asarray(image.dataobj)
    assert np.unravel_index(values[..., 0].argmax(), values.shape[:3]) == (N_X - 1, N_Z - 1, N_Y - 1)
    np.testing.assert_allclose(image.affine @ [0, 0, 0, 1], [-0.7, 2.0, 0.3, 1], atol=1e-6)
    np.testing.assert_allclose(np.diag(image.affine)[:3], [0.1, 0.05, 0.4], rtol=1e-6)
    assert image.header.get_xyzt_units() == ("mm", "sec")
    assert (int(image.header["qform_code"]), int(image.header["sform_code"])) == (1, 1)
    sidecar = json.loads(out["nifti_json"].read_text())
    validate_metadata(sidecar)
    assert sidecar["SliceThickness"] == pytest.approx(0.4)
    assert sidecar["Depth"] == pytest.approx([2.0, 2.0 + 0.05 * (N_Z - 1)])
    assert "PixelPitchUnknown" not in sidecar
    assert sidecar["ClutterFilterWindowDuration"] == pytest.approx(40, rel=1e-4)
    assert sidecar["FrameAcquisitionDuration"] == pytest.approx(0.04, rel=1e-4)


def test_planes_along_any_two_axes_are_slices(tmp_path: Path) -> None:
    block = {"low_cutoff": 1, "complete": True, "n_frames": 20}
    power = np.arange(60, dtype=np.float32).reshape(3, 5, 4)
    for axes, shape in (("tyx", (4, 1, 5)), ("tzx", (4, 5, 1)), ("tzy", (1, 5, 4))):
        stack = Acquisition(power, axes=axes, spacing_mm=dict.fromkeys(axes[1:], 0.1))
        times = ([0.0, 1.0, 2.0], "frames", 20, 20, [block] * 3)
        fields = write_nifti(tmp_path / "x.nii.gz", power, stack, *times)
        image = nibabel.load(tmp_path / "x.nii.gz")
        assert image.shape == (*shape, 3)
        np.testing.assert_array_equal(np.asarray(image.dataobj)[..., 2].max(), 59)
        assert fields["PixelPitchUnknown"] == [*set("xzy").difference(axes)]


@pytest.mark.parametrize("n_slices", [1, N_Y])
def test_a_single_image_has_the_duration_and_the_start_of_its_frames(n_slices: int, tmp_path: Path) -> None:
    data = voxel_data(n_slices)
    saved(tmp_path, data)
    how: dict[str, Any] = {"output": Output(nifti=True), "reading": {"frames": slice(10, None)}}
    report = job.run(tmp_path / "x.zarr", tmp_path / "out", options=OPTIONS, **how)
    out = {key: Path(name) for key, name in report["output"].items()}
    n_frames = data.sizes["time"] - 10
    image = nibabel.load(out["nifti"])
    assert image.shape == (N_X, N_Z, n_slices, 1)
    assert image.header.get_zooms()[3] == pytest.approx(n_frames / 500, rel=1e-4)
    assert float(image.header["toffset"]) == pytest.approx(10 / 500, rel=1e-4)
    assert image.header.get_xyzt_units() == ("mm", "sec")
    sidecar = json.loads(out["nifti_json"].read_text())
    validate_metadata(sidecar)
    assert sidecar["VolumeTiming"] == pytest.approx([10 / 500], rel=1e-4)
    assert sidecar["FrameAcquisitionDuration"] == pytest.approx(n_frames / 500, rel=1e-4)
    assert "block" not in sidecar["Description"] + sidecar["ClutterFilters"][0]
    for key, name in (("nifti", "power_doppler"), ("blood_nifti", "blood_power")):
        back = confusius.load(out[key])
        stored = confusius.load(out["denoised"], variable=name)
        np.testing.assert_array_equal(back.values.squeeze(), stored.values.squeeze())
    # The stack is kept.
    assert load(out["denoised"]).n_frames == n_frames


@pytest.mark.parametrize("rule", [None, "keep", "interpolate"])
def test_bad_blocks_are_interpolated_unless_they_are_kept(rule: str | None, tmp_path: Path) -> None:
    """Other programs know of no bad blocks. The series file has them as they are, unless they are to be interpolated."""
    made, bad = scans.weakened(scans.scan(12, shape=(20, 16)), 0, 7, 8), [0, 7, 8]
    found = session(made.stack, LENGTH, options=FOUR, bad_blocks=rule)
    assert np.flatnonzero(found.bad).tolist() == bad
    raw = session(made.stack, LENGTH, options=FOUR, bad_blocks="keep").power_doppler
    good, time = ~found.bad, found.time
    filled = np.apply_along_axis(lambda values: np.interp(time, time[good], values[good]), 0, raw)
    image = nibabel.load(save(found, tmp_path / "x.nii.gz", image="power_doppler"))
    written = image.get_fdata()[:, :, 0].transpose(2, 1, 0)
    np.testing.assert_allclose(written, raw if rule == "keep" else filled, rtol=1e-6)
    np.testing.assert_allclose(found.power_doppler, filled if rule == "interpolate" else raw, rtol=1e-6)
    sidecar = json.loads((tmp_path / "x.json").read_text())
    assert sidecar["BadBlocks"] == found.bad.tolist()
    assert sidecar.get("InterpolatedBlocks") == (None if rule == "keep" else found.bad.tolist())


def test_confounds_leave_bad_volumes_out_of_a_linear_model(tmp_path: Path) -> None:
    """The fit with all columns is the one of the good volumes with the motion alone. No value is missing."""
    made, bad = scans.weakened(scans.scan(20, shape=(20, 16)), 3, 7, 8), [3, 7, 8]
    found = session(made.stack, LENGTH, options=FOUR, bad_blocks="keep")
    image = nibabel.load(save(found, tmp_path / "x.nii.gz"))
    series = image.get_fdata().reshape(-1, 20).T
    table = pd.read_csv(tmp_path / "x_confounds.tsv", sep="\t")
    motion, outliers = ["motion", "shift_z", "shift_x", "framewise_displacement"], [0, 1, 2]
    assert table.columns.tolist() == [*motion, *(f"motion_outlier0{number}" for number in outliers)]
    assert np.isfinite(table.to_numpy()).all()
    np.testing.assert_array_equal(table[table.columns[4:]].T, np.eye(20)[bad])
    for name, column in zip(
        motion, ("motion", "shift_z_mm", "shift_x_mm", "framewise_displacement"), strict=True
    ):
        values = np.array(found.blocks[column])
        known = np.isfinite(values)
        assert known[~found.bad].sum() > 10
        np.testing.assert_allclose(table[name][known], values[known], rtol=1e-6)
        np.testing.assert_allclose(table[name][~known], values[known & ~found.bad].mean(), rtol=1e-6)
    assert table["framewise_displacement"][0] == 0
    block = (np.arange(20) // 5 % 2)[:, None]
    whole = np.hstack([block, np.ones((20, 1)), table.to_numpy()])
    of_all = np.linalg.lstsq(whole / np.linalg.norm(whole, axis=0), series)[0]
    of_good = np.linalg.lstsq((whole / np.linalg.norm(whole, axis=0))[~found.bad, :6], series[~found.bad])[0]
    np.testing.assert_allclose(of_all[:6], of_good, rtol=1e-6, atol=1e-9 * np.abs(of_good).max())
    described = json.loads((tmp_path / "x_confounds.json").read_text())
    assert list(described) == table.columns.tolist()
    assert described["shift_z"]["Units"] == "mm"


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    iq = rng.standard_normal((40, 9, 7)) + 1j * rng.standard_normal((40, 9, 7))
    out = run(write_stack(tmp_path / "x.h5", iq, axes="tzx"))
    sidecar = json.loads(out["nifti_json"].read_text())
    assert sidecar["PixelPitchUnknown"] == ["z", "x", "y"]
    assert not {"SliceThickness", "Depth", "TransmitFrequency", "VolumeTiming"} & set(sidecar)
    assert nibabel.load(out["nifti"]).header.get_xyzt_units() == ("unknown", "unknown")
    np.testing.assert_allclose(nibabel.load(out["nifti"]).affine, np.eye(4))
    assert confusius.load(out["nifti"]).sizes["time"] == 2
    # Motion that is known of no block is 0.
    described = json.loads(out["confounds_json"].read_text())
    assert {described[name]["Units"] for name in ("shift_z", "framewise_displacement")} == {"pixels"}
    assert (pd.read_csv(out["confounds_tsv"], sep="\t")["motion"] == 0).all()
    # One map of a run has no duration, and no axis of time.
    one = job.run(tmp_path / "x.h5", tmp_path / "one", options=OPTIONS, output=Output(nifti=True))["output"]
    for key in ("nifti", "blood_nifti"):
        assert "time" not in confusius.load(one[key]).dims


def test_spm_gets_the_same_files_uncompressed(tmp_path: Path) -> None:
    """SPM reads single files of NIfTI-1 whose header is not compressed: its size, and its kind at byte 344."""
    packed = run(saved(tmp_path, voxel_data(1)), bids="sub-01_task-rest")
    how: dict[str, Any] = {"options": OPTIONS, "bids": "sub-01_task-rest"}
    plain = run_in_windows(
        tmp_path / "x.zarr", tmp_path / "plain", 20, output=Output(nifti=True, gzip=False), **how
    )
    for key in ("nifti", "blood_nifti"):
        path = Path(plain["output"][key])
        content = path.read_bytes()
        assert (content[:4], content[344:348]) == ((348).to_bytes(4, "little"), b"n+1\0")
        assert content == gzip.decompress(packed[key].read_bytes())
        assert path.name == packed[key].name.removesuffix(".gz")
        assert nibabel.load(path).shape == (N_X, N_Z, 1, 2)
    judged = pd.read_csv(tmp_path / "plain/quality-control.tsv", sep="\t")
    assert {*judged["session_label"]} == {"sub-01_task-rest_desc-doppler", "sub-01_task-rest_desc-blood"}


def test_names_of_bids(tmp_path: Path) -> None:
    out = run(saved(tmp_path, voxel_data(1)), bids="sub-01_ses-a_task-rest")
    assert out["nifti"] == tmp_path / "out/sub-01/ses-a/fusi/sub-01_ses-a_task-rest_desc-doppler_pwd.nii.gz"
    assert out["nifti_json"].name == "sub-01_ses-a_task-rest_desc-doppler_pwd.json"
    assert out["blood_nifti"].name == "sub-01_ses-a_task-rest_desc-blood_pwd.nii.gz"
    for key in ("nifti_json", "blood_nifti_json"):
        sidecar = json.loads(out[key].read_text())
        validate_metadata(sidecar)
        assert sidecar["TaskName"] == "rest"
    # A description that is there is not written again, nor anything beside it
    made = (tmp_path / "out").stat().st_mtime_ns
    describe_derivative(tmp_path / "out", "0")
    assert (tmp_path / "out").stat().st_mtime_ns == made
    described = json.loads((tmp_path / "out/dataset_description.json").read_text())
    assert described["DatasetType"] == "derivative"
    assert described["GeneratedBy"][0]["Name"] == "usdenoise"
    judged = pd.read_csv(tmp_path / "out/quality-control.tsv", sep="\t", dtype=str)
    assert {*judged["pwd_path"]} == {
        str(out[key].relative_to(tmp_path / "out")) for key in ("nifti", "blood_nifti")
    }
    assert {*judged["n_timepoints"]} == {"2"}
    ignored = (tmp_path / "out/.bidsignore").read_text().split()
    named = [path.name for key, path in out.items() if not any(path.match(pattern) for pattern in ignored)]
    confounds = ["timeseries.json", "timeseries.tsv"]
    assert sorted(name.rpartition("_")[2] for name in named) == [
        *["pwd.json"] * 2,
        *["pwd.nii.gz"] * 2,
        *confounds,
    ]
    assert out["confounds_tsv"].name == "sub-01_ses-a_task-rest_desc-confounds_timeseries.tsv"
    # ConfUSIus finds the sidecar of each image by the rules of BIDS, without a warning.
    for key in ("nifti", "blood_nifti"):
        back = confusius.load(out[key])
        own = json.loads(out[f"{key}_json"].read_text())
        assert back.attrs["transmit_frequency"] == 15.625e6
        assert back.attrs["Description"] == own["Description"]
        assert back.coords["time"].values.tolist() == own["VolumeTiming"]
        assert back.coords["time"].attrs["volume_acquisition_duration"] == own["FrameAcquisitionDuration"]
    # A second recording joins the data set, and leaves its description alone, and a table of another form.
    (tmp_path / "out/dataset_description.json").write_text("mine")
    (tmp_path / "out/quality-control.tsv").write_text("a,b\n")
    (tmp_path / "x.zarr").rename(tmp_path / "sub-02_task-rest_iq.zarr")
    again = run(tmp_path / "sub-02_task-rest_iq.zarr", bids="auto")
    assert again["nifti"] == tmp_path / "out/sub-02/fusi/sub-02_task-rest_desc-doppler_pwd.nii.gz"
    assert (tmp_path / "out/dataset_description.json").read_text() == "mine"
    assert (tmp_path / "out/quality-control.tsv").read_text() == "a,b\n"
    assert "is not a table of fusiqc" in json.loads(again["report"].read_text())["notes"][-1]
    assert not list((tmp_path / "out").glob("..*"))


def test_a_single_map_is_an_angiography(tmp_path: Path) -> None:
    """In BIDS it has no task; with a task it is of a functional recording, and a folder of the input wins."""
    path = saved(tmp_path, voxel_data(1))

    def folder(path: Path, entities: str) -> str:
        made = job.run(path, tmp_path / "one", options=OPTIONS, output=Output(nifti=True), bids=entities)
        return str(Path(made["output"]["nifti"]).relative_to(tmp_path / "one").parent)

    assert folder(path, "sub-01_acq-coronal") == "sub-01/angio"
    assert folder(path, "sub-02_task-rest") == "sub-02/fusi"
    raw = tmp_path / "set/sub-03/fus/sub-03_iq.zarr"
    raw.parent.mkdir(parents=True)
    path.rename(raw)
    assert folder(raw, "auto") == "sub-03/fus"


def test_recordings_are_judged_in_the_table_of_fusiqc(tmp_path: Path) -> None:
    """As its version 0.1 reads it. What a person decides stays, also if a recording is filtered again."""
    name = "sub-01/ses-a/fusi/sub-01_ses-a_task-rest_run-{}_desc-doppler_pwd.nii.gz"
    images = [tmp_path / name.format(number) for number in (1, 2, 3)]
    table_path = tmp_path / "quality-control.tsv"

    def table() -> pd.DataFrame:
        return pd.read_csv(table_path, sep="\t", dtype=str).fillna("").set_index("pwd_path", drop=False)

    judge_recordings(tmp_path, images[:1], 40, [])
    judge_recordings(tmp_path, images[1:], 30, ["no blood was found", "a tab\tin it"])
    first = table()
    assert first["qc_status"].tolist() == ["good", "pending", "pending"]
    assert first["qc_notes"].tolist()[1] == r"no blood was found; a tab\tin it"
    # The data set may be moved
    places = [str(image.relative_to(tmp_path)) for image in images]
    row = first.loc[places[1]]
    keys = ["subject", "session", "task", "run", "n_timepoints"]
    assert row[keys].tolist() == ["01", "a", "rest", "2", "30"]
    assert row["session_label"] == "sub-01_ses-a_task-rest_run-2_desc-doppler"
    # A person rejects the second recording, and accepts the third one with its doubts.
    first.loc[places[1], ["qc_status", "qc_notes"]] = "bad", "moved"
    first.loc[places[2], "qc_status"] = "good"
    first.to_csv(table_path, sep="\t", index=False)
    judge_recordings(tmp_path, images, 40, ["the cutoff is unsure"])
    assert table()["qc_status"].tolist() == ["pending", "bad", "good"]
    assert table()["qc_notes"].tolist()[:2] == ["the cutoff is unsure", "moved"]
    # A person rejects one that was good, and leaves the notes of the software.
    judge_recordings(tmp_path, images[:1], 40, [])
    rejected = table()
    rejected.loc[places[0], "qc_status"] = "bad"
    # Notes are quoted, as pandas and fusiqc read them, and other columns stay.
    rejected.loc[places[1], "qc_notes"], rejected["rater"] = '"moved', "me"
    rejected.to_csv(table_path, sep="\t", index=False)
    for _ in range(2):
        judge_recordings(tmp_path, images[:1], 40, [])
        assert table()["qc_status"].tolist() == ["bad", "bad", "good"]
        assert table()["qc_notes"].tolist()[1] == '"moved'
        assert table()["rater"].tolist() == ["me"] * 3
    # What a person writes in a spreadsheet stays, in any words and encoding, also with absolute paths of earlier versions
    by_spreadsheet = table()
    by_spreadsheet.loc[places[0], ["pwd_path", "qc_status"]] = str(images[0]), " Reject"
    text = by_spreadsheet.to_csv(sep="\t", index=False)
    for encoding in ("utf-8-sig", "utf-16"):
        table_path.write_bytes(text.encode(encoding))
        judge_recordings(tmp_path, images, 40, [])
        assert sorted(table()["qc_status"].str.strip()) == ["Reject", "bad", "good"]
        assert {*table()["pwd_path"]} == {*places}
    for wrong in (b"mine\n", text.replace("\t", ";").encode(), text.replace("me", "\xfc").encode("latin-1")):
        table_path.write_bytes(wrong)
        with pytest.raises(OutputError, match=r"not a table of fusiqc .* not updated; move or correct it"):
            judge_recordings(tmp_path, images, 40, [])
        assert table_path.read_bytes() == wrong


def test_a_recording_in_a_data_set_of_bids_gives_the_names(tmp_path: Path) -> None:
    scan = tmp_path / "set/sub-01/fus/sub-01_task-rest_iq.zarr"
    saved(tmp_path, voxel_data(1))
    scan.parent.mkdir(parents=True)
    (tmp_path / "x.zarr").rename(scan)

    def names(out: str, *more: str) -> set[str]:
        report_of("run", scan, "-o", tmp_path / out, "--rank=4", "--low-cutoff=0", "-q", *more)
        return {path.name for path in (tmp_path / out).rglob("*_report.json")}

    assert names("outside", "--nifti") == {"sub-01_task-rest_iq_report.json"}
    (tmp_path / "set/dataset_description.json").write_text("{}")
    assert names("inside", "--nifti") == {"sub-01_task-rest_report.json"}
    assert names("none", "--nifti", "--bids=none") == {"sub-01_task-rest_iq_report.json"}
    assert names("no_nifti") == {"sub-01_task-rest_iq_report.json"}
    # The folder of an input in a data set is kept.
    assert (tmp_path / "inside/sub-01/fus/sub-01_task-rest_desc-doppler_pwd.nii.gz").is_file()


WRONG = (
    "task-rest", "sub-01_desc-blood", "sub-01_sub-01", "sub-01_task-a_ses-b", "sub-01_run-1_pose-2_task-a",
    "x",
)  # fmt: skip


@pytest.mark.parametrize("entities", WRONG)
def test_entities_that_bids_does_not_allow(entities: str) -> None:
    for given, path in ((entities, Path("x.h5")), ("auto", Path(f"{entities}_iq.h5"))):
        with pytest.raises(OptionError, match="bids"):
            bids.bids_name(given, path)


def test_entities_in_the_order_of_bids() -> None:
    for entities in ("sub-01", "sub-01_ses-b_task-a_acq-x_run-1", "sub-01_task-a_pose-2_run-1"):
        assert bids.bids_name(entities, Path("x.h5")).entities == entities


def test_a_short_first_block_does_not_change_the_time_step(tmp_path: Path) -> None:
    stack = Acquisition(np.zeros((3, 4, 5), np.complex64), "zxt", frame_rate_hz=100.0)
    lengths, starts = np.array([20, 100, 100, 60]), [0.0, 0.6, 1.2, 1.8]
    blocks = [{"low_cutoff": 1, "complete": True, "n_frames": int(length)} for length in lengths]
    write_nifti(tmp_path / "x.nii.gz", np.ones((4, 3, 4), np.float32), stack, starts, "s", 100, 100, blocks)
    image = nibabel.load(tmp_path / "x.nii.gz")
    assert image.header.get_zooms()[3] == pytest.approx(0.6)
    assert float(image.header["toffset"]) == pytest.approx(0.0)
