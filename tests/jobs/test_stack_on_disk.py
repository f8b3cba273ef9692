"""Stacks that do not fit into the memory: a file takes their place, and the results are the same."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import zarr

import usdenoise
from tests.cli.shared import cli
from tests.control_group import memory_group, run_in_group
from tests.files.layouts import in_order
from tests.jobs.batch.shared import finish, shell, start
from tests.programs import files_of_at_most
from tests.results import differences
from tests.stacks import low_rank, run_in_windows, write_stack
from usdenoise.errors import InputError, OptionError, OutputError
from usdenoise.files import blocks_on_disk, layout, open_input
from usdenoise.files.layout import scratch_array
from usdenoise.files.matlab_writing import write_v73
from usdenoise.jobs import job
from usdenoise.jobs.run_job import run
from usdenoise.options import DenoiseOptions, JobOptions, Output
from usdenoise.pipeline import inspection, recording
from usdenoise.sessions import filter_session
from usdenoise.system import resources

pytestmark = pytest.mark.usefixtures("no_pictures", "small_process")


LEAST_BYTES = resources.LEAST_BYTES


@pytest.fixture
def small_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that takes no memory, so that small stacks do not fit."""
    monkeypatch.setattr(resources, "LEAST_BYTES", 0)


@pytest.mark.slow
def test_pages_of_the_temporary_file_do_not_count_and_the_limit_is_recorded(tmp_path: Path) -> None:
    path = write_stack(tmp_path / "x.h5", low_rank((9600, 64, 64)), axes="tzx")
    reports = []
    for number, memory in enumerate((["--memory", "700M"], [])):
        # Processes of their own: in this one, what other tests leave is freed meanwhile
        command = [sys.executable, "-m", "usdenoise", "run", path, "-o", tmp_path / str(number), "-qq"]
        subprocess.run([*command, "--low-cutoff", "3", *memory], check=True)
        reports.append(json.loads((tmp_path / str(number) / "x_report.json").read_text()))
    assert [report["memory_limit_bytes"] for report in reports] == [700 << 20, None]
    on_disk, in_memory = (report["peak_memory_bytes"] for report in reports)
    # Some of the eight chunks are in memory at a time
    assert in_memory - on_disk > 9600 * 64 * 64 * 8 / 4


@pytest.mark.parametrize("memory", ["1M", "200M"])
def test_less_memory_than_the_process_takes_is_refused(memory, phantom_file, tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "LEAST_BYTES", LEAST_BYTES)
    done = cli("run", phantom_file, "-o", tmp_path / "out", "--memory", memory)
    assert done.exit_code == 1
    assert (
        f"--memory of {memory[:-1]} MiB is too small: the process and a part of the stack take 300 MiB"
        in done.stderr
    )
    assert not (tmp_path / "out").exists()


def test_results_equal_those_of_a_run_in_memory(phantom_file: Path, tmp_path: Path) -> None:
    sizes = {"memory": None, "disk": 1 << 20}
    reports = {name: run(phantom_file, tmp_path / name, memory=size) for name, size in sizes.items()}
    # One pass for the digest. Values are read once, or in each pass: to inspect and to filter, as the sample has all pixels.
    # Where pixels stand out its middle chunk, a half of it, is read once more.
    assert reports["memory"]["input"]["passes_over_file"] == 2
    assert reports["disk"]["input"]["passes_over_file"] in (3, 3.5)
    assert reports["disk"]["requested"] == reports["memory"]["requested"]
    # Sums over frames are grouped by chunks on disk. Rounding errors are relative to the tissue, and errors of its phase
    # add up over the frames.
    with h5py.File(phantom_file) as file:
        largest, n_frames = np.abs(file["iq"][()]).max(), file["iq"].shape[0]
    with h5py.File(reports["memory"]["output"]["denoised"]) as file:
        near = 16 * np.finfo(np.float32).eps * np.sqrt(n_frames) * largest / np.abs(file["iq"][()]).max()
    assert differences(tmp_path / "memory", tmp_path / "disk", near) == []


@pytest.mark.slow
def test_a_small_control_group_is_enough(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shape, path = (7000, 64, 32), tmp_path / "scan.h5"
    tissue = np.exp(1j * np.linspace(0, 5, shape[0])).astype(np.complex64)[:, None, None]
    with h5py.File(path, "w") as file:
        stack = file.create_dataset("iq", shape, np.complex64)
        for start in range(0, shape[0], 500):
            noise = rng.standard_normal((500, *shape[1:], 2), np.float32).view(np.complex64)[..., 0]
            stack[start : start + 500] = 30 * tissue[start : start + 500] + noise
    command = [sys.executable, "-m", "usdenoise", "run", str(path), "-q", "--low-cutoff", "3"]
    # In memory it takes 400 MiB.
    with memory_group(300 << 20) as group:
        done = run_in_group(group, [*command, "-o", str(tmp_path / "out")])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    report = json.loads((tmp_path / "out/scan_report.json").read_text())
    assert report["peak_memory_bytes"] < 400 << 20


@pytest.mark.parametrize("suffix", [".zarr", ".mat"])
def test_other_formats_have_the_same_values(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    tissue = np.outer(rng.standard_normal(33 * 21), np.exp(1j * np.linspace(0, 3, 90)))
    noise = rng.standard_normal((2, 33 * 21, 90))
    stack = (100 * tissue + noise[0] + 1j * noise[1]).astype(np.complex64).reshape(33, 21, 90)
    path = tmp_path / f"scan{suffix}"
    if suffix == ".zarr":
        zarr.open_group(path, mode="w").create_array("iq", data=stack, chunks=(8, 21, 40))
    else:
        write_v73(path, {"iq": stack})
    options, output = DenoiseOptions(low_cutoff=2), Output(products=("power", "directional"))
    for name, memory in (("memory", None), ("disk", 1 << 20)):
        run(path, tmp_path / name, options=options, output=output, reading={"axes": "zxt"}, memory=memory)
    written = [tmp_path / name / f"scan_denoised{suffix}" for name in ("memory", "disk")]
    one, other = (usdenoise.load(path, dataset="iq") for path in written)
    assert one.axes == other.axes
    # Tissue is 40 dB above what is kept, and its sums are rounded in the order of the pixels.
    np.testing.assert_allclose(one.iq, other.iq, atol=1e-4 * np.abs(one.iq).max())


def test_sampled_frames_of_a_session_go_into_a_file_where_memory_has_no_room(tmp_path, monkeypatch):
    stack = low_rank((1400, 16, 12))
    stack[700:740] *= 30
    path, options = write_stack(tmp_path / "scan.h5", stack, axes="tzx"), DenoiseOptions(low_cutoff=3)
    run_in_windows(path, tmp_path / "memory", 100, options=options)
    made = list[tuple[int, ...]]()

    def counted(folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        made.append(shape)
        return scratch_array(folder, shape, dtype)

    monkeypatch.setattr(blocks_on_disk, "scratch_array", counted)
    # A block and 256 of the 1200 sampled frames
    frame = stack[0].nbytes
    free = 3.3 * 100 * frame + 2.1 * 300 * frame
    monkeypatch.setattr(filter_session, "available_bytes", lambda: free)
    run_in_windows(path, tmp_path / "disk", 100, options=options)
    assert made[0][0] >= 1190
    with (
        h5py.File(tmp_path / "memory/scan_sequence.h5") as one,
        h5py.File(tmp_path / "disk/scan_sequence.h5") as other,
    ):
        np.testing.assert_array_equal(one["bad"][()], other["bad"][()])
        for name in ("power_doppler", "blood_power", "noise_power"):
            wanted = one[name][()]
            np.testing.assert_allclose(other[name][()], wanted, atol=1e-5 * np.nanmax(wanted), err_msg=name)
    monkeypatch.setattr(filter_session, "available_bytes", lambda: free / 2)
    with pytest.raises(InputError, match="a block of 100 frames and a sample of the session need about"):
        run_in_windows(path, tmp_path / "none", 100, options=options)


def test_memory_that_the_maps_of_a_volume_do_not_fit_into_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "LEAST_BYTES", LEAST_BYTES)
    path = write_stack(tmp_path / "volume.h5", np.ones((4, 60, 50, 40), np.complex64), axes="tzxy")
    with pytest.raises(OptionError, match="the process and a part of the stack take 399 MiB"):
        run(path, tmp_path / "out", memory=310 << 20, options=DenoiseOptions(threads=2))
    # The stack and its maps
    wanted = (256 << 20) + 4 * 120_000 * 8 + 1200 * (120_000 - (1 << 16))
    assert job.expected_bytes(path, {}, "single") == wanted


@pytest.mark.parametrize(("own", "shape", "others"), [
    ("tzx", (80, 12, 10), ("xtz", "zxt")), ("tzxy", (80, 8, 7, 5), ("zytx",)),
])  # fmt: skip
def test_the_order_of_the_axes_in_a_file_changes_no_result(own, shape, others, tmp_path):
    stack = low_rank(shape)
    output = Output(products=("power", "directional"))
    options = DenoiseOptions(low_cutoff=3)
    results: dict[tuple[str, str], dict[str, Any]] = {}
    for order in (own, *others):
        path = write_stack(tmp_path / f"{order}.h5", in_order(order, stack, own), axes=order)
        folders = {"memory": tmp_path / order / "memory", "disk": tmp_path / order / "disk"}
        for place, memory in (("memory", None), ("disk", 1 << 20)):
            run(path, folders[place], options=options, output=output, memory=memory)
            with h5py.File(folders[place] / f"{order}_denoised.h5") as file:
                results[order, place] = {name: file[name][()] for name in file if file[name].ndim > 1}
        run_in_windows(path, tmp_path / order / "session", 40, options=options)
        with h5py.File(tmp_path / order / f"session/{order}_sequence.h5") as file:
            results[order, "session"] = {
                name: file[name][()] for name in ("power_doppler", "blood_power", "noise_power")
            }
    for axes, place in product(others, ("memory", "disk", "session")):
        spatial = axes.replace("t", "")
        found, expected = results[axes, place], results[own, place]
        assert found.keys() == expected.keys()
        for name, values in found.items():
            # A stack, an image, or a series of images.
            order = axes if name == "iq" else spatial if place != "session" else "t" + spatial
            turned = in_order(order, expected[name], "".join(letter for letter in own if letter in order))
            assert values.shape == turned.shape
            # What is left is rounded as what is removed, 300 times as much, which is turned from frame to frame
            most = 300 * np.finfo(np.float32).eps * np.sqrt(shape[0]) * np.abs(turned).max()
            np.testing.assert_allclose(values, turned, atol=most, err_msg=name)


def test_methods_that_require_the_whole_stack_are_refused(phantom_file: Path, tmp_path: Path) -> None:
    says = "method svd requires the whole stack in memory, and .* does not fit into 1 MiB; choose another method, or raise"
    with pytest.raises(OptionError, match=says):
        run(phantom_file, tmp_path / "out", options=DenoiseOptions(method="svd"), memory=1 << 20)
    assert not (tmp_path / "out").exists()


def values_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the values that are read of stacks in files from now on."""
    read: list[int] = []
    own = open_input.pick

    def counted(*arguments: Any) -> Any:
        stack, metadata = own(*arguments)
        values = stack.array.read

        def count(index: tuple[slice, ...]) -> np.ndarray:
            part = values(index)
            read.append(part.size)
            return part

        # Straight into memory nothing is counted.
        return replace(stack, array=replace(stack.array, read=count, fill=None)), metadata

    monkeypatch.setattr(open_input, "pick", counted)
    return read


@pytest.mark.parametrize(
    ("axes", "chunks", "n_times"), [("tzx", None, 3), ("xtz", (32, 8, 16), 3), ("zxt", (8, 8, 400), 1)]
)
def test_a_file_in_frame_order_is_read_in_three_passes_and_another_one_once(
    axes, chunks, n_times, tmp_path, monkeypatch
):
    rng = np.random.default_rng(0)
    tissue = rng.standard_normal((32, 32, 1)) * np.exp(1j * np.linspace(0, 5, 400))
    noise = rng.standard_normal((2, 32, 32, 400))
    stack = in_order(axes, (30 * tissue + noise[0] + 1j * noise[1]).astype(np.complex64), "zxt")
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file.create_dataset("iq", data=stack, chunks=chunks)
    monkeypatch.setattr(inspection, "SAMPLE_PIXELS", (100, 300))
    monkeypatch.setattr(recording, "HELD_ENTRIES", 1 << 15)
    monkeypatch.setattr(layout, "CHUNK_ROW_BYTES", stack.nbytes // 2)
    options, reading = DenoiseOptions(low_cutoff=2), {"axes": axes}
    here = run(tmp_path / "scan.h5", tmp_path / "here", options=options, reading=reading)
    read = values_read(monkeypatch)
    there = run(tmp_path / "scan.h5", tmp_path / "there", options=options, reading=reading, memory=1 << 20)
    assert sum(read) == n_times * stack.size
    assert [report["input"]["passes_over_file"] for report in (here, there)] == [2, 1 + n_times]
    one, other = (
        usdenoise.load(tmp_path / name / "scan_denoised.h5", dataset="iq").iq for name in ("here", "there")
    )
    np.testing.assert_allclose(one, other, atol=1e-5 * np.abs(stack).max())


def test_a_disk_without_space_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    says = r"requires 8 GiB, more than the memory, and .* has no space for it \(No space left on device\); choose"
    with pytest.raises(OutputError, match=says):
        scratch_array(tmp_path, (1 << 30,), np.dtype(np.float64))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", [None, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_system_that_cannot_reserve_space_writes_zeros(fault, tmp_path, monkeypatch):
    def missing(descriptor: int, offset: int, size: int) -> None:
        raise OSError(fault, os.strerror(fault or 0))

    if fault is None:
        # As on macOS.
        monkeypatch.delattr(os, "posix_fallocate")
    else:
        monkeypatch.setattr(os, "posix_fallocate", missing)
    monkeypatch.setattr(layout, "_ZEROS_BYTES", 1000)
    assert not scratch_array(tmp_path, (20, 21), np.dtype(np.complex64)).any()
    says = r"has no space for it \(File too large\)"
    with files_of_at_most(10000), pytest.raises(OutputError, match=says):
        scratch_array(tmp_path, (4200,), np.dtype(np.complex64))


def test_a_file_that_cannot_be_read_in_parts_is_refused(tmp_path: Path) -> None:
    iq = np.random.default_rng(0).standard_normal((20, 16, 60)) + 0j
    scipy.io.savemat(tmp_path / "scan.mat", {"IQ": iq})
    np.savez(tmp_path / "scan.npz", IQ=iq)
    for name, kind in (("scan.mat", "MATLAB before 7.3"), ("scan.npz", r"NumPy \.npz")):
        says = f"{name} does not fit into 1 MiB of memory, and {kind} files cannot be read in blocks"
        with pytest.raises(InputError, match=says):
            run(tmp_path / name, tmp_path / "out", memory=1 << 20, overwrite=True)
        run(tmp_path / name, tmp_path / "out", overwrite=True)


def test_a_file_in_chunks_that_do_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).standard_normal((1024, 32, 32, 2), np.float32).view(np.complex64)[..., 0]
    for name, n_frames in (("large", 1024), ("small", 256)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file.create_dataset("iq", data=noise, chunks=(n_frames, 32, 32))
    monkeypatch.setattr(resources, "PROCESS_BYTES", 1 << 16)
    says = "large.h5 does not fit into 12 MiB of memory, and 4 of its chunks of 8 MiB are held at a time; save it in"
    with pytest.raises(InputError, match=says):
        run(tmp_path / "large.h5", tmp_path / "out", memory=12 << 20)
    assert not (tmp_path / "out").exists()
    run(tmp_path / "small.h5", tmp_path / "out", memory=12 << 20)


def test_sizes_of_memory(phantom_file: Path) -> None:
    sizes = {"600M": 600 << 20, "2.5G": 5 << 29, "1000000": 10**6, "64 ": 64, "1gib": 1 << 30, "3kB": 3072}
    assert {text: JobOptions.declared["memory"].read(text) for text in sizes} == sizes
    for text in ("", "much", "-1G", "0", "1X", "5 M"):
        assert cli("run", phantom_file, "--memory", text).exit_code == 2, text


@pytest.mark.slow
def test_killed_at_any_moment_no_half_result_has_its_name(phantom_file: Path, tmp_path: Path) -> None:
    out, command = tmp_path / "killed", ("run", phantom_file, "--memory", "300M", "-q", "-o")
    began = time.monotonic()
    assert shell(*command, tmp_path / "whole").returncode == 0
    whole = time.monotonic() - began
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    for moment in whole * (np.arange(3) + np.random.default_rng(0).random(3)) / 3:
        process = start(*command, out)
        time.sleep(moment)
        process.kill()
        finish(process)
        left = {path.name for path in out.glob("*")}
        visible = {name for name in left if "partial" not in name}
        # All results get their names at the end, one right after the other, the report last.
        assert not visible or visible <= names, left
        assert "small_report.json" not in visible or visible == names
        if visible:
            shutil.rmtree(out)
    assert cli(*command, out).exit_code == 0
    assert {path.name for path in out.iterdir() if "partial" not in path.name} == names
