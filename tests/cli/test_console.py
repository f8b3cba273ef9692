"""What the console shows of a job while it runs."""

from dataclasses import replace

import pytest

from usdenoise.cli import console
from usdenoise.cli.console import Console, JobView
from usdenoise.progress import LiveBlock


def test_finished_blocks_show_the_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    shown: list[str] = []
    monkeypatch.setattr(Console, "advance", lambda self, done, text="": shown.append(text))
    view = JobView(Console(), 10)
    now[0] += 30
    view.blocks(1, 5)
    assert shown == ["1 of 5  about 2 min 0 s left"]


def test_a_live_block_is_a_line_and_each_remark_is_a_single_warning(capsys):
    view = JobView(Console())
    measured = {"motion": "0.25 um", "blood_to_noise_db": None, "unsteadiness": None}
    speed = {"n_waiting": 2, "seconds": 0.5, "frames_a_second": 1234.4}
    remarks = ("1.h5 is skipped: it is empty",)
    good = LiveBlock(number=0, name="0.h5", why="", remarks=remarks, **measured, **speed)
    view.live(good)
    view.live(replace(good, number=1, name="", why="it moves", blood_to_noise_db=3.0, unsteadiness=0.125))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "block 0 0.h5  2 waiting  0.5 s  1234 frames/s  no blood  moved 0.25 um",
        "warning: 1.h5 is skipped: it is empty",
        "block 1   2 waiting  0.5 s  1234 frames/s  blood 3.0 dB  moved 0.25 um  varies by 12.5 %",
        "warning: 1 is bad: it moves",
    ]


def test_what_the_reader_assumes_and_the_next_steps_are_notes(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (0, 1):
        view = JobView(Console(quiet))
        view.assumed(["the axes are zxt"])
        view.message("drawing the phantom")
        view.experiments(0, 2)
        view.experiments(1, 2)
    assert capsys.readouterr().err == "note: the axes are zxt\ndrawing the phantom\n"
