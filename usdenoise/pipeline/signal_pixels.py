"""Pixels with a signal: those of a mask, outside a sector or in an unused depth take no part in anything."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.bad_frames import SAMPLE_PIXELS
from usdenoise.stack.pixel_sample import PixelSample
from usdenoise.stack.sampling import spread_rows

GAP = 1e4
"""Ratio of the noise of pixels with a signal to that of silent ones, 40 dB. The noise of a scan differs by half as much from
place to place, with a gain of 20 dB over depth."""

MOST_BETWEEN, LEAST_SIGNAL = 0.02, 0.05
"""Largest share of pixels in the gap between silent pixels and the others, as at the soft edge of a mask, and least share of
pixels above it: a few very loud pixels do not make the others silent."""


def find_signal_pixels(
    sample: PixelSample,
    energy: NDArray[np.float64],
    n_least: int,
    fast_power: Callable[[], NDArray[np.float64]],
) -> NDArray[np.intp] | None:
    """Return the pixels with a signal; None where all pixels have one, or fewer than `n_least`.

    A pixel without any energy is silent. So are those below a gap of 40 dB in the noise of the image (see
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
    some = np.flatnonzero(energy[sample.numbers] > 0)
    some = some[spread_rows(len(some), SAMPLE_PIXELS)]
    tried = sample.take(some)
    silent_below = _middle_of_gap(tried.fast_power(), energy[tried.numbers])
    if silent_below is not None:
        numbers = numbers[fast_power()[numbers] > silent_below]
    return numbers if n_least <= len(numbers) < len(energy) else None


def _middle_of_gap(noise: NDArray[np.float64], energy: NDArray[np.float64]) -> float | None:
    """Return the middle, in dB, of the highest gap in the noise of some pixels; None where there is none."""
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
    is_silent = noise < middle
    return middle if GAP * np.median(energy[is_silent]) < np.median(energy[~is_silent]) else None
