"""`usdenoise batch` from the outside: what it runs and skips, reports, and leaves behind."""

import csv
import errno
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import usdenoise
from tests.cli.shared import cli, refused
from tests.jobs.batch.shared import ARGUMENTS, OWN, QUICK, column, files, page_of, rows, values, write_scan
from tests.report.reports import Page
from tests.results import differences
from tests.stacks import write_stack
from usdenoise import __version__
from usdenoise.errors import OutputError
from usdenoise.jobs import batch
from usdenoise.jobs.batch import plan_batch, run_batch, scans_side_by_side
from usdenoise.jobs.batch_table import Scan
from usdenoise.jobs.job import expected_bytes
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.phantom import PhantomSettings
from usdenoise.report import pictures
from usdenoise.report.pages import Row
from usdenoise.report.record import Report
from usdenoise.report.sentences import methods_paragraph

pytestmark = pytest.mark.usefixtures("no_pictures")

GOOD = ("night/scan1.h5", "scan2.h5", "scan10.h5")


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three good scans, one of them in a subfolder, and a broken one. Read only."""
    folder = tmp_path_factory.mktemp("batch") / "scans"
    for name in GOOD:
        write_scan(folder / name, int(re.findall(r"scan(\d+)", name)[0]))
    (folder / "scan3.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    return folder


@pytest.fixture(scope="module")
def done(scans: Path) -> tuple[Path, Any]:
    """The results of a batch over them, and what it printed. Read only."""
    out = scans.parent / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "draw_picture", lambda *arguments, **settings: b"picture")
        return out, cli("batch", scans, "-o", out, *QUICK, "--jobs", 2)


@pytest.fixture
def mine(scans: Path, done: tuple[Path, Any], tmp_path: Path) -> tuple[Path, Path]:
    """Scans and results to change, as they were left."""
    shutil.copytree(scans, tmp_path / "scans", copy_function=shutil.copy2)
    shutil.copytree(done[0], tmp_path / "out", copy_function=shutil.copy2)
    return tmp_path / "scans", tmp_path / "out"


def decisions(scans: Path, out: Path, **settings: Any) -> dict[str, tuple[str, str]]:
    plan = plan_batch([scans], out, **{"arguments": ARGUMENTS, **settings})
    return {row.scan: ("run" if row.status == "not run" else "skip", row.reason) for row in plan.values()}


def test_a_corrupt_scan_among_good_ones_stops_nothing(done: tuple[Path, Any]) -> None:
    out, process = done
    assert process.exit_code == 1
    statuses = {"scan3.h5": "failed", "night/scan1.h5": "done", "scan2.h5": "done", "scan10.h5": "done"}
    # The failed ones first, in natural order
    assert list(column(out, "status").items()) == list(statuses.items())
    assert "scan3.h5 is truncated or corrupt" in rows(out)["scan3.h5"]["error"]
    assert not (out / "scan3").exists()
    assert {path.name for path in out.iterdir() if path.is_file()} == set(OWN)
    assert list(out.rglob(".*")) == []
    # Failures and doubts on stderr, a summary on stdout.
    lines = {line.split()[2]: line for line in process.stderr.splitlines()}
    assert {*lines} == {"scan3.h5", *(name for name, doubts in column(out, "doubts").items() if doubts)}
    assert process.stdout.splitlines()[0] == "scans   4: 3 done, 1 failed"


def test_results_equal_those_of_run(scans: Path, done: tuple[Path, Any], tmp_path: Path) -> None:
    assert cli("run", scans / "scan2.h5", "-o", tmp_path, *QUICK, "--threads", 1).exit_code == 0
    assert differences(tmp_path, done[0] / "scan2") == []


def test_the_table_and_the_record_agree_with_the_reports(done: tuple[Path, Any]) -> None:
    out, _ = done
    with (out / "batch.csv").open(newline="") as file:
        table = {row["scan"]: row for row in csv.DictReader(file)}
    report = json.loads((out / "scan2/scan2_report.json").read_text())
    row = rows(out)["scan2.h5"]
    assert list(table) == list(rows(out))
    copied = ("rank", "low_cutoff", "high_cutoff", "held_out_rmse", "verdict", "peak_memory_bytes")
    for key in (*copied, "noise_floor", "reproducibility"):
        assert row[key] == report[key]
        assert table["scan2.h5"][key] == str(report[key])
    assert row["seconds"] == report["timings_s"]["total"]
    assert row["blood_to_noise_db"] == report["blood"]["blood_to_noise_db"]
    assert row["cutoff_certainty"] == report["cutoff"]["certainty"]
    assert row["doubts"] == ", ".join(doubt["code"] for doubt in report["doubts"])
    assert row["bad_frames"] == len(report["bad_frames"])
    assert table["scan3.h5"]["rank"] == ""
    # Two jobs share the processors.
    assert report["parameters"]["threads"] == max(1, len(os.sched_getaffinity(0)) // 2)
    summary = json.loads((out / "batch.json").read_text())["summary"]
    assert (summary["scans"], summary["done"], summary["failed"], summary["not_run"]) == (4, 3, 1, 0)


def test_a_scan_with_a_wrong_cutoff_is_named(phantom_file: Path, tmp_path: Path) -> None:
    for low, doubts in (("3", "cutoff"), ("auto", "")):
        out = tmp_path / low
        printed = cli("batch", phantom_file, "-o", out, "--low-cutoff", low, "--jobs", 1).stdout
        assert rows(out)["small.h5"]["doubts"].partition(",")[0] == doubts
        assert ("check" in printed) == ("small.h5: cutoff" in printed) == bool(doubts)
        assert ("1 to check" in (out / "index.html").read_text()) == bool(doubts)


def test_json_is_an_object_a_line(scans: Path, tmp_path: Path) -> None:
    paths = [scans / "scan2.h5", scans / "scan3.h5", scans / "gone.h5"]
    process = cli("batch", *paths, "-o", tmp_path / "out", *QUICK, "--jobs", 1, "--json", "-q")
    assert process.exit_code == 1
    gone, good, bad, last = map(json.loads, process.stdout.splitlines())
    assert (gone["scan"], gone["status"]) == ("gone.h5", "failed")
    assert (good["scan"], good["status"], good["low_cutoff"]) == ("scan2.h5", "done", 1)
    assert (bad["scan"], bad["status"]) == ("scan3.h5", "failed")
    assert last["summary"]["output"]["index"] == str(tmp_path / "out/index.html")
    # Failures are reported with -q, too.
    assert [line.split()[2] for line in process.stderr.splitlines()] == ["gone.h5", "scan3.h5"]


NAMES = ["two words größe 雪.h5", "line\nbreak [1] \udcff.h5", "-per%cent$(x)`y`*.h5", "=1+1.h5"]


def test_any_file_name_works_and_the_table_contains_no_formula(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(NAMES):
        write_scan(tmp_path / "scans" / name, seed)
    (tmp_path / "scans/=bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    first = cli("batch", "scans", "-o", "out", *QUICK, "--jobs", 2, "--json")
    assert first.exit_code == 1, first.stderr
    assert column(tmp_path / "out", "status") == {**dict.fromkeys(NAMES, "done"), "=bad.h5": "failed"}
    assert {json.loads(line).get("scan") for line in first.stdout.splitlines()} == {*NAMES, "=bad.h5", None}
    with (tmp_path / "out/batch.csv").open(newline="", encoding="utf-8") as file:
        texts = [text for row in csv.DictReader(file) for text in row.values()]
    # A spreadsheet would calculate what begins so. Negative numbers stay numbers.
    assert not [text for text in texts if text.startswith(tuple("=+@")) or re.match(r"-(?![\d.])", text)]
    again = cli("batch", "scans", "-o", "out", *QUICK, "--dry-run")
    assert [line.split()[0] for line in again.stdout.splitlines()].count("skip") == len(NAMES)


# ---------------------------------------------------------------- running it again


def test_again_only_the_failed_scan_is_run(mine: tuple[Path, Path]) -> None:
    scans, out = mine
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert cli("batch", scans, "-o", out, *QUICK).exit_code == 1
    after = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert {path.name for path in before if before[path] != after[path]} <= set(OWN)
    assert [row["status"] for row in rows(out).values()] == ["failed", "done", "done", "done"]
    assert rows(out)["scan2.h5"]["rank"] == 3
    write_scan(scans / "scan3.h5")
    assert cli("batch", scans, "-o", out, *QUICK).exit_code == 0
    assert column(out, "status")["scan3.h5"] == "done"


def test_a_dry_run_writes_nothing(mine: tuple[Path, Path]) -> None:
    scans, out = mine
    write_scan(scans / "new.h5")
    shutil.rmtree(out / "scan10")
    before = sorted(out.rglob("*"))
    result = cli("batch", "--dry-run", *QUICK, scans, "-o", out, "--json")
    actions = {line["scan"]: line["action"] for line in map(json.loads, result.stdout.splitlines())}
    assert actions == {
        "new.h5": "run", "night/scan1.h5": "skip", "scan2.h5": "skip", "scan3.h5": "run", "scan10.h5": "run",
    }  # fmt: skip
    assert sorted(out.rglob("*")) == before


def other(**change: Any) -> dict[str, Any]:
    """The arguments of the batch with other options."""
    return {**ARGUMENTS, "options": replace(ARGUMENTS["options"], **change)}


FRAMES = {**ARGUMENTS, "reading": {"frames": slice(0, 9)}}


def test_changed_options_inputs_reports_and_versions_are_run_again(mine: tuple[Path, Path]) -> None:
    scans, out = mine
    expected: list[tuple[dict[str, Any], tuple[str, str]]] = [
        ({"overwrite": True}, ("run", "overwrite")),
        ({"arguments": other(seed=5)}, ("run", "options changed: seed 0 -> 5")),
        ({"arguments": FRAMES}, ("run", "options changed: frames None -> [0, 9, None]")),
        ({"arguments": other(threads=7)}, ("skip", "complete")),
    ]
    for settings, decision in expected:
        plan = decisions(scans, out, **settings)
        assert {plan[name] for name in GOOD} == {decision}
    report = out / "scan2/scan2_report.json"
    right = report.read_text()
    report.write_text(right.replace(f'"usdenoise": "{__version__}"', '"usdenoise": "0.0.1"'))
    assert decisions(scans, out)["scan2.h5"][0] == "run"
    write_scan(scans / "scan10.h5", 99)
    report.write_text("{")
    (out / "night/scan1/scan1_report.json").unlink()
    plan = decisions(scans, out)
    assert [plan[name] for name in GOOD] == [
        ("run", "new"), ("run", "its report cannot be read"), ("run", "the input changed"),
    ]  # fmt: skip


# ---------------------------------------------------------------- while it runs


class Look(batch.NotebookWatcher):
    """A watcher that reads the page and the table when a scan has ended, before they are written again."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.pages: list[Page] = []
        self.tables: list[list[str]] = []

    def finished(self, row: Row) -> None:
        self.pages.append(page_of(self._out))
        with (self._out / "batch.csv").open(newline="") as table:
            self.tables.append([line["status"] for line in csv.DictReader(table)])


def test_the_page_and_the_table_are_written_while_a_batch_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "PAGE_S", 0.0)
    write_scan(tmp_path / "scans/a.h5")
    (tmp_path / "scans/b.h5").write_bytes(b"nothing")
    out, look, later = tmp_path / "out", Look(tmp_path / "out"), Look(tmp_path / "out")
    done = run_batch(tmp_path / "scans", out, arguments=ARGUMENTS, jobs=1, watcher=look).rows[1]
    assert [values(page, "Status") for page in look.pages] == [["running", "waiting"], ["done", "running"]]
    assert look.tables == [["not run", "not run"], ["done", "not run"]]
    # The browser's reload shows the latest page; the page has no such script.
    assert "running: reload this page" in look.pages[1].text
    assert "location.reload" not in (out / "index.html").read_text()
    page = page_of(out)
    assert "reload this page" not in page.text
    assert values(page, "Status") == ["failed", "done"]
    # The places by which the column of the names is sorted
    assert values(page, "Scan") == ["1", "0"]
    assert [link["href"] for link in page.all("a")] == ["./a/a_report.html"]
    # Each minute
    monkeypatch.undo()
    again = run_batch(tmp_path / "scans", out, arguments=ARGUMENTS, watcher=later)
    assert later.tables == [["failed", "done"], ["done", "not run"]]
    assert replace(again.rows[1], reason=done.reason) == done
    assert values(page_of(out), "Status") == ["failed", "done"]


def test_a_notebook_counts_the_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(batch, "NotebookBar", lambda: lambda done, total: seen.append((done, total)))
    (tmp_path / "b.h5").write_bytes(b"nothing")
    paths = [write_scan(tmp_path / "a.h5"), tmp_path / "b.h5"]
    run_batch(paths, tmp_path / "out", arguments=ARGUMENTS)
    run_batch(paths, tmp_path / "out", arguments=ARGUMENTS)
    assert seen == [(1, 2), (2, 2)] * 2


def test_a_page_that_cannot_be_written_stops_a_batch_only_at_its_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "index.html").mkdir(parents=True)
    (out / "index.html" / "precious").touch()
    with pytest.raises(OutputError, match=r"index\.html is a folder that usdenoise did not write"):
        run_batch(write_scan(tmp_path / "a.h5"), out, arguments=ARGUMENTS)
    assert (out / "index.html" / "precious").exists()
    assert column(out, "status") == {"a.h5": "done"}


# ---------------------------------------------------------------- as a library


class Told(batch.NotebookWatcher):
    """A watcher of a batch that counts the scans that run."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.finished_scans: list[str] = []

    def started(self, scan: Scan) -> None:
        self.running += 1
        self.most = max(self.most, self.running)

    def finished(self, row: Row) -> None:
        self.running -= 1
        self.finished_scans.append(row.scan)


def test_from_python_with_options_of_every_kind(scans: Path, tmp_path: Path) -> None:
    arguments = {
        "options": usdenoise.DenoiseOptions(rank=3, low_cutoff=1, bad_frames=(3, 5), ridge=0.1 + 0.2),
        "display": usdenoise.Display(dynamic_range=(-20.0, 0.0)),
        "output": usdenoise.Output(products=("power", "velocity"), stack=True, stack_name="x1"),
        "reading": {"frames": slice(2, 20, None), "spacing_mm": (0.1, 0.2), "frame_rate_hz": 500.0},
        "memory": 1 << 30,
    }
    # A text is one path.
    report = run_batch(str(scans / "scan2.h5"), tmp_path / "out", arguments=arguments)
    assert report.all_done, report.rows
    made = json.loads((tmp_path / "out/scan2/scan2_report.json").read_text())
    assert made["input"]["shape"][0] == 18
    assert made["parameters"]["ridge"] == 0.1 + 0.2
    # The options of the report are those of the batch.
    again = decisions(scans / "scan2.h5", tmp_path / "out", arguments=arguments)
    assert again == {"scan2.h5": ("skip", "complete")}


def test_scans_run_side_by_side_as_memory_allows_and_share_the_threads(scans, tmp_path, monkeypatch):
    needed = expected_bytes(scans / "scan2.h5", {}, "single")
    monkeypatch.setattr(batch, "available_bytes", lambda: 2.5 * needed)
    watcher = Told()
    paths = [scans / name for name in GOOD]
    assert run_batch(paths, tmp_path / "out", arguments=other(threads=6), jobs=3, watcher=watcher).all_done
    assert watcher.most == 2
    assert len(watcher.finished_scans) == 3
    report = json.loads((tmp_path / "out/scan2/scan2_report.json").read_text())
    assert report["parameters"]["threads"] == 3


def test_a_file_without_a_stack_takes_the_memory_of_a_process(tmp_path: Path) -> None:
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr/.zgroup").write_text("{}")
    # Without a warning, which is an error in tests.
    assert len({expected_bytes(tmp_path / name, {}, "single") for name in ("x.zarr", "gone.h5")}) == 1


def test_a_large_scan_among_small_ones_runs_beside_none_that_does_not_fit(tmp_path, monkeypatch):
    paths = [write_scan(tmp_path / f"{k}.h5", shape=(24, n, 50)) for k, n in enumerate((10, 200, 10))]
    small, large = (expected_bytes(path, {}, "single") for path in paths[:2])
    assert large > small
    job: dict[str, Any] = {**ARGUMENTS, "reading": {}}
    scans = [Scan(path, path.name, tmp_path / path.stem) for path in paths]
    for free, memory, expected in (
        (0, None, 1), (large + small - 1, None, 1), (large + small, None, 2), (2 * small, small, 2),
        (3 * small, small, 3),
    ):  # fmt: skip
        monkeypatch.setattr(batch, "available_bytes", lambda free=free: free)
        assert scans_side_by_side(scans, {**job, "memory": memory}, 3)[0] == expected


def test_one_header_is_read_of_files_of_one_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The headers of 1200 blocks would delay the first one by seconds, and on a network by minutes."""
    paths = [write_scan(tmp_path / f"{k}.h5", k, (24, n, 50)) for k, n in enumerate((10, 10, 90, 10, 10))]
    small, large = (expected_bytes(path, {}, "single") for path in paths[1:3])
    read: list[Path] = []
    monkeypatch.setattr(
        batch, "expected_bytes", lambda path, *how: read.append(path) or expected_bytes(path, *how)
    )
    scans = [Scan(path, path.name, tmp_path / path.stem) for path in paths]
    for free, expected in ((large + 2 * small - 1, 2), (large + 2 * small, 3)):
        monkeypatch.setattr(batch, "available_bytes", lambda free=free: free)
        assert scans_side_by_side(scans, {**ARGUMENTS, "reading": {}}, 3)[0] == expected
    assert len(read) == 2 * 2


def test_the_flat_folder_holds_the_filtered_stacks_under_the_names_of_the_inputs(mine):
    scans, out = mine
    assert cli("batch", scans, "-o", out, *QUICK, "--flat").exit_code == 1
    names = ["scan1.h5", "scan10.h5", "scan2.h5"]
    assert sorted(os.listdir(out / "stacks")) == names
    before = usdenoise.load(out / "stacks/scan1.h5").iq
    np.testing.assert_array_equal(before, usdenoise.load(out / "night/scan1/scan1_denoised.h5").iq)
    # Filtered otherwise, it is the new one; a scan that fails has none; the folder holds no scans.
    (scans / "scan2.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert cli("batch", scans, "-o", out, *QUICK, "--low-cutoff", "2", "--flat").exit_code == 1
    assert sorted(os.listdir(out / "stacks")) == names[:2]
    after = usdenoise.load(out / "stacks/scan1.h5").iq
    np.testing.assert_array_equal(after, usdenoise.load(out / "night/scan1/scan1_denoised.h5").iq)
    assert not np.array_equal(after, before)
    assert len(plan_batch([scans.parent], out)) == 4
    # Of another batch the folder holds results, unless it is named.
    assert len(plan_batch([scans.parent], scans.parent / "new")) == 4
    assert len(plan_batch([out / "stacks"], scans.parent / "new")) == 2


def test_stacks_for_localisation_have_no_pages_and_no_doubts_about_blood(tmp_path: Path) -> None:
    """Noise has no blood: this is a doubt where a map of it is made."""
    noise = np.random.default_rng(0).standard_normal((40, 12, 10)).astype(np.float32)
    write_stack(tmp_path / "scans/x.h5", noise, axes="tzx", frame_rate_hz=500.0)
    flags = ("--method", "svd", "--flat", "--low-cutoff", 4)
    for name, more in (("bare", ()), ("whole", ("--products", "power,blood"))):
        done = cli("batch", tmp_path / "scans", "-o", tmp_path / name, *flags, *more)
        assert done.exit_code == 0, done.stderr
        again = cli("batch", tmp_path / "scans", "-o", tmp_path / name, *flags, *more, "--dry-run")
        assert again.stdout.startswith("skip")
    paths = {name: next((tmp_path / name).rglob("x_report.json")) for name in ("bare", "whole")}
    reports = {name: json.loads(path.read_text()) for name, path in paths.items()}
    codes = {name: {doubt["code"] for doubt in report["doubts"]} for name, report in reports.items()}
    assert "no-blood" in codes["whole"]
    assert codes["bare"] == set()
    assert "blood" not in reports["bare"]["verdict"]
    files = {name: {path.suffix for path in (tmp_path / name).rglob("x_*")} for name in reports}
    assert {".html", ".png"} <= files["whole"]
    assert not {".html", ".png", ".tif"} & files["bare"]
    stacks = [usdenoise.load(tmp_path / name / "stacks/x.h5").iq for name in reports]
    np.testing.assert_array_equal(*stacks)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five blocks whose own cutoffs are 4, 4, 14, 4 and 10; 14 is unsure, 10 likely, the others sure. Read only."""
    folder = tmp_path_factory.mktemp("blocks") / "blocks"
    folder.mkdir()
    for number, seed in enumerate((0, 1, 6, 5, 3)):
        breathing = (4.0, 3.0) if number in (2, 4) else None
        settings = PhantomSettings(shape=(16, 12, 40), seed=seed, breathing=breathing)
        simulate_to_file(folder / f"b{number}.h5", settings)
    return folder


LOCALISATION = ("--method", "svd", "--flat")
SENTENCE = "the same for all scans: the median of the 3 sure ones among the cutoffs of 5 scans"


def test_a_folder_has_one_cutoff_that_the_sure_scans_name(blocks: Path, tmp_path: Path) -> None:
    own, out = tmp_path / "own", tmp_path / "out"
    assert cli("batch", blocks, "-o", own, *LOCALISATION).exit_code == 0
    assert set(column(own, "low_cutoff").values()) == {4, 10, 14}
    flags = (blocks, "-o", out, *LOCALISATION, "--low-cutoff", "common")
    assert "its cutoff is not known yet" in cli("batch", *flags, "--dry-run").stdout
    done = cli("batch", *flags, "--jobs", 2)
    assert done.exit_code == 0, done.stderr
    assert set(column(out, "low_cutoff").values()) == {4}
    assert column(out, "suggested_cutoff") == column(own, "low_cutoff")
    # Scans that are not sure to need another one are outvoted.
    assert "cutoff" not in "".join(column(out, "doubts").values())
    # The terminal, the record, the page, the report and its methods
    assert f"cutoff  4, sure: {SENTENCE}" in done.stdout.splitlines()
    assert "estimated from 5 scans" in done.stderr
    summary = json.loads((out / "batch.json").read_text())["summary"]
    assert summary["common_cutoff"] == {"low": 4, "certainty": "sure", "sentence": SENTENCE}
    page = page_of(out)
    assert f"4, sure: {SENTENCE}" in page.text
    cutoff = json.loads((out / "b2/b2_report.json").read_text())["cutoff"]
    assert (cutoff["rule"], cutoff["certainty"], cutoff["reason"]) == ("common", "sure", SENTENCE)
    for is_short in (True, False):
        report = Report.from_json(json.loads((out / "b2/b2_report.json").read_text()))
        assert SENTENCE in methods_paragraph(report, is_short)[0]
    # Without pictures the page has the singular values and the cutoffs of the scans
    assert values(page, "Own cutoff") == ["4", "4", "14", "4", "10"]
    assert values(page, "Repeatability") == []
    assert [svg["aria-label"] for svg in page.all("svg")] == [f"Singular values of b{k}.h5" for k in range(5)]
    # The filtered stacks are those of the number
    given = tmp_path / "given"
    assert cli("run", blocks / "b2.h5", "-o", given, "--method", "svd", "--low-cutoff", 4).exit_code == 0
    stacks = [usdenoise.load(path).iq for path in (given / "b2_denoised.h5", out / "stacks/b2.h5")]
    np.testing.assert_array_equal(*stacks)


def test_the_common_cutoff_alone_filters_no_scan_with_it(blocks: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = (
        blocks,
        "-o",
        out,
        "--method",
        "svd",
        "--low-cutoff",
        "common",
        "--products",
        "none",
        "--no-stack",
    )
    done = cli("batch", *flags, "--json")
    assert done.exit_code == 0, done.stderr
    *each, last = map(json.loads, done.stdout.splitlines())
    assert last["summary"]["common_cutoff"] == {"low": 4, "certainty": "sure", "sentence": SENTENCE}
    assert sorted(row["low_cutoff"] for row in each) == [4, 4, 4, 10, 14]
    assert [path.parent.parent for path in out.rglob("*_report.json")] == [out] * 5
    plan = cli("batch", *flags, "--dry-run").stdout.splitlines()
    assert [line.split()[0] for line in plan] == ["skip"] * 5


def test_a_common_cutoff_is_the_same_when_a_batch_resumes(blocks: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = (blocks, "-o", out, *LOCALISATION, "--low-cutoff", "common")
    assert cli("batch", *flags, "--jobs", 2).exit_code == 0
    # One scan, and one of those from which the cutoff follows, are lost
    shutil.rmtree(out / "b1")
    shutil.rmtree(out / "cutoffs/b0")
    before = {path: path.read_bytes() for path in out.rglob("*_report.json")}
    again = cli("batch", *flags, "--jobs", 1)
    assert again.exit_code == 0, again.stderr
    assert all(path.read_bytes() == content for path, content in before.items())
    assert set(column(out, "low_cutoff").values()) == {4}
    plan = cli("batch", *flags, "--dry-run").stdout.splitlines()
    assert [line.split()[0] for line in plan] == ["skip"] * 5


def test_a_common_cutoff_that_is_unsure_is_a_doubt_without_pictures_too(blocks: Path, tmp_path: Path) -> None:
    """A single scan of three is sure."""
    paths = [blocks / f"b{seed}.h5" for seed in (0, 2, 4)]
    done = cli("batch", *paths, "-o", tmp_path / "out", *LOCALISATION, "--low-cutoff", "common")
    assert done.exit_code == 0
    assert set(column(tmp_path / "out", "cutoff_certainty").values()) == {"unsure"}
    assert all("cutoff-unsure" in doubts for doubts in column(tmp_path / "out", "doubts").values())
    assert "cutoff  4, unsure: " in done.stdout
    assert done.stdout.count("cutoff-unsure") == 3
    assert "cutoff    4, unsure: " in done.stderr
    assert "3 to check" in page_of(tmp_path / "out").text


def test_an_unsure_cutoff_of_a_scan_is_a_doubt_without_pictures_too(tmp_path: Path) -> None:
    """One component is too few to find clutter."""
    simulate_to_file(tmp_path / "x.h5", PhantomSettings(shape=(16, 12, 40)))
    for method in ("svd", "eta-decay"):
        flags = ("--method", method, "--rank", 1, "--products", "none")
        done = cli("batch", tmp_path / "x.h5", "-o", tmp_path / method, *flags)
        assert "check  x.h5: cutoff-unsure" in done.stdout
        assert column(tmp_path / method, "remark") == {"x.h5": "cutoff unsure"}


def test_a_folder_whose_scans_all_fail_has_no_common_cutoff(scans: Path, tmp_path: Path) -> None:
    report = run_batch(scans / "scan3.h5", tmp_path, common_cutoff=True)
    assert [str(row.status) for row in report.rows] == ["failed"]
    assert report.summary["common_cutoff"] is None


def test_the_flat_folder_has_copies_if_links_fail(mine, monkeypatch):
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    scans, out = mine
    monkeypatch.setattr(os, "link", refuse)
    run_batch([scans], out, arguments=ARGUMENTS, flat=True)
    copied, result = out / "stacks/scan2.h5", out / "scan2/scan2_denoised.h5"
    assert copied.read_bytes() == result.read_bytes()
    assert copied.stat().st_ino != result.stat().st_ino


def test_flat_stacks_of_the_same_names_stay_in_the_folders_of_their_inputs(tmp_path: Path) -> None:
    scans, out = tmp_path / "scans", tmp_path / "out"
    names = ["a/SCAN.hdf5", "a/scan.h5", "b/day.1/scan.h5", "b/other.h5"]
    flags = (scans, "-o", out, *QUICK, "--flat")
    for number, name in enumerate(names):
        write_scan(scans / name, seed=number)
        assert cli("batch", *flags).exit_code == 0
        if number == 0:
            assert files(out / "stacks") == ["SCAN.h5"]
    # Nothing remains under the earlier names.
    places = ["a/SCAN-hdf5.h5", "a/scan.h5", "b/day.1/scan.h5", "b/other.h5"]
    assert files(out / "stacks") == places
    for number, place in enumerate(places):
        alone = tmp_path / f"alone{number}"
        assert cli("run", scans / names[number], "-o", alone, *QUICK).exit_code == 0
        (wanted,) = alone.glob("*_denoised.h5")
        np.testing.assert_allclose(*(usdenoise.load(path).iq for path in (out / "stacks" / place, wanted)))
    # They are results, and no scans of a batch over all
    assert len(plan_batch([tmp_path], out)) == len(plan_batch([tmp_path], tmp_path / "new")) == 4


def test_no_scans_and_flat_folders_without_stacks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(cli("batch", tmp_path / "empty", "-o", tmp_path / "out"), "no scans were found")
    write_scan(tmp_path / "scans/a/scan.h5")
    none = cli("batch", tmp_path / "scans/a", "-o", tmp_path / "out", *QUICK, "--flat", "--no-stack")
    refused(none, "--flat requires the filtered stacks; omit --no-stack or --flat")
    assert not (tmp_path / "out").exists()
