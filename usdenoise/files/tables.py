"""Tables as text, separated by commas or tabs, and the events of a session from a BIDS table."""

import csv
import io
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.files.contents import readable
from usdenoise.sessions.activation import Event


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table as comma-separated values, with the column names in the first line.

    Parameters
    ----------
    columns : sequence of str
        Column names, which are keys of the rows.
    rows : iterable of mappings
        Value of each column by its name. None and missing values become empty cells; other keys are ignored.

    Notes
    -----
    Control characters in a text are escaped as in a Python string, and so are the bytes of a file name that is not UTF-8.
    A text that begins with =, +, - or @ gets an apostrophe in front, because a spreadsheet would take it for a formula.
    Numbers stay as they are.
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def tsv_text(columns: Mapping[str, NDArray[Any]]) -> str:
    """Return columns as tab-separated values, with "n/a" for NaN and for no text, as BIDS has them.

    Parameters
    ----------
    columns : mapping
        Name -> (n,) array of numbers or of texts, in which control characters are escaped as in :func:`csv_text`.
    """
    cells = [[_tsv_cell(value) for value in values.tolist()] for values in columns.values()]
    lines = ["\t".join(columns), *("\t".join(row) for row in zip(*cells, strict=True))]
    return "\n".join(lines) + "\n"


def _tsv_cell(value: Any) -> str:
    return (
        (_escaped(value) or "n/a") if isinstance(value, str) else "n/a" if value != value else f"{value:.8g}"
    )


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = _escaped(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _escaped(text: str) -> str:
    return "".join(
        letter.encode("unicode_escape").decode() if unicodedata.category(letter) in ("Cc", "Cs") else letter
        for letter in text
    )


REQUIRED = ("onset", "duration")


def read_events(path: Path) -> list[Event]:
    """Read the events of a session.

    Parameters
    ----------
    path : Path
        A table as BIDS has it, with the columns onset and duration in s from the first frame, and trial_type. Rows
        without a type, or with n/a, do not count; if no row has one, all are of the type "event".

    Raises
    ------
    InputError
        If the file cannot be read, a column is missing, or a value is not valid.
    """
    try:
        with readable(path), path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return events_of_rows(rows, str(path), "line", 2)


def events_of_rows(rows: Sequence[Mapping[str, Any]], name: str, unit: str, first: int) -> list[Event]:
    """Return the events of the rows of a table.

    Parameters
    ----------
    rows : sequence of mapping
        The values of each row by their columns, as in :func:`read_events`.
    name, unit : str
        What errors call the table and a row.
    first : int
        Number of the first row in errors.

    Raises
    ------
    InputError
        If a column is missing, or a value is not valid.
    """
    if not rows:
        raise InputError(f"{name} has no events")
    missing = [column for column in REQUIRED if column not in rows[0]]
    if missing:
        raise InputError(
            f"{name} has no column {' and no column '.join(missing)}",
            remedy="give a table separated by tabs, with onset and duration in s",
        )
    events = []
    for number, row in enumerate(rows, first):
        try:
            onset, duration = (float(row[column]) for column in REQUIRED)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}, {unit} {number}: onset and duration must be numbers") from error
        if not (math.isfinite(onset) and math.isfinite(duration) and duration > 0):
            raise InputError(f"{name}, {unit} {number}: the onset must be finite and the duration positive")
        trial_type = row.get("trial_type")
        # A DataFrame has NaN for a missing text, and BIDS n/a.
        text = "" if trial_type is None or trial_type != trial_type else str(trial_type).strip()
        events.append(Event(onset, duration, "" if text.lower() == "n/a" else text))
    # Beside events of some types, one without a type is of no condition.
    typed = [event for event in events if event.trial_type]
    return typed or [replace(event, trial_type="event") for event in events]
