"""Temporary files of the living and the dead, and what may be replaced."""

import errno
import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tests.programs import python
from tests.stacks import low_rank
from usdenoise.errors import OutputError
from usdenoise.formats.file_state import files_of_report, recorded_files, size_on_disk
from usdenoise.formats.output_folder import OutputFolder
from usdenoise.formats.partial_files import PartialFiles, remove_leftovers, scratch_folder
from usdenoise.jobs import run_job as job
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import Output

pytestmark = pytest.mark.usefixtures("no_pictures")

ROOT = Path(__file__).parents[2]
OPTIONS = DenoiseOptions(rank=3, iterations=2, low_cutoff=1)

WRITER = """
import pathlib, sys
from usdenoise.formats.output_folder import OutputFolder
with OutputFolder(pathlib.Path(sys.argv[1])) as outputs:
    outputs.reserve("x.h5").write_text("half")
    outputs.reserve("x.zarr").mkdir()
    outputs.reserve("x_report.json").write_text("half")
    print("writes", flush=True)
    sys.stdin.readline()
    outputs.commit()
"""


@contextmanager
def another_writer(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that has written its temporary files, and commits when it is told a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writes\n"
        yield process


# ---------------------------------------------------------------- the living and the dead


def test_what_a_killed_process_left_is_removed_at_the_next_run(tmp_path: Path) -> None:
    with another_writer(tmp_path) as killed:
        killed.send_signal(signal.SIGKILL)
    assert len(os.listdir(tmp_path)) == 4
    with OutputFolder(tmp_path) as outputs:
        outputs.reserve("a").write_text("a")
        outputs.commit()
    assert os.listdir(tmp_path) == ["a"]


WITH_SCRATCH = """
import os, signal
from usdenoise.formats.partial_files import scratch_folder
with scratch_folder() as folder:
    (folder / "stack.npy").write_text("large")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_scratch_of_a_killed_process_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert python(WITH_SCRATCH, TMPDIR=str(tmp_path)).returncode == -signal.SIGKILL
    assert len(list(tmp_path.rglob("*stack.npy"))) == 1
    # What cannot be removed, as that of another user, keeps nobody from removing the rest.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / ".0-partial-mark").symlink_to(tmp_path / ".0-partial-mark")
    with scratch_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert [path.parent for path in tmp_path.rglob("*usdenoise")] == [tmp_path]
    assert os.listdir(tmp_path) == [".0-partial-mark"]


def test_what_a_living_process_writes_is_kept(tmp_path: Path) -> None:
    with another_writer(tmp_path) as living:
        before = sorted(os.listdir(tmp_path))
        with OutputFolder(tmp_path):
            pass
        remove_leftovers(tmp_path)
        assert sorted(os.listdir(tmp_path)) == before
        living.communicate("\n", timeout=60)
        assert living.returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["x.h5", "x.zarr", "x_report.json"]


def test_files_without_a_mark_have_no_writer(tmp_path: Path) -> None:
    for name in (".12-partial-x.h5", ".3af-partial-line\nbreak.h5", "x-partial-y", ".hidden", ".6-partial-"):
        (tmp_path / name).touch()
    (tmp_path / ".7-partial-folder").mkdir()
    (tmp_path / ".7-partial-folder/file").touch()
    (tmp_path / ".8-partial-link").symlink_to(tmp_path / ".hidden")
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".6-partial-", ".hidden", "x-partial-y"]
    remove_leftovers(tmp_path / "absent")


def names_by(host: str) -> list[str]:
    token = hashlib.sha256(host.encode()).hexdigest()[:8] + "ab12"
    return [f".{token}-partial-mark", f".{token}-partial-x.h5"]


def left_by(host: str, folder: Path, age_s: float) -> None:
    """Files of a dead writer on a host."""
    for name in names_by(host):
        (folder / name).touch()
    for path in folder.iterdir():
        os.utime(path, (time.time() - age_s,) * 2)


DAY = 24 * 3600


@pytest.mark.parametrize(("age_s", "kept"), [(DAY - 600, True), (DAY + 600, False)])
@pytest.mark.parametrize("host", ["another", os.uname().nodename])
def test_where_no_lock_tells_files_are_kept_for_a_day(
    host: str, age_s: float, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if host != "another":
        monkeypatch.setattr(fcntl, "flock", refuse)
    left_by(host, tmp_path, age_s)
    with OutputFolder(tmp_path) as outputs:
        outputs.reserve("a").write_text("a")
        outputs.commit()
    left = names_by(host) if kept else []
    assert sorted(os.listdir(tmp_path)) == [*left, "a"]


def test_a_process_that_is_killed_as_soon_as_it_has_its_mark_leaves_nothing_for_long(tmp_path: Path) -> None:
    left_by(os.uname().nodename, tmp_path, 0)
    assert remove_leftovers(tmp_path)
    assert not os.listdir(tmp_path)


def test_one_new_file_of_another_host_keeps_the_others(tmp_path: Path) -> None:
    left_by("another", tmp_path, DAY + 600)
    os.utime(tmp_path / names_by("another")[1])
    remove_leftovers(tmp_path)
    assert len(os.listdir(tmp_path)) == 2


def test_a_new_mark_that_is_taken_for_a_dead_one_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, refused = fcntl.flock, []

    def refuse_once(descriptor: int, how: int) -> None:
        if not refused:
            refused.append(descriptor)
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", refuse_once)
    files = PartialFiles(tmp_path)
    assert len(os.listdir(tmp_path)) == 1
    files.end()
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- two at once


def write_at_once(folder: Path, overwrite: bool) -> list[str | None]:
    """Two threads that write the same files at the same time; their errors."""
    together, errors = threading.Barrier(2), dict[str, str | None]()

    def write(content: str) -> None:
        try:
            with OutputFolder(folder, overwrite) as outputs:
                together.wait(60)
                for name in ("a", "b", "report"):
                    outputs.reserve(name).write_text(content)
                together.wait(60)
                outputs.commit()
            errors[content] = None
        except OutputError as error:
            errors[content] = str(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(errors) == {"one", "other"}
    return list(errors.values())


def test_two_threads_of_a_process_write_into_one_folder(tmp_path: Path) -> None:
    for _ in range(20):
        assert write_at_once(tmp_path / "out", overwrite=True) == [None, None]
        assert sorted(os.listdir(tmp_path / "out")) == ["a", "b", "report"]
        assert len({path.read_text() for path in (tmp_path / "out").iterdir()}) == 1


def test_of_two_threads_that_may_not_overwrite_one_is_refused(tmp_path: Path) -> None:
    errors = write_at_once(tmp_path / "out", overwrite=False)
    (refused,) = [error for error in errors if error is not None]
    assert re.search("a exists; give overwrite to replace it, or another folder$", refused)
    assert len({path.read_text() for path in (tmp_path / "out").iterdir()}) == 1


# ---------------------------------------------------------------- what may be replaced


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """A small Zarr group. Its results are x_denoised.zarr and three files."""
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    group.create_array("iq", data=low_rank((20, 12, 10)), dimension_names=("time", "z", "x"))
    return tmp_path / "x.zarr"


def run(scan: Path, **more: Any) -> dict[str, Any]:
    return job.run(scan, scan.parent / "out", options=OPTIONS, **more)


RESULTS = [
    "x_blood_power.png", "x_blood_power.tif", "x_denoised.zarr", "x_frames.json", "x_frames.tsv",
    "x_power_doppler.png", "x_power_doppler.tif", "x_report.html", "x_report.json",
]  # fmt: skip


def test_our_own_group_is_replaced(scan: Path) -> None:
    run(scan)
    (scan.parent / "out/x_denoised.zarr/old").touch()
    run(scan, overwrite=True)
    assert sorted(os.listdir(scan.parent / "out")) == RESULTS
    assert not (scan.parent / "out/x_denoised.zarr/old").exists()


@pytest.mark.parametrize("name", RESULTS)
def test_a_folder_that_is_not_ours_is_refused(name: str, scan: Path) -> None:
    theirs = scan.parent / "out" / name
    zarr.open_group(theirs, mode="w").create_array("iq", data=np.ones(3))
    says = rf"{name} is a folder that usdenoise did not write, so it is not replaced; move it away, or choose"
    with pytest.raises(OutputError, match=says):
        run(scan, overwrite=True)
    assert zarr.open_group(theirs, mode="r")["iq"].shape == (3,)
    assert os.listdir(scan.parent / "out") == [name]


@pytest.mark.parametrize("version", [2, 3])
def test_a_group_is_ours_by_its_attributes(version: Any, tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=version)
    group.attrs["usdenoise_provenance"] = "{}"
    with OutputFolder(tmp_path, True) as outputs:
        outputs.reserve("x.zarr").mkdir()
        outputs.commit()
    assert os.listdir(tmp_path / "x.zarr") == []


def test_a_folder_that_comes_before_the_commit_is_refused_as_well(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("old")

    def write() -> None:
        with OutputFolder(tmp_path, True) as outputs:
            for name in ("a", "report"):
                outputs.reserve(name).write_text("new")
            (tmp_path / "a").mkdir()
            outputs.commit()

    with pytest.raises(OutputError, match="a is a folder that usdenoise did not write"):
        write()
    assert sorted(os.listdir(tmp_path)) == ["a", "report"]
    assert (tmp_path / "report").read_text() == "old"


@pytest.mark.parametrize("name", ["x_denoised.zarr", "x_report.json"])
def test_a_link_is_replaced_itself(name: str, scan: Path) -> None:
    run(scan)
    result, elsewhere = scan.parent / "out" / name, scan.parent / "elsewhere"
    result.rename(elsewhere)
    result.symlink_to(elsewhere)
    run(scan, overwrite=True)
    assert sorted(os.listdir(scan.parent / "out")) == RESULTS
    assert not result.is_symlink()
    assert elsewhere.exists()
    if name.endswith(".zarr"):
        assert zarr.open_group(elsewhere, mode="r")["iq"].shape == (20, 1, 12, 10)
        assert zarr.open_group(result, mode="r")["iq"].shape == (20, 1, 12, 10)


def test_a_link_to_nothing_and_a_file_for_a_group_are_results_that_exist(scan: Path) -> None:
    (scan.parent / "out").mkdir()
    (scan.parent / "out/x_report.json").symlink_to("nowhere")
    with pytest.raises(OutputError, match=r"x_report\.json exists; give overwrite"):
        run(scan)
    (scan.parent / "out/x_denoised.zarr").write_text("a file")
    run(scan, overwrite=True)
    assert sorted(os.listdir(scan.parent / "out")) == RESULTS
    assert zarr.open_group(scan.parent / "out/x_denoised.zarr", mode="r")["iq"].shape == (20, 1, 12, 10)


# ---------------------------------------------------------------- what the new results do not replace

FEWER = Output(products=("power",), html=False)
LEFT = [
    "x_denoised.zarr",
    "x_frames.json",
    "x_frames.tsv",
    "x_power_doppler.png",
    "x_power_doppler.tif",
    "x_report.json",
]


def test_files_that_are_not_written_again_go(scan: Path) -> None:
    out = scan.parent / "out"
    run(scan)
    run(scan, overwrite=True, output=FEWER)
    assert sorted(os.listdir(out)) == LEFT
    run(scan, overwrite=True, output=Output(window=10, html=False))
    assert sorted(os.listdir(out)) == [
        "x_blocks.json", "x_blocks.tsv", "x_blood_power.png", "x_blood_power.tif", "x_power_doppler.png",
        "x_power_doppler.tif", "x_report.json", "x_sequence.zarr", "x_tsnr.png",
    ]  # fmt: skip
    # In a folder that was moved meanwhile as well.
    out.rename(scan.parent / "moved")
    job.run(scan, scan.parent / "moved", options=OPTIONS, overwrite=True, output=FEWER)
    assert sorted(os.listdir(scan.parent / "moved")) == LEFT


def test_what_the_report_does_not_name_or_the_user_changed_stays(scan: Path) -> None:
    out = scan.parent / "out"
    run(scan)
    (out / "x_velocity.png").write_text("of another program")
    (out / "x_blood_power.png").write_text("drawn over")
    # Another image of the same size, as Fiji saves it.
    (out / "x_blood_power.tif").write_bytes(bytes((out / "x_blood_power.tif").stat().st_size))
    os.replace(out / "x_report.html", scan.parent / "page.html")
    (out / "x_report.html").symlink_to(scan.parent / "page.html")
    (out / "x_denoised.zarr/notes").write_text("mine")
    run(scan, overwrite=True, output=Output(window=10, html=False, products=("power",)))
    stays = {"x_velocity.png", "x_blood_power.png", "x_blood_power.tif", "x_report.html", "x_denoised.zarr"}
    assert stays <= set(os.listdir(out))
    assert (out / "x_blood_power.png").read_text() == "drawn over"
    assert not any((out / "x_blood_power.tif").read_bytes())
    assert "x_frames.tsv" not in os.listdir(out)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"output": {"a": 3}, "output_bytes": {"a": 3}}', '{"output_bytes": {"a": 1}}']
)
def test_a_report_that_cannot_be_read_names_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "x_report.json").write_text(text)
    assert files_of_report(tmp_path / "x_report.json") == []


KILLED = """
import os, pathlib, signal, sys
from usdenoise.formats.output_folder import OutputFolder
from usdenoise.jobs.run_job import run
from tests.formats.test_output_folder import FEWER, OPTIONS
OutputFolder._put_away = lambda self, place: os.kill(os.getpid(), signal.SIGKILL)
run(sys.argv[1], sys.argv[2], options=OPTIONS, overwrite=True, output=FEWER)
"""


def test_a_process_that_is_killed_before_old_files_go_leaves_whole_results(tmp_path: Path) -> None:
    scan, out = tmp_path / "x.npy", tmp_path / "out"
    np.save(scan, low_rank((20, 12, 10)))
    job.run(scan, out, options=OPTIONS)
    killed = python(KILLED, scan, out)
    assert killed.returncode == -signal.SIGKILL
    report = json.loads((out / "x_report.json").read_text())
    assert set(report["output"]) >= {"denoised", "power_doppler_png"}
    assert "report_html" not in report["output"]
    assert all(size_on_disk(place) == size for place, size in recorded_files(report, out).items())
