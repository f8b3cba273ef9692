"""Cells that a spreadsheet shows as they are."""

import csv
import io

import pytest

from usdenoise.files.bids import csv_text


def cell(value: object) -> str:
    """The cell that a reader of the table gets."""
    rows = list(csv.DictReader(io.StringIO(csv_text(["a", "b"], [{"a": value, "b": "b"}]), newline="")))
    assert len(rows) == 1
    assert rows[0]["b"] == "b"
    return rows[0]["a"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
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
    ],
)
def test_a_text_is_no_formula_and_a_number_is_a_number(value: object, read: str) -> None:
    assert cell(value) == read
