"""Figures of merit of the images of a comparison, and its table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood import metrics
from usdenoise.files.phantom_file import Truth

POWER_DOPPLER, BLOOD_MAP = PICTURES = ("power Doppler", "blood map")
"""The images of each filtered stack."""

FIGURES = ("contrast_db", "cnr", "gcnr", "correlation", "auc")
"""Names of the metrics of an image."""


def figures_of_merit(
    image: NDArray[Any],
    signal: NDArray[np.bool_] | None,
    background: NDArray[np.bool_] | None,
    truth: Truth | None,
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
        figures["contrast_db"] = metrics.contrast_db(image, signal, background)
        figures["cnr"] = metrics.cnr(image, signal, background)
        figures["gcnr"] = metrics.gcnr(image, signal, background)
    if truth is not None:
        figures["correlation"] = metrics.correlation(image, truth.blood_power)
        figures["auc"] = metrics.detection_auc(image, truth.vessel_mask)
    return figures


def relative_distance(matrix: NDArray[Any], reference: NDArray[Any]) -> float:
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


_COLUMNS = {
    "seconds": ("s", "{:.2f}"),
    "held_out_rmse": ("held", "{:.2g}"),
    "distance_to_svd": ("to SVD", "{:.2g}"),
    "contrast_db": ("dB", "{:.1f}"),
    "cnr": ("CNR", "{:.2f}"),
    "gcnr": ("gCNR", "{:.2f}"),
    "correlation": ("corr", "{:.3f}"),
    "auc": ("AUC", "{:.2f}"),
}


def table_of(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the cells of a comparison as text, without columns that are empty everywhere.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of a comparison. The rows of blood maps show metrics alone, and are omitted without any.
    """
    shown = [key for key in _COLUMNS if key == "seconds" or any(row[key] is not None for row in rows)]
    cells = []
    for row in rows:
        is_map = row["picture"] == BLOOD_MAP
        texts = [
            "" if row[key] is None or (is_map and key not in FIGURES) else _COLUMNS[key][1].format(row[key])
            for key in shown
        ]
        if row["status"] != "done":
            texts[0] = row["status"]
        if any(texts):
            cells.append([f"  {BLOOD_MAP}" if is_map else row["method"], *texts])
    return ["method", *(_COLUMNS[key][0] for key in shown)], cells
