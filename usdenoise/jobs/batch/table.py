"""The rows of a batch, one for each scan, and the files that show them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.files.output_folder import OutputFolder
from usdenoise.files.tables import csv_text
from usdenoise.files.tiff import read_tiff
from usdenoise.jobs.batch.plan import BatchFile, Scan
from usdenoise.report.batch_row import Row, Status, values_of_report
from usdenoise.report.record import Report
from usdenoise.system.provenance import software, to_json


def scan_row(scan: Scan, status: Status, reason: str, **values: Any) -> Row:
    """Return the row of a scan, with the values of its other fields by name."""
    return Row(
        scan=scan.name,
        path=str(scan.path),
        folder=str(scan.folder),
        status=status,
        reason=reason,
        **values,
    )


def finished_row(scan: Scan, reason: str, failure: str | None) -> Row:
    """Return the row of a scan that was run, from its report or the sentence on why it failed."""
    if failure is not None:
        return scan_row(scan, Status.FAILED, reason, error=failure)
    try:
        return row_of_report(scan, read_report(scan), Status.DONE, reason)
    except (OSError, ValueError) as error:
        return scan_row(scan, Status.FAILED, reason, error=str(error))


def read_report(scan: Scan) -> Report:
    """Return the report of a scan.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If it cannot be read, or is not a report of this version.
    """
    try:
        values = json.loads(scan.report.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError("its report cannot be read") from error
    return Report.from_json(values)


def row_of_report(scan: Scan, report: Report, status: Status, reason: str) -> Row:
    """Return the row of a scan with results."""
    return scan_row(scan, status, reason, **values_of_report(report))


def write_tables(
    folder: Path,
    rows: Sequence[Row],
    summary: Mapping[str, Any],
    options: Mapping[str, Any],
    command: list[str] | None,
) -> None:
    """Write batch.csv and batch.json.

    Parameters
    ----------
    folder : Path
        Folder of the batch's results.
    rows : sequence of Row
        One row for each scan, in natural order.
    summary : mapping
        Numbers of scans by status, seconds, and paths of the batch's own files.
    options : mapping
        Options of every job, in the form of :func:`usdenoise.system.provenance.requested`.
    command : list of str or None
        Command line of the batch, for the record.

    Raises
    ------
    OutputError
        If a file cannot be written.
    """
    lines = [asdict(row) for row in rows]
    text = csv_text([field.name for field in fields(Row)], lines)
    record = {
        "summary": dict(summary),
        "rows": lines,
        "requested": dict(options),
        "software": dict(software()),
        "command": command,
    }
    with OutputFolder(folder, overwrite=True) as outputs:
        outputs.reserve(BatchFile.TABLE).write_text(text, encoding="utf-8")
        outputs.reserve(BatchFile.RECORD).write_text(to_json(record, indent=2) + "\n")
        outputs.commit()


def scan_image(scan: Scan) -> tuple[NDArray[np.float32], float] | None:
    """Return the blood map of a scan, or its power Doppler where it has none, and the height of a pixel over its width.

    The image is linear power, (n_pages, n_rows, n_columns), from the files of the scan. None if they cannot be read.
    """
    try:
        report = read_report(scan)
        spacing = report.input.spacing_mm
        name = report.output.get("blood_power_tif") or report.output["power_doppler_tif"]
        image = read_tiff(scan.folder / Path(name).name)
    except (OSError, ValueError, KeyError):
        return None
    return image, spacing.get("z", 1.0) / spacing.get("x", spacing.get("z", 1.0))
