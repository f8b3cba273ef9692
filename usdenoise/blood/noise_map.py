"""The noise power of every pixel, from the Doppler frequencies at which its surroundings have no blood.

The noise level of an entry, one number for the estimate, is in :mod:`usdenoise.linalg.noise_spectrum`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.channels import PIXELS_A_BLOCK
from usdenoise.blood.clutter_projection import ClutterProjection
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.linalg.row_blocks import row_blocks

N_FREQUENCIES = 32
"""Frequencies at which spectra of at most 13 lags are looked at: more than twice the number of lags. With 64 no map of 48
phantoms changed by more than 0.0002 of its correlation with the true blood power."""

_N_QUIET = N_FREQUENCIES // 2
"""Frequencies with the least blood and tissue."""

SURROUNDINGS_SIGMA = 6.0
"""Standard deviation in pixels of the average whose spectrum shows where there is no blood."""


def noise_map(lags: NDArray[Any], projection: ClutterProjection, grid: Neighbourhood) -> NDArray[np.float64]:
    """Return the noise power before the clutter filter for each pixel.

    Noise is white over frames: its spectrum is N times the known share h of white noise that the filter keeps. In
    the average spectrum of a pixel's surroundings the half of the frequencies with the lowest power over h has the
    least blood and tissue (minimum statistics, as in Martin, IEEE Trans. Speech Audio Process. 9(5), 2001). The
    noise map is the wide median of the pixels' power over h in that half: wide, so that vessels do not count.

    Parameters
    ----------
    lags : (n_pixels, L + 1) complex or real array
        Lags r_l of the filtered stack.
    projection : ClutterProjection
        The clutter filter.
    grid : Neighbourhood
        Shape of the image.

    Returns
    -------
    (n_pixels,) float64 array
    """
    n_lags = projection.n_lags
    frequencies = np.arange(N_FREQUENCIES) / N_FREQUENCIES
    taper = (1 - np.arange(n_lags) / n_lags) * np.where(np.arange(n_lags) == 0, 1, 2)
    transform = (np.exp(-2j * np.pi * frequencies[:, None] * np.arange(n_lags)) * taper).T
    # The real spectrum of lags is a real product with their real and imaginary parts.
    spectrum = np.concatenate([transform.real, -transform.imag])
    kept = np.concatenate([projection.white.real, projection.white.imag]) @ spectrum
    if np.iscomplexobj(lags):
        parts = np.concatenate([lags.real, lags.imag], axis=1)
    else:
        parts, spectrum = lags, transform.real
    surroundings = grid.average(parts, SURROUNDINGS_SIGMA)
    power = np.empty(len(lags))
    for rows in row_blocks(len(lags), PIXELS_A_BLOCK):
        around = (surroundings[rows] @ spectrum) / kept
        last_quiet = np.partition(around, _N_QUIET - 1, axis=1)[:, _N_QUIET - 1, None]
        quiet = (around <= last_quiet).astype(np.float64)
        power[rows] = np.vecdot(quiet @ spectrum.T, parts[rows]) / (quiet @ kept)
    return np.maximum(grid.wide_median(power), 0)
