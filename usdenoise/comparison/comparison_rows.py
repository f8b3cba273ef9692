"""Rows of a comparison: one for the power Doppler of each method, and one for its blood map."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.comparison.contenders import CONTENDERS
from usdenoise.comparison.method_process import MethodResult
from usdenoise.formats.truth import Truth
from usdenoise.images import metrics


class Picture(Enum):
    """The images that are made of each filtered stack."""

    POWER_DOPPLER = "power Doppler"
    BLOOD_MAP = "blood map"


class FiguresOfMerit:
    """Figures of merit of images.

    Parameters
    ----------
    signal, background : boolean arrays or None
        Regions for contrast, CNR and gCNR, spatial axes in the order of the stack.
    truth : Truth or None
        True blood power and vessels, for the correlation and the detection AUC.
    """

    def __init__(
        self,
        signal: NDArray[np.bool_] | None,
        background: NDArray[np.bool_] | None,
        truth: Truth | None,
    ) -> None:
        self._signal, self._background, self._truth = signal, background, truth

    def of(self, image: NDArray[np.float32] | None) -> dict[str, float | None]:
        """Return the figures of an image; None for those that need regions or a truth that are not given."""
        figures: dict[str, float | None] = dict.fromkeys(
            ("contrast_db", "cnr", "gcnr", "correlation", "auc"), None
        )
        if image is None:
            return figures
        if self._signal is not None and self._background is not None:
            for name, figure in (
                ("contrast_db", metrics.contrast_db),
                ("cnr", metrics.cnr),
                ("gcnr", metrics.gcnr),
            ):
                figures[name] = figure(image, self._signal, self._background)
        if self._truth is not None:
            figures["correlation"] = metrics.correlation(image, self._truth.blood_power)
            figures["auc"] = metrics.detection_auc(image, self._truth.vessel_mask)
        return figures


def method_row(
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
        "picture": Picture.POWER_DOPPLER.value,
        "status": result.status,
        "message": result.message,
        "seconds": result.seconds,
        "peak_memory_bytes": result.peak_memory_bytes,
        "rank": filtered and filtered.rank,
        "low_cutoff": filtered and filtered.low,
        "iterations": filtered and filtered.iterations,
        "passes": filtered and filtered.passes,
        "held_out_rmse": filtered and filtered.held_out_rmse,
        "distance_to_svd": result.distance,
        **figures,
        "note": filtered.note if filtered else "",
        "citation": CONTENDERS[name].citation,
    }


_OF_THE_METHOD = ("method", "sampling", "status", "message", "low_cutoff", "citation")


def blood_row(row: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a blood map, from that of the same method's power Doppler."""
    of_the_method = {name: row[name] if name in _OF_THE_METHOD else None for name in row}
    return {**of_the_method, "picture": Picture.BLOOD_MAP.value, "note": "", **figures}
