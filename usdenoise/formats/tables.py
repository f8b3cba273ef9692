"""Tables as text files."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Comma-separated values with a line of names first; what is None is an empty cell.

    Parameters
    ----------
    columns : sequence of str
        Keys of the rows, in the order of the columns.
    rows : iterable of mappings
        Other keys are left out.
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
