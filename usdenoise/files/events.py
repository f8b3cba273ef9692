"""Events of a session from a BIDS table: onset, duration and trial_type, separated by tabs."""

import csv
import math
from pathlib import Path

from usdenoise.errors import InputError
from usdenoise.files.damage import readable
from usdenoise.sessions.activation import Event

REQUIRED = ("onset", "duration")


def read_events(path: Path) -> list[Event]:
    """Read the events of a session.

    Parameters
    ----------
    path : Path
        A table as BIDS has it, with the columns onset and duration in s from the first frame, and trial_type; without
        trial_type all events are of the type "event".

    Raises
    ------
    InputError
        If the file cannot be read, a column is missing, or a value is not valid.
    """
    try:
        with readable(path), path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not rows:
        raise InputError(f"{path} has no events")
    missing = [name for name in REQUIRED if name not in rows[0]]
    if missing:
        raise InputError(
            f"{path} has no column {' and no column '.join(missing)}",
            remedy="give a table separated by tabs, with onset and duration in s",
        )
    return [_event(path, number, row) for number, row in enumerate(rows, 2)]


def _event(path: Path, line: int, row: dict[str, str]) -> Event:
    try:
        onset, duration = (float(row[name]) for name in REQUIRED)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}, line {line}: onset and duration must be numbers") from error
    if not (math.isfinite(onset) and math.isfinite(duration) and duration > 0):
        raise InputError(f"{path}, line {line}: the onset must be finite and the duration positive")
    return Event(onset, duration, (row.get("trial_type") or "event").strip())
