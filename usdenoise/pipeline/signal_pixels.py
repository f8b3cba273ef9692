"""Signal pixels. Pixels in a mask, outside a sector or in an unused depth are excluded from every computation."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.bad_frames import SAMPLE_PIXELS
from usdenoise.stack.pixel_sample import PixelSample
from usdenoise.stack.sampling import spread_rows

GAP = 1e4
"""Ratio of the noise of signal pixels to the noise of masked pixels, 40 dB. The noise within a scan differs by half as much
in dB, with a gain of 20 dB over depth."""

MOST_BETWEEN, LEAST_SIGNAL = 0.02, 0.05
"""Largest share of pixels in the gap between masked and signal pixels, as at the soft edge of a mask, and least share of
pixels above it: a few very bright pixels do not mask all other pixels."""


def find_signal_pixels(
    sample: PixelSample,
    energy: NDArray[np.float64],
    n_least: int,
    fast_power: Callable[[], NDArray[np.float64]],
) -> NDArray[np.intp] | None:
    """Return the pixels with a signal; None if all pixels have one, or fewer than `n_least`.

    A pixel without any energy is masked. So are pixels below a gap of 40 dB in the noise of the image (see
    :meth:`usdenoise.stack.pixel_sample.PixelSample.fast_power`): all pixels of a scan have noise, whatever
    tissue and blood they have, but those that were multiplied by next to nothing have next to none.

    Parameters
    ----------
    sample : PixelSample
        Some pixels of the data.
    energy : (n_pixels,) float64 array
        Sum of |x|^2 over the observed entries of each row.
    n_least : int
        Pixels that the given rank and cutoffs need.
    fast_power : callable
        Returns the noise of all pixels, which takes a pass over the data.

    Returns
    -------
    array of row numbers, increasing, or None
    """
    numbers = np.flatnonzero(energy > 0)
    pixels = np.flatnonzero(energy[sample.numbers] > 0)
    pixels = pixels[spread_rows(len(pixels), SAMPLE_PIXELS)]
    tried = sample.take(pixels)
    mask_threshold = _middle_of_gap(tried.fast_power(), energy[tried.numbers])
    if mask_threshold is not None:
        numbers = numbers[fast_power()[numbers] > mask_threshold]
    return numbers if n_least <= len(numbers) < len(energy) else None


def _middle_of_gap(noise: NDArray[np.float64], energy: NDArray[np.float64]) -> float | None:
    """Return the middle, in dB, of the highest gap in the noise of some pixels; None if there is none."""
    levels = np.sort(noise[noise > 0])
    above = np.searchsorted(levels, levels * GAP)
    between, with_signal = above - np.arange(len(levels)) - 1, len(levels) - above
    gaps = np.flatnonzero(
        (between <= MOST_BETWEEN * len(levels)) & (with_signal >= LEAST_SIGNAL * len(levels))
    )
    if not len(gaps):
        return None
    middle = float(levels[gaps[-1]] * np.sqrt(GAP))
    # In a simulation without noise pixels of tissue have no noise either, but as much energy as any.
    is_masked = noise < middle
    return middle if GAP * np.median(energy[is_masked]) < np.median(energy[~is_masked]) else None
