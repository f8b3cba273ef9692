"""The summary of a run, the time that is left, and times in words."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.pictures.reports import report
from usdenoise.cli import time_left
from usdenoise.cli.run_summary import summary_rows
from usdenoise.cli.time_left import BYTES_A_SECOND, START_S, Clock, duration, expected_seconds


def rows(warned: Any = (), **fields: Any) -> dict[str, str]:
    return dict(summary_rows(report(**fields), warned))


def test_the_summary_of_an_image() -> None:
    shown = rows()
    assert list(shown) == [
        "input", "method", "clutter", "kept", "blood", "estimate", "error", "stopped", "time", "memory", "wrote",
    ]  # fmt: skip
    assert shown["clutter"] == "2 components removed, sure: from component 2 on, the similarity falls"
    assert shown["kept"] == "all other components and the residual: blood and noise"
    assert (
        shown["error"]
        == "held-out 0.51 before the refit (expected 0.5), noise 0.32, in the units of the file"
    )
    assert shown["stopped"] == "after 3 iterations: the held-out error stopped falling"
    assert shown["time"] == "1.50 s: reading 0.10 s"
    assert rows(output={"report_html": "my out/x_report.html"})["page"] == "my out/x_report.html"
    assert rows(held_out_rmse=None)["error"] == "noise 0.32, in the units of the file"


def test_no_sentence_is_printed_twice() -> None:
    sentence = "poor fit: the held-out error is 3.1 times the expected one; raise the sampling"
    assert rows(estimate=sentence)["estimate"] == sentence
    assert rows([sentence], estimate=sentence)["estimate"] == "poor fit; see the warning"


def test_the_summary_of_a_session() -> None:
    lengths = {"blocks": [{"n_frames": 20}] * 2 + [{"n_frames": 17}], "sampled_frames": 40}
    sequence = {"window": 20, "size": "20 frames", "stride": 10, "n_bad": 2, **lengths}
    shown = rows(sequence=sequence)
    assert shown["blocks"] == "3 of 20 frames every 10, the last one of 17; 2 bad"
    assert shown["method"] == "eta-decay, rank 4, 50 % of the entries sampled"
    assert shown["clutter"].startswith("2 components removed from all blocks, sure: ")
    whole = {**sequence, "stride": None, "n_bad": 0, "blocks": [{"n_frames": 20}]}
    assert rows(sequence=whole)["blocks"] == "1 of 20 frames"
    longer = {**whole, "blocks": [{"n_frames": 20}, {"n_frames": 23}]}
    assert rows(sequence=longer)["blocks"] == "2 of 20 frames, the last one of 23"
    uneven = {**whole, "size": "15 to 20 frames", "blocks": [{"n_frames": n} for n in (15, 20, 17)]}
    assert rows(sequence=uneven)["blocks"] == "3 of 15 to 20 frames"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (59.4, "59 s"),
        (59.7, "1 min 0 s"),
        (754, "12 min 34 s"),
        (3600, "1 h 0 min"),
        (90_000, "25 h 0 min"),
    ],
)
def test_durations_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_time_left_follows_the_size_the_pace_and_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [50.0]
    monkeypatch.setattr(time_left.time, "monotonic", lambda: now[0])
    path = tmp_path / "x.h5"
    with path.open("wb") as file:
        os.truncate(file.fileno(), int(BYTES_A_SECOND * 60))
    (tmp_path / "x.zarr").mkdir()
    os.link(path, tmp_path / "x.zarr/c0")
    expected = 60 + START_S
    assert expected_seconds(path) == expected_seconds(tmp_path / "x.zarr") == expected
    assert expected_seconds(tmp_path / "nowhere") == 0
    clock = Clock()
    assert clock.left_of(expected) == f"about {duration(expected)} left"
    assert clock.left_of(0) == ""
    now[0] += 30
    assert clock.left_of(expected) == f"about {duration(expected - 30)} left"
    assert clock.left_at_this_pace(1, 5) == "about 2 min 0 s left"
    assert clock.left_at_this_pace(0, 5) == clock.left_at_this_pace(5, 5) == ""
    now[0] += 40
    assert clock.left_of(expected) == ""
