"""``usdenoise session``: files in, one series out, whatever is stopped, damaged or changed on the way."""

import errno
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import imageio.v3 as iio
import nibabel
import numpy as np
import pytest

from tests.cli.shared import cli, refused, report_of
from tests.files.matlab_variables import variables
from tests.programs import python
from tests.sessions import scans
from tests.sessions.scans import ABOUT, FOUR, LENGTH, RATE_HZ, Scan, scan, two_sided, write_events
from tests.stacks import write_stack
from usdenoise import load, session
from usdenoise.errors import OptionError, OutputError, UnreadableError
from usdenoise.files import blocks_on_disk
from usdenoise.files.blocks_on_disk import BlocksOnDisk
from usdenoise.frames.alignment import Alignment
from usdenoise.jobs import products, session_job, workers
from usdenoise.jobs.session_inputs import SessionFiles
from usdenoise.jobs.session_job import run_session
from usdenoise.options import DenoiseOptions, Output, SessionOptions
from usdenoise.pipeline.series import BlockLags
from usdenoise.sessions import measured_block
from usdenoise.sessions.measured_block import BlockFindings, MeasuredBlock

SHAPE = (20, 16)
N_BLOCKS = 6
BARE = Output()

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="session")
def made() -> Scan:
    return scan(N_BLOCKS, shape=SHAPE)


@pytest.fixture(scope="session")
def files(made: Scan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of six blocks, 0.5 s apart, in names of which the tenth comes last. Read only."""
    folder = tmp_path_factory.mktemp("session") / "mouse"
    for number, block in enumerate(made.blocks):
        write_stack(folder / f"block {number + 6}.h5", block, start_s=3 + 0.5 * number, **ABOUT)
    return folder


@pytest.fixture(scope="session")
def long(made: Scan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same frames in one file. Read only."""
    return write_stack(tmp_path_factory.mktemp("long") / "long.h5", made.iq, **ABOUT)


@pytest.fixture(scope="session")
def stacks(files: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a session of the files with its filtered blocks."""
    out = tmp_path_factory.mktemp("stacks") / "out"
    return run(files, out=out, session_options=SessionOptions(stacks=True))


@pytest.fixture(scope="session")
def without_a_file(files: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The series of a session without its third file."""
    paths = [files / f"block {number}.h5" for number in (6, 7, 9, 10, 11)]
    return datasets(run(*paths, out=tmp_path_factory.mktemp("five"))["output"]["sequence"])


@pytest.fixture
def copied(files: Path, tmp_path: Path) -> Path:
    """Block files that may be changed."""
    return Path(shutil.copytree(files, tmp_path / "mouse"))


def run(*paths: Path, out: Path, **more: Any) -> dict[str, Any]:
    return run_session(paths, out, **{"options": FOUR, "output": BARE, **more})


def datasets(path: str | Path) -> dict[str, Any]:
    with h5py.File(path) as file:
        return {name: item[()] for name, item in file.items() if isinstance(item, h5py.Dataset)}


def rows(table: str | Path) -> list[dict[str, str]]:
    head, *lines = (line.split("\t") for line in Path(table).read_text().splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


def filtered_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an entry for each block that is filtered."""
    found: list[int] = []
    filter_chunk = measured_block.filter_chunk

    def noted(*arguments: Any, **more: Any) -> Any:
        found.append(1)
        return filter_chunk(*arguments, **more)

    monkeypatch.setattr(measured_block, "filter_chunk", noted)
    return found


# ---------------------------------------------------------------- the series


def test_some_blocks_of_files_and_of_one_long_file_are_filtered_alone(files, long, tmp_path):
    for path, window in ((files, ()), (long, ("--window", LENGTH))):
        command = ("session", path, *window, "-o", tmp_path / path.stem, "--blocks=1:6:2", "--low-cutoff=4")
        report = report_of(*command, "-q")
        assert len(report["sequence"]["blocks"]) == 3
        with h5py.File(report["output"]["sequence"]) as file:
            assert file["blood_power"].shape[0] == 3
            provenance = json.loads(file.attrs["usdenoise_provenance"])
        assert provenance["parameters"]["blocks"] == [1, 6, 2]


def test_files_and_one_long_file_have_one_series(files: Path, long: Path, tmp_path: Path) -> None:
    of_files = run(files, out=tmp_path / "a")
    of_long = run(long, out=tmp_path / "b", session_options=SessionOptions(window=LENGTH))
    assert Path(of_files["output"]["sequence"]).name == "mouse_sequence.h5"
    assert Path(of_long["output"]["sequence"]).name == "long_sequence.h5"
    one, other = (datasets(report["output"]["sequence"]) for report in (of_files, of_long))
    assert one.keys() == other.keys()
    for name in one.keys() - {"time", "first_frame"}:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    middle = (LENGTH - 1) / 2 / RATE_HZ
    np.testing.assert_allclose(one["time"], 0.5 * np.arange(N_BLOCKS) + middle)
    np.testing.assert_allclose(other["time"], LENGTH / RATE_HZ * np.arange(N_BLOCKS) + middle)
    assert one["first_frame"].tolist() == [0] * N_BLOCKS
    assert other["first_frame"].tolist() == [LENGTH * n for n in range(N_BLOCKS)]
    names = [f"block {n}.h5" for n in range(6, 12)]
    assert [block["file"] for block in of_files["sequence"]["blocks"]] == names
    # The library has the same series.
    found = session(files, options=FOUR)
    np.testing.assert_array_equal(found.blood_power, one["blood_power"])
    assert found.time.tolist() == one["time"].tolist()
    assert found.blocks["file"] == names
    # Seconds between blocks may be given, in both.
    for path, window in ((files, None), (long, LENGTH)):
        every = SessionOptions(block_interval_s=1.5, window=window)
        report = run(path, out=tmp_path / f"every {window}", session_options=every)
        assert report["sequence"]["time"] == pytest.approx([1.5 * n + middle for n in range(N_BLOCKS)])


def test_the_table_has_a_row_for_each_block(stacks: dict[str, Any]) -> None:
    table = rows(stacks["output"]["blocks_tsv"])
    assert [float(row["time"]) for row in table] == pytest.approx(stacks["sequence"]["time"])
    assert {row["components"] for row in table} == {"4"}
    assert {row["bad"] for row in table} == {"0"}
    assert {row["why"] for row in table} == {"n/a"}
    described = json.loads(Path(stacks["output"]["blocks_json"]).read_text())
    assert described.keys() == table[0].keys()
    assert described["time"]["Units"] == "s"
    assert described["motion"]["Units"] == "wavelengths"


@pytest.mark.parametrize("nothing", ["text", "zeros", "damaged", "huge"])
def test_a_bad_file_is_an_error_or_a_missing_block(nothing, copied, made, without_a_file, tmp_path):
    path = copied / "block 8.h5"
    if nothing == "text":
        path.write_text("nothing")
    elif nothing == "zeros":
        write_stack(path, np.zeros((LENGTH, *SHAPE), np.complex64), start_s=4.0, **ABOUT)
    elif nothing == "huge":
        write_stack(path, 1e25 * made.blocks[2], start_s=4.0, **ABOUT)
    else:
        with h5py.File(path, "w") as file:
            values = made.blocks[2]
            stored = file.create_dataset("iq", data=values, chunks=(25, *SHAPE), fletcher32=True)
            stored.attrs.update(start_s=4.0, **ABOUT)
            place = stored.id.get_chunk_info(3).byte_offset
        with path.open("r+b") as raw:
            raw.seek(place + 99)
            raw.write(b"damage")
    if nothing == "zeros":
        # A file that is read has a reason at once.
        report = run(copied, out=tmp_path / "out")
    else:
        done = cli("session", copied, "-o", tmp_path / "out", "--low-cutoff", 4)
        refused(done, r".*block 8\.h5 .*or mark it as missing with --skip-bad-files$")
        assert not (tmp_path / "out").exists()
        output = Output(nifti=True, products=("power", "blood", "velocity"))
        report = run(copied, out=tmp_path / "out", output=output,
                     session_options=SessionOptions(skip_bad_files=True, movie="gif"))  # fmt: skip
        film = iio.imread(report["output"]["movie"])[..., :3]
        assert len(film) == N_BLOCKS
        filled = nibabel.load(report["output"]["blood_nifti"]).get_fdata()[:, :, 0]
        np.testing.assert_allclose(filled[..., 2], filled[..., [1, 3]].mean(axis=-1), rtol=1e-5, atol=1e-6)
        page = Path(report["output"]["report_html"]).read_text()
        assert "In NIfTI, the powers of bad blocks are interpolated between good blocks" in " ".join(
            page.split()
        )
        # Vessels are bright in the other blocks.
        assert (film[[0, 5], 60:-60, 60:-160].max(axis=(1, 2, 3)) > 200).all()
    found = datasets(report["output"]["sequence"])
    assert found["bad"].tolist() == [0, 0, 1, 0, 0, 0]
    assert found["time"] == pytest.approx(0.5 * np.arange(N_BLOCKS) + 0.099)
    for name in ("blood_power", "power_doppler"):
        assert np.isnan(found[name]).all(axis=(1, 2)).tolist() == [n == 2 for n in range(N_BLOCKS)]
        assert np.isfinite(found[f"mean_{name}"]).all()
    table = rows(report["output"]["blocks_tsv"])
    assert [row["why"] != "n/a" for row in table] == [n == 2 for n in range(N_BLOCKS)]
    assert table[2]["kept_share"] == "0"
    assert "block 2 (block 8.h5) is bad: " in report["frames"]["sentence"]
    # It is a gap already.
    assert "mark it as missing" not in report["frames"]["sentence"] + table[2]["why"]
    # The others are those of a session without it.
    others, alone = np.delete(found["blood_power"], 2, axis=0), without_a_file["blood_power"]
    np.testing.assert_allclose(others, alone, rtol=0.05, atol=0.05)


def test_frames_and_blocks_without_data_do_not_change_the_other_blocks() -> None:
    """Also where the cutoff is tried on a few blocks."""
    many, good = scan(8), [0, 1, 2, 4, 5, 6, 7]
    wanted = session(many.stack, LENGTH)
    for nothing in (0, np.nan):
        iq = many.iq.copy()
        iq[[7, 555, *range(3 * LENGTH, 4 * LENGTH)]] = nothing
        found = session(replace(many.stack, iq=iq), LENGTH)
        assert np.flatnonzero(found.bad).tolist() == [3]
        # The command writes the same table.
        assert ("zero" in found.blocks["why"][3]) == (nothing == 0)
        assert found.low_cutoff == wanted.low_cutoff
        np.testing.assert_allclose(found.power_doppler[good], wanted.power_doppler[good], rtol=0.25)


def test_interpolated_bad_blocks_change_the_series_alone(tmp_path: Path) -> None:
    """Not its good blocks, means, tSNR and activation. The files, the report and the methods report it."""
    bad = [0, 7, 8]
    made = scans.weakened(scan(20, rise=0.5, blood=3.0, shape=SHAPE), *bad)
    path = write_stack(tmp_path / "s.h5", made.iq, **ABOUT)
    events = write_events(tmp_path / "e.tsv", [(0.2 * first, 0.6, "on") for first in (3, 9, 15)])
    command = ("session", path, "--window", LENGTH, "--events", events, "-o", tmp_path / "o")
    flags = ("--low-cutoff=4", "--zarr", "--nifti", "--region=a=rect:0,8,20,16", "--bad-blocks=interpolate")
    report = report_of(*command, *flags, "--bids=none")
    output = report["output"]
    kept = session(path, LENGTH, low_cutoff=4, events=events, regions={"a": "rect:0,8,20,16"})
    assert np.flatnonzero(kept.bad).tolist() == bad
    is_bad, good_times = kept.bad, kept.time[~kept.bad]
    found = datasets(output["sequence"])
    assert found["bad"].tolist() == found["interpolated"].tolist() == is_bad.tolist()
    for name in ("blood_power", "power_doppler"):
        of_name = kept.images[name].reshape(20, -1).T
        wanted = np.stack([np.interp(kept.time, good_times, values[~is_bad]) for values in of_name], axis=1)
        np.testing.assert_allclose(found[name].reshape(20, -1), wanted, rtol=1e-4, atol=1e-4)
        assert np.abs(found[name][is_bad] - kept.images[name][is_bad]).max() > 1
        np.testing.assert_allclose(found[f"mean_{name}"], kept.means[name], rtol=1e-5)
    np.testing.assert_allclose(found["tsnr"], kept.tsnr, rtol=1e-4)
    with h5py.File(output["sequence"]) as file:
        np.testing.assert_allclose(file["activation/on/t"][()], kept.activation["on"].t, rtol=1e-4, atol=1e-4)
    image = nibabel.load(output["blood_nifti"]).get_fdata()[:, :, 0]
    np.testing.assert_array_equal(image.transpose(2, 1, 0), found["blood_power"])
    sidecar = json.loads(Path(output["blood_nifti_json"]).read_text())
    assert sidecar["InterpolatedBlocks"] == is_bad.tolist()
    for key in ("blocks_tsv", "regions_tsv"):
        assert [int(row["interpolated"]) for row in rows(output[key])] == is_bad.tolist()
    outliers = [
        [int(value) for name, value in row.items() if "out" in name] for row in rows(output["confounds_tsv"])
    ]
    np.testing.assert_array_equal(np.transpose(outliers), np.eye(20)[bad])
    table = rows(output["regions_tsv"])
    region = np.array([[float(row[name]) for name in ("blood_a", "percent_a")] for row in table])
    of_region = np.interp(kept.time, good_times, kept.regions["a"][~is_bad])
    np.testing.assert_allclose(region[:, 0], of_region, rtol=1e-4)
    assert np.ptp(region[:, 1] / region[:, 0]) < 1e-4 * region[0, 1] / region[0, 0]
    (response,) = (row for row in rows(output["region_responses_tsv"]) if row["region"] == "a")
    assert float(response["t"]) == pytest.approx(kept.region_responses["t"][1], rel=1e-4)
    assert report["requested"]["session"]["bad_blocks"] == "interpolate"
    page = " ".join(Path(output["report_html"]).read_text().split())
    assert "bad blocks were interpolated linearly over time" in page
    assert "powers of bad blocks are interpolated between good blocks" in page
    assert "interpolated" not in kept.blocks


def test_bad_frames_are_counted_in_each_file(files: Path, tmp_path: Path, long: Path) -> None:
    options = DenoiseOptions(rank=12, low_cutoff=4, bad_frames=(0, 7))
    report = run(files, out=tmp_path / "a", options=options)
    assert report["frames"]["n_left_out"] == 2 * N_BLOCKS
    assert {row["kept_share"] for row in rows(report["output"]["blocks_tsv"])} == {"0.98"}
    # Of a long file they are counted from its beginning; a block without good frames is bad.
    options = DenoiseOptions(rank=12, low_cutoff=4, bad_frames=(7, *range(200, 300)))
    report = run(long, out=tmp_path / "b", options=options, session_options=SessionOptions(window=LENGTH))
    assert [block["is_bad"] for block in report["sequence"]["blocks"]] == [n == 2 for n in range(N_BLOCKS)]
    assert "leave fewer than two" in report["sequence"]["blocks"][2]["why"]
    assert report["sequence"]["blocks"][0]["frames"]["n_left_out"] == 1
    options = DenoiseOptions(rank=12, low_cutoff=4, bad_frames=(600,))
    says = "bad frame 600 is not among the frames 0 to 599; change bad_frames"
    with pytest.raises(OptionError, match=says):
        run(long, out=tmp_path / "c", options=options, session_options=SessionOptions(window=LENGTH))


# ---------------------------------------------------------------- filtered blocks


def test_blocks_that_overlap_do_not_change_the_mean_map(made: Scan) -> None:
    # The tissue of a block is brighter at some depths than in other blocks, which counts as a gain.
    apart, *overlapping = (
        session(made.stack, window=LENGTH, stride=stride, rank=16, low_cutoff=12, gain_correction=False)
        for stride in (LENGTH, LENGTH // 2, LENGTH // 4)
    )
    for found in overlapping:
        assert found.mean_blood_power.sum() == pytest.approx(apart.mean_blood_power.sum(), rel=2e-3)
        assert np.corrcoef(found.mean_blood_power.ravel(), apart.mean_blood_power.ravel())[0, 1] > 0.999


def test_filtered_blocks_have_the_format_of_their_files(made: Scan, tmp_path: Path) -> None:
    """And the other variables of a MATLAB file."""
    scans.write_pala(tmp_path / "pala", made.blocks)
    stacks = SessionOptions(stacks=True, gain_correction=False)
    run(tmp_path / "pala", out=tmp_path / "out", session_options=stacks)
    left = np.linalg.svd(made.iq.reshape(len(made.iq), -1).T, full_matrices=False)[0][:, :4]
    for number, block in enumerate(made.blocks):
        back = variables(tmp_path / f"out/IQ_{number}_denoised.mat")
        assert (back["note"], back["UF/FrameRateUF"].item()) == (f"block {number}", RATE_HZ)
        wanted = two_sided(block.reshape(LENGTH, -1).T, left)
        found = back["IQ"].reshape(-1, LENGTH)
        assert back["IQ"].shape == (*SHAPE, LENGTH)
        np.testing.assert_allclose(found, wanted, atol=0.02)
    assert not list(tmp_path.glob("out/*_spectra"))


@pytest.mark.slow
def test_filtered_blocks_of_windows_and_of_zarr(made: Scan, long: Path, tmp_path: Path) -> None:
    stacks = SessionOptions(window=LENGTH, stacks=True)
    report = run(long, out=tmp_path / "out", session_options=stacks)
    names = [f"long_block_{n:05d}_denoised.h5" for n in range(N_BLOCKS)]
    places = sorted(tmp_path.glob("out/*_denoised.h5"))
    assert [place.name for place in places] == names
    assert [report["output"][place.stem] for place in places] == list(map(str, places))
    sizes = [place.stat().st_size for place in places]
    assert [report["output_bytes"][place.stem] for place in places] == sizes
    power = datasets(report["output"]["sequence"])["power_doppler"]
    for number, name in enumerate(names):
        stack = load(tmp_path / "out" / name)
        assert (stack.axes, stack.frame_rate_hz) == ("tzx", RATE_HZ)
        np.testing.assert_allclose(np.mean(np.abs(stack.iq) ** 2, axis=0), power[number], rtol=1e-4)
    again = cli("session", long, "--window", LENGTH, "-o", tmp_path / "out", "--stacks")
    refused(again, r"long_block_00000_denoised\.h5 exists; give --overwrite to replace it")
    windows = SessionOptions(window=LENGTH, stacks=True)
    run(long, out=tmp_path / "named", session_options=windows, output=Output(stack_name="iqSvdFiltered"))
    assert "iqSvdFiltered" in datasets(str(tmp_path / "named" / names[0]))
    done = cli("session", long, "--window", LENGTH, "-o", tmp_path / "out", "--overwrite", "--json")
    assert not list(tmp_path.glob("out/*_denoised.h5"))
    assert json.loads(done.stdout)["sequence"]["size"] == f"{LENGTH} frames"
    zarrs = tmp_path / "zarrs"
    for number in range(3):
        part = made.stack.to_xarray()[number * LENGTH : (number + 1) * LENGTH].rename("iq").drop_vars("time")
        part.to_dataset().to_zarr(zarrs / f"b{number}.zarr", consolidated=False)
    report = run(zarrs, out=tmp_path / "z", session_options=SessionOptions(stacks=True))
    assert Path(report["output"]["sequence"]).name == "zarrs_sequence.zarr"
    assert load(tmp_path / "z/b1_denoised.zarr").iq.size == LENGTH * 320


def test_filtered_blocks_replace_nothing(copied: Path, tmp_path: Path) -> None:
    stacks = SessionOptions(stacks=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/block 7_denoised.h5").write_text("mine")
    with pytest.raises(OutputError, match=r"block 7_denoised\.h5 exists; give overwrite to replace it"):
        run(copied, out=tmp_path / "out", session_options=stacks)
    assert (tmp_path / "out/block 7_denoised.h5").read_text() == "mine"
    run(copied, out=tmp_path / "out", session_options=stacks, overwrite=True)
    assert load(tmp_path / "out/block 7_denoised.h5").n_frames == LENGTH
    other = tmp_path / "other/block 6.h5"
    other.parent.mkdir()
    shutil.copy(copied / "block 6.h5", other)
    every = SessionOptions(stacks=True, block_interval_s=1.0)
    says = r"would both be .*block 6_denoised\.h5; rename one, or omit stacks"
    with pytest.raises(OptionError, match=says):
        run(copied, other, out=tmp_path / "new", session_options=every)
    assert not (tmp_path / "new").exists()


# ---------------------------------------------------------------- stopped, changed and done again


@pytest.mark.slow
def test_spectra_are_used_again_for_the_same_session_alone(copied, made, tmp_path, monkeypatch):
    run(copied, out=tmp_path / "out")
    folder = tmp_path / "out/mouse_spectra"
    assert not folder.exists()
    # As if each of these sessions had been stopped before its end.
    monkeypatch.setattr(session_job, "remove_spectra", lambda job: None)
    keeping = {"overwrite": True}
    report = run(copied, out=tmp_path / "out", **keeping)
    assert len(list(folder.glob("block_*.h5"))) == N_BLOCKS
    first = datasets(report["output"]["sequence"])
    filtered = filtered_blocks(monkeypatch)
    again = run(copied, out=tmp_path / "out", **keeping)
    assert filtered == []
    found = datasets(again["output"]["sequence"])
    assert all(np.array_equal(found[name], first[name]) for name in first)
    # A block that has changed is done again, and so are the others: they share their clutter with it.
    write_stack(copied / "block 9.h5", made.blocks[0], start_s=4.5, **ABOUT)
    changed = datasets(run(copied, out=tmp_path / "out", **keeping)["output"]["sequence"])
    assert len(filtered) == N_BLOCKS
    fresh = datasets(run(copied, out=tmp_path / "fresh")["output"]["sequence"])
    assert all(np.array_equal(changed[name], fresh[name]) for name in fresh)
    assert not np.array_equal(changed["blood_power"], first["blood_power"])
    # So are other files in one place, and other options.
    filtered.clear()
    one, other, third, *_ = sorted(copied.iterdir())
    every = {**keeping, "session_options": SessionOptions(block_interval_s=1.0)}
    run(one, other, third, out=tmp_path / "out", **every)
    run(one, third, other, out=tmp_path / "out", **every)
    assert len(filtered) == 6
    filtered.clear()
    run(copied, out=tmp_path / "out", **{**keeping, "options": DenoiseOptions(low_cutoff=5)})
    assert len(filtered) == N_BLOCKS


def test_a_folder_with_files_of_the_user_is_not_replaced(files: Path, tmp_path: Path) -> None:
    own = tmp_path / "out/mouse_spectra/thesis.txt"
    own.parent.mkdir(parents=True)
    own.write_text("chapter 1")
    with pytest.raises(OutputError, match="mouse_spectra is not a folder of spectra, so it is not replaced"):
        run(files, out=tmp_path / "out", overwrite=True)
    assert own.read_text() == "chapter 1"


def test_a_stored_block_keeps_its_gain_over_depth(tmp_path: Path) -> None:
    alignment = Alignment((0.1, 0.2), 1.0, 0.9, is_scaled=True, profile_db=(0.5, 1.25))
    findings, lags = BlockFindings(alignment=alignment), np.ones((4, 3), np.complex64)
    store = BlocksOnDisk(tmp_path / "s", "key")
    store.put(0, MeasuredBlock(findings, BlockLags(lags, np.ones(4, np.float32), lags[:, :1])))
    assert store.findings(0).alignment == alignment
    assert store.lags(0).has_own_depths


def test_another_session_does_not_use_the_spectra(tmp_path: Path) -> None:
    store = BlocksOnDisk(tmp_path / "s", "key")
    store.put(3, MeasuredBlock(BlockFindings("it cannot be read")))
    again = BlocksOnDisk(tmp_path / "s", "key")
    assert [again.has(number) for number in (2, 3)] == [False, True]
    assert again.findings(3) == BlockFindings("it cannot be read")
    # On a file system without locks another session may take the folder: no block gets into its store.
    other = BlocksOnDisk(tmp_path / "s", "other key")
    assert not other.has(3)
    with pytest.raises(OutputError, match="another session"):
        store.put(6, MeasuredBlock(BlockFindings()))
    assert not other.has(6)


FULL = """
import sys
from pathlib import Path
import numpy as np
from tests.programs import files_of_at_most
from usdenoise.errors import OutputError
from usdenoise.files import blocks_on_disk
from usdenoise.files.blocks_on_disk import BlocksOnDisk
from usdenoise.pipeline.series import BlockLags
from usdenoise.sessions.measured_block import BlockFindings, MeasuredBlock

store = BlocksOnDisk(Path(sys.argv[1]), "key")
lags = np.ones((24 * 24, 13), np.complex64)
block = MeasuredBlock(BlockFindings(), BlockLags(lags, np.ones(24 * 24, np.float32), lags[:100, :2]))
for kib in (0, 1, 4, 16, 56):
    with files_of_at_most(kib << 10):
        try:
            store.put(0, block)
        except OutputError:
            continue
    sys.exit("a file that is too large was written")
names = sorted(path.name for path in store.folder.iterdir())
store.put(0, block)
print(*names, store.lags(0).lags.sum().real)
"""


def test_a_block_that_the_disk_does_not_take_is_one_error(tmp_path: Path) -> None:
    """The limit on the size of a file fails as a full disk does, also when HDF5 closes the file."""
    done = python(FULL, tmp_path / "spectra")
    assert (done.returncode, done.stdout, done.stderr) == (0, "session.json 7488.0\n", "")


@pytest.mark.parametrize(("module", "writes"), [(blocks_on_disk, "create_file"), (products, "write_result")])
def test_a_session_resumes_after_the_disk_was_full(module, writes, files, stacks, tmp_path, monkeypatch):
    whole, calls = getattr(module, writes), []

    def full(path: Path, *more: Any) -> Any:
        calls.append(path)
        if len(calls) == 3:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(path, *more)

    monkeypatch.setattr(module, writes, full)
    filtered = filtered_blocks(monkeypatch)
    how: dict[str, Any] = {
        "options": replace(FOUR, threads=1),
        "session_options": SessionOptions(stacks=True),
    }
    with pytest.raises(OutputError, match="No space left on device"):
        run(files, out=tmp_path / "out", **how)
    assert not calls[-1].exists()
    assert len(filtered) == 3
    report = run(files, out=tmp_path / "out", **how)
    assert len(filtered) == 3 + N_BLOCKS - 2
    folders = tmp_path / "out", Path(stacks["output"]["sequence"]).parent
    assert len({tuple(sorted(path.name for path in folder.iterdir())) for folder in folders}) == 1
    found, wanted = (datasets(each["output"]["sequence"]) for each in (report, stacks))
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


CHILD = """
import os, signal, sys
from dataclasses import dataclass, replace
from pathlib import Path
from usdenoise.cli import main
from usdenoise.files import blocks_on_disk
from usdenoise.jobs import run_job, session_job
from usdenoise.report import pictures

pictures.draw_picture = lambda *arguments, **settings: b"picture"
path, out, *names = sys.argv[1:]
sys.argv = ["usdenoise", "session", path, "-o", out, "--window", "100", "--stacks"]
words = ["session", path, "-o", out, "--window", "100", "--stacks", "--low-cutoff", "4", "-qq"]


def kill(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)


def kill_after(owner, name, count):
    whole, calls = getattr(owner, name), []

    def counted(*arguments, **more):
        if len(calls) == count:
            kill()
        calls.append(1)
        return whole(*arguments, **more)

    setattr(owner, name, counted)


def kill_before_name(name):
    whole = os.replace

    def named(source, final):
        if str(final) == os.path.join(out, name):
            kill()
        whole(source, final)

    os.replace = named


def run(prepare=lambda: None):
    process = os.fork()
    if process == 0:
        prepare()
        filtered = []
        whole = session_job.StackFiles.write
        session_job.StackFiles.write = lambda *arguments: (filtered.append(1), whole(*arguments))
        try:
            main(words, standalone_mode=False)
        finally:
            print(len(filtered), flush=True)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


moments = {
    "two blocks later": lambda: kill_after(blocks_on_disk.BlocksOnDisk, "put", 2),
    "between a stack and its spectra": lambda: kill_after(blocks_on_disk.h5py, "File", 3),
    "before a block has its name": lambda: kill_after(blocks_on_disk.os, "replace", 4),
    "when the series is made": lambda: kill_after(session_job, "_record_of_files", 0),
    "when blocks get their names": lambda: kill_before_name("long_block_00003_denoised.h5"),
    "when the series is written": lambda: kill_after(run_job, "write_result", 0),
    "when all files get their names": lambda: kill_before_name("long_blocks.tsv"),
    "when the report gets its name": lambda: kill_before_name("long_report.json"),
}
for name in names:
    prepare = moments[name]
    print(name, run(prepare), Path(out, "long_report.json").exists(), flush=True)
print(run())
"""


MOMENTS = re.findall(r'^    "(.*)": lambda', CHILD, re.MULTILINE)
FEW = ["between a stack and its spectra", "when all files get their names"]


@pytest.mark.parametrize("moments", [FEW, pytest.param(MOMENTS, marks=pytest.mark.slow)], ids=len)
def test_a_session_that_is_killed_resumes_and_gives_the_same_bytes(moments, long, tmp_path):
    results = {}
    for name in ("undisturbed", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        # The command is in the files, so it is the same one.
        (tmp_path / "out").symlink_to(folder)
        kills = moments if name == "killed" else []
        done = python(CHILD, long, tmp_path / "out", *kills, OPENBLAS_NUM_THREADS="1")
        assert done.returncode == 0, done.stderr
        results[name] = done.stdout
        (tmp_path / "out").unlink()
    lines = results["killed"].splitlines()
    assert [line.rsplit(" ", 2)[1:] for line in lines[:-2]] == [["-9", "False"]] * len(moments), lines
    # The last run filters nothing that was done, and all files are those of an undisturbed run.
    assert lines[-2:] == ["0", "0"]
    assert results["undisturbed"].splitlines() == [str(N_BLOCKS), "0"]
    names = sorted(path.name for path in (tmp_path / "undisturbed").iterdir())
    # The next process removes what a killed one left.
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == names
    assert "long_block_00003_denoised.h5" in names
    # The report and its page have the times and the memory of the run.
    for name in set(names) - {"long_report.json", "long_report.html"}:
        one, other = (tmp_path / folder / name for folder in ("undisturbed", "killed"))
        assert one.read_bytes() == other.read_bytes(), name


@pytest.mark.parametrize("error", [OptionError, UnreadableError])
def test_blocks_stay_unless_the_same_command_would_fail_again(error, copied, tmp_path, monkeypatch):
    def fail(*_: Any) -> None:
        raise error("the disk is gone")

    folder = tmp_path / "out/mouse_spectra"
    monkeypatch.setattr(workers, "CONNECT_S", 0.5)
    with monkeypatch.context() as patched:
        patched.setattr(SessionFiles, "check_unchanged", fail)
        with pytest.raises(error):
            run(copied, out=tmp_path / "out")
    assert len(list(folder.glob("block_*"))) == (0 if error is OptionError else N_BLOCKS)
    # The workers are not there.
    with pytest.raises(OptionError, match="no Dask scheduler"):
        run(copied, out=tmp_path / "out", dask="tcp://127.0.0.1:9")
    assert folder.exists() is (error is UnreadableError)
    n_filtered = filtered_blocks(monkeypatch)
    run(copied, out=tmp_path / "out")
    assert len(n_filtered) == (N_BLOCKS if error is OptionError else 0)


MEMORY = """
import os, sys
from usdenoise import DenoiseOptions
from usdenoise.jobs.session_job import run_session
from usdenoise.options.job_options import Output
from usdenoise.system.resources import peak_memory_bytes, use_one_heap

use_one_heap()
folder, *files = sys.argv[1:]
options = DenoiseOptions(rank=8, low_cutoff=4, iterations=1, threads=1)
for count in (6, 26):
    if os.fork() == 0:
        run_session(files[:count], f"{folder}/{count}", options=options, output=Output())
        print(peak_memory_bytes(), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_blocks(made: Scan, tmp_path: Path) -> None:
    big = [np.tile(block, (2, 2, 2)) for block in made.blocks]
    paths = [write_stack(tmp_path / f"in/{n}.h5", big[n % len(big)], n=n, **ABOUT) for n in range(26)]
    done = python(MEMORY, tmp_path / "out", *paths, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    few, many = map(int, done.stdout.split())
    # 20 more blocks are of 41 MB. Without any growth the peak differs by 11 MB from run to run.
    assert many - few < 8 * big[0].nbytes
    assert 20 * big[0].nbytes > 40e6


# ---------------------------------------------------------------- options


def test_wrong_options_of_a_session_are_refused(files: Path, tmp_path: Path) -> None:
    wrong = {
        "--pattern=x*.h5": "--pattern", "--window=101": "--window", "--stride=50": "--window",
        "--low-cutoff=601": "--low-cutoff",
    }  # fmt: skip
    for flag, remedy in wrong.items():
        refused(cli("session", files, "-o", tmp_path / "out", flag), f"; .*{remedy}")
    assert not (tmp_path / "out").exists()


def test_a_session_without_a_good_block_is_refused(tmp_path: Path) -> None:
    zeros = scans.write_blocks(tmp_path / "zeros", np.zeros((3, LENGTH, *SHAPE), np.complex64))
    refused(cli("session", zeros, "-o", tmp_path / "out", "-q"), "'iq' is zero everywhere")
    assert not (tmp_path / "out").exists()
