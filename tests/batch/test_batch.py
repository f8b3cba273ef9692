"""`usdenoise batch` from the outside: what it does, skips, says, and leaves behind."""

import csv
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

import usdenoise
from tests.batch.shared import ARGUMENTS, OWN, QUICK, Told, column, files, results, rows, shell, write_scan
from tests.cli.shared import cli, refused
from usdenoise import __version__
from usdenoise.batch import Scan, filter_scan, plan_batch, run_batch
from usdenoise.batch.table import outcome
from usdenoise.errors import InputError, OptionError
from usdenoise.formats.tiff import read_tiff

KEPT = "failed before; --retry-failed tries again"


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three good scans, one of them in a subfolder, and a broken one. Read only."""
    folder = tmp_path_factory.mktemp("batch") / "scans"
    write_scan(folder / "scan2.h5", 2)
    write_scan(folder / "scan10.h5", 10)
    write_scan(folder / "night/scan1.h5", 1)
    (folder / "scan3.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    return folder


@pytest.fixture(scope="module")
def done(scans: Path) -> tuple[Path, Any]:
    """The results of a batch over them, and what it printed. Read only."""
    out = scans.parent / "out"
    return out, shell("batch", scans, "-o", out, *QUICK, "--jobs", 2)


@pytest.fixture
def mine(scans: Path, done: tuple[Path, Any], tmp_path: Path) -> tuple[Path, Path]:
    """Scans and results to change, as they were left."""
    shutil.copytree(scans, tmp_path / "scans", copy_function=shutil.copy2)
    shutil.copytree(done[0], tmp_path / "out", copy_function=shutil.copy2)
    return tmp_path / "scans", tmp_path / "out"


def decisions(scans: Path, out: Path, **settings: Any) -> dict[str, tuple[str, str]]:
    plan = plan_batch([scans], out, **{"arguments": ARGUMENTS, **settings})
    return {scan.name: (decision.action, decision.reason) for scan, decision in plan.items()}


def dry_run(*arguments: Any) -> list[str]:
    result = cli("batch", "--dry-run", *QUICK, *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


# ---------------------------------------------------------------- one batch


def test_a_corrupt_scan_among_good_ones_stops_nothing(done: tuple[Path, Any]) -> None:
    out, process = done
    assert process.returncode == 1
    assert files(out) == sorted([*OWN, *results(["night/scan1", "scan2", "scan10"])])
    assert column(out, "status") == {
        "night/scan1.h5": "done", "scan2.h5": "done", "scan3.h5": "failed", "scan10.h5": "done",
    }  # fmt: skip
    assert list(rows(out)) == ["night/scan1.h5", "scan2.h5", "scan3.h5", "scan10.h5"]
    failed = rows(out)["scan3.h5"]
    assert re.fullmatch(r"\S+scan3.h5 is truncated or corrupt: .*; copy or write it again", failed["error"])
    assert failed["failure"] == "input"


def test_a_line_a_scan_on_stderr_and_a_summary_on_stdout(done: tuple[Path, Any]) -> None:
    out, process = done
    lines = process.stderr.splitlines()
    assert len(lines) == 4
    assert [line.split()[1] for line in lines] == ["1/4", "2/4", "3/4", "4/4"]
    for line in lines:
        assert re.match(
            r"(done +./4  \S+  [\d.]+ s(, no blood found|, poor estimate)*|failed .* is truncated or corrupt.*)$",
            line,
        )
    summary = process.stdout.splitlines()
    assert summary[0] == "scans   4: 3 done, 1 failed"
    assert re.match("failed  scan3.h5: .* is truncated or corrupt", summary[2])
    assert summary[3:] == [f"wrote   {out / name}" for name in OWN]
    assert "\x1b" not in process.stdout + process.stderr


def test_results_are_those_of_run(scans: Path, done: tuple[Path, Any], tmp_path: Path) -> None:
    assert cli("run", scans / "scan2.h5", "-o", tmp_path, *QUICK, "--threads", 1).exit_code == 0
    for kind in ("png", "tif"):
        name = f"scan2_power_doppler.{kind}"
        assert (tmp_path / name).read_bytes() == (done[0] / "scan2" / name).read_bytes()
    stacks = [usdenoise.load(folder / "scan2_denoised.h5").iq for folder in (tmp_path, done[0] / "scan2")]
    assert np.array_equal(*stacks)


def test_the_table_and_the_record_agree_with_the_reports(done: tuple[Path, Any]) -> None:
    out, _ = done
    with (out / "batch.csv").open(newline="") as file:
        table = {row["scan"]: row for row in csv.DictReader(file)}
    report = json.loads((out / "scan2/scan2_report.json").read_text())
    row = rows(out)["scan2.h5"]
    assert list(table) == list(rows(out))
    for key in ("rank", "low_cutoff", "high_cutoff", "held_out_rmse", "verdict", "peak_memory_bytes"):
        assert row[key] == report[key]
        assert table["scan2.h5"][key] == str(report[key])
    assert row["seconds"] == report["timings_s"]["total"]
    assert table["scan3.h5"]["rank"] == ""
    summary = json.loads((out / "batch.json").read_text())["summary"]
    assert (summary["scans"], summary["done"], summary["failed"], summary["not_run"]) == (4, 3, 1, 0)


def test_the_effective_options_are_in_the_report(done: tuple[Path, Any]) -> None:
    report = json.loads((done[0] / "scan2/scan2_report.json").read_text())
    assert report["parameters"]["rank"] == report["requested"]["options"]["rank"] == 3
    # Two jobs share the processors.
    assert report["parameters"]["threads"] == max(1, len(os.sched_getaffinity(0)) // 2)
    assert "threads" not in report["requested"]["options"]


def test_json_is_an_object_a_line(scans: Path, tmp_path: Path) -> None:
    paths = [scans / "scan2.h5", scans / "scan3.h5", scans / "gone.h5"]
    process = cli("batch", *paths, "-o", tmp_path / "out", *QUICK, "--jobs", 1, "--json", "-q")
    assert process.exit_code == 1
    gone, good, bad, last = map(json.loads, process.stdout.splitlines())
    # A file that is not there when its turn comes is a row, too.
    assert (gone["scan"], gone["error"]) == ("gone.h5", f"{scans / 'gone.h5'} does not exist; check the path")
    assert (good["scan"], good["status"], good["low_cutoff"]) == ("scan2.h5", "done", 1)
    assert (bad["scan"], bad["status"]) == ("scan3.h5", "failed")
    assert last["summary"]["output"]["index"] == str(tmp_path / "out/index.html")
    # Quiet, failures are still said.
    assert re.fullmatch(
        "failed .*gone.h5 does not exist.*\nfailed .*scan3.h5 is truncated or corrupt.*\n", process.stderr
    )


def test_a_file_without_a_stack_in_a_folder_is_no_failure(tmp_path: Path) -> None:
    write_scan(tmp_path / "scans/scan1.h5")
    stimulus = tmp_path / "scans/stimulus.mat"
    scipy.io.savemat(stimulus, {"onset": np.arange(10.0)})
    report = run_batch(tmp_path / "scans", tmp_path / "out", arguments=ARGUMENTS)
    assert [str(row.status) for row in report.rows] == ["done", "no stack"]
    assert report.all_done
    assert report.summary["no_stack"] == 1
    assert "holds onset" in report.rows[1].reason
    assert not (tmp_path / "out/stimulus").exists()
    assert decisions(tmp_path / "scans", tmp_path / "out")["stimulus.mat"] == ("skip", report.rows[1].reason)
    # One that was named was meant.
    assert decisions(stimulus, tmp_path / "out")["stimulus.mat"] == ("run", "new")
    (named,) = run_batch(stimulus, tmp_path / "out", arguments=ARGUMENTS).rows
    assert (named.status, named.failure) == ("failed", "input")


def test_what_all_scans_need_is_checked_before_the_first(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nibabel", None)
    nifti = {**ARGUMENTS, "output": usdenoise.Output(nifti=True)}
    with pytest.raises(OptionError, match="NIfTI needs the package nibabel; run pip install nibabel"):
        run_batch(scans, tmp_path / "out", arguments=nifti)
    assert not (tmp_path / "out").exists()


def test_the_remarks_of_a_scan_are_a_few_words() -> None:
    report = {
        "rank": 9, "low_cutoff": 3, "high_cutoff": "none", "held_out_rmse": 1.0, "held_out_ratio": 1.0, "verdict": "long",
        "n_unobserved": 6, "peak_memory_bytes": 1, "reproducibility": 0.5, "noise_floor": 1.0, "singular_values": [2.0],
        "timings_s": {"total": 1.0}, "input": {"axes": "tzx", "shape": [2, 3, 4]}, "fit": "as-full-svd",
        "blood": {"blood_to_noise_db": 3.0, "lost_share": 0.1}, "cutoff": {"certainty": "sure"}, "bad_frames": [],
        "frames": {"n_entries_left_out": 6},
    }  # fmt: skip
    assert outcome(report)["remark"] == ""
    doubtful = {
        "blood": {"blood_to_noise_db": None, "lost_share": None}, "cutoff": {"certainty": "unsure"},
        "bad_frames": [{}, {}], "fit": "not-fitted", "n_unobserved": 12,
    }  # fmt: skip
    remark = outcome({**report, **doubtful})["remark"]
    assert remark == "no blood found, cutoff unsure, 2 bad frames, 25 % missing, poor estimate"


def test_no_scans_is_said_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(
        cli("batch", tmp_path / "empty", "-o", tmp_path / "out"),
        r"there are no scans in \S+empty; .*--pattern",
    )
    assert not (tmp_path / "out").exists()


NAMES = ["two words größe 雪.h5", "line\nbreak [1] \udcff.h5", "-per%cent$(x)`y`*.h5", "=1+1.h5"]


def test_any_file_name_works_and_the_table_holds_no_formula(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, name in enumerate(NAMES):
        write_scan(tmp_path / "scans" / name, seed)
    (tmp_path / "scans/=bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    first = shell("batch", "scans", "-o", "out", *QUICK, "--jobs", 2, "--json", cwd=tmp_path)
    assert first.returncode == 1, first.stderr
    stems = [name.removesuffix(".h5") for name in NAMES]
    assert files(tmp_path / "out") == sorted([*OWN, *results(stems)])
    assert {json.loads(line).get("scan") for line in first.stdout.splitlines()} == {*NAMES, "=bad.h5", None}
    assert len(first.stderr.splitlines()) == len(NAMES) + 1
    assert r"line\nbreak [1] " in first.stderr
    with (tmp_path / "out/batch.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    # A spreadsheet would calculate what begins so.
    shown = {f"'{name}" if name[0] in "=+-@" else name.replace("\n", r"\n") for name in (*NAMES, "=bad.h5")}
    shown = {name.replace("\udcff", r"\udcff") for name in shown}
    assert {row["scan"] for row in table} == shown
    # Numbers stay numbers, also those below zero.
    texts = [text for row in table for text in row.values() if not re.fullmatch(r"-[\d.]+(e-\d+)?", text)]
    assert not any(text.startswith(tuple("=+-@")) for text in texts)
    assert set(rows(tmp_path / "out")) == {*NAMES, "=bad.h5"}
    # Named rather than found, and all whole.
    monkeypatch.chdir(tmp_path / "scans")
    again = dry_run("-o", "../out", "--json", "--", *NAMES, "=bad.h5")
    actions = {line["scan"]: line["action"] for line in map(json.loads, again)}
    assert actions == {**dict.fromkeys(NAMES, "skip"), "=bad.h5": "keep failed"}


# ---------------------------------------------------------------- running it again


def test_again_skips_what_is_whole_and_keeps_the_failure(mine: tuple[Path, Path]) -> None:
    scans, out = mine
    before = {name: (out / name).stat().st_mtime_ns for name in files(out)}
    process = cli("batch", scans, "-o", out, *QUICK)
    assert process.exit_code == 1
    assert process.stdout.startswith("scans   4: 3 skipped, 1 failed")
    after = {name: (out / name).stat().st_mtime_ns for name in files(out)}
    assert {name for name in before if before[name] != after[name]} <= set(OWN)
    assert rows(out)["scan3.h5"]["reason"] == KEPT
    assert rows(out)["scan2.h5"]["rank"] == 3


def test_dry_run_says_why_and_does_nothing(mine: tuple[Path, Path]) -> None:
    scans, out = mine
    write_scan(scans / "new.h5")
    shutil.rmtree(out / "scan10")
    before = files(out)
    assert dry_run(scans, "-o", out) == [
        "run          new.h5  (new)",
        "skip         night/scan1.h5  (complete)",
        "skip         scan2.h5  (complete)",
        "keep failed  scan3.h5  (failed before; --retry-failed tries again)",
        "run          scan10.h5  (new)",
    ]
    first = json.loads(dry_run(scans, "-o", out, "--json")[0])
    assert (first["scan"], first["action"], first["reason"]) == ("new.h5", "run", "new")
    assert files(out) == before


def asked(**change: Any) -> dict[str, Any]:
    """The arguments of the batch with other options."""
    return {**ARGUMENTS, "options": replace(ARGUMENTS["options"], **change)}


WHOLE, NEW = ("skip", "complete"), ("run", "new")
FRAMES = {**ARGUMENTS, "reading": {"frames": slice(0, 9)}}


@pytest.mark.parametrize(
    ("settings", "good", "failed"),
    [
        ({"overwrite": True}, ("run", "overwrite"), ("run", "overwrite")),
        ({"retry_failed": True}, WHOLE, ("run", "failed before, tried again")),
        # A failure may have been that of the options.
        ({"arguments": asked(seed=5)}, ("run", "options changed: seed 0 -> 5"), NEW),
        (
            {"arguments": asked(rank=4, low_cutoff="auto")},
            ("run", "options changed: rank 3 -> 4, low_cutoff 1 -> auto"),
            NEW,
        ),
        ({"arguments": FRAMES}, ("run", "options changed: frames None -> [0, 9, None]"), NEW),
        ({"arguments": asked(threads=7)}, WHOLE, ("keep failed", KEPT)),
    ],
    ids=str,
)
def test_what_is_asked_for_decides(
    settings: dict[str, Any],
    good: tuple[str, str],
    failed: tuple[str, str],
    done: tuple[Path, Any],
    scans: Path,
) -> None:
    plan = decisions(scans, done[0], **settings)
    assert plan.pop("scan3.h5") == failed
    assert set(plan.values()) == {good}


def test_pictures_that_are_not_wanted_any_more_go(mine: tuple[Path, Path]) -> None:
    scans, out = mine
    more = {"scan2_blood_power.png", "scan2_blood_power.tif"}
    usdenoise.run_batch(scans / "scan2.h5", out, arguments={**ARGUMENTS, "output": usdenoise.Output()})
    assert more < {*os.listdir(out / "scan2")}
    usdenoise.run_batch(scans / "scan2.h5", out, arguments=ARGUMENTS)
    assert not more & {*os.listdir(out / "scan2")}


def test_what_is_asked_for_is_recorded_as_it_is_compared(scans: Path, tmp_path: Path) -> None:
    flags = "--rank 3 --frames 2:20 --spacing 0.1,0.2 --dynamic-range 20 --estimator ridge=0.25"
    command = ("batch", scans / "scan2.h5", "-o", tmp_path / "out", *flags.split())
    assert cli(*command).exit_code == 0
    assert cli(*command, "--dry-run").stdout == "skip         scan2.h5  (complete)\n"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("software", {"usdenoise": "0.0.1"}, f"made by version 0.0.1, this is {__version__}"),
        ("output_bytes", None, "its report cannot be read"),
        ("verdict", None, "its report cannot be read"),
        ("input", {"path": "other/scan2.mat"}, "made from scan2.mat"),
    ],
)
def test_a_record_that_does_not_match_is_redone(
    key: str, value: Any, reason: str, mine: tuple[Path, Path]
) -> None:
    scans, out = mine
    place = out / "scan2/scan2_report.json"
    report = json.loads(place.read_text())
    if value is None:
        del report[key]
    else:
        report[key].update(value)
    place.write_text(json.dumps(report))
    assert decisions(scans, out)["scan2.h5"] == ("run", reason)


def test_results_that_are_not_whole_are_redone(mine: tuple[Path, Path]) -> None:
    scans, out = mine
    stack = out / "scan2/scan2_denoised.h5"
    stack.write_bytes(stack.read_bytes()[:-1])
    assert decisions(scans, out)["scan2.h5"] == ("run", "scan2_denoised.h5 is not complete")
    stack.unlink()
    assert decisions(scans, out)["scan2.h5"] == ("run", "scan2_denoised.h5 is not complete")
    (out / "scan10/scan10_report.json").write_text("{")
    assert decisions(scans, out)["scan10.h5"] == ("run", "its report cannot be read")
    (out / "night/scan1/scan1_report.json").unlink()
    (out / "night/scan1/.usdenoise-partial-7").mkdir()
    (out / "night/scan1/.usdenoise-partial-7/scan1_denoised.h5").write_text("half")
    assert decisions(scans, out)["night/scan1.h5"] == ("run", "stopped half way")
    process = cli("batch", scans, "-o", out, *QUICK)
    assert process.stdout.startswith("scans   4: 3 done, 1 failed")
    assert files(out) == sorted([*OWN, *results(["night/scan1", "scan2", "scan10"])])


def test_a_batch_record_that_cannot_be_read_costs_another_try(mine: tuple[Path, Path]) -> None:
    scans, out = mine
    (out / "batch.json").write_text("[]")
    assert decisions(scans, out)["scan3.h5"] == NEW


def test_a_mended_scan_needs_no_asking(mine: tuple[Path, Path]) -> None:
    scans, out = mine
    write_scan(scans / "scan3.h5")
    assert decisions(scans, out)["scan3.h5"] == NEW


def test_tiffs_come_back(done: tuple[Path, Any]) -> None:
    power = usdenoise.power_doppler(usdenoise.load(done[0] / "scan2/scan2_denoised.h5").iq, axis=0)
    np.testing.assert_allclose(read_tiff(done[0] / "scan2/scan2_power_doppler.tif"), power[None], rtol=1e-5)


# ---------------------------------------------------------------- as a library


def test_from_python(scans: Path, tmp_path: Path) -> None:
    watcher = Told()
    scan = scans / "scan2.h5"
    # A text is one path.
    for path in (scan, str(scan)):
        assert [one.path for one in plan_batch(path, tmp_path / "out", arguments=ARGUMENTS)] == [scan]
    report = usdenoise.run_batch(str(scan), tmp_path / "out", arguments=ARGUMENTS, watcher=watcher)
    assert report.all_done
    assert [row.status for row in report.rows] == ["done"]
    ((planned,),) = watcher.told("planned")
    assert [scan.name for scan in planned] == ["scan2.h5"]
    stages = [text for _, text in watcher.told("progress")]
    assert stages[:4] == ["stage load", "stage solve", "iteration 0", "iteration 1"]
    assert stages[-1] == "stage write"
    assert [row.status for (row,) in watcher.told("finished")] == ["done"]
    ((_, pid),) = watcher.told("started")
    assert pid != os.getpid()
    assert not usdenoise.run_batch([tmp_path / "gone.h5"], tmp_path / "other").all_done


def test_what_failed_while_its_input_changed_is_run_again(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change_and_fail(path: Path, *arguments: Any, **settings: Any) -> None:
        os.utime(path)
        raise InputError("the file ends early")

    scan = Scan(Path(shutil.copy2(scans / "scan2.h5", tmp_path)), "scan2.h5", tmp_path / "out")
    monkeypatch.setattr(filter_scan, "run", change_and_fail)
    fields = filter_scan.filter_scan(scan, {**ARGUMENTS, "reading": {}}, None)
    assert (fields["failure"], fields["error"]) == ("input", "the file ends early")
    # Only the failure of a known state is kept.
    assert "input_bytes" not in fields
