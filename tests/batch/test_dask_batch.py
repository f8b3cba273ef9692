"""Batches and runs on Dask workers: the same results as without, also when workers are killed."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from distributed import Client, KilledWorker, LocalCluster

import usdenoise
from usdenoise.batch import dask_pool
from usdenoise.batch.dask_pool import DaskPool
from usdenoise.batch.plan import Scan
from usdenoise.errors import InputError, OptionError
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.phantom import PhantomSettings

N_SCANS = 4


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes of one thread each."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made:
        yield made


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Four scans, and a file that is none."""
    folder = tmp_path_factory.mktemp("scans")
    for number in range(N_SCANS):
        settings = PhantomSettings(shape=(32, 24, 150), frame_rate_hz=500.0, seed=number)
        simulate_to_file(folder / f"scan{number}.h5", settings)
    (folder / "empty.h5").touch()
    return folder


@pytest.fixture(scope="module")
def undisturbed(scans, tmp_path_factory):
    """The folder and the rows of a batch without Dask."""
    folder = tmp_path_factory.mktemp("undisturbed")
    report = usdenoise.run_batch(scans, folder)
    return folder, {row.scan: row for row in report.rows}


def power(folder, scan):
    with h5py.File(next((folder / Path(scan).stem).glob("*_denoised.h5"))) as file:
        return file["power_doppler"][...]


def check_batch(report, folder, undisturbed):
    reference, rows = undisturbed
    assert {row.scan: row.status for row in report.rows} == {name: row.status for name, row in rows.items()}
    for row in report.rows:
        expected = rows[row.scan]
        assert (row.low_cutoff, row.rank, row.failure) == (
            expected.low_cutoff,
            expected.rank,
            expected.failure,
        )
        if row.error is None:
            assert np.allclose(power(folder, row.scan), power(reference, row.scan), rtol=1e-5)
    assert not [path for path in folder.rglob("*") if "partial" in path.name]


def children(of):
    """Process ids of the scans that the processes `of` are working on."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
            line = (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) in of and b"scan_child" in line:
            found.append(int(status.parent.name))
    return found


def test_scans_on_workers_give_what_processes_give(scans, undisturbed, cluster, tmp_path):
    report = usdenoise.run_batch(scans, tmp_path, dask=cluster.scheduler_address)
    check_batch(report, tmp_path, undisturbed)
    again = usdenoise.run_batch(scans, tmp_path, dask=cluster.scheduler_address)
    assert sorted(row.status.key for row in again.rows) == ["failed", *["skipped"] * N_SCANS]


@pytest.mark.parametrize("target", ["scan", "worker"])
def test_what_is_killed_once_is_done_again(scans, undisturbed, cluster, tmp_path, target):
    killed = []

    def kill():
        # Not the default client: that of the batch comes and goes at the same time, in another thread.
        with Client(cluster, set_as_default=False) as client:
            workers = list(client.run(os.getpid).values())
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for pid in children(workers):
                killed.append(pid if target == "scan" else workers[0])
                os.kill(killed[-1], signal.SIGKILL)
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    report = usdenoise.run_batch(scans, tmp_path, dask=cluster.scheduler_address)
    killer.join()
    assert killed
    check_batch(report, tmp_path, undisturbed)


def test_a_scan_that_is_killed_twice_is_a_failed_row(scans, cluster, tmp_path):
    with Client(cluster) as client:
        client.wait_for_workers(2)
        workers = list(client.run(os.getpid).values())
    done = threading.Event()

    def kill():
        while not done.wait(0.02):
            for pid in children(workers):
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        report = usdenoise.run_batch(scans / "scan0.h5", tmp_path, dask=cluster.scheduler_address)
    finally:
        done.set()
        killer.join()
    (row,) = report.rows
    assert row.failure == "killed"
    assert "was ended by SIGKILL, as the system does when memory runs out" in row.error
    assert not list((tmp_path / "scan0").glob("*"))
    assert usdenoise.run_batch(
        scans / "scan0.h5", tmp_path, dask=cluster.scheduler_address, retry_failed=True
    ).all_done


def test_other_ends_of_a_scan_are_failed_rows_with_a_reason(scans, cluster, tmp_path, monkeypatch):
    scan = Scan(scans / "scan0.h5", "scan0.h5", tmp_path / "scan0")
    arguments = {"options": usdenoise.DenoiseOptions(), "reading": {}}

    def without_the_package(*arguments):
        raise ModuleNotFoundError("No module named 'usdenoise'")

    def two_workers_died(*arguments):
        raise KilledWorker("filter_scan", SimpleNamespace(address="tcp://127.0.0.1:1"), 2)

    with Client(cluster) as client:
        client.wait_for_workers(2)
        for task, failure, message in (
            (
                without_the_package,
                "unexpected",
                "could not do this scan .ModuleNotFoundError: No module named",
            ),
            (two_workers_died, "killed", "the Dask worker of this scan was killed twice"),
        ):
            monkeypatch.setattr(dask_pool, "filter_scan", task)
            pool = DaskPool(client, arguments, None)
            pool.start(scan)
            (event,) = pool.receive(30)
            assert event.values[0] == failure
            assert re.search(message, event.values[1])
            assert pool.is_idle
        monkeypatch.setattr(dask_pool, "filter_scan", lambda *arguments: time.sleep(1))
        pool = DaskPool(client, arguments, None)
        pool.start(scan)
        assert pool.receive(0.01) == []
        next(iter(pool._running)).cancel()
        (event,) = pool.receive(30)
        assert event.values == ("killed", "the Dask scheduler dropped this scan; run the batch again")


def test_an_interrupted_batch_leaves_whole_results_alone_and_is_resumed(scans, undisturbed, tmp_path):
    command = [sys.executable, "-m", "usdenoise", "batch", str(scans), "-o", str(tmp_path), "--dask", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("scan*/.*partial*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130, error
    assert "Traceback" not in error
    finished = list(tmp_path.glob("scan*/*_report.json"))
    assert len(finished) < N_SCANS
    for report in finished:
        assert len(list(report.parent.glob("*_denoised.h5"))) == 1
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name]
    assert subprocess.run(command, check=False).returncode == 1
    summary = json.loads((tmp_path / "batch.json").read_text())["summary"]
    assert summary["done"] + summary["skipped"] == N_SCANS
    assert np.allclose(power(tmp_path, "scan3"), power(undisturbed[0], "scan3"), rtol=1e-5)


def test_a_run_on_workers_gives_the_files_of_a_run_here(scans, undisturbed, cluster, tmp_path):
    report = usdenoise.run(scans / "scan1.h5", tmp_path / "scan1", dask=cluster.scheduler_address)
    assert report["low_cutoff"] == undisturbed[1]["scan1.h5"].low_cutoff
    names = {path.name for path in (undisturbed[0] / "scan1").iterdir()}
    assert {path.name for path in (tmp_path / "scan1").iterdir()} == names
    with (
        h5py.File(tmp_path / "scan1" / "scan1_denoised.h5") as found,
        h5py.File(undisturbed[0] / "scan1" / "scan1_denoised.h5") as expected,
    ):
        assert found["iq"].shape == expected["iq"].shape
        assert dict(found["iq"].attrs).keys() == dict(expected["iq"].attrs).keys()
        for name in ("iq", "power_doppler", "blood_power"):
            difference = np.linalg.norm(found[name][...] - expected[name][...])
            assert difference < 1e-3 * np.linalg.norm(expected[name][...])


def test_frames_precision_and_disk_have_the_same_effect_on_workers(scans, cluster, tmp_path):
    reading = {"frames": slice(10, 140, 2)}
    options = usdenoise.DenoiseOptions(precision="double", low_cutoff=6)
    here = usdenoise.run(scans / "scan2.h5", tmp_path / "here", options=options, reading=reading)
    there = usdenoise.run(
        scans / "scan2.h5", tmp_path / "there", options=options, reading=reading, memory=1 << 20,
        dask=cluster.scheduler_address,
    )  # fmt: skip
    assert there["scratch_bytes"] == 32 * 24 * 65 * 16
    # How often the workers read the file is not counted.
    assert here["input"]["passes_over_file"] == 2
    assert there["input"] == {**here["input"], "passes_over_file": None}
    stacks = [
        usdenoise.load(tmp_path / name / "scan2_denoised.h5", dataset="iq").iq for name in ("here", "there")
    ]
    assert np.allclose(*stacks, rtol=1e-9, atol=1e-9 * np.abs(stacks[0]).max())


def test_an_interrupted_run_leaves_nothing(scans, tmp_path):
    command = [
        sys.executable,
        "-m",
        "usdenoise",
        "run",
        str(scans / "scan0.h5"),
        "-o",
        str(tmp_path / "out"),
        "--dask",
        "2",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "out").glob(".*partial*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130, error
    assert "Traceback" not in error
    assert not list((tmp_path / "out").glob("*"))


def test_what_workers_cannot_do_is_said(scans, tmp_path, monkeypatch):
    scan = scans / "scan0.h5"
    with pytest.raises(
        OptionError, match=r"no Dask scheduler with workers answers at tcp://127.0.0.1:9; start one"
    ):
        usdenoise.run(scan, tmp_path / "a", dask="tcp://127.0.0.1:9")
    for wrong in ("0", " "):
        with pytest.raises(OptionError, match="must be a number of workers from 1 on"):
            usdenoise.run(scan, tmp_path / "a", dask=wrong)
    with pytest.raises(OptionError, match="leave out window or dask"):
        usdenoise.run(scan, tmp_path / "a", dask="2", output=usdenoise.Output(window=50))
    np.savez(tmp_path / "scan.npz", iq=np.ones((20, 8, 8), np.complex64))
    with pytest.raises(InputError, match=r"kind NumPy .npz cannot be read in parts; save .* as HDF5"):
        usdenoise.run(tmp_path / "scan.npz", tmp_path / "a", reading={"axes": "tzx"}, dask="2")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(OptionError, match=r"run pip install 'usdenoise\[dask\]'"):
        usdenoise.run(scan, tmp_path / "a", dask="2")
    assert not list((tmp_path / "a").glob("*"))
