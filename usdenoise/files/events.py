"""Events of a session from a BIDS table: onset, duration and trial_type, separated by tabs."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from usdenoise.errors import InputError
from usdenoise.files.damage import readable
from usdenoise.sessions.activation import Event

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
