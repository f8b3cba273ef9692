"""A row for each scan of a batch, and the files that show them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from usdenoise.batch.plan import RECORD, SHEET, TABLE, Scan
from usdenoise.formats.output_folder import OutputFolder, remove_leftovers
from usdenoise.formats.tables import csv_text
from usdenoise.formats.tiff import read_tiff
from usdenoise.pictures.contact_sheet import Tile, contact_sheet_png
from usdenoise.system.provenance import software, to_json

DONE, SKIPPED, FAILED, WAITING = "done", "skipped", "failed", "not run"


@dataclass(frozen=True)
class Row:
    """What came of one scan.

    Attributes
    ----------
    scan : str
        Its name in the batch.
    path, folder : str
        The input, and where the results are.
    status : str
        "done", "skipped" (whole since an earlier time), "failed" or "not run".
    reason : str
        Why it was run or left out.
    seconds : float or None
        That the job took, when it was run.
    rank, low_cutoff, high_cutoff, cutoff_certainty, held_out_rmse, held_out_ratio, verdict, n_unobserved,
    peak_memory_bytes
        As in the scan's own report.
    error : str
        Why it failed, in one sentence.
    failure : str
        The kind of failure: input, options, diverged, output, memory, killed or unexpected.
    input_bytes, input_mtime_ns : int or None
        Size and modification time of the input when it failed.
    """

    scan: str
    path: str
    folder: str
    status: str
    reason: str = ""
    seconds: float | None = None
    rank: int | None = None
    low_cutoff: int | None = None
    high_cutoff: str | int | None = None
    cutoff_certainty: str = ""
    held_out_rmse: float | None = None
    held_out_ratio: float | None = None
    verdict: str = ""
    n_unobserved: int | None = None
    peak_memory_bytes: int | None = None
    error: str = ""
    failure: str = ""
    input_bytes: int | None = None
    input_mtime_ns: int | None = None


def scan_row(scan: Scan, status: str, reason: str, **values: Any) -> Row:
    """A row about a scan."""
    return Row(scan.name, str(scan.path), str(scan.folder), status, reason, **values)


def outcome(report: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that a scan's report holds."""
    copied = ("rank", "low_cutoff", "high_cutoff", "held_out_rmse", "held_out_ratio", "verdict",
              "n_unobserved", "peak_memory_bytes")  # fmt: skip
    return {
        **{name: report[name] for name in copied},
        "seconds": report["timings_s"]["total"],
        "cutoff_certainty": report["cutoff"]["certainty"],
    }


def write_tables(
    folder: Path,
    rows: Sequence[Row],
    summary: Mapping[str, Any],
    asked: Mapping[str, Any],
    command: list[str] | None,
) -> None:
    """Write batch.csv and batch.json.

    Raises
    ------
    OutputError
        If they cannot be written.
    """
    lines = [asdict(row) for row in rows]
    text = csv_text([field.name for field in fields(Row)], lines)
    record = {
        "summary": dict(summary),
        "rows": lines,
        "requested": dict(asked),
        "software": software(),
        "command": command,
    }
    remove_leftovers(folder, (TABLE, RECORD, SHEET))
    with OutputFolder(folder, overwrite=True) as outputs:
        # File names are bytes; those that are no UTF-8 come back as they were.
        outputs.reserve(TABLE).write_bytes(os.fsencode(text))
        outputs.reserve(RECORD).write_text(to_json(record, indent=2) + "\n")
        outputs.commit()


def write_sheet(folder: Path, scans: Sequence[Scan], reports: Mapping[Scan, Mapping[str, Any]]) -> None:
    """Write contact_sheet.png from the pictures that are on disk.

    Parameters
    ----------
    folder : Path
        Of the batch.
    scans : sequence of Scan
        All of them, in their order.
    reports : mapping from Scan to its report
        Of those that have results; the others have an empty place.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    tiles = [_tile(scan, reports.get(scan)) for scan in scans]
    with OutputFolder(folder, overwrite=True) as outputs:
        outputs.reserve(SHEET).write_bytes(contact_sheet_png(tiles))
        outputs.commit()


def _tile(scan: Scan, report: Mapping[str, Any] | None) -> Tile:
    if report is None:
        return Tile(scan.name, None)
    try:
        image = read_tiff(scan.folder / Path(report["output"]["power_doppler_tif"]).name)
    except (OSError, KeyError):
        return Tile(scan.name, None)
    spacing = report["input"]["spacing_mm"]
    return Tile(scan.name, image, spacing.get("z", 1.0) / spacing.get("x", spacing.get("z", 1.0)))
