"""The summary of a run, the time that is left, and times in words."""

from typing import Any

import pytest

from tests.report.reports import report
from usdenoise.cli import console
from usdenoise.cli.console import Clock, duration
from usdenoise.cli.run import summary_rows


def rows(warned: Any = (), **fields: Any) -> dict[str, str]:
    return dict(summary_rows(report(**fields), warned))


def test_the_summary_has_the_numbers_of_the_report() -> None:
    shown = rows()
    assert {"input", "method", "clutter", "kept", "blood", "estimate", "error", "time", "memory"} <= set(
        shown
    )
    assert shown["clutter"].startswith("2 components removed, sure: ")
    assert "0.51" in shown["error"]
    assert "0.51" not in rows(held_out_rmse=None)["error"]
    assert rows(output={"report_html": "my out/x_report.html"})["page"] == "my out/x_report.html"


def test_no_sentence_is_printed_twice() -> None:
    sentence = "poor fit: the held-out error is 3.1 times the expected one; raise the sampling"
    assert rows(estimate=sentence)["estimate"] == sentence
    assert len(rows([sentence], estimate=sentence)["estimate"]) < len(sentence)


def test_the_summary_of_a_session_counts_its_blocks() -> None:
    lengths = {"blocks": [{"n_frames": 20}] * 2 + [{"n_frames": 17}], "sampled_frames": 40}
    sequence = {"window": 20, "size": "20 frames", "stride": 10, "n_bad": 2, **lengths}
    shown = rows(sequence=sequence)
    assert shown["blocks"] == "3 of 20 frames every 10, the last one of 17; 2 bad"
    whole = {**sequence, "stride": None, "n_bad": 0, "blocks": [{"n_frames": 20}]}
    assert rows(sequence=whole)["blocks"] == "1 of 20 frames"
    uneven = {**whole, "size": "15 to 20 frames", "blocks": [{"n_frames": n} for n in (15, 20, 17)]}
    assert rows(sequence=uneven)["blocks"] == "3 of 15 to 20 frames"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (59.7, "1 min 0 s"), (754, "12 min 34 s"), (3600, "1 h 0 min"), (90_000, "25 h 0 min")],
)
def test_durations_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_time_left_follows_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    clock = Clock()
    now[0] += 30
    assert clock.left(1, 5) == "about 2 min 0 s left"
    assert clock.left(0, 5) == clock.left(5, 5) == ""
