"""Tables: cells that a spreadsheet shows as they are, and columns of events that change the model."""

import csv
import io
from pathlib import Path

import pytest

from usdenoise.errors import InputError
from usdenoise.files.bids import csv_text, events_of_rows, read_events
from usdenoise.sessions.design import Event


def cell(value: object) -> str:
    """The cell that a reader of the table gets."""
    rows = list(csv.DictReader(io.StringIO(csv_text(["a", "b"], [{"a": value, "b": "b"}]), newline="")))
    assert len(rows) == 1
    assert rows[0]["b"] == "b"
    return rows[0]["a"]


@pytest.mark.parametrize(("value", "read"), [
    ("=1+1", "'=1+1"),
    ("+1", "+1"),
    ("+1+1", "'+1+1"),
    ("-1.5", "-1.5"),
    ("-2e-07", "-2e-07"),
    ("-", "'-"),
    ("-scan.h5", "'-scan.h5"),
    ("@SUM(A1)", "'@SUM(A1)"),
    ("a=1, b-2", "a=1, b-2"),
    ("'=1", "'=1"),
    ("two\nlines\r", "two\\nlines\\r"),
    ("\t=1", "\\t=1"),
    ("\x00\x1b[31m\x7f\x9b", "\\x00\\x1b[31m\\x7f\\x9b"),
    ("caf\udce9.h5", "caf\\udce9.h5"),
    ('commas, "quotes" and µ', 'commas, "quotes" and µ'),
    (-1, "-1"),
    (-1.5e-3, "-0.0015"),
    (None, ""),
    ("", ""),
])  # fmt: skip
def test_a_text_is_no_formula_and_a_number_is_a_number(value: object, read: str) -> None:
    assert cell(value) == read


def events_of(tmp_path: Path, *rows: str) -> tuple[list[Event], list[str]]:
    """Read events from rows whose cells are separated by spaces."""
    path = tmp_path / "events.tsv"
    path.write_text("".join("\t".join(row.split()) + "\n" for row in rows))
    return read_events(path)


def test_a_modulation_is_the_height_of_an_event(tmp_path: Path) -> None:
    head = "onset duration trial_type modulation"
    rows = ("1 2 on 0.4", "5 2 on -1e1", "9 2 on 0", "12 1 n/a n/a")
    events, notes = events_of(tmp_path, head, *rows)
    # A main effect, and the modulation around its mean; an event of the modulation 0 is none
    assert events == [
        Event(1, 2, "on", 1.0),
        Event(1, 2, "on x modulation", 0.4 + 4.8),
        Event(5, 2, "on", 1.0),
        Event(5, 2, "on x modulation", -10.0 + 4.8),
    ]
    assert events_of(tmp_path, head, "1 2 on 3", "5 2 on 3")[0] == [
        Event(1, 2, "on", 3.0),
        Event(5, 2, "on", 3.0),
    ]
    assert notes == []
    assert events_of(tmp_path, "onset duration", "1 2")[0] == [Event(1, 2, "event", 1.0)]
    for wrong in ("high", "n/a", "inf", ""):
        with pytest.raises(InputError, match="line 3: the modulation must be a number"):
            events_of(tmp_path, head, rows[0], f"5 2 on {wrong}")


def test_events_of_several_runs_are_refused(tmp_path: Path) -> None:
    head = "onset duration trial_type run"
    with pytest.raises(InputError, match=r"events of 2 runs \(column run: 1, 2\)") as caught:
        events_of(tmp_path, head, "1 2 on 1", "5 2 on 1", "1 2 on 2", "5 2 on 2")
    assert "sessions of their own" in str(caught.value)
    for run in ("1", "n/a"):
        assert len(events_of(tmp_path, head, f"1 2 on {run}", "5 2 on 1")[0]) == 2


@pytest.mark.parametrize(("rows", "begins_again"), [
    (("1 2 on", "5 2 on", "9 2 on", "1 2 on", "5 2 on", "9 2 on"), True),
    (("1 2 a", "5 2 b", "9 2 a", "1 2 a", "5 2 a", "9 2 a"), True),
    # Types one after the other, and rows that are there twice
    (("1 2 a", "9 2 a", "5 2 b", "13 2 b", "1 2 c", "9 2 c"), False),
    (("9 2 on", "1 2 on", "5 2 on"), True),
    (("1 2 on", "1 2 on", "5 2 on", "5 2 on", "9 2 on"), False),
    (("1 2 on", "5 2 on", "1 2 on"), True),
])  # fmt: skip
def test_onsets_that_fall_are_an_error(rows, begins_again, tmp_path):
    table = (tmp_path, "onset duration trial_type", *rows)
    if not begins_again:
        assert len(events_of(*table)[0]) == len(rows)
        return
    with pytest.raises(
        InputError, match=r"the onset of .* falls from .* several runs, whose onsets begin again"
    ):
        events_of(*table)


@pytest.mark.parametrize(("head", "row", "note"), [
    ("stim_type", "left", "rename the column 'stim_type' to trial_type"),
    ("Condition type", "left 1", "rename the column 'Condition' or 'type' to trial_type"),
    ("trial_type event_type", "n/a left", "rename the column 'event_type' to trial_type"),
    ("Trial_Type", "left", "rename the column 'Trial_Type' to trial_type"),
    ("trial_type amplitude", "on 3", "not used: 'amplitude'; types are read from trial_type"),
    ("trial_type condition Weight", "on wet 3", "not used: 'condition', 'Weight'; types"),
    ("trial_type sample response_time value HED stim_file channel identifier response", "on" + " 1" * 7, ""),
    ("modulation side", "2 1", ""),
])  # fmt: skip
def test_columns_that_would_change_the_model_are_noted(head, row, note, tmp_path):
    notes = events_of(tmp_path, f"onset duration {head}", f"1 2 {row}", f"5 2 {row}")[1]
    assert len(notes) == bool(note)
    assert note in "".join(notes)


def test_a_nul_in_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds a NUL"):
        events_of(tmp_path, "onset duration trial_type", "1 2 o\0n")
    with pytest.raises(InputError, match=r"event 1: the type 'o\\x00n' holds a NUL"):
        events_of_rows(
            [{"onset": 1, "duration": 2, "trial_type": name} for name in ("on", "o\0n")], "events", "event", 0
        )
