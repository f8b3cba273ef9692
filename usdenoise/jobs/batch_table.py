"""The scans of a batch and the folder of each, their rows, and the table and the page that show them."""

import json
import os
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import check_path
from usdenoise.files.bids import csv_text
from usdenoise.files.images import read_tiff
from usdenoise.files.known_formats import BATCH_RECORD, STACKS, acquisition_files, is_zarr, natural_key
from usdenoise.files.output_folder import OutputFolder, remove_leftovers
from usdenoise.options.job_options import Display
from usdenoise.report.montages import common_scale, small_image, thumbnail_png
from usdenoise.report.pages import WITH_RESULTS, Entry, Row, Status, batch_page
from usdenoise.report.record import Report
from usdenoise.system.provenance import software, to_json
from usdenoise.system.text import alike


class BatchFile(StrEnum):
    """Files that a batch writes to the top of its folder."""

    TABLE = "batch.csv"
    RECORD = BATCH_RECORD
    INDEX = "index.html"
    STACKS = STACKS
    """Folder of the filtered stacks, under the names of their inputs."""


@dataclass(frozen=True)
class Scan:
    """One acquisition of a batch.

    Attributes
    ----------
    path : Path
        File of the acquisition, relative to the current folder if it was given so.
    name : str
        Path of the file below the deepest folder that holds all given paths.
    folder : Path
        Folder of the scan's results.
    """

    path: Path
    name: str
    folder: Path

    @property
    def report(self) -> Path:
        """Report of the scan, the last of its results to be written."""
        return self.folder / f"{self.path.stem}_report.json"

    def clear(self) -> None:
        """Remove what killed processes left in the folder, and the folder if nothing else is in it."""
        # On a file system without locks, no other batch writes here as long as this one does.
        remove_leftovers(self.folder, age_s=0)
        with suppress(OSError):
            self.folder.rmdir()


def find_scans(paths: Sequence[Path], output: Path, patterns: Sequence[str] = ()) -> list[Scan]:
    """Return the scans that some paths name or hold, each once, in natural order.

    A folder is searched with all its subfolders, except hidden ones, links to folders, and `output`. A folder
    that is an acquisition itself (Zarr) is one scan. Results of earlier runs are skipped.

    The tree below the deepest folder that holds all `paths` is mirrored under `output`. Each scan has a folder
    there with the name of its file without the suffix. Where files of one folder differ in the suffix alone,
    the first in natural order has that name. Other files append "-" and their suffix: x and x-mat.

    Parameters
    ----------
    paths : sequence of Path
        Files, which are always taken, and folders to search. A path that does not exist counts as a file.
    output : Path
        Folder of all results.
    patterns : sequence of str
        Shell patterns that the names of files in folders must match. A pattern with a slash is matched with the
        path below the folder. By default, files are chosen by the suffixes of the known formats.

    Returns
    -------
    list of Scan
        Scans in natural order, as by :func:`natural_key`. The list is empty if there are none.

    Raises
    ------
    InputError
        If a path holds a NUL character.
    """
    files: dict[str, Path] = {}
    roots = []
    for path in paths:
        check_path(path)
        whole = os.path.abspath(path)
        search = os.path.isdir(path) and not is_zarr(path)
        roots.append(whole if search else os.path.dirname(whole))
        for file in acquisition_files(path, output, patterns) if search else [path]:
            files.setdefault(os.path.abspath(file), file)
    if not files:
        return []
    root = os.path.commonpath(roots)
    # A folder that cannot be read is a scan itself, with a name like other scans.
    root = os.path.dirname(root) if root in files else root
    names = {os.path.relpath(whole, root): path for whole, path in files.items()}
    ordered = sorted(names, key=natural_key)
    folders = _folders(ordered)
    return [
        Scan(path=names[name], name=name, folder=output / folder)
        for name, folder in zip(ordered, folders, strict=True)
    ]


def _folders(names: Iterable[str]) -> list[PurePath]:
    used_names: set[str] = set(BatchFile)
    folders = []
    for name in names:
        path = PurePath(name)
        plain = path.with_name(path.stem)
        spelt = path.with_name(f"{path.stem}-{path.suffix[1:]}")
        numbered = (spelt.with_name(f"{spelt.name}-{number}") for number in range(2, len(used_names) + 3))
        folder = next(
            candidate for candidate in (plain, spelt, *numbered) if alike(str(candidate)) not in used_names
        )
        used_names.add(alike(str(folder)))
        folders.append(folder)
    return folders


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


class IndexPage:
    """The page of a batch.

    Parameters
    ----------
    folder : Path
        Folder of the batch's results.
    scans : sequence of Scan
        All scans, in the order of the page.
    command : list of str or None
        Command line of the batch, for the page.
    display : Display
        Options of the pictures, which thumbnails have as well; by default their defaults.
    """

    def __init__(
        self,
        folder: Path,
        scans: Sequence[Scan],
        command: list[str] | None,
        display: Display | None = None,
    ) -> None:
        self._folder = folder
        self._scans = list(scans)
        self._command = command
        self._display = display or Display()
        self._images: dict[Scan, NDArray[np.float32] | None] = {}

    def write(self, rows: Mapping[Scan, Row], running: Collection[Scan] | None = None) -> None:
        """Write the page.

        Parameters
        ----------
        rows : mapping from Scan to Row
            Rows of the scans; those without one are not run.
        running : collection of Scan, optional
            Scans that run; None (the default) after the last scan.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        for scan in [scan for scan, row in rows.items() if row.status in WITH_RESULTS]:
            if scan not in self._images:
                full_image = scan_image(scan)
                self._images[scan] = None if full_image is None else small_image(*full_image)
        known = {scan: image for scan, image in self._images.items() if image is not None}
        scale = common_scale(list(known.values()), self._display)
        entries = []
        for scan in self._scans:
            row, image = rows.get(scan) or scan_row(scan, Status.NOT_RUN, ""), known.get(scan)
            state = row.status.value
            if row.status == Status.NOT_RUN and running is not None:
                state = "running" if scan in running else "waiting"
            scan_page = scan.folder / f"{scan.path.stem}_report.html"
            has_page = row.status != Status.NOT_RUN and os.path.isfile(scan_page)
            below = os.path.relpath(scan_page, self._folder)
            entries.append(
                Entry(
                    row=row,
                    status=state,
                    address=f"./{quote(os.fsencode(below))}" if has_page else None,
                    thumbnail=None if image is None else thumbnail_png(image, scale),
                    on_common_scale=image is None or scale.is_near(image),
                )
            )
        version = f"usdenoise {software()['usdenoise']}"
        page = batch_page(
            f"{len(entries)} scans in {self._folder.absolute().name}",
            entries,
            is_running=running is not None,
            scale=f"{scale.peak_db - scale.range_db:.0f} to {scale.peak_db:.0f} dB" if known else "",
            generator=version if self._command is None else f"{version}: {shlex.join(self._command)}",
        )
        with OutputFolder(self._folder, overwrite=True) as outputs:
            outputs.reserve(BatchFile.INDEX).write_text(page, encoding="utf-8")
            outputs.commit()
