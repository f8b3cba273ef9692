"""Tables as comma-separated text."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table as comma-separated values, with the column names in the first line.

    Parameters
    ----------
    columns : sequence of str
        Column names, which are keys of the rows.
    rows : iterable of mappings
        Value of each column by its name. None and missing values become empty cells; other keys are left out.
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
