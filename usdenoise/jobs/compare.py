"""The same acquisition through several clutter filters, one after the other, with metrics that compare them."""

import difflib
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood import metrics
from usdenoise.blood.doppler import decibels
from usdenoise.errors import DivergedError, OptionError, check_names, check_path, why_failed
from usdenoise.files.bids import csv_text
from usdenoise.files.hdf5_writing import Truth, read_truth
from usdenoise.files.input_files import files_of_report, size_on_disk
from usdenoise.files.open_input import open_input
from usdenoise.files.output_folder import OutputFolder
from usdenoise.files.regions import region
from usdenoise.jobs import clutter_filters as filters
from usdenoise.options import DenoiseOptions, Display
from usdenoise.options.denoise_options import SharedKeywords, make_options
from usdenoise.options.job_options import shows_options
from usdenoise.report.charts import template
from usdenoise.report.montages import montage_png
from usdenoise.report.panels import shortened, suitable_range_db
from usdenoise.report.record import input_record
from usdenoise.sessions.regions import parts_of
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.text import plain, short_stem, software, to_json

Mask = NDArray[np.bool_]
"""A region of an image."""

POWER_DOPPLER, BLOOD_MAP = COMPARED_IMAGES = ("power Doppler", "blood map")
"""The images of each filtered stack."""

CONTRASTS = {"contrast_db": metrics.contrast_db, "cnr": metrics.cnr, "gcnr": metrics.gcnr}
"""Metrics of an image with two regions."""

FIGURES = (*CONTRASTS, "correlation", "auc")
"""Names of the metrics of an image."""


def figures_of_merit(
    image: filters.Image, signal: Mask | None, background: Mask | None, truth: Truth | None
) -> dict[str, float]:
    """Return the metrics of an image that the given regions and truth determine.

    Parameters
    ----------
    image : array
        The image, spatial axes in the order of the stack.
    signal, background : boolean arrays or None
        Regions for contrast, CNR and gCNR.
    truth : Truth or None
        True blood power and vessels, for the correlation and the detection AUC.
    """
    figures: dict[str, float] = {}
    if signal is not None and background is not None:
        figures = {name: measure(image, signal, background) for name, measure in CONTRASTS.items()}
    if truth is not None:
        figures["correlation"] = metrics.correlation(image, truth.blood_power)
        figures["auc"] = metrics.detection_auc(image, truth.vessel_mask)
    return figures


def relative_distance(matrix: filters.Matrix, reference: filters.Matrix) -> float:
    """Return the relative distance |A - B| / |B| of two matrices in the Frobenius norm, summed in double precision.

    Parameters
    ----------
    matrix, reference : (n_pixels, n_frames) arrays
        The matrices A and B.

    Returns
    -------
    float
        The distance; NaN if B is zero everywhere.
    """
    difference = total = 0.0
    # Blocks of 1024 rows keep the double-precision copies small.
    for start in range(0, len(matrix), 1024):
        truth = np.asarray(reference[start : start + 1024], np.complex128)
        difference += float(np.sum(np.abs(matrix[start : start + 1024] - truth) ** 2))
        total += float(np.sum(np.abs(truth) ** 2))
    return float(np.sqrt(difference / total)) if total > 0 else float("nan")


Row = dict[str, Any]
"""Values of a method and an image, by the names that :class:`Comparison` lists."""

_METRIC_COLUMNS = {
    "seconds": ("s", "{:.2f}"),
    "held_out_rmse": ("held", "{:.2g}"),
    "distance_to_svd": ("to SVD", "{:.2g}"),
    "contrast_db": ("dB", "{:.1f}"),
    "cnr": ("CNR", "{:.2f}"),
    "gcnr": ("gCNR", "{:.2f}"),
    "correlation": ("corr", "{:.3f}"),
    "auc": ("AUC", "{:.2f}"),
}


def table_of(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the cells of a comparison as text, without columns that are empty everywhere.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of a comparison. The rows of blood maps show metrics alone, and are omitted without any.
    """
    shown = [key for key in _METRIC_COLUMNS if key == "seconds" or any(row[key] is not None for row in rows)]
    cells = []
    for row in rows:
        is_map = row["picture"] == BLOOD_MAP
        hidden = {key for key in shown if row[key] is None or (is_map and key not in FIGURES)}
        texts = ["" if key in hidden else _METRIC_COLUMNS[key][1].format(row[key]) for key in shown]
        if row["status"] != "done":
            texts[0] = row["status"]
        if any(texts):
            cells.append([f"  {BLOOD_MAP}" if is_map else row["method"], *texts])
    return ["method", *(_METRIC_COLUMNS[key][0] for key in shown)], cells


NUMBERS = ("rank", "low_cutoff", "iterations", "passes", "held_out_rmse")
"""Columns with a number of the filter."""


@dataclass(frozen=True)
class Comparison:
    """Results of several methods on one acquisition.

    Attributes
    ----------
    rows : list of dict
        Two rows for each method that is done, in the order of the call: its power Doppler, then its blood map. A method
        that failed has one row. Keys: method, picture ("power Doppler" or "blood map"), status ("done", "failed" or
        "diverged"), message, seconds, rank, low_cutoff, iterations, passes, held_out_rmse, distance_to_svd, contrast_db,
        cnr, gcnr, correlation, auc, note and citation. Values that a method does not have are None. The two rows of a
        method differ in the metrics of the image: the blood map of every filter is computed in the same way,
        by :mod:`usdenoise.blood`.
    images : list of float32 array or None
        Linear image of each row, spatial axes in the order of the acquisition; None if the method failed.
    low_cutoff : int or str
        Number of components that every low-rank method removes; "auto" if it could not be determined.
    reference : float32 array or None
        Linear power Doppler of the full SVD. If it failed, for example because of missing entries, the power Doppler
        of the first method that succeeded. None if all failed.
    """

    rows: list[Row]
    images: list[NDArray[np.float32] | None]
    low_cutoff: str | int
    reference: NDArray[np.float32] | None


@shows_options
def compare(
    acquisition: Acquisition,
    methods: Sequence[str] | None = None,
    *,
    signal: NDArray[np.bool_] | None = None,
    background: NDArray[np.bool_] | None = None,
    truth: Truth | None = None,
    on_start: Callable[[str], None] | None = None,
    **requested_options: Unpack[SharedKeywords],
) -> Comparison:
    """Filter one acquisition by several methods, one after the other.

    The full SVD of the frames as recorded runs first: all other methods are compared with it, and use its automatic low
    cutoff. Only eta-decay holds the tissue still, as `usdenoise run` does, and chooses its own cutoff. The seconds of the
    first methods include the compilation of kernels if they are not in numba's cache yet.

    Parameters
    ----------
    acquisition : Acquisition
        The stack. It is not changed.
    methods : sequence of str, optional
        Names in ``usdenoise.jobs.clutter_filters.CLUTTER_FILTERS``, or "all" alone; by default eta-decay, svd, rsvd
        and highpass.
    signal, background : boolean arrays, optional
        Regions for contrast, CNR and gCNR, spatial axes in the order of the stack. By default they are the vessels of
        `truth` and all other pixels.
    truth : Truth, optional
        True blood power and vessels, for the correlation and the detection AUC.
    on_start : callable, optional
        Called before each method with its name.
    **requested_options
        The options rank, sampling, low_cutoff, high_cutoff, seed, precision and threads of
        :class:`usdenoise.DenoiseOptions`.

    Returns
    -------
    Comparison

    Raises
    ------
    OptionError
        If a method or an option is not known, a value is outside its range, or only one of the two regions is given.
    InputError
        If a region does not fit the images.

    Examples
    --------
    >>> import numpy as np
    >>> import usdenoise
    >>> rng = np.random.default_rng(0)
    >>> tissue = 100 * np.exp(0.02j * np.arange(40))[:, None, None] * rng.random((12, 10))
    >>> blood_and_noise = rng.standard_normal((40, 12, 10)) + 1j * rng.standard_normal((40, 12, 10))
    >>> stack = usdenoise.Acquisition(tissue + blood_and_noise, axes="tzx")
    >>> comparison = usdenoise.compare(stack, ["svd", "polynomial"], rank=4, low_cutoff=1)
    >>> for row in comparison.rows:
    ...     print(row["method"], row["picture"], row["status"])
    svd power Doppler done
    svd blood map done
    polynomial power Doppler done
    polynomial blood map done
    >>> comparison.images[0].shape
    (12, 10)
    """
    check_names(requested_options, filters.SHARED)
    options = make_options(**requested_options)
    names = _checked_names(methods)
    # The regions, both or none
    if truth is not None:
        signal = truth.vessel_mask if signal is None else signal
        background = ~truth.vessel_mask if background is None else background
    if (signal is None) != (background is None):
        raise OptionError(
            "is one of two regions, which a contrast requires",
            option="background" if signal is None else "signal",
            remedy="give {signal} and {background}",
        )
    # Regions that do not fit the images are refused before the first method runs.
    if signal is not None and background is not None:
        metrics.contrast_db(np.ones(acquisition.shape_in(acquisition.spatial_axes)), signal, background)

    # The methods, the full SVD first: it gives the rank of the baselines and the cutoff of all
    exact: filters.Matrix | None = None
    reference: NDArray[np.float32] | None = None
    reference_rank, requested = options.rank, options
    done: dict[str, tuple[Row, list[NDArray[np.float32] | None]]] = {}
    for name in dict.fromkeys(["svd", *names]):
        if on_start is not None:
            on_start(name)
        rank = reference_rank if name in filters.BASELINES else options.rank
        own = requested if name in filters.OWN_CUTOFF else options
        row, filtered = _run(name, acquisition, replace(own, rank=rank))
        if filtered is None:
            done[name] = row, [None]
            continue
        if exact is not None:
            row["distance_to_svd"] = relative_distance(filtered.matrix, exact)
        if reference is None:
            reference = filtered.power
            reference_rank = filtered.rank if options.rank == "auto" and filtered.rank else options.rank
            if filtered.low_cutoff is not None:
                options = replace(options, low_cutoff=filtered.low_cutoff)
        if name == "svd":
            exact = filtered.matrix
        done[name] = row, [filtered.power, filtered.blood_power]

    # A row for each image
    result = Comparison(rows=[], images=[], low_cutoff=options.low_cutoff, reference=reference)
    for name in names:
        row, images = done[name]
        for picture, image in zip(COMPARED_IMAGES, images, strict=False):
            figures = {} if image is None else figures_of_merit(image, signal, background, truth)
            result.rows.append({**row, "picture": picture, **figures})
            result.images.append(image)
    return result


def _run(name: str, acquisition: Acquisition, options: DenoiseOptions) -> tuple[Row, filters.Filtered | None]:
    """Run a method, and return its row without metrics; the filtered stack is None if it failed."""
    row: Row = {"method": name, "picture": "", "status": "failed", "message": "", "seconds": None}
    row |= dict.fromkeys((*NUMBERS, "distance_to_svd", *FIGURES))
    row |= {"note": "", "citation": filters.CLUTTER_FILTERS[name]}
    began = time.perf_counter()
    try:
        with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            filtered = filters.run_filter(name, acquisition, options)
        if not np.isfinite(filtered.power).all():
            raise DivergedError("the filtered stack is not finite")
    except Exception as error:
        row["message"] = why_failed(error)
        row["status"] = "diverged" if isinstance(error, DivergedError) else "failed"
        return row, None
    numbers = {column: getattr(filtered, column) for column in (*NUMBERS, "note")}
    return {**row, **numbers, "status": "done", "seconds": time.perf_counter() - began}, filtered


def _checked_names(methods: Sequence[str] | None) -> list[str]:
    names = list(dict.fromkeys(methods or filters.USUAL_FILTERS))
    if names == ["all"]:
        return list(filters.CLUTTER_FILTERS)
    for name in [name for name in names if name not in filters.CLUTTER_FILTERS]:
        near = difflib.get_close_matches(name, filters.CLUTTER_FILTERS, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise OptionError(
            f"unknown method '{name}'; {hint}the methods are {', '.join(filters.CLUTTER_FILTERS)}"
        )
    return names


FILES = ("comparison.csv", "comparison.png", "comparison.html", "comparison.json")
"""The files; the last is the report."""

MOST_IN_A_ROW = 5
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
    folder = Path(f"{short_stem(path.stem)}-comparison") if folder is None else Path(folder)
    regions = regions or {}
    with OutputFolder(folder, overwrite) as outputs:
        paths = {name: outputs.reserve(name) for name in FILES}
        # The acquisition with its regions and its truth
        with open_input(path, reading, requested_options.get("precision", "single")) as source:
            digest = source.digest_in_background()
            acquisition = source.read()
            source.check_unchanged()
        axes, pitches = acquisition.spatial_axes, acquisition.spacing_mm
        shape = acquisition.shape_in(axes)
        drawn = {name: region(text, shape, axes, pitches) for name, text in regions.items()}
        masks = {name: np.any([*parts_of(values).values()], axis=0) for name, values in drawn.items()}
        source_record = input_record(path, acquisition, acquisition.iq.shape)
        truth = read_truth(path, acquisition)

        outcome = compare(acquisition, truth=truth, **{**requested_options, **masks})

        # Table, pictures and page
        title = shortened(path.stem, 40)
        removed = "their own" if isinstance(outcome.low_cutoff, str) else outcome.low_cutoff
        shared = f"the low-rank methods remove {removed} clutter components"
        montage = _montage(outcome, acquisition, f"{title}: power Doppler and blood map; {shared}", display)
        if montage is None:
            outputs.release("comparison.png")
        else:
            paths["comparison.png"].write_bytes(montage)
        notes = [
            ", ".join(filter(None, (row["method"], row["message"] or row["note"], row["citation"])))
            for row in outcome.rows
            if row["picture"] == POWER_DOPPLER
        ]
        headings, lines = table_of(outcome.rows)
        page = template("comparison.html").render(
            name=path.stem, shared=shared, montage=montage, headings=headings, lines=lines, notes=notes
        )
        paths["comparison.html"].write_text(page, "utf-8")
        paths["comparison.csv"].write_text(csv_text(list(outcome.rows[0]), outcome.rows), "utf-8")

        # The report, with the bytes of the other files
        output = {final.name: str(folder / final.name) for final in outputs.finals}
        defaults = {name: declared.default for name, declared in DenoiseOptions.declared.items()}
        report = {
            "rows": outcome.rows,
            "low_cutoff": outcome.low_cutoff,
            "settings": {name: requested_options.get(name, defaults[name]) for name in filters.SHARED},
            "regions": dict(regions),
            "input": plain(replace(source_record, sha256=digest.result())),
            "output": output,
            "software": dict(software()),
            "command": command,
            "output_bytes": {name: size_on_disk(paths[name]) for name in list(output)[:-1]},
        }
        paths["comparison.json"].write_text(to_json(report, indent=2) + "\n")
        outputs.commit(files_of_report(outputs.finals[-1]))
    return report


def _montage(outcome: Comparison, acquisition: Acquisition, title: str, display: Display) -> bytes | None:
    """Return a PNG of the images of all rows on one scale, None if no row has an image.

    0 dB is the brightest pixel of the reference. A line of power Doppler images
    is above the line of their blood maps.
    """
    reference = outcome.reference
    if reference is None or all(image is None for image in outcome.images):
        return None
    is_absolute = isinstance(display.dynamic_range, tuple)
    peak = 1.0 if is_absolute else max(float(reference.max()), float(np.finfo(np.float32).tiny))
    suitable = suitable_range_db(decibels(reference, reference=peak))
    cells = [
        (f"{row['method']}, {row['picture']}", decibels(image, reference=peak))
        for row, image in zip(outcome.rows, outcome.images, strict=True)
        if image is not None
    ]
    grid = []
    for start in range(0, len(cells), 2 * MOST_IN_A_ROW):
        line = cells[start : start + 2 * MOST_IN_A_ROW]
        grid += [line[::2], line[1::2]]
    shown = suitable if display.dynamic_range is None else display.dynamic_range
    axes, pitches, colors = acquisition.spatial_axes, acquisition.spacing_mm, display.color_map
    return montage_png(grid, axes, dynamic_range_db=shown, spacing_mm=pitches, color_map=colors, title=title)
