"""Runs, sessions and batches on Dask workers: the same results as here, also when workers or schedulers are killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partialmethod

import dask
import h5py
import numpy as np
import pytest
from distributed import Client, LocalCluster

import usdenoise
from tests.jobs.batch.shared import finish, in_session, start, wait_for
from tests.results import differences
from tests.sessions.scans import scan, write_blocks
from usdenoise.errors import OptionError
from usdenoise.jobs import scan_process, workers
from usdenoise.jobs.session_job import run_session
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.jobs.workers import DEATHS, dask_client
from usdenoise.phantom import PhantomSettings
from usdenoise.pipeline import recording
from usdenoise.progress import Progress

N_SCANS = 2
NO_PAGE = {"output": usdenoise.Output()}


@pytest.fixture(autouse=True)
def any_port_for_the_page_of_a_scheduler(monkeypatch):
    """Dask leaves a socket open where its usual port is in use, and a later test would fail with that."""
    start = partialmethod(LocalCluster.__init__, dashboard_address=":0")
    monkeypatch.setattr(LocalCluster, "__init__", start)


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Two scans, and a file without a stack."""
    folder = tmp_path_factory.mktemp("scans")
    for number in range(N_SCANS):
        settings = PhantomSettings(shape=(32, 24, 100), frame_rate_hz=500.0, seed=number)
        simulate_to_file(folder / f"scan{number}.h5", settings)
    (folder / "empty.h5").touch()
    return folder


@contextmanager
def workers_killed(cluster, times):
    """Kill a worker that works on a scan, until that has been done so often; yield the process ids."""
    killed, is_over = [], threading.Event()

    def kill():
        # Not the default client: that of the batch comes and goes at the same time, in another thread.
        with Client(cluster, set_as_default=False) as client:
            while len(killed) < times and not is_over.wait(0.02):
                pids = client.run(os.getpid, on_error="ignore")
                working = [worker for worker, tasks in client.processing().items() if tasks]
                busy = [pids[worker] for worker in working if worker in pids]
                for pid in set(busy[:1]).difference(killed):
                    killed.append(pid)
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        is_over.set()
        killer.join()


@pytest.mark.slow
def test_a_batch_of_which_a_worker_is_killed_equals_one_here(scans, cluster, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    # The workers have one thread for each scan.
    arguments = {**NO_PAGE, "options": usdenoise.DenoiseOptions(threads=1)}
    expected = usdenoise.run_batch(scans, here, arguments=arguments)
    with workers_killed(cluster, 1) as killed:
        found = usdenoise.run_batch(scans, there, arguments=arguments, dask=cluster.scheduler_address)
    assert killed
    assert [row.status for row in found.rows] == [row.status for row in expected.rows]
    assert [row.status.key for row in found.rows] == ["failed", "done", "done"]
    for name in ("scan0", "scan1"):
        assert differences(here / name, there / name) == []
    assert not [path for path in there.rglob("*") if "partial" in path.name]


@pytest.mark.slow
def test_a_scan_that_kills_its_workers_is_a_failed_row(scans, cluster, tmp_path):
    scan, where = scans / "scan0.h5", cluster.scheduler_address
    # It would take longer than two workers live.
    endless = {"options": usdenoise.DenoiseOptions(iterations=10**6, patience=0)}
    with workers_killed(cluster, DEATHS + 1) as killed:
        report = usdenoise.run_batch(scan, tmp_path, arguments=endless, dask=where)
    assert len(killed) == DEATHS + 1
    (row,) = report.rows
    assert row.status == "failed"
    assert "KilledWorker" in row.error
    assert not list((tmp_path / "scan0").glob("*"))
    assert usdenoise.run_batch(scan, tmp_path, dask=where).all_done


def test_a_worker_without_the_package_is_a_failed_row(scans, cluster, tmp_path, monkeypatch):
    def fail(*arguments):
        raise ModuleNotFoundError("No module named 'usdenoise'")

    monkeypatch.setattr(scan_process, "run_scan_on_worker", fail)
    (row,) = usdenoise.run_batch(scans / "scan0.h5", tmp_path, dask=cluster.scheduler_address).rows
    assert row.status == "failed"
    assert "No module named 'usdenoise'" in row.error


@pytest.mark.slow
def test_a_session_whose_worker_is_killed_equals_one_of_threads(cluster, tmp_path):
    made = scan(24, shape=(48, 48))
    write_blocks(tmp_path, made.blocks)
    here = usdenoise.session(tmp_path)
    with workers_killed(cluster, 1) as killed:
        found = usdenoise.session(tmp_path, dask=cluster.scheduler_address)
    assert killed
    for name, images in here.images.items():
        np.testing.assert_allclose(found.images[name], images, rtol=1e-5, atol=1e-6)
    assert found.blocks["bad"] == here.blocks["bad"]
    np.testing.assert_allclose(found.blocks["leftover"], here.blocks["leftover"], rtol=1e-3)
    with pytest.raises(OptionError, match="dask requires files"):
        usdenoise.session(made.stack, 100, dask="1")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "batch"])
def test_an_interrupted_command_leaves_no_half_results(command, scans, tmp_path):
    source, out = (scans if command == "batch" else scans / "scan0.h5"), tmp_path / "out"
    process = start(command, source, "-o", out, "--dask", "1")
    # The command, the tracker of its resources, and its workers.
    wait_for(lambda: bool(list(out.rglob(".*partial*"))) and len(in_session(process.pid)) > 2, 120)
    os.killpg(process.pid, signal.SIGINT)
    interrupted = finish(process)
    assert interrupted.returncode == 130, interrupted.stderr
    assert "Traceback" not in interrupted.stderr
    assert not [path for path in out.rglob("*") if "partial" in path.name]
    finished = list(out.rglob("*_report.json"))
    assert [len(list(report.parent.glob("*_denoised.h5"))) for report in finished] == [1] * len(finished)
    assert len(finished) < (N_SCANS if command == "batch" else 1)


def test_a_run_on_workers_gives_the_files_of_a_run_here(scans, cluster, tmp_path):
    options = usdenoise.DenoiseOptions(precision="double", low_cutoff=6)
    scan, how = scans / "scan1.h5", {"options": options, "reading": {"frames": slice(10, 90, 2)}}
    here = usdenoise.run(scan, tmp_path / "here", **how)
    where = cluster.scheduler_address
    there = usdenoise.run(scan, tmp_path / "there", **how, memory=1 << 20, dask=where)
    # How often the workers read the file is not counted.
    assert here["input"]["passes_over_file"] == 2
    assert there["input"] == {**here["input"], "passes_over_file": None}
    assert there["output"].keys() == here["output"].keys()
    with h5py.File(there["output"]["denoised"]) as found, h5py.File(here["output"]["denoised"]) as expected:
        assert dict(found["iq"].attrs).keys() == dict(expected["iq"].attrs).keys()
        for name, rtol in (("iq", 1e-9), ("power_doppler", 1e-6), ("blood_power", 1e-6)):
            values = expected[name][...]
            np.testing.assert_allclose(found[name][...], values, rtol=rtol, atol=rtol * np.abs(values).max())


@pytest.mark.parametrize("name", [pytest.param("scan.npz", marks=pytest.mark.slow), "pixels.h5"])
def test_stacks_that_cannot_be_read_in_chunks_are_sent_to_workers(
    name, scans, cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(recording, "HELD_ENTRIES", 1 << 14)
    stack = usdenoise.load(scans / "scan1.h5")
    if name == "scan.npz":
        np.savez(tmp_path / name, iq=stack.iq)
    else:
        with h5py.File(tmp_path / name, "w") as file:
            file["iq"] = np.moveaxis(stack.iq, 0, -1)
    reading = {"axes": "tzx" if name == "scan.npz" else "zxt"}
    how, stacks = {"options": usdenoise.DenoiseOptions(low_cutoff=6), "reading": reading}, []
    for where in (None, cluster.scheduler_address):
        report = usdenoise.run(tmp_path / name, tmp_path / "out", dask=where, overwrite=True, **how)
        stacks.append(usdenoise.load(report["output"]["denoised"], dataset="iq").iq)
    assert np.abs(stacks[0]).max() > 0
    # Rounding errors are relative to the tissue, and errors of its phase add up over the frames.
    rounding = 16 * np.finfo(np.float32).eps * np.sqrt(stack.n_frames) * np.abs(stack.iq).max()
    assert np.allclose(*stacks, rtol=0, atol=rounding)


SCHEDULER = """
import sys, time
from distributed import LocalCluster
settings = {"threads_per_worker": 1, "processes": False, "protocol": "tcp", "dashboard_address": None}
with LocalCluster(n_workers=int(sys.argv[1]), **settings) as cluster:
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""


@contextmanager
def scheduler(n_workers):
    """A scheduler in a process of its own, with its workers; yield the process and the address."""
    line = [sys.executable, "-c", SCHEDULER, str(n_workers)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


class Killer:
    """A watcher of a run or a batch that kills a process in the first iteration, or after the first scan."""

    def __init__(self, process):
        self.process = process

    def __getattr__(self, name):
        def note(*told):
            if name == "iteration" or (name == "finished" and told[0].status == "done"):
                self.process.kill()

        return note


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "batch"])
def test_a_scheduler_that_is_killed_is_a_single_error(command, scans, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(workers, "CONNECT_S", 3)
    work, source = (usdenoise.run, scans / "scan0.h5") if command == "run" else (usdenoise.run_batch, scans)
    done = r" \([12] of 3 scans are done; the same command filters the remaining scans\)" * (
        command == "batch"
    )
    with scheduler(1) as (process, where):
        says = f"^the connection to the Dask scheduler at {where} was lost; start it and this command again{done}$"
        with pytest.raises(OptionError, match=says):
            work(source, tmp_path, dask=where, watcher=Killer(process))
    # Dask arrays are worked on here again.
    assert dask.config.get("scheduler", None) is None
    assert capfd.readouterr().err == ""
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name]
    if command == "batch":
        summary = json.loads((tmp_path / "batch.json").read_text())["summary"]
        assert summary["done"] >= 1
        assert summary["not_run"] >= 1


@pytest.mark.slow
def test_a_session_whose_scheduler_is_killed_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "CONNECT_S", 3)
    write_blocks(tmp_path / "mouse", scan(12).blocks)
    out, seen = tmp_path / "out", []

    class Watch(Progress):
        def blocks(self, n_done, n_blocks):
            seen.append(n_done)
            if n_done == 4:
                process.kill()

    with scheduler(1) as (process, where):
        # Also at the next try, before the scheduler is started again.
        for says in ("was lost; start it", "no Dask scheduler"):
            with pytest.raises(OptionError, match=says):
                run_session([tmp_path / "mouse"], out, dask=where, watcher=Watch(), **NO_PAGE)
    n_done = len(list(out.glob("mouse_spectra/block_*.h5")))
    assert 4 <= n_done < 12
    seen.clear()
    report = run_session([tmp_path / "mouse"], out, watcher=Watch(), **NO_PAGE)
    assert seen == list(range(n_done + 1, 13))
    assert len(report["sequence"]["blocks"]) == 12
    assert not (out / "mouse_spectra").exists()


@pytest.mark.slow
def test_work_that_kills_its_workers_is_an_error(cluster):
    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    says = "killed every Dask worker that began it.*; give dask fewer workers"
    with pytest.raises(OptionError, match=says), dask_client(cluster.scheduler_address) as client:
        client.submit(die).result()
    with pytest.raises(ZeroDivisionError), dask_client(cluster.scheduler_address) as client:
        client.submit(lambda: 1 / 0).result()


@pytest.mark.slow
def test_a_scheduler_without_workers_is_an_error(scans, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "WORKERS_S", 1)
    with scheduler(0) as (_, where), pytest.raises(OptionError, match=f"scheduler at {where} has no workers"):
        usdenoise.run(scans / "scan0.h5", tmp_path, dask=where)
    assert list(tmp_path.iterdir()) == []


@contextmanager
def web_server():
    """Yield the address of a server that is not a scheduler."""

    def answer(listener):
        while True:
            try:
                with listener.accept()[0] as connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n" * 100)
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=[listener], daemon=True).start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def test_wrong_or_missing_schedulers_are_errors(monkeypatch):
    monkeypatch.setattr(workers, "CONNECT_S", 1)

    def check(where, says):
        with pytest.raises(OptionError, match=says), dask_client(where):
            pass

    for where in ("0", " "):
        check(where, "must be a number of workers from 1 on")
    check("tcp://127.0.0.1:9", "no Dask scheduler with workers answers at tcp://127.0.0.1:9; start one")
    check("99999", r"dask 99999 leaves \d+ MiB of memory for each worker, and a worker requires about 256")
    with web_server() as where:
        monkeypatch.setattr(workers, "CONNECT_S", 3)
        check(where, f"no Dask scheduler with workers answers at {where}")
    monkeypatch.setitem(sys.modules, "distributed", None)
    check("2", r"run pip install 'usdenoise\[dask\]'")
