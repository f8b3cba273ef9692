"""Which scans, in which order, and where their results go."""

import errno
import os
from pathlib import Path

import pytest

from usdenoise.jobs.batch_table import find_scans


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def found(root: Path, *paths: str, patterns: tuple[str, ...] = (), output: str = "out") -> dict[str, str]:
    """Names of the scans, with the folders of their results."""
    scans = find_scans([root / path for path in paths], root / output, patterns)
    return {scan.name: str(scan.folder.relative_to(root / output)) for scan in scans}


def test_natural_order_and_the_tree_mirrored(tmp_path: Path) -> None:
    touch(tmp_path, "s/scan10.h5", "s/scan2.mat", "s/b/scan1.hdf5", "s/a10/x.h5", "s/a9/x.h5", "s/Scan3.H5")
    assert found(tmp_path, "s") == {
        "a9/x.h5": "a9/x",
        "a10/x.h5": "a10/x",
        "b/scan1.hdf5": "b/scan1",
        "scan2.mat": "scan2",
        "Scan3.H5": "Scan3",
        "scan10.h5": "scan10",
    }
    assert list(found(tmp_path, "s")) == [
        "a9/x.h5", "a10/x.h5", "b/scan1.hdf5", "scan2.mat", "Scan3.H5", "scan10.h5",
    ]  # fmt: skip


def test_other_files_and_results_are_not_scans(tmp_path: Path) -> None:
    touch(tmp_path, "s/x.h5", "s/.x.h5", "s/.git/y.h5", "s/notes.txt", "s/x.png", "s/out/x/x_denoised.h5")
    touch(tmp_path, "s/x-usdenoise/x_denoised.h5", "s/x-usdenoise/x_report.json", "s/y_denoised.h5")
    assert list(found(tmp_path, "s", output="s/out")) == ["x.h5", "y_denoised.h5"]


def test_a_folder_that_cannot_be_listed_is_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "s/x.h5", "s/closed/y.h5")
    listed = os.scandir

    def refuse(folder: str) -> object:
        if os.path.basename(folder) == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return listed(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    assert found(tmp_path, "s") == {"closed": "closed", "x.h5": "x"}
    assert found(tmp_path, "s/closed") == {"closed": "closed"}


def test_patterns_decide_instead_of_suffixes(tmp_path: Path) -> None:
    touch(tmp_path, "s/x.h5", "s/y.mat", "s/day1/z.mat", "s/day1/w.iq", "s/day2/z.mat")
    assert list(found(tmp_path, "s", patterns=("*.mat",))) == ["day1/z.mat", "day2/z.mat", "y.mat"]
    assert list(found(tmp_path, "s", patterns=("*.iq", "y*"))) == ["day1/w.iq", "y.mat"]
    assert list(found(tmp_path, "s", patterns=("day1/*.mat",))) == ["day1/z.mat"]
    # What is named is meant.
    assert list(found(tmp_path, "s/x.h5", "s/day2", patterns=("*.mat",))) == ["day2/z.mat", "x.h5"]


def test_paths_that_are_named_twice_are_one_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "s/a/x.h5", "s/y.h5")
    monkeypatch.chdir(tmp_path)
    scans = find_scans([Path("s"), tmp_path / "s/a/x.h5", Path("s/../s/y.h5")], Path("out"))
    assert [(str(scan.path), scan.name) for scan in scans] == [("s/a/x.h5", "a/x.h5"), ("s/y.h5", "y.h5")]


def test_several_paths_are_mirrored_below_their_common_folder(tmp_path: Path) -> None:
    touch(tmp_path, "d/day1/x.h5", "d/day2/x.h5", "d/y.h5")
    assert found(tmp_path, "d/day1", "d/day2") == {"day1/x.h5": "day1/x", "day2/x.h5": "day2/x"}
    assert found(tmp_path, "d/day1/x.h5", "d/y.h5") == {"day1/x.h5": "day1/x", "y.h5": "y"}
    assert found(tmp_path, "d/day1/x.h5") == {"x.h5": "x"}


def test_no_two_scans_share_a_folder(tmp_path: Path) -> None:
    touch(tmp_path, "s/a.h5", "s/a.mat", "s/A.hdf5", "s/a-mat.h5", "s/batch.csv.h5", "s/b/a.h5")
    places = found(tmp_path, "s")
    assert places == {
        "a.h5": "a",
        "A.hdf5": "A-hdf5",
        "a.mat": "a-mat-2",
        "a-mat.h5": "a-mat",
        "b/a.h5": "b/a",
        "batch.csv.h5": "batch.csv-h5",
    }


def test_a_missing_path_is_a_scan_that_will_fail(tmp_path: Path) -> None:
    touch(tmp_path, "s/x.h5")
    assert list(found(tmp_path, "s", "s/absent.h5")) == ["absent.h5", "x.h5"]


def test_links_to_files_are_scans_and_links_to_folders_are_not(tmp_path: Path) -> None:
    touch(tmp_path, "s/x.h5", "t/y.h5")
    os.symlink(tmp_path / "t/y.h5", tmp_path / "s/link.h5")
    os.symlink(tmp_path / "s", tmp_path / "s/loop")
    assert list(found(tmp_path, "s")) == ["link.h5", "x.h5"]
    os.symlink(tmp_path / "s", tmp_path / "other")
    assert list(found(tmp_path, "other")) == ["link.h5", "x.h5"]
