"""The page of a batch: what it shows of each scan, which scans are unusual, and when it is written."""

import base64
import csv
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest

from tests.jobs.batch.shared import ARGUMENTS, write_scan
from tests.report.reports import EVIL, Page, report
from usdenoise.errors import OutputError
from usdenoise.files.images import tiff
from usdenoise.jobs import batch
from usdenoise.jobs.batch import run_batch
from usdenoise.jobs.batch_table import IndexPage, Scan, scan_image
from usdenoise.jobs.job import NoProgress
from usdenoise.options.job_options import Display
from usdenoise.report.pages import Row, Status
from usdenoise.system.provenance import software


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
    made = report(
        output={"blood_power_tif": f"old/{name}_blood_power.tif"},
        input={"spacing_mm": {"z": 0.1, "x": 0.2}},
        software=dict(software()),
    )
    scan.report.write_text(json.dumps(made.as_json()))
    (scan.folder / f"{name}_report.html").write_text("page")
    return scan


def shown(folder: Path) -> Page:
    return Page((folder / "index.html").read_text())


def values(page: Page, column: str) -> list[str | None]:
    return [cell["data-value"] for cell in page.all("td") if cell.get("data-name") == column]


def test_the_page_shows_every_scan(tmp_path: Path) -> None:
    scans = [results(tmp_path, name) for name in ("a", "b", "c d")]
    scans += [
        Scan(Path("lost.h5"), "lost.h5", tmp_path / "lost"),
        Scan(Path("later.h5"), "later.h5", tmp_path / "later"),
    ]
    rows = {
        scans[0]: row("a.h5"),
        scans[1]: row("b.h5", doubts="cutoff-low, tissue", bad_frames=3, remark="3 bad frames", low_cutoff=9),
        scans[2]: row("c d.h5", status=Status.SKIPPED, blood_to_noise_db=None),
        scans[3]: row(
            "lost.h5",
            status=Status.FAILED,
            error="the file ends early",
            low_cutoff=None,
        ),
    }
    IndexPage(tmp_path, scans, ["usdenoise", "batch", "a b"]).write(rows)
    page = shown(tmp_path)
    assert values(page, "Status") == ["done", "done", "skipped", "failed", "not run"]
    assert values(page, "Cutoff") == ["14", "9", "14", "", ""]
    assert values(page, "Blood over noise") == ["8.25", "8.25", "", "8.25", ""]
    assert values(page, "Repeatability") == ["0.8", "0.8", "0.8", "0.8", ""]
    assert values(page, "Bad frames") == ["", "3", "", "", ""]
    assert values(page, "Seconds") == ["2.5", "2.5", "2.5", "2.5", ""]
    assert values(page, "Remarks") == ["", "3 bad frames", "", "the file ends early", ""]
    assert "long" not in page.text
    assert [link["href"] for link in page.all("a")] == [
        "./a/a_report.html",
        "./b/b_report.html",
        "./c%20d/c%20d_report.html",
    ]
    assert [image["alt"] for image in page.all("img")] == [
        f"Blood map of {name}.h5" for name in ("a", "b", "c d")
    ]
    assert "2 done, 1 failed, 1 not run, 1 skipped. 2 to check" in page.text
    assert "usdenoise batch 'a b'" in page.text
    assert "running" not in page.text


def test_long_names_are_broken_between_their_parts(tmp_path: Path) -> None:
    scan = Scan(Path("x.h5"), "day_1/sub-mouse12_run.h5", tmp_path / "x")
    IndexPage(tmp_path, [scan], None).write({})
    assert "day_<wbr>1/<wbr>sub-mouse12_<wbr>run.h5</div>" in (tmp_path / "index.html").read_text()


def test_thumbnails_follow_the_options_of_the_pictures(tmp_path: Path) -> None:
    scan = results(tmp_path, "a")
    IndexPage(tmp_path, [scan], None, Display(color_map="gray", dynamic_range=7.0)).write({scan: row("a.h5")})
    page = shown(tmp_path)
    assert re.search(r"one scale, -(\d+) to -?\d+ dB", page.text)
    picture = iio.imread(base64.b64decode(page.all("img")[0]["src"].split(",")[1]))
    assert np.ptp(picture[..., :3].astype(int), axis=2).max() == 0
    assert (picture[..., 0] == 0).any()


def test_a_scan_far_from_the_others_is_shown_on_its_own_scale(tmp_path: Path) -> None:
    scans = [results(tmp_path, name, level) for name, level in (("a", 1.0), ("b", 2.0), ("c", 1e4))]
    IndexPage(tmp_path, scans, None).write({scan: row(scan.name) for scan in scans})
    images = shown(tmp_path).all("img")
    assert [image.get("class") for image in images] == [None, None, "own"]
    assert images[2]["alt"] == "Blood map of c.h5, on its own scale"
    # The second one is the median. The last one looks the same, below its own maximum; the first one is darker.
    assert images[1]["src"] == images[2]["src"] != images[0]["src"]


def test_a_scan_whose_files_are_gone_has_no_picture(tmp_path: Path) -> None:
    scan = results(tmp_path, "a")
    image, aspect = scan_image(scan) or (None, 0.0)
    assert image is not None
    assert (image.shape, aspect) == ((1, 30, 20), 0.5)
    (scan.folder / "a_blood_power.tif").unlink()
    assert scan_image(scan) is None
    scan.report.write_text("[]")
    assert scan_image(scan) is None
    (scan.folder / "a_report.html").unlink()
    IndexPage(tmp_path, [scan], None).write({scan: row("a.h5")})
    assert (shown(tmp_path).all("img"), shown(tmp_path).all("a")) == ([], [])


def test_hostile_names_and_sentences_are_shown_as_text(tmp_path: Path) -> None:
    scan = Scan(Path("x.h5"), EVIL, tmp_path / "x")
    scan.folder.mkdir()
    (scan.folder / "x_report.html").write_text("page")
    IndexPage(tmp_path, [scan], ["usdenoise", EVIL]).write(
        {scan: row(EVIL, status=Status.FAILED, error=EVIL, cutoff_certainty=EVIL)}
    )
    page = shown(tmp_path)
    assert len(page.all("script")) == 1
    visible = " ".join(EVIL.replace("\x1b", r"\x1b").replace("\x07", r"\x07").split())
    # A name may be broken between its parts.
    assert page.text.replace(" ", "").count(visible.replace(" ", "")) == 3
    assert " ".join(shlex.quote(visible).split()) in page.text
    assert "\x1b" not in (tmp_path / "index.html").read_text()


def test_a_page_that_cannot_be_written_stops_a_batch_only_at_its_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "index.html").mkdir(parents=True)
    (out / "index.html" / "precious").touch()
    with pytest.raises(OutputError, match=r"index\.html is a folder that usdenoise did not write"):
        run_batch(write_scan(tmp_path / "a.h5"), out, arguments=ARGUMENTS)
    assert (out / "index.html" / "precious").exists()
    assert (out / "a/a_report.json").exists()


class Look(NoProgress):
    """A watcher that reads the page and the table when a scan has ended, and after that."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.pages: list[tuple[Page, list[str]]] = []

    def finished(self, row: Row) -> None:
        with (self._out / "batch.csv").open(newline="") as table:
            self.pages.append((shown(self._out), [line["status"] for line in csv.DictReader(table)]))


def test_the_page_of_many_scans_is_not_written_after_each(tmp_path: Path, monkeypatch: Any) -> None:
    for name in "abcd":
        write_scan(tmp_path / f"scans/{name}.h5")
    # As long as for thousands of scans
    monkeypatch.setattr(batch, "PAGE_S", 60)
    look = Look(tmp_path / "out")
    run_batch(tmp_path / "scans", tmp_path / "out", arguments=ARGUMENTS, jobs=1, watcher=look)
    tables = [table for _, table in look.pages]
    assert tables == [["not run"] * 4] * 4
    assert values(shown(tmp_path / "out"), "Status") == ["done"] * 4


def test_the_page_and_the_table_are_written_after_each_scan(tmp_path: Path) -> None:
    write_scan(tmp_path / "scans/a.h5")
    (tmp_path / "scans/b.h5").write_bytes(b"nothing")
    look = Look(tmp_path / "out")
    report = run_batch(tmp_path / "scans", tmp_path / "out", arguments=ARGUMENTS, jobs=1, watcher=look)
    (first, first_table), (second, second_table) = look.pages
    assert values(first, "Status") == ["running", "waiting"]
    assert first_table == ["not run", "not run"]
    assert values(second, "Status") == ["done", "running"]
    assert second_table == ["done", "not run"]
    # The browser's reload shows the latest page; the page has no such script.
    assert "running: reload this page" in second.text
    assert "location.reload" not in (tmp_path / "out/index.html").read_text()
    page = shown(tmp_path / "out")
    assert "reload this page" not in page.text
    assert values(page, "Status") == ["done", "failed"]
    assert report.output["index"] == str(tmp_path / "out/index.html")
    assert [link["href"] for link in page.all("a")] == ["./a/a_report.html"]
    done = report.rows[0]
    made = json.loads((tmp_path / "out/a/a_report.json").read_text())
    assert done.blood_to_noise_db == made["blood"]["blood_to_noise_db"]
    assert (done.noise_floor, done.reproducibility) == (made["noise_floor"], made["reproducibility"])
    again = run_batch(tmp_path / "scans", tmp_path / "out", arguments=ARGUMENTS)
    assert replace(again.rows[0], status=done.status, reason=done.reason) == done
    assert values(shown(tmp_path / "out"), "Status") == ["skipped", "failed"]


def test_a_page_of_500_scans_is_small(tmp_path: Path) -> None:
    scan = results(tmp_path, "a")
    scans = [replace(scan, name=f"{k}.h5") for k in range(500)]
    IndexPage(tmp_path, scans, None).write({scan: row(scan.name) for scan in scans})
    assert (tmp_path / "index.html").stat().st_size < 8_000_000
    assert len(shown(tmp_path).all("img")) == 500
