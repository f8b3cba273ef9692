"""The report of a run and of a session: its views agree, and it is read back whole or refused."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shared import write
from tests.conftest import all_frames
from tests.report.reports import Page, report
from usdenoise import run
from usdenoise.cli.console import summary_rows
from usdenoise.jobs.session_job import run_session
from usdenoise.options import DenoiseOptions, Display, Output, SessionOptions
from usdenoise.phantom import PhantomSettings
from usdenoise.report.record import Report
from usdenoise.report.sentences import cautions
from usdenoise.system.text import software

pytestmark = pytest.mark.usefixtures("no_pictures")

OPTIONS = DenoiseOptions(rank=12, iterations=4)


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    stack = all_frames(PhantomSettings((24, 20, 120), frame_rate_hz=500.0, seed=4))[1].iq
    return write(tmp_path_factory.mktemp("record") / "x.h5", stack, axes="tzx", frame_rate_hz=500.0)


def check_views(report: dict[str, Any], folder: Path) -> None:
    """The file, the record, the summary and the page have the numbers of a report."""
    assert json.loads((folder / "x_report.json").read_text()) == report
    record = Report.from_json(report)
    assert record.as_json() == report
    summary = dict(summary_rows(record, cautions(record)))
    page = Page((folder / "x_report.html").read_text()).text
    low, blood = report["low_cutoff"], report["blood"]
    assert report["cutoff"]["low"] == low
    assert summary["clutter"].startswith(f"{low} component")
    assert f"Clutter components removed {low} " in page
    assert f"rank {report['rank']}," in summary["method"]
    assert f"Components estimated: {report['rank']}" in page
    assert f"{report['held_out_rmse']:.4g}" in summary["error"]
    assert (noise := f"{report['noise_floor']:.4g}") in summary["error"]
    assert noise in page
    assert report["reproducibility"] == blood["reproducibility"]
    assert f"{blood['reproducibility']:.2f}" in page
    condition = "if the doubts are unfounded: " if report["doubts"] else ""
    assert summary["blood"] == f"{condition}{blood['sentence']}"
    assert blood["sentence"] in report["verdict"]
    for caution in cautions(record):
        assert caution[1:] in page
    assert ("Nothing doubtful was found." in page) == (report["doubts"] == [])


def test_the_views_of_a_run_agree(scan: Path, tmp_path: Path) -> None:
    display = Display(figure_formats=("svg",))
    report = run(scan, tmp_path, options=OPTIONS, output=Output(products=("velocity",)), display=display)
    check_views(report, tmp_path)
    assert report["sequence"] is None
    shown = Page((tmp_path / "x_report.html").read_text())
    assert report["input"]["sha256"] in shown.text
    labels = [chart["aria-label"] for chart in shown.all("svg")]
    assert any(label.startswith("Power of each frame: 120 points") for label in labels)
    pictures = [image["alt"].partition(":")[0] for image in shown.all("img")]
    assert pictures == ["Blood map", "Power Doppler", "Axial velocity"]
    names = [Path(name).name for name in report["output"].values()]
    assert [link["href"] for link in shown.all("a")] == [f"./{name}" for name in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_the_views_of_a_session_agree(scan: Path, tmp_path: Path) -> None:
    report = run_session([scan], tmp_path, options=OPTIONS, session_options=SessionOptions(window=40))
    check_views(report, tmp_path)
    blocks = report["sequence"]["blocks"]
    with (tmp_path / "x_blocks.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == len(blocks) == len(report["sequence"]["time"]) == 3
    for row, block, time in zip(rows, blocks, report["sequence"]["time"], strict=True):
        assert float(row["time"]) == pytest.approx(block["time"]) == pytest.approx(time)
        assert int(row["components"]) == block["low_cutoff"] == report["low_cutoff"]
        assert float(row["kept_share"]) == pytest.approx(block["kept_share"])
        assert row["bad"] == str(int(block["is_bad"]))
    assert list(json.loads((tmp_path / "x_blocks.json").read_text())) == list(rows[0])


def test_what_is_not_a_report_is_refused() -> None:
    right = {**report().as_json(), "software": dict(software())}
    assert Report.from_json(right).as_json() == right
    without = {name: value for name, value in right.items() if name != "rank"}
    for values in ([], {}, {"software": 1}, without, {**right, "low_cutoff": "many"}, {**right, "input": []}):
        with pytest.raises(ValueError, match="its report cannot be read"):
            Report.from_json(values)
    with pytest.raises(ValueError, match=r"made by version 0\.0\.1"):
        Report.from_json({**right, "software": {"usdenoise": "0.0.1"}})
