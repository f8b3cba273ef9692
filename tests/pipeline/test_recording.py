"""Sequences: which frames each image is of, when it was, and that it is the image of those frames."""

import json
import os
from pathlib import Path
from typing import Any

import h5py
import imageio.v3 as iio
import nibabel
import numpy as np
import pytest
import scipy.io
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.cli.shared import write
from tests.programs import python
from tests.sessions.scans import two_sided
from tests.stacks import low_rank, run_in_windows
from usdenoise.options import DenoiseOptions, Output
from usdenoise.phantom import Phantom, Terms
from usdenoise.pipeline.recording import cut_into_windows

pytestmark = pytest.mark.usefixtures("no_pictures")

FIVE = DenoiseOptions(rank=5, low_cutoff=3, threads=1, tissue="recorded")


@given(st.integers(2, 60), st.integers(2, 60), st.integers(1, 60))
def test_blocks_cover_every_frame(n_frames: int, window: int, stride: int) -> None:
    if window > n_frames or stride > window:
        return
    parts = cut_into_windows(n_frames, window, stride)
    assert [block.start for block in parts] == [stride * n for n in range(len(parts))]
    assert [block.n_frames for block in parts[:-1]] == [window] * (len(parts) - 1)
    assert all(block.complete == (block.n_frames == window) for block in parts)
    assert all(block.middle == np.mean(range(block.start, block.stop)) for block in parts)
    # The first window that reaches the end is the last one.
    assert [block.stop >= n_frames for block in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].stop == n_frames


@pytest.fixture
def stack(small_phantom: tuple[Phantom, Terms], tmp_path: Path) -> Path:
    iq = small_phantom[1].iq[:, :20, :16]
    return write(tmp_path / "x.h5", iq, axes="tzx", frame_rate_hz=500.0, spacing_mm=[0.1, 0.2])


@pytest.mark.parametrize(("window", "stride"), [(50, None), (50, 20)])
def test_each_image_is_that_of_its_frames(window, stride, stack, small_phantom, tmp_path):
    output = Output(products=("power", "directional", "velocity"))
    report = run_in_windows(stack, tmp_path / "out", window, stride=stride, options=FIVE, output=output)
    iq = small_phantom[1].iq[:, :20, :16]
    parts = cut_into_windows(120, window, stride)
    with h5py.File(report["output"]["sequence"]) as file:
        assert np.array_equal(file["first_frame"], [block.start for block in parts])
        assert np.array_equal(file["n_frames"], [block.n_frames for block in parts])
        assert np.array_equal(file["complete"], [block.complete for block in parts])
        assert file["time"].attrs["unit"] == "s"
        # The middle of the frames' own times.
        times = [np.mean(np.arange(block.start, block.stop) / 500.0) for block in parts]
        np.testing.assert_allclose(file["time"], times)
        assert np.all(np.diff(file["time"]) > 0)
        assert file["power_doppler"].shape == (len(parts), 20, 16)
        # The clutter is that of all blocks together.
        tissue = np.linalg.svd(iq.reshape(-1, 320).T, full_matrices=False)[0][:, :3]
        for number, block in enumerate(parts):
            rest = two_sided(iq[block.start : block.stop].reshape(-1, 320).T, tissue)
            power = np.mean(np.abs(rest) ** 2, axis=1).reshape(20, 16)
            np.testing.assert_allclose(file["power_doppler"][number], power, rtol=1e-3)
        assert file["axial_velocity"].attrs["unit"] == "Hz"
        halves = file["directional_power_positive"][()] + file["directional_power_negative"][()]
        np.testing.assert_allclose(halves, file["power_doppler"], rtol=1e-4)
    sequence = report["sequence"]
    assert sequence["time"] == pytest.approx(times)
    assert [block["complete"] for block in sequence["blocks"]] == [block.complete for block in parts]
    assert report["input"]["shape"] == [120, 20, 16]
    # The digest, every frame once for the sample, the middle window for noisy pixels, and all windows for the filter.
    n_read = sum(block.n_frames for block in [*parts, parts[len(parts) // 2]])
    assert report["input"]["passes_over_file"] == pytest.approx(2 + n_read / 120)
    assert json.loads(Path(report["output"]["report"]).read_text())["sequence"]["window"] == window


@pytest.mark.parametrize("suffix", [".mat", ".h5"])
def test_films_and_nifti_of_volumes_and_images(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    shape = (40, 6, 5, 3) if suffix == ".h5" else (40, 6, 5)
    iq = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)
    # The signal grows in time and down, so that orders can be told apart.
    iq *= np.linspace(1, 3, 40).reshape(-1, *[1] * (len(shape) - 1))
    iq *= np.linspace(1, 2, 6).reshape(1, -1, *[1] * (len(shape) - 2))
    path = tmp_path / f"x{suffix}"
    if suffix == ".mat":
        scipy.io.savemat(path, {"IQ": iq.transpose(1, 2, 0), "UF": {"FrameRateUF": 100.0, "TwFreq": 10.0}})
        reading: dict[str, Any] = {"spacing_mm": (0.1, 0.2)}
    else:
        write(path, iq, axes="tzxy")
        reading = {"spacing_mm": (0.1, 0.2, 0.4), "frame_rate_hz": 100.0}
    windows: dict[str, Any] = {"window": 20, "stride": 8, "movie": "gif", "gain_correction": False}
    options = DenoiseOptions(rank=2, low_cutoff=0)
    how = {"options": options, "output": Output(nifti=True), "reading": reading}
    report = run_in_windows(path, tmp_path / "out", **windows, **how)
    image = nibabel.load(report["output"]["nifti"])
    values = np.asarray(image.dataobj)
    sequence = report["output"]["sequence"]
    if suffix == ".mat":
        power = scipy.io.loadmat(sequence)["power_doppler"]
        assert scipy.io.loadmat(sequence)["time_unit"] == "s"
        assert np.array_equal(values, power.transpose(2, 1, 0)[:, :, None])
    else:
        with h5py.File(sequence) as file:
            assert np.array_equal(values, file["power_doppler"][()].transpose(2, 1, 3, 0))
    n_blocks = values.shape[-1]
    pitches = (0.2, 0.1, 1.0 if suffix == ".mat" else 0.4)
    assert image.header.get_zooms() == pytest.approx((*pitches, 0.08))
    assert image.header.get_xyzt_units() == ("mm", "sec")
    np.testing.assert_allclose(np.diag(image.affine), [*pitches, 1])
    sidecar = json.loads(Path(report["output"]["nifti_json"]).read_text())
    assert sidecar["VolumeTiming"] == pytest.approx([0.08 * n for n in range(n_blocks)])
    assert sidecar["PowerDopplerIntegrationDuration"] == pytest.approx(200)
    assert sidecar["CompoundSamplingFrequency"] == 100.0
    assert sidecar["CompleteBlocks"] == [True] * (n_blocks - 1) + [False]
    with tifffile.TiffFile(report["output"]["blood_power_tif"]) as file:
        about = file.imagej_metadata
        assert (about["unit"], about.get("spacing")) == ("mm", None if suffix == ".mat" else 0.4)
    film = iio.imread(report["output"]["movie"])[..., :3].astype(float)
    assert len(film) == n_blocks
    assert np.all(np.diff(film.reshape(n_blocks, -1).mean(axis=1)) > 0)
    height = film.shape[1] // 6
    assert film[:, -height:].mean() > film[:, :height].mean()


@pytest.fixture(scope="module")
def long_stack() -> NDArray[np.complex64]:
    """400 frames in the order t, z, x."""
    return low_rank((400, 16, 12))


@pytest.mark.parametrize(("n_frames", "length"), [(400, 133), (400, 199)])
def test_one_or_two_remaining_frames_join_the_last_window(n_frames, length, long_stack, tmp_path):
    path = write(tmp_path / "x.h5", long_stack[:n_frames], axes="tzx")
    report = run_in_windows(path, tmp_path / "out", length, options=FIVE)
    with h5py.File(report["output"]["sequence"]) as file:
        starts, counts = file["first_frame"][()], file["n_frames"][()]
        complete = file["complete"][()]
    remaining = n_frames % length
    assert remaining in (1, 2)
    assert counts.tolist() == [length] * (n_frames // length - 1) + [length + remaining]
    assert starts.tolist() == [length * number for number in range(len(counts))]
    assert complete.all()


SESSION = """
import sys
from usdenoise.jobs.session_job import run_session
from usdenoise.options import DenoiseOptions, SessionOptions

path, folder, threads = sys.argv[1:]
windows = SessionOptions(window=100, stride=80)
run_session([path], folder, options=DenoiseOptions(threads=int(threads)), session_options=windows)
"""


def sequence_in_a_child(
    path: Path, folder: Path, threads: str, processors: int | None = None, **environment: str
) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The datasets and the records of a sequence from a process of its own, on some of the processors."""

    def limit() -> None:
        # Only Linux lets a process choose its processors.
        if processors is not None and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])

    done = python(SESSION, path, folder, threads, before=limit, **environment)
    assert done.returncode == 0, done.stderr
    with h5py.File(folder / "x_sequence.h5") as file:
        found = {name: file[name][()].tobytes() for name in file if isinstance(file[name], h5py.Dataset)}
    return found, json.loads((folder / "x_report.json").read_text())["sequence"]["blocks"]


@pytest.mark.slow
def test_a_sequence_does_not_depend_on_threads_or_processors(long_stack, tmp_path):
    path = write(tmp_path / "x.h5", long_stack[:260], axes="tzx")
    few = sequence_in_a_child(path, tmp_path / "few", "3", processors=1, OPENBLAS_NUM_THREADS="1")
    many = sequence_in_a_child(path, tmp_path / "many", "1", OPENBLAS_NUM_THREADS="4")
    assert len(few[1]) == 3
    assert few == many
