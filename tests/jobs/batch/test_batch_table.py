"""The scans of a batch and their folders, and the page that shows them."""

import base64
import errno
import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest

from tests.jobs.batch.shared import page_of, values
from tests.report.reports import EVIL, report
from usdenoise.files.images import tiff
from usdenoise.jobs.batch_table import BatchPage, Scan, find_scans, scan_image
from usdenoise.options import Display
from usdenoise.report.pages import Row, Status
from usdenoise.system.text import software


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
    names = ["a9/x.h5", "a10/x.h5", "b/scan1.hdf5", "scan2.mat", "Scan3.H5", "scan10.h5"]
    assert list(found(tmp_path, "s").items()) == [(name, name.rpartition(".")[0]) for name in names]


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
    places = {"a.h5": "a", "A.hdf5": "A-hdf5", "a.mat": "a-mat-2", "a-mat.h5": "a-mat", "b/a.h5": "b/a"}
    places |= {"batch.csv.h5": "batch.csv-h5", "cutoffs.h5": "cutoffs-h5"}
    touch(tmp_path, *(f"s/{name}" for name in places))
    assert found(tmp_path, "s") == places


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


def row(scan: str, **values: Any) -> Row:
    usual: dict[str, Any] = {
        "status": Status.DONE, "seconds": 2.5, "low_cutoff": 14, "cutoff_certainty": "sure", "verdict": "long",
        "blood_to_noise_db": 8.25, "reproducibility": 0.8, "noise_floor": 0.3,
    }  # fmt: skip
    return Row(scan=scan, path=scan, folder=f"out/{scan}", **{**usual, **values})


def results(folder: Path, name: str, level: float = 1.0) -> Scan:
    """The files of a scan that the page reads."""
    scan = Scan(Path(f"{name}.h5"), f"{name}.h5", folder / name)
    scan.folder.mkdir(parents=True)
    power = np.random.default_rng(0).uniform(0.01, 1.0, (30, 20)).astype(np.float32) * np.float32(level)
    (scan.folder / f"{name}_blood_power.tif").write_bytes(tiff(power, "zx"))
    output = {"blood_power_tif": f"old/{name}_blood_power.tif"}
    made = report(output=output, input={"spacing_mm": {"z": 0.1, "x": 0.2}}, software=dict(software()))
    scan.report.write_text(json.dumps(made.as_json()))
    (scan.folder / f"{name}_report.html").write_text("page")
    return scan


def test_the_page_shows_every_scan(tmp_path: Path) -> None:
    scans = [results(tmp_path, name) for name in ("a", "b", "c d")]
    scans += [Scan(Path(f"{name}.h5"), f"{name}.h5", tmp_path / name) for name in ("lost", "later")]
    rows = {
        scans[0]: row("a.h5"),
        scans[1]: row("b.h5", doubts="cutoff-low, tissue", bad_frames=3, remark="3 bad frames", low_cutoff=9),
        scans[2]: row("c d.h5", reason="complete", blood_to_noise_db=None),
        scans[3]: row("lost.h5", status=Status.FAILED, error="the file ends early", low_cutoff=None),
        scans[4]: Row("later.h5", "later.h5", "out/later", Status.NOT_RUN),
    }
    BatchPage(tmp_path, command=["usdenoise", "batch", "a b"]).write(rows)
    page = page_of(tmp_path)
    assert values(page, "Status") == ["done", "done", "done", "failed", "not run"]
    assert values(page, "Cutoff") == ["14", "9", "14", "", ""]
    assert values(page, "Blood over noise") == ["8.25", "8.25", "", "8.25", ""]
    assert values(page, "Repeatability") == ["0.8", "0.8", "0.8", "0.8", ""]
    assert values(page, "Bad frames") == ["", "3", "", "", ""]
    assert values(page, "Seconds") == ["2.5", "2.5", "2.5", "2.5", ""]
    assert values(page, "Remarks") == ["", "3 bad frames", "", "the file ends early", ""]
    assert "long" not in page.text
    links = [link["href"] for link in page.all("a")]
    assert links == [f"./{name}/{name}_report.html" for name in ("a", "b", "c%20d")]
    pictures = [image["alt"] for image in page.all("img")]
    assert pictures == [f"Blood map of {name}.h5" for name in ("a", "b", "c d")]
    assert "3 done, 1 failed, 1 not run. 2 to check" in page.text
    assert "usdenoise batch 'a b'" in page.text
    assert "running" not in page.text


def test_long_names_are_broken_between_their_parts(tmp_path: Path) -> None:
    scan = Scan(Path("x.h5"), "day_1/sub-mouse12_run.h5", tmp_path / "x")
    BatchPage(tmp_path).write({scan: row(scan.name)})
    assert "day_<wbr>1/<wbr>sub-mouse12_<wbr>run.h5</div>" in (tmp_path / "index.html").read_text()


def test_thumbnails_follow_the_options_of_the_pictures(tmp_path: Path) -> None:
    scan = results(tmp_path, "a")
    BatchPage(tmp_path, display=Display(color_map="gray", dynamic_range=7.0)).write({scan: row("a.h5")})
    page = page_of(tmp_path)
    assert re.search(r"one scale, -(\d+) to -?\d+ dB", page.text)
    picture = iio.imread(base64.b64decode(page.all("img")[0]["src"].split(",")[1]))
    assert np.ptp(picture[..., :3].astype(int), axis=2).max() == 0
    assert (picture[..., 0] == 0).any()


def test_a_scan_far_from_the_others_is_shown_on_its_own_scale(tmp_path: Path) -> None:
    scans = [results(tmp_path, name, level) for name, level in (("a", 1.0), ("b", 2.0), ("c", 1e4))]
    BatchPage(tmp_path).write({scan: row(scan.name) for scan in scans})
    images = page_of(tmp_path).all("img")
    assert [image.get("class") for image in images] == [None, None, "own"]
    assert images[2]["alt"] == "Blood map of c.h5, on its own scale"
    # The second one is the median. The last one looks the same, below its own maximum; the first one is darker.
    assert images[1]["src"] == images[2]["src"] != images[0]["src"]


def test_a_scan_whose_files_are_gone_has_no_picture(tmp_path: Path) -> None:
    scan = results(tmp_path, "a")
    image = scan_image(scan)
    # 30 rows of 0.1 mm, 20 columns of 0.2 mm
    assert image.shape == (72, 96)
    (scan.folder / "a_blood_power.tif").unlink()
    assert scan_image(scan) is None
    scan.report.write_text("[]")
    assert scan_image(scan) is None
    (scan.folder / "a_report.html").unlink()
    BatchPage(tmp_path).write({scan: row("a.h5")})
    assert (page_of(tmp_path).all("img"), page_of(tmp_path).all("a")) == ([], [])


def test_hostile_names_and_sentences_are_shown_as_text(tmp_path: Path) -> None:
    scan = Scan(Path("x.h5"), EVIL, tmp_path / "x")
    scan.folder.mkdir()
    (scan.folder / "x_report.html").write_text("page")
    hostile = row(EVIL, status=Status.FAILED, error=EVIL, cutoff_certainty=EVIL)
    BatchPage(tmp_path, command=["usdenoise", EVIL]).write({scan: hostile})
    page = page_of(tmp_path)
    assert len(page.all("script")) == 1
    visible = " ".join(EVIL.replace("\x1b", r"\x1b").replace("\x07", r"\x07").split())
    # A name may be broken between its parts.
    assert page.text.replace(" ", "").count(visible.replace(" ", "")) == 3
    assert " ".join(shlex.quote(visible).split()) in page.text
    assert "\x1b" not in (tmp_path / "index.html").read_text()


def test_a_page_of_500_scans_is_small(tmp_path: Path) -> None:
    scan = results(tmp_path, "a")
    scans = [replace(scan, name=f"{k}.h5") for k in range(500)]
    BatchPage(tmp_path).write({scan: row(scan.name) for scan in scans})
    assert (tmp_path / "index.html").stat().st_size < 8_000_000
    assert len(page_of(tmp_path).all("img")) == 500
