"""Figures of merit of a power Doppler image. All take linear power; each says on which scale it is."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError

HISTOGRAM_BINS = 100


def correlation(power: NDArray[Any], truth: NDArray[Any]) -> float:
    """Pearson correlation of two power images over their pixels, on the linear power scale.

    Parameters
    ----------
    power, truth : arrays of one shape
        Power Doppler and the true blood power, or two power Dopplers.

    Returns
    -------
    float
        In [-1, 1]; 0 where one of them is constant.
    """
    a = power.astype(np.float64).reshape(-1)
    b = truth.astype(np.float64).reshape(-1)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / scale if scale > 0 else 0.0


def contrast_db(power: NDArray[Any], signal: NDArray[np.bool_], background: NDArray[np.bool_]) -> float:
    """Contrast in dB: 10 log10 of the mean power in the signal region over that in the background.

    The means are of power, the decibels of power: a vessel of ten times the power has 10 dB. Called
    contrast ratio where amplitudes are compared with 20 log10 (Smith, Wagner, Sandrik and Lopez, IEEE
    Trans. Sonics Ultrason. 30(3), 1983).

    Parameters
    ----------
    power : array of non-negative numbers
        Linear power Doppler.
    signal, background : boolean arrays of its shape
        The regions.

    Returns
    -------
    float
        dB; infinite where the background is dark, minus infinity where the signal is, NaN where both are.

    Raises
    ------
    InputError
        If a region is empty or of another shape.
    """
    inside, outside = _regions(power, signal, background)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(10 * np.log10(inside.mean() / outside.mean()))


def cnr(power: NDArray[Any], signal: NDArray[np.bool_], background: NDArray[np.bool_]) -> float:
    """Contrast-to-noise ratio: |mean_s - mean_b| / sqrt(var_s + var_b), on the linear power scale.

    The formula of Patterson and Foster, Ultrason. Imaging 5(3), 1983, with population variances. On
    another scale (amplitude, dB) it gives another number.

    Parameters
    ----------
    power, signal, background
        As for :func:`contrast_db`.

    Returns
    -------
    float
        Without unit; NaN where nothing varies and the means are equal.

    Raises
    ------
    InputError
        If a region is empty or of another shape.
    """
    inside, outside = _regions(power, signal, background)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(abs(inside.mean() - outside.mean()) / np.sqrt(inside.var() + outside.var()))


def gcnr(power: NDArray[Any], signal: NDArray[np.bool_], background: NDArray[np.bool_]) -> float:
    """Generalized contrast-to-noise ratio: 1 less the overlap of the two histograms.

    Rodriguez-Molares et al., IEEE Trans. Ultrason. Ferroelectr. Freq. Control 67(4), 2020. The bins hold
    about equally many of the pixels of both regions together, at most HISTOGRAM_BINS and no more than the
    square root of the smaller region's pixels, so that every monotone scale (power, amplitude, dB) gives
    the same number.

    Parameters
    ----------
    power, signal, background
        As for :func:`contrast_db`.

    Returns
    -------
    float
        In [0, 1]: 1 where a threshold tells the regions apart, 0 where the distributions are the same.

    Raises
    ------
    InputError
        If a region is empty or of another shape.
    """
    inside, outside = _regions(power, signal, background)
    count = int(np.clip(np.sqrt(min(inside.size, outside.size)), 2, HISTOGRAM_BINS))
    together = np.sort(np.concatenate([inside, outside]))
    # Edges are values of pixels, so that equal pixels share a bin.
    edges = together[np.linspace(0, len(together), count + 1).astype(int)[1:-1] - 1]
    shares = [
        np.bincount(np.searchsorted(edges, region, side="left"), minlength=count) / region.size
        for region in (inside, outside)
    ]
    return float(1 - np.minimum(*shares).sum())


def detection_auc(power: NDArray[Any], mask: NDArray[np.bool_]) -> float:
    """Area under the receiver operating characteristic of power as a detector of a mask.

    The chance that a pixel of the mask is brighter than one outside, ties counting one half (Hanley and
    McNeil, Radiology 143(1), 1982). The same on every monotone scale.

    Parameters
    ----------
    power : array
        Power Doppler.
    mask : boolean array of its shape
        True vessels.

    Returns
    -------
    float
        In [0, 1]; 0.5 is guessing.

    Raises
    ------
    InputError
        If the mask or the rest is empty, or of another shape.
    """
    inside, outside = _regions(power, mask, ~np.asarray(mask, bool))
    ordered = np.sort(outside)
    below = np.searchsorted(ordered, inside, side="left")
    at_most = np.searchsorted(ordered, inside, side="right")
    return float((below + at_most).mean() / (2 * outside.size))


def _regions(
    power: NDArray[Any], signal: NDArray[np.bool_], background: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values = []
    for name, region in (("signal", signal), ("background", background)):
        region = np.asarray(region, bool)
        if region.shape != power.shape:
            raise InputError(
                f"the {name} region has shape {region.shape} and the image {power.shape}; give one of that shape"
            )
        if not region.any():
            raise InputError(f"the {name} region holds no pixel of the image; check its place and its unit")
        values.append(power[region].astype(np.float64))
    return values[0], values[1]
