"""Figures of merit of a power Doppler image.

All functions take linear power. Each docstring names the scale (linear or dB) on which the figure is defined.
"""

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.linalg.tall_matrices import correlation_of

HISTOGRAM_BINS = 100
"""Most bins of :func:`gcnr`, the number that the published scripts of Rodriguez-Molares et al. (2020) use.

More bins bias gCNR upwards. Two regions of 200 000 pixels with the same distribution have a gCNR of 0: 100
bins find 0.012, and 447 bins (the square root of 200 000) 0.027. For two unit normal distributions two apart,
any number of bins from 10 to 447 agrees with the exact value within 0.0002.
"""


def correlation(power: NDArray[np.number], truth: NDArray[np.number]) -> float:
    """Return the Pearson correlation of two power images over their pixels, on the linear power scale.

    Parameters
    ----------
    power, truth : arrays of one shape
        Linear power Doppler and the true blood power, or two power Doppler images.

    Returns
    -------
    float
        Correlation in [-1, 1]; 0 if one of the images is constant.

    Examples
    --------
    >>> import numpy as np, usdenoise
    >>> power = np.array([1.0, 2.0, 4.0])
    >>> round(usdenoise.metrics.correlation(power, 3 * power + 1), 6)
    1.0
    """
    return correlation_of(power.astype(np.float64).reshape(-1), truth.astype(np.float64).reshape(-1)) or 0.0


def contrast_db(power: NDArray[np.number], signal: NDArray[np.bool_], background: NDArray[np.bool_]) -> float:
    """Return the contrast 10 log10(mean_s / mean_b) in dB, with the mean power of signal and of background.

    A vessel with ten times the power of the background has 10 dB. With amplitudes and 20 log10 it is called
    contrast ratio (Smith, Wagner, Sandrik and Lopez, IEEE Trans. Sonics Ultrason. 30(3), 1983).

    Parameters
    ----------
    power : array of non-negative numbers
        Linear power Doppler.
    signal, background : boolean arrays of the same shape
        Pixels of the signal region and of the background region.

    Returns
    -------
    float
        Contrast in dB: infinity if the background has no power, minus infinity if the signal has none, NaN if
        neither has any.

    Raises
    ------
    InputError
        If a region is empty or of another shape.

    Examples
    --------
    >>> import numpy as np, usdenoise
    >>> power = np.array([10.0, 12.0, 1.0, 3.0])
    >>> vessel = np.array([True, True, False, False])
    >>> round(usdenoise.metrics.contrast_db(power, vessel, ~vessel), 2)
    7.4
    """
    inside, outside = _checked_regions(power, signal, background)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(10 * np.log10(inside.mean() / outside.mean()))


def cnr(power: NDArray[np.number], signal: NDArray[np.bool_], background: NDArray[np.bool_]) -> float:
    """Return the contrast-to-noise ratio |mean_s - mean_b| / sqrt(var_s + var_b), on the linear power scale.

    The formula is from Patterson and Foster, Ultrason. Imaging 5(3), 1983, with population variances. On
    another scale (amplitude, dB) it gives another number.

    Parameters
    ----------
    power, signal, background
        Linear power Doppler and the two regions, as for :func:`contrast_db`.

    Returns
    -------
    float
        Ratio without unit. If the power varies in neither region: NaN if the means are equal, else infinity.

    Raises
    ------
    InputError
        If a region is empty or of another shape.

    Examples
    --------
    >>> import numpy as np, usdenoise
    >>> power = np.array([10.0, 12.0, 1.0, 3.0])
    >>> vessel = np.array([True, True, False, False])
    >>> round(usdenoise.metrics.cnr(power, vessel, ~vessel), 2)
    6.36
    """
    inside, outside = _checked_regions(power, signal, background)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(abs(inside.mean() - outside.mean()) / np.sqrt(inside.var() + outside.var()))


def gcnr(power: NDArray[np.number], signal: NDArray[np.bool_], background: NDArray[np.bool_]) -> float:
    """Return the generalized contrast-to-noise ratio: 1 - sum_k min(h_s(k), h_b(k)).

    h_s and h_b are the histograms of signal and background, each with sum 1 (Rodriguez-Molares et al., IEEE
    Trans. Ultrason. Ferroelectr. Freq. Control 67(4), 2020). The bin edges are quantiles of the pixels of
    both regions together, so that every monotone scale (power, amplitude, dB) gives the same number. The
    number of bins is the square root of the smaller region's number of pixels, but at least 2 and at most
    HISTOGRAM_BINS.

    Parameters
    ----------
    power, signal, background
        Linear power Doppler and the two regions, as for :func:`contrast_db`.

    Returns
    -------
    float
        Ratio in [0, 1]: 1 if the histograms do not overlap, 0 if they are the same.

    Raises
    ------
    InputError
        If a region is empty or of another shape.

    Examples
    --------
    >>> import numpy as np, usdenoise
    >>> power = np.array([10.0, 12.0, 1.0, 3.0])
    >>> vessel = np.array([True, True, False, False])
    >>> usdenoise.metrics.gcnr(power, vessel, ~vessel)
    1.0
    """
    inside, outside = _checked_regions(power, signal, background)
    count = int(np.clip(np.sqrt(min(inside.size, outside.size)), 2, HISTOGRAM_BINS))
    together = np.sort(np.concatenate([inside, outside]))
    # Edges are values of pixels, so that equal pixels share a bin.
    edges = together[np.linspace(0, len(together), count + 1).astype(int)[1:-1] - 1]
    shares = [
        np.bincount(np.searchsorted(edges, region, side="left"), minlength=count) / region.size
        for region in (inside, outside)
    ]
    return float(1 - np.minimum(*shares).sum())


def detection_auc(power: NDArray[np.number], mask: NDArray[np.bool_]) -> float:
    """Return the area under the ROC (receiver operating characteristic) curve of power as a vessel detector.

    It is the probability that a pixel of the mask has more power than a pixel outside, where a tie counts one
    half (Hanley and McNeil, Radiology 143(1), 1982). Every monotone scale gives the same number.

    Parameters
    ----------
    power : array
        Linear power Doppler.
    mask : boolean array of the same shape
        True pixels of vessels.

    Returns
    -------
    float
        Area in [0, 1]; 0.5 for a random detector.

    Raises
    ------
    InputError
        If the mask has another shape, or holds no pixel or all of them.

    Examples
    --------
    >>> import numpy as np, usdenoise
    >>> power = np.array([10.0, 12.0, 1.0, 3.0])
    >>> vessel = np.array([True, True, False, False])
    >>> usdenoise.metrics.detection_auc(power, vessel)
    1.0
    """
    inside, outside = _checked_regions(power, mask, ~np.asarray(mask, bool))
    ordered = np.sort(outside)
    below = np.searchsorted(ordered, inside, side="left")
    at_most = np.searchsorted(ordered, inside, side="right")
    return float((below + at_most).mean() / (2 * outside.size))


def _checked_regions(
    power: NDArray[np.number], signal: NDArray[np.bool_], background: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values = []
    for name, region in (("signal", signal), ("background", background)):
        region = np.asarray(region, bool)
        if region.shape != power.shape:
            raise InputError(
                f"the {name} region has shape {region.shape} and the image {power.shape}; "
                "give a region of the image's shape"
            )
        if not region.any():
            raise InputError(
                f"the {name} region holds no pixel of the image; check its coordinates and its unit"
            )
        values.append(power[region].astype(np.float64))
    return values[0], values[1]
