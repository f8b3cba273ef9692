"""Tissue that the clutter filter left, found by the speckle that it shares with the weak components of the clutter."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.blood_background import TINY
from usdenoise.blood.neighbourhood import Neighbourhood

WEAK = (0.4, 0.65, 0.9)
"""Components, as parts of the cutoff, that show where tissue leaks through the filter: weak ones, which are like the
tissue in the residual, without the last ones, which hold blood. They are cut in two halves."""

WIDE = 4.0
"""Standard deviation in pixels of the average from which tissue and its leak differ alike."""

LEAST_LIKENESS = 0.3
"""Least share of the speckle of tissue that is taken to be known from the speckle of other components."""

QUIET_LEAK = 0.8
"""Part of the estimated leak that the pixels with least power have at least: they are also those with less than estimated.
On six sessions at their own cutoff their power above the noise was 1.12 to 2.2 times the leak, with 1.25 times as many
components 0.82 and 0.84 times, with 1.5 times as many 0.22 and 0.30 times."""

LEAST_ABOVE = 0.05
"""Power above the noise, over the noise, below which the share of tissue in it is taken to be 0."""


def weak_speckle(left: NDArray[np.inexact], low: int) -> NDArray[np.float64]:
    """Return the sums of |u_k|^2 over two halves of the weak clutter components, (2, n_pixels).

    Parameters
    ----------
    left : (n_pixels, k) array
        Orthonormal spatial components, k at least `low`.
    low : int
        The low cutoff.
    """
    edges = [round(part * low) for part in WEAK]
    squares = np.abs(left[:, : edges[-1]].astype(np.result_type(left, np.float64))) ** 2
    return np.stack([squares[:, first:last].sum(axis=1) for first, last in pairwise(edges)])


def leaked_tissue(lags: NDArray[Any], speckle: NDArray[np.float64], grid: Neighbourhood) -> NDArray[Any]:
    """Return the lags of leaked tissue, (n_signal, L): an image of tissue times a factor for each lag.

    Blood is uncorrelated with the speckle of tissue. A regression of the products on the speckle of weak clutter
    components gives the factors. Both are high-pass filtered in space. Leaked tissue is beyond these components, and less
    like them than they are among themselves. The first half of them predicts a part of the second; the unpredicted part of
    the leak is taken to be wide in the image. The half of the pixels with least power has this leak, too.

    Parameters
    ----------
    lags : (n_signal, L) array
        Lagged products after the filter, from which the noise is subtracted.
    speckle : (2, n_signal) array
        Speckle of the tissue, from :func:`weak_speckle`.
    grid : Neighbourhood
        Shape of the image, and the pixels that have a signal.
    """
    first, second = speckle[:, :, None]
    if not (first.any() and second.any()):
        return np.zeros_like(lags)
    parts: NDArray[np.float64] = lags.view(np.float64) if np.iscomplexobj(lags) else lags
    tissue = first + second
    wide_first, wide_second, *wide = grid.average(np.hstack([first, second, parts]), WIDE).T
    around, narrow = (wide_first + wide_second)[:, None], parts - np.stack(wide, axis=1)
    energy = grid.average(narrow[:, :1] ** 2, WIDE)[:, 0]
    weights = 1 / np.maximum(energy, max(1e-6 * float(energy.max()), TINY))

    def slope(of: NDArray[np.float64], on: NDArray[np.float64]) -> NDArray[np.float64]:
        along = weights * on[:, 0]
        total = float(along @ on[:, 0])
        sums: NDArray[np.float64] = along @ of / (total if total > TINY else np.inf)
        return sums

    factors = slope(narrow, tissue - around)
    likeness = float(slope(second - wide_second[:, None], first - wide_first[:, None])[0])
    likeness *= float(first.mean() / second.mean())
    if factors[0] <= 0:
        return np.zeros_like(lags)
    image = tissue + (1 / np.clip(likeness, LEAST_LIKENESS, 1) - 1) * around
    leak: NDArray[Any] = (image * factors).view(lags.dtype)
    # If too many components are removed, the weak ones are blood. It is not everywhere, and leaked tissue is.
    power = lags[:, 0].real
    quiet = power <= np.median(power)
    quiet_power, quiet_leak = float(power[quiet].sum()), float(leak[quiet, 0].real.sum())
    most = max(quiet_power, 0.0) / max(QUIET_LEAK * quiet_leak, TINY)
    return leak * min(most, 1.0)


def share_above_noise(
    leak: NDArray[np.float64], power: NDArray[np.float64], noise: NDArray[np.float64]
) -> float:
    """Return the share of leaked tissue in the power above the noise; 0 if there is nearly nothing above the noise.

    Parameters
    ----------
    leak, power, noise : (n_signal,) arrays
        Leaked tissue, all power after the filter, and the noise in it.
    """
    above = float(np.sum(power - noise))
    return float(leak.sum()) / above if above > LEAST_ABOVE * noise.sum() else 0.0
