"""Tables as comma-separated text."""

import csv
import io
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray


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
