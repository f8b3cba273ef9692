"""One comparison: an acquisition file in, a folder with the table and the pictures out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.power_doppler import decibels
from usdenoise.comparison.compare_methods import DEFAULT_SAMPLING, Comparison, compare
from usdenoise.comparison.comparison_rows import BLOOD_MAP, PICTURES, POWER_DOPPLER, table_of
from usdenoise.comparison.work import Settings
from usdenoise.errors import check_path
from usdenoise.formats.file_state import files_of_report, size_on_disk
from usdenoise.formats.open_input import open_input
from usdenoise.formats.output_folder import OutputFolder
from usdenoise.formats.phantom_file import read_truth
from usdenoise.formats.regions import region
from usdenoise.formats.tables import csv_text
from usdenoise.jobs.report import record_of_stack
from usdenoise.options.job_options import Display
from usdenoise.pictures.figures import shortened, suitable_range_db
from usdenoise.pictures.montage import convergence_png, montage_png
from usdenoise.pictures.pages import comparison_page
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.provenance import software, to_json

FILES = ("comparison.csv", "comparison.png", "convergence.png", "comparison.html", "comparison.json")
"""The files; the last is the record of the others."""

MOST_COLUMNS = 5
"""Most images in a line of the montage when every method has one image."""

LabelledImage = tuple[str, NDArray[Any]]


def compare_file(
    path: str | Path,
    folder: str | Path | None = None,
    methods: Sequence[str] | None = None,
    *,
    sampling: Sequence[float] = DEFAULT_SAMPLING,
    settings: Settings | None = None,
    signal: str | None = None,
    background: str | None = None,
    reading: Mapping[str, Any] | None = None,
    display: Display | None = None,
    overwrite: bool = False,
    command: list[str] | None = None,
    on_row: Callable[[dict[str, Any]], None] | None = None,
    on_start: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Compare methods on an acquisition file and write comparison.csv, .json, .png, .html and convergence.png.

    Parameters
    ----------
    path : str or Path
        File of the acquisition. If it holds the truth of a simulation, the figures of merit use it.
    folder : str or Path, optional
        Folder of the results; by default ``<stem>-comparison`` in the current folder.
    methods, sampling, settings, on_row, on_start
        As for :func:`usdenoise.compare`.
    signal, background : str, optional
        Regions of the image, in the forms of :func:`usdenoise.formats.regions.region`.
    reading : mapping, optional
        Fields of :class:`usdenoise.options.ReadOptions`.
    display : Display, optional
        Range, factor of the decibels and colours of the images. The range is below the brightest pixel of the full
        SVD's image; by default it is the range that suits this image.
    overwrite : bool
        Whether existing results may be replaced.
    command : list of str, optional
        Command line, to be stored in the report.

    Returns
    -------
    dict
        The report, as it is written to comparison.json.

    Raises
    ------
    UsdenoiseError
        If the file cannot be read, an option is wrong, or the results cannot be written. A method that fails raises
        nothing: its row in the report says why.
    """
    check_path(path)
    path, settings, display = Path(path), settings or Settings(), display or Display()
    folder = Path(f"{path.stem}-comparison") if folder is None else Path(folder)
    with OutputFolder(folder, overwrite) as outputs:
        places = {name: outputs.reserve(name) for name in FILES}
        with open_input(path, reading, settings.precision) as source:
            digest = source.digest_in_background()
            acquisition = source.read()
            source.check_unchanged()
        regions = {"signal": signal, "background": background}
        axes = acquisition.spatial_axes
        shape = acquisition.shape_in(axes)
        masks = {
            name: None if text is None else region(text, shape, axes, acquisition.spacing_mm)
            for name, text in regions.items()
        }
        source_record = record_of_stack(path, acquisition, acquisition.iq.shape, digest.result())
        outcome = compare(
            acquisition,
            methods,
            sampling=sampling,
            settings=settings,
            truth=read_truth(path, acquisition),
            on_row=on_row,
            on_start=on_start,
            **masks,
        )
        pictures = {
            "comparison.png": _montage(outcome, acquisition, path.stem, display),
            "convergence.png": _convergence(outcome, len(sampling) > 1),
        }
        written = [name for name in FILES if pictures.get(name, b"") is not None]
        report = {
            "rows": [
                {**row, "curve": [list(point) for point in curve]}
                for row, curve in zip(outcome.rows, outcome.curves, strict=True)
            ],
            "low_cutoff": outcome.low_cutoff,
            "high_cutoff": settings.high_cutoff,
            "settings": asdict(settings),
            "regions": regions,
            "input": source_record,
            "output": {name: str(folder / name) for name in written},
            "software": dict(software()),
            "command": command,
        }
        places["comparison.csv"].write_text(csv_text(list(outcome.rows[0]), outcome.rows), "utf-8")
        places["comparison.html"].write_text(_page(outcome, path.stem, pictures), "utf-8")
        for name, picture in pictures.items():
            if picture is None:
                outputs.release(name)
            else:
                places[name].write_bytes(picture)
        report["output_bytes"] = {name: size_on_disk(places[name]) for name in written[:-1]}
        places["comparison.json"].write_text(to_json(report, indent=2) + "\n")
        outputs.commit(files_of_report(outputs.finals[-1]))
    return report


def _page(outcome: Comparison, stem: str, pictures: Mapping[str, bytes | None]) -> str:
    titles = {"comparison.png": "Power Doppler and blood map", "convergence.png": "Convergence"}
    drawn = {titles[name]: picture for name, picture in pictures.items() if picture is not None}
    of_power = [row for row in outcome.rows if row["picture"] == POWER_DOPPLER]
    notes = [
        ", ".join(
            part for part in (_label(row, True), row["message"] or row["note"], row["citation"]) if part
        )
        for row in of_power
    ]
    return comparison_page(stem, _removed(outcome), drawn, table_of(outcome.rows), notes)


def _removed(outcome: Comparison) -> str:
    removed = "their own" if isinstance(outcome.low_cutoff, str) else outcome.low_cutoff
    return f"the low-rank methods remove {removed} clutter components"


def _convergence(outcome: Comparison, several: bool) -> bytes | None:
    """Return a PNG of the convergence curves, None if no method has one."""
    curves = {
        _label(row, several): curve for row, curve in zip(outcome.rows, outcome.curves, strict=True) if curve
    }
    return convergence_png(curves) if curves else None


def _label(row: Mapping[str, Any], several: bool) -> str:
    parts = [str(row["method"])]
    if row["sampling"] is not None and several:
        parts.append(f"{100 * row['sampling']:g} %")
    if row["picture"] == BLOOD_MAP:
        parts.append(BLOOD_MAP)
    return ", ".join(parts)


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

    def scaled(image: NDArray[Any]) -> NDArray[Any]:
        return decibels(image, display.db_factor, peak)

    cells = [None if image is None else scaled(image) for image in outcome.images]
    suitable = suitable_range_db(scaled(reference))
    return montage_png(
        _grid(outcome.rows, cells),
        acquisition.spatial_axes,
        dynamic_range_db=suitable if display.dynamic_range is None else display.dynamic_range,
        spacing_mm=acquisition.spacing_mm,
        color_map=display.color_map,
        title=f"{shortened(stem, 40)}: power Doppler and blood map; {_removed(outcome)}",
    )


def _grid(
    rows: Sequence[Mapping[str, Any]], images: Sequence[NDArray[Any] | None]
) -> list[list[LabelledImage | None]]:
    """Arrange labelled images for the montage: a line of power Doppler images above the line of their blood maps.

    With several samplings, each method that samples has two lines with one column for each sampling, and the methods
    that use all entries fill the lines below. Otherwise all methods follow each other, at most MOST_COLUMNS a line.
    """
    fractions = list(dict.fromkeys(row["sampling"] for row in rows if row["sampling"] is not None))
    several = len(fractions) > 1
    lines: dict[tuple[str, str], dict[float, LabelledImage | None]] = {}
    others: dict[str, list[LabelledImage]] = {picture: [] for picture in PICTURES}
    for row, image in zip(rows, images, strict=True):
        fraction, label = row["sampling"], _label(row, several)
        if several and fraction is None:
            label += ", all entries"
        cell = None if image is None else (label, image)
        if several and fraction is not None:
            lines.setdefault((row["method"], row["picture"]), {})[fraction] = cell
        elif cell is not None:
            others[row["picture"]].append(cell)
    most = max(len(cells) for cells in others.values())
    # Eleven methods have lines of four, four and three, and not of five, five and one.
    width = len(fractions) if several else -(-most // -(-most // MOST_COLUMNS))
    grid = [[line.get(fraction) for fraction in fractions] for line in lines.values()]
    for start in range(0, most, width):
        for cells in others.values():
            part: list[LabelledImage | None] = [*cells[start : start + width]]
            grid.append(part + [None] * (width - len(part)))
    return grid
