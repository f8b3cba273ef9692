"""One comparison: an acquisition file in, a folder with the table and the pictures out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.power_doppler import decibels
from usdenoise.errors import check_path
from usdenoise.files.file_state import files_of_report, size_on_disk
from usdenoise.files.open_input import open_input
from usdenoise.files.output_folder import OutputFolder
from usdenoise.files.phantom_file import read_truth
from usdenoise.files.regions import region
from usdenoise.files.tables import csv_text
from usdenoise.jobs.compare.clutter_filters import SHARED
from usdenoise.jobs.compare.compare_methods import Comparison, compare
from usdenoise.jobs.compare.figures_of_merit import POWER_DOPPLER, table_of
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import Display
from usdenoise.report.figures import shortened, suitable_range_db
from usdenoise.report.montage import montage_png
from usdenoise.report.pages import comparison_page
from usdenoise.report.result_record import input_record
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.plain_records import plain
from usdenoise.system.provenance import software, to_json

FILES = ("comparison.csv", "comparison.png", "comparison.html", "comparison.json")
"""The files; the last is the report."""

MOST_COLUMNS = 5
"""Most images in a line of the montage."""


def compare_file(
    path: str | Path,
    folder: str | Path | None = None,
    *,
    regions: Mapping[str, str] | None = None,
    reading: Mapping[str, Any] | None = None,
    display: Display | None = None,
    overwrite: bool = False,
    command: list[str] | None = None,
    **requested_options: Any,
) -> dict[str, Any]:
    """Compare methods on an acquisition file and write comparison.csv, .json, .png and .html.

    Parameters
    ----------
    path : str or Path
        File of the acquisition. If it contains the truth of a simulation, the metrics use it.
    folder : str or Path, optional
        Folder of the results; by default ``<stem>-comparison`` in the current folder.
    regions : mapping, optional
        The regions "signal" and "background" of the image, in the forms of :func:`usdenoise.files.regions.region`.
    reading : mapping, optional
        Fields of :class:`usdenoise.options.ReadOptions`.
    display : Display, optional
        Range and colours of the images. The range is below the brightest pixel of the full SVD's image; by default it
        is the range that suits this image.
    overwrite : bool
        Whether existing results may be replaced.
    command : list of str, optional
        Command line, for the report.
    **requested_options
        Arguments of :func:`usdenoise.compare`: `methods`, `on_start` and the options.

    Returns
    -------
    dict
        The report, as it is written to comparison.json.

    Raises
    ------
    UsdenoiseError
        If the file cannot be read, an option is wrong, or the results cannot be written. A method that fails raises
        nothing: its row in the report contains the reason.
    """
    check_path(path)
    path, display = Path(path), display or Display()
    folder = Path(f"{path.stem}-comparison") if folder is None else Path(folder)
    with OutputFolder(folder, overwrite) as outputs:
        paths = {name: outputs.reserve(name) for name in FILES}
        with open_input(path, reading, requested_options.get("precision", "single")) as source:
            digest = source.digest_in_background()
            acquisition = source.read()
            source.check_unchanged()
        shape = acquisition.shape_in(acquisition.spatial_axes)
        masks: dict[str, Any] = {
            name: region(text, shape, acquisition.spatial_axes, acquisition.spacing_mm)
            for name, text in (regions or {}).items()
        }
        source_record = plain(input_record(path, acquisition, acquisition.iq.shape, digest.result()))
        truth = read_truth(path, acquisition)
        outcome = compare(acquisition, truth=truth, **masks, **requested_options)
        montage = _montage(outcome, acquisition, path.stem, display)
        if montage is None:
            outputs.release("comparison.png")
        else:
            paths["comparison.png"].write_bytes(montage)
        report: dict[str, Any] = {
            "rows": outcome.rows,
            "low_cutoff": outcome.low_cutoff,
            "settings": {
                name: requested_options.get(name, DenoiseOptions.declared[name].default) for name in SHARED
            },
            "regions": dict(regions or {}),
            "input": source_record,
            "output": {final.name: str(folder / final.name) for final in outputs.finals},
            "software": dict(software()),
            "command": command,
        }
        paths["comparison.csv"].write_text(csv_text(list(outcome.rows[0]), outcome.rows), "utf-8")
        paths["comparison.html"].write_text(_page(outcome, path.stem, montage), "utf-8")
        report["output_bytes"] = {name: size_on_disk(paths[name]) for name in list(report["output"])[:-1]}
        paths["comparison.json"].write_text(to_json(report, indent=2) + "\n")
        outputs.commit(files_of_report(outputs.finals[-1]))
    return report


def _page(outcome: Comparison, stem: str, montage: bytes | None) -> str:
    notes = [
        ", ".join(part for part in (row["method"], row["message"] or row["note"], row["citation"]) if part)
        for row in outcome.rows
        if row["picture"] == POWER_DOPPLER
    ]
    return comparison_page(stem, _removed(outcome), montage, table_of(outcome.rows), notes)


def _removed(outcome: Comparison) -> str:
    removed = "their own" if isinstance(outcome.low_cutoff, str) else outcome.low_cutoff
    return f"the low-rank methods remove {removed} clutter components"


def _montage(outcome: Comparison, acquisition: Acquisition, stem: str, display: Display) -> bytes | None:
    """Return a PNG of the images of all rows on one scale, None if no row has an image.

    0 dB is the brightest pixel of the reference, or of the first image without a reference.
    """
    images = [image for image in outcome.images if image is not None]
    if not images:
        return None
    reference = images[0] if outcome.reference is None else outcome.reference
    is_absolute = isinstance(display.dynamic_range, tuple)
    peak = 1.0 if is_absolute else max(float(reference.max()), float(np.finfo(np.float32).tiny))
    suitable = suitable_range_db(decibels(reference, reference=peak))
    return montage_png(
        _grid(outcome, peak),
        acquisition.spatial_axes,
        dynamic_range_db=suitable if display.dynamic_range is None else display.dynamic_range,
        spacing_mm=acquisition.spacing_mm,
        color_map=display.color_map,
        title=f"{shortened(stem, 40)}: power Doppler and blood map; {_removed(outcome)}",
    )


def _grid(outcome: Comparison, peak: float) -> list[list[tuple[str, NDArray[Any]]]]:
    """Return the images in dB with their labels: a line of power Doppler images above the line of their blood maps."""
    cells = [
        (f"{row['method']}, {row['picture']}", decibels(image, reference=peak))
        for row, image in zip(outcome.rows, outcome.images, strict=True)
        if image is not None
    ]
    grid = []
    for start in range(0, len(cells), 2 * MOST_COLUMNS):
        line = cells[start : start + 2 * MOST_COLUMNS]
        grid += [line[::2], line[1::2]]
    return grid
