"""Temporary files of output folders, and what may be replaced."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tests.programs import python
from tests.stacks import low_rank, run_in_windows
from usdenoise.errors import OutputError
from usdenoise.files import output_folder
from usdenoise.files.input_files import files_of_report
from usdenoise.files.output_folder import OutputFolder, remove_leftovers
from usdenoise.jobs import run_job as job
from usdenoise.options import DenoiseOptions, Output
from usdenoise.system.processes import locked

pytestmark = pytest.mark.usefixtures("no_pictures")

OPTIONS = DenoiseOptions(rank=3, iterations=2, low_cutoff=1)
DAY_S = 24 * 3600

KILLED_BEFORE_THE_COMMIT = """
import os, pathlib, signal, sys
from usdenoise.files.output_folder import OutputFolder
with OutputFolder(pathlib.Path(sys.argv[1])) as outputs:
    outputs.reserve("x.h5").write_text("half")
    outputs.reserve("x.zarr").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def write(folder: Path, name: str = "a", overwrite: bool = False) -> None:
    with OutputFolder(folder, overwrite) as outputs:
        outputs.reserve(name).write_text("new")
        outputs.commit()


@pytest.mark.parametrize(("age_s", "has_locks", "kept"), [
    (0, True, False), (DAY_S - 600, False, True), (DAY_S + 600, False, False)
])  # fmt: skip
def test_temporary_files_of_a_killed_process_are_removed(age_s, has_locks, kept, tmp_path, monkeypatch):
    """At once, and after a day on file systems without locks."""
    if not has_locks:
        monkeypatch.setattr(output_folder, "lock", lambda descriptor: None)
    assert python(KILLED_BEFORE_THE_COMMIT, tmp_path).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".")
    for path in (*left.iterdir(), left):
        os.utime(path, (time.time() - age_s,) * 2)
    lock_file = tmp_path / ".usdenoise-partial-x.lock"
    lock_file.touch()
    write(tmp_path)
    assert lock_file.exists() is not has_locks
    lock_file.unlink(missing_ok=True)
    assert {path.name for path in tmp_path.iterdir()} == {"a", *([left.name] if kept else [])}
    remove_leftovers(tmp_path, age_s=0)
    assert os.listdir(tmp_path) == ["a"]
    remove_leftovers(tmp_path / "absent")


def test_two_writers_in_one_folder_keep_their_files_apart(tmp_path: Path) -> None:
    with locked(tmp_path, "a"), OutputFolder(tmp_path) as one, OutputFolder(tmp_path) as other:
        # The folders are held, however old they are.
        remove_leftovers(tmp_path, age_s=0)
        assert len(os.listdir(tmp_path)) == 3
        one.reserve("a").write_text("one")
        other.reserve("a").write_text("other")
        one.commit()
        with pytest.raises(OutputError, match="a exists; give overwrite"):
            other.commit()
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "one"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_a_commit_waits_until_all_files_have_their_names(number, tmp_path):
    code = (
        "import os, pathlib, signal, sys\n"
        "from usdenoise.files.output_folder import OutputFolder\n"
        "from usdenoise.system.processes import Terminated, terminable\n"
        # A suite that is started under nohup ignores SIGHUP.
        f"signal.signal({int(number)}, signal.SIG_DFL)\n"
        "replace = os.replace\n"
        "def told(*paths):\n"
        f"    os.kill(os.getpid(), {int(number)})\n    replace(*paths)\n"
        "try:\n    with terminable(), OutputFolder(pathlib.Path(sys.argv[1])) as outputs:\n"
        "        for name in 'abc':\n            outputs.reserve(name).write_text('x')\n"
        "        os.replace = told\n        outputs.commit()\n"
        "except Terminated as error:\n    print(error.number)\n"
    )
    assert python(code, tmp_path).stdout == f"{int(number)}\n"
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


KILLED_IN_THE_COMMIT = """
import os, pathlib, signal, sys
from usdenoise.files.output_folder import OutputFolder

def commit(folder, is_old, left):
    replace = os.replace
    def killing(*paths):
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        replace(*paths)
    with OutputFolder(folder, overwrite=is_old) as outputs:
        for name in ("x.h5", "x.png", "x_report.json"):
            outputs.reserve(name).write_text("killed")
        os.replace = killing
        outputs.commit([folder / "x.tif"] if is_old else [])

for name in sys.argv[1:]:
    folder = pathlib.Path(name)
    if os.fork() == 0:
        commit(folder, (folder / "x.tif").exists(), int(folder.name))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
"""Commits to folders, each killed after as many moves as the folder is called, and their exit codes."""


def test_results_of_a_process_that_is_killed_in_the_commit_are_finished(tmp_path: Path) -> None:
    """The first move is that of the plan, before which nothing has changed; the last one that of an old file."""
    new, old = ("x.h5", "x.png", "x_report.json"), ("x.h5", "x.png", "x.tif", "x_report.json")
    folders = [tmp_path / before / str(n_moved) for before in ("nothing", "old") for n_moved in range(5)]
    for folder in folders:
        folder.mkdir(parents=True)
        for name in old if folder.parent.name == "old" else ():
            (folder / name).write_text("old")
    done = python(KILLED_IN_THE_COMMIT, *folders)
    assert [int(code) for code in done.stdout.split()] == [-signal.SIGKILL] * 4 + [0] + [-signal.SIGKILL] * 5
    for folder in folders:
        write(folder, "of another scan")
        names = {name: (folder / name).read_text() for name in os.listdir(folder)}
        assert names.pop("of another scan") == "new"
        before = dict.fromkeys(old if folder.parent.name == "old" else (), "old")
        assert names == (before if folder.name == "0" else dict.fromkeys(new, "killed")), folder


def test_the_same_command_replaces_what_a_killed_one_had_begun(tmp_path: Path) -> None:
    folder = tmp_path / "2"
    folder.mkdir()
    assert python(KILLED_IN_THE_COMMIT, folder).stdout == f"{-signal.SIGKILL}\n"
    with OutputFolder(folder) as outputs:
        outputs.reserve("x.h5").write_text("again")
        outputs.reserve("x_report.json").write_text("again")
        outputs.commit([folder / "x.png"])
    again = dict.fromkeys(("x.h5", "x_report.json"), "again")
    assert {path.name: path.read_text() for path in folder.iterdir()} == again
    # They are whole now.
    with pytest.raises(OutputError, match=r"x.h5 exists"):
        write(folder, "x.h5")


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


@pytest.mark.parametrize("name", ["x_denoised.zarr", "x_report.json"])
def test_a_folder_that_is_not_ours_is_refused(name: str, scan: Path) -> None:
    theirs = scan.parent / "out" / name
    zarr.open_group(theirs, mode="w").create_array("iq", data=np.ones(3))
    with pytest.raises(OutputError, match="is a folder that usdenoise did not write"):
        run(scan, overwrite=True)
    assert zarr.open_group(theirs, mode="r")["iq"].shape == (3,)
    assert os.listdir(scan.parent / "out") == [name]


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

FEWER = Output(products=("power",))
LEFT = [name for name in RESULTS if "blood_power" not in name]


def test_files_that_are_not_written_again_go(scan: Path) -> None:
    out = scan.parent / "out"
    run(scan)
    run(scan, overwrite=True, output=FEWER)
    assert sorted(os.listdir(out)) == LEFT
    run_in_windows(scan, out, 10, overwrite=True, options=OPTIONS)
    assert sorted(os.listdir(out)) == [
        "x_blocks.json", "x_blocks.tsv", "x_blood_power.png", "x_blood_power.tif", "x_power_doppler.png",
        "x_power_doppler.tif", "x_report.html", "x_report.json", "x_sequence.zarr", "x_tsnr.png",
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
    (out / "x_denoised.zarr/notes").write_text("mine")
    run_in_windows(scan, out, 10, overwrite=True, options=OPTIONS, output=FEWER)
    stays = {"x_velocity.png", "x_blood_power.png", "x_blood_power.tif", "x_denoised.zarr"}
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
