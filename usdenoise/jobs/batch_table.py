"""The scans of a batch and the folder of each, their rows, and the table and the page that show them."""

import json
import math
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import chain, count
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.clutter_cutoff import CommonCutoff
from usdenoise.errors import check_path
from usdenoise.files.images import read_tiff
from usdenoise.files.input_files import BATCH_RECORD, STACKS, acquisition_files, is_zarr, natural_key
from usdenoise.files.output_folder import remove_leftovers, write_files
from usdenoise.options import Display
from usdenoise.pipeline.result import codes_of
from usdenoise.report.montages import common_scale, small_image, thumbnail_png
from usdenoise.report.pages import Entry, Row, Status, batch_page
from usdenoise.report.record import Report
from usdenoise.report.sentences import remark
from usdenoise.stack.geometry import picture_axes
from usdenoise.system.text import alike, short_stem, software

CURVE_COMPONENTS = 40
"""Largest number of singular values in the small curve of a scan: a cutoff of 20 is in its middle."""


class BatchFile(StrEnum):
    """Files that a batch writes to the top of its folder."""

    TABLE = "batch.csv"
    RECORD = BATCH_RECORD
    INDEX = "index.html"
    STACKS = STACKS
    """Folder of the filtered stacks, under the names of their inputs."""
    CUTOFFS = "cutoffs"
    """Folder of a batch of some scans, whose cutoffs name the common one."""


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
        return self.folder / f"{short_stem(self.path.stem)}_report.json"

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
    # The folder of each scan: its name without the suffix, with it, or with a number
    scans, used_names = [], set[str](BatchFile)
    for name in sorted(names, key=natural_key):
        below = PurePath(name)
        spelt = below.with_name(f"{below.stem}-{below.suffix[1:]}")
        numbered = (spelt.with_name(f"{spelt.name}-{number}") for number in count(2))
        candidates = chain([below.with_name(below.stem), spelt], numbered)
        folder = next(candidate for candidate in candidates if alike(str(candidate)) not in used_names)
        used_names.add(alike(str(folder)))
        scans.append(Scan(names[name], name, output / folder))
    return scans


def scan_row(scan: Scan, status: Status, reason: str, report: Report | None = None, error: str = "") -> Row:
    """Return the row of a scan, with the values of its report if it has results, or with the error if it failed."""
    row = Row(scan.name, str(scan.path), str(scan.folder), status, reason, error=error)
    if report is None:
        return row
    return replace(
        row,
        seconds=report.timings_s["total"],
        rank=report.rank,
        low_cutoff=report.low_cutoff,
        suggested_cutoff=report.cutoff.suggested,
        high_cutoff=report.high_cutoff,
        cutoff_certainty=report.cutoff.certainty,
        held_out_rmse=report.held_out_rmse,
        held_out_ratio=report.held_out_ratio,
        verdict=report.verdict,
        n_unobserved=report.n_unobserved,
        peak_memory_bytes=report.peak_memory_bytes,
        blood_to_noise_db=report.blood.blood_to_noise_db,
        reproducibility=report.reproducibility,
        noise_floor=report.noise_floor,
        bad_frames=len(report.bad_frames),
        doubts=codes_of(report.doubts),
        remark=remark(report),
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


def scan_image(scan: Scan) -> NDArray[np.float32] | None:
    """Return the small image of a scan: its blood map, or its power Doppler where it has none.

    Returns
    -------
    (n_rows, n_columns) float32 array or None
        The image of :func:`usdenoise.report.montages.small_image`, in dB. None if the files of the scan cannot be read.
    """
    try:
        report = read_report(scan)
        spacing = report.input.spacing_mm
        name = report.output.get("blood_power_tif") or report.output["power_doppler_tif"]
        power = read_tiff(scan.folder / Path(name).name)
    except (OSError, ValueError, KeyError):
        return None
    axes = picture_axes(report.input.axes.replace("t", ""))
    rows, columns = axes[-2], axes[-1]
    return small_image(power, spacing.get(rows, 1.0) / spacing.get(columns, spacing.get(rows, 1.0)))


def scan_curve(scan: Scan) -> tuple[float, ...]:
    """Return the first CURVE_COMPONENTS singular values of a scan in dB below the first one; none without a report."""
    try:
        values = read_report(scan).singular_values[:CURVE_COMPONENTS]
    except (OSError, ValueError):
        return ()
    return tuple(20 * math.log10(value / values[0]) for value in values if value > 0)


@dataclass
class BatchPage:
    """The page of a batch, index.html in its folder, which may be written many times.

    Attributes
    ----------
    folder : Path
        Folder of the batch's results.
    display : Display or None
        Options of the pictures, which thumbnails have as well; None (the default) for their defaults.
    command : list of str or None
        Command line of the batch, for the page; None by default.
    common : CommonCutoff or None
        The one low cutoff of all scans; None (the default) if there is none.
    """

    folder: Path
    display: Display | None = None
    command: list[str] | None = None
    common: CommonCutoff | None = None

    def __post_init__(self) -> None:
        # What is read of a scan is shown on many pages.
        self._image_of, self._curve_of = cache(scan_image), cache(scan_curve)

    def write(self, rows: Mapping[Scan, Row], running: Collection[Scan] | None = None) -> None:
        """Write the page, which shows the rows.

        Parameters
        ----------
        rows : mapping from Scan to Row
            Rows of all scans, in the order of the page.
        running : collection of Scan, optional
            Scans that run; None (the default) after the last scan.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        with_results = [scan for scan, row in rows.items() if row.status == Status.DONE]
        images = {scan: image for scan in with_results if (image := self._image_of(scan)) is not None}
        scale = common_scale(list(images.values()), self.display)
        # Without pictures the page shows the curve from which each cutoff was chosen.
        curves = {} if images else {scan: self._curve_of(scan) for scan in with_results}
        entries = []
        for scan, row in rows.items():
            image, state = images.get(scan), row.status.value
            if row.status == Status.NOT_RUN and running is not None:
                state = "running" if scan in running else "waiting"
            scan_page = scan.folder / f"{short_stem(scan.path.stem)}_report.html"
            has_page = row.status != Status.NOT_RUN and os.path.isfile(scan_page)
            address = os.path.relpath(scan_page, self.folder) if has_page else None
            thumbnail = None if image is None else thumbnail_png(image, scale)
            on_common_scale = image is None or scale.is_near(image)
            entries.append(Entry(row, state, address, thumbnail, on_common_scale, curves.get(scan, ())))
        title = f"{len(entries)} scans in {self.folder.absolute().name}"
        cutoff = "" if self.common is None else self.common.words
        levels = f"{scale.peak_db - scale.range_db:.0f} to {scale.peak_db:.0f} dB" if images else ""
        made = f"usdenoise {software()['usdenoise']}"
        made += "" if self.command is None else f": {shlex.join(self.command)}"
        is_running = running is not None
        page = batch_page(title, entries, is_running=is_running, scale=levels, generator=made, cutoff=cutoff)
        write_files(self.folder, {BatchFile.INDEX: page})
