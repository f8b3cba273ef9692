"""Rows of a comparison: one for the power Doppler of each method, and one for its blood map."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood import metrics
from usdenoise.comparison.clutter_filters import CONTENDERS
from usdenoise.comparison.method_process import MethodResult
from usdenoise.formats.phantom_file import Truth

POWER_DOPPLER, BLOOD_MAP = PICTURES = ("power Doppler", "blood map")
"""The images that are made of each filtered stack."""


def figures_of_merit(
    image: NDArray[np.float32] | None,
    signal: NDArray[np.bool_] | None,
    background: NDArray[np.bool_] | None,
    truth: Truth | None,
) -> dict[str, float | None]:
    """Return the figures of merit of an image; None for those that need an image, regions or a truth that are not given.

    Parameters
    ----------
    image : array or None
        The image, spatial axes in the order of the stack.
    signal, background : boolean arrays or None
        Regions for contrast, CNR and gCNR.
    truth : Truth or None
        True blood power and vessels, for the correlation and the detection AUC.
    """
    figures: dict[str, float | None] = dict.fromkeys(("contrast_db", "cnr", "gcnr", "correlation", "auc"))
    if image is None:
        return figures
    if signal is not None and background is not None:
        figures["contrast_db"] = metrics.contrast_db(image, signal, background)
        figures["cnr"] = metrics.cnr(image, signal, background)
        figures["gcnr"] = metrics.gcnr(image, signal, background)
    if truth is not None:
        figures["correlation"] = metrics.correlation(image, truth.blood_power)
        figures["auc"] = metrics.detection_auc(image, truth.vessel_mask)
    return figures


def power_row(
    name: str, sampling: float | None, result: MethodResult, figures: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the row of a method's power Doppler.

    Parameters
    ----------
    name : str
        Name of the method.
    sampling : float or None
        Fraction of the entries that it sampled; None for a method that uses all.
    result : MethodResult
        What its process returned.
    figures : mapping
        Figures of merit of its power Doppler.
    """
    filtered = result.filtered
    return {
        "method": name,
        "sampling": sampling,
        "picture": POWER_DOPPLER,
        "status": result.status,
        "message": result.message,
        "seconds": result.seconds,
        "peak_memory_bytes": result.peak_memory_bytes,
        **{name: getattr(filtered, name, None) for name in _OF_FILTER},
        "distance_to_svd": result.distance,
        **figures,
        "note": filtered.note if filtered else "",
        "citation": CONTENDERS[name].citation,
    }


_OF_FILTER = ("rank", "low_cutoff", "iterations", "passes", "held_out_rmse")
"""Columns with a figure of the filter."""

_SHARED = ("method", "sampling", "status", "message", "low_cutoff", "citation")
"""Columns that the two rows of a method have in common."""


def blood_row(row: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a blood map, from that of the same method's power Doppler."""
    shared = {name: row[name] if name in _SHARED else None for name in row}
    return {**shared, "picture": BLOOD_MAP, "note": "", **figures}


_COLUMNS = {
    "seconds": ("s", "{:.2f}"),
    "peak_memory_bytes": ("MiB", "{:.0f}"),
    "held_out_rmse": ("held", "{:.2g}"),
    "distance_to_svd": ("to SVD", "{:.2g}"),
    "contrast_db": ("dB", "{:.1f}"),
    "cnr": ("CNR", "{:.2f}"),
    "gcnr": ("gCNR", "{:.2f}"),
    "correlation": ("corr", "{:.3f}"),
    "auc": ("AUC", "{:.2f}"),
}


def table_of(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the cells of a comparison as texts, without what is empty everywhere.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of a comparison. Those of blood maps are left out where no row has a figure of its image.
    """
    several = len({row["sampling"] for row in rows if CONTENDERS[row["method"]].sampled}) > 1
    shown = [key for key in _COLUMNS if key == "seconds" or any(row[key] is not None for row in rows)]
    headings = ["method", *(["p"] if several else []), *(_COLUMNS[key][0] for key in shown)]
    cells = []
    for row in rows:
        is_map = row["picture"] == BLOOD_MAP
        if is_map and all(row[key] is None for key in shown):
            continue
        line = [f"  {row['picture']}" if is_map else row["method"]]
        if several:
            line.append("" if row["sampling"] is None else f"{row['sampling']:g}")
        for key in shown:
            value = row[key]
            if key == "peak_memory_bytes" and value is not None:
                value /= 2**20
            if key == "seconds" and row["status"] != "done":
                line.append(row["status"])
            else:
                line.append("" if value is None else _COLUMNS[key][1].format(value))
        cells.append(line)
    return headings, cells
