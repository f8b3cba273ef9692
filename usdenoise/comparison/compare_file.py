"""One comparison: an acquisition file in, a folder with the table and the pictures out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.comparison.compare_methods import DEFAULT_SAMPLING, Comparison, Settings, compare
from usdenoise.comparison.contenders import CONTENDERS
from usdenoise.comparison.regions import region
from usdenoise.formats import load
from usdenoise.formats.file_state import sha256
from usdenoise.formats.output_folder import OutputFolder
from usdenoise.formats.tables import csv_text
from usdenoise.formats.truth import read_truth
from usdenoise.images.power_doppler import decibels
from usdenoise.pictures.figures import suitable_range_db
from usdenoise.pictures.montage import convergence_png, montage_png
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.provenance import software, to_json

COLUMNS = (
    "method", "sampling", "status", "message", "seconds", "peak_memory_bytes", "rank", "low_cutoff",
    "iterations", "passes", "held_out_rmse", "distance_to_svd", "contrast_db", "cnr", "gcnr", "correlation",
    "auc", "note", "citation",
)  # fmt: skip


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
    dynamic_range: float | None = None,
    db_factor: float = 10.0,
    overwrite: bool = False,
    command: list[str] | None = None,
    on_row: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Compare methods on an acquisition file and write comparison.csv, .json, .png and convergence.png.

    Parameters
    ----------
    path : str or Path
        The acquisition. Where it holds the truth of a simulation, that is used.
    folder : str or Path, optional
        Where results go; by default ``<stem>-comparison`` in the current folder.
    methods, sampling, settings, on_row
        As for :func:`usdenoise.compare`.
    signal, background : str, optional
        Regions, as :func:`usdenoise.comparison.regions.region` reads them.
    reading : mapping, optional
        Fields of :class:`usdenoise.formats.loading.ReadOptions`.
    dynamic_range : float, optional
        dB below 0 that are shown; by default what suits the full SVD's image.
    db_factor : float
        10 for decibels of power, 20 for the paper's formula.
    overwrite : bool
        Whether existing results may be replaced.
    command : list of str, optional
        The command line, for the record.

    Returns
    -------
    dict
        The report, as written to comparison.json.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend; a method that fails is a row of the report instead.
    """
    path, settings = Path(path), settings or Settings()
    folder = Path(f"{path.stem}-comparison") if folder is None else Path(folder)
    with OutputFolder(folder, overwrite) as outputs:
        names = ("comparison.csv", "comparison.json", "comparison.png", "convergence.png")
        places = {name: outputs.reserve(name) for name in names}
        acquisition = load(path, dtype=settings.precision, **(reading or {}))
        axes = acquisition.spatial_axes
        shape = tuple(acquisition.iq.shape[acquisition.axes.index(letter)] for letter in axes)
        regions = {
            name: None if text is None else region(text, shape, axes, acquisition.spacing_mm)
            for name, text in (("signal", signal), ("background", background))
        }
        digest = sha256(path)
        outcome = compare(
            acquisition,
            methods,
            sampling=sampling,
            settings=settings,
            signal=regions["signal"],
            background=regions["background"],
            truth=read_truth(path, acquisition),
            on_row=on_row,
        )
        pictures = {"comparison.png": _montage(outcome, acquisition, path.stem, dynamic_range, db_factor)}
        curves = {
            _label(row, len(sampling) > 1): curve
            for row, curve in zip(outcome.rows, outcome.curves, strict=True)
            if curve
        }
        pictures["convergence.png"] = convergence_png(curves) if curves else None
        report = {
            "rows": [
                {**row, "curve": [list(point) for point in curve]}
                for row, curve in zip(outcome.rows, outcome.curves, strict=True)
            ],
            "low_cutoff": outcome.low_cutoff,
            "high_cutoff": settings.high_cutoff,
            "settings": asdict(settings),
            "regions": {"signal": signal, "background": background},
            "input": {
                "path": str(path),
                "sha256": digest,
                "dataset": acquisition.name,
                "shape": list(acquisition.iq.shape),
                "axes": acquisition.axes,
                "frame_rate_hz": acquisition.frame_rate_hz,
                "spacing_mm": dict(acquisition.spacing_mm),
                "assumptions": list(acquisition.assumptions),
            },
            "output": {name: str(folder / name) for name in names if pictures.get(name, b"") is not None},
            "software": software(),
            "command": command,
        }
        places["comparison.csv"].write_text(csv_text(COLUMNS, outcome.rows))
        places["comparison.json"].write_text(to_json(report, indent=2) + "\n")
        for name, picture in pictures.items():
            if picture is None:
                outputs.release(name)
            else:
                places[name].write_bytes(picture)
        outputs.commit()
    return report


def _label(row: Mapping[str, Any], several: bool) -> str:
    if row["sampling"] is None or not several:
        return str(row["method"])
    return f"{row['method']}, {100 * row['sampling']:g} %"


def _montage(
    outcome: Comparison, acquisition: Acquisition, stem: str, dynamic_range: float | None, db_factor: float
) -> bytes | None:
    """Every image on one scale, 0 dB being the brightest pixel of the reference."""
    shown = [image for image in (outcome.reference, *outcome.images) if image is not None]
    if not shown:
        return None
    peak = max(float(shown[0].max()), float(np.finfo(np.float32).tiny))

    def scaled(image: NDArray[Any]) -> NDArray[Any]:
        return decibels(image, db_factor, peak)

    cells: list[tuple[str, float | None, tuple[str, NDArray[Any]] | None]] = []
    several = len({row["sampling"] for row in outcome.rows} - {None}) > 1
    for row, image in zip(outcome.rows, outcome.images, strict=True):
        label = _label(row, several)
        if several and row["sampling"] is None and CONTENDERS[row["method"]].sampled is False:
            label += ", all entries"
        cells.append((row["method"], row["sampling"], None if image is None else (label, scaled(image))))
    grid: list[list[tuple[str, NDArray[Any]] | None]] = []
    if several:
        fractions = list(dict.fromkeys(fraction for _, fraction, _ in cells if fraction is not None))
        whole = [cell for _, fraction, cell in cells if fraction is None and cell is not None]
        for name in dict.fromkeys(name for name, fraction, _ in cells if fraction is not None):
            found = {fraction: cell for other, fraction, cell in cells if other == name}
            grid.append([found.get(fraction) for fraction in fractions])
        width = len(fractions)
    else:
        whole = [cell for _, _, cell in cells if cell is not None]
        width = min(len(whole), 5)
    for start in range(0, len(whole), width):
        part: list[tuple[str, NDArray[Any]] | None] = list(whole[start : start + width])
        grid.append(part + [None] * (width - len(part)))
    return montage_png(
        grid,
        acquisition.spatial_axes,
        dynamic_range_db=suitable_range_db(scaled(shown[0])) if dynamic_range is None else dynamic_range,
        spacing_mm=acquisition.spacing_mm,
        title=f"{stem}: components from {outcome.low_cutoff} on",
    )
