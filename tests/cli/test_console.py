"""What the console shows of a job while it runs."""

import pytest

from usdenoise.cli import console
from usdenoise.cli.console import Console, JobView


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
    remark = "1.h5 is skipped: it is empty"
    view.live(0, "0.h5", "2 waiting  0.5 s", [remark])
    view.live(1, "", "no blood", ["1 is bad: it moves", remark])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "block 0 0.h5  2 waiting  0.5 s",
        "warning: 1.h5 is skipped: it is empty",
        "block 1   no blood",
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
