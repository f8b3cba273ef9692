"""Blocks of a session that differ from other blocks: tissue that moved, artefacts, a gain that changed, no contact."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.frames.alignment import MOST_GAIN_DB
from usdenoise.linalg.tall_matrices import TINY

FEWEST_BLOCKS = 5
"""Least number of good blocks that are compared with each other."""

SPREAD_FLOOR = 0.02
"""Least robust standard deviation of the logarithm of a power from block to block."""

BAD_SPREADS, BAD_PERCENT = 6.0, 90.0
"""Spread from which a block is bad: robust standard deviations of the logarithm of a percentile, over the darker half of the
pixels, of its power over the usual power. In the other half the blood changes: a block in which contrast agent raised
it by 15 dB had 8.8 over all pixels, and 3.0 over the darker half. In 12 sessions blocks that moved by a pixel or more had
5.8 at least, in 56 sessions blocks with a usual map 5.5 at most, but for two that were deformed or rotated: 6.4 and 10."""

LOST_POWER = 0.5
"""Part of the usual power below which a block is bad: the gain has changed, or nothing was recorded. No change of the blood
halves the power of nine pixels in ten."""

WEAK_DB = -MOST_GAIN_DB
"""Gain of the tissue before the filter below which a block is bad."""

PIXEL_RATIO, PIXEL_SPREADS, PIXEL_FLOOR = 10.0, 6.0, 0.1
"""A pixel has an artefact in a block if its power is above PIXEL_RATIO times its median power, and the logarithm above the
median by PIXEL_SPREADS robust standard deviations, each plus PIXEL_FLOOR. In 30 sessions of 24 blocks of 32 x 32 pixels the
largest ratio in a good block was 7.8; clipping in 6 pixels had 20 to 60, noise 17 dB below the tissue 140 to 700."""

FEW_ARTEFACTS, USUAL_TIMES = 2, 3
"""A block is bad if it has more pixels with an artefact than FEW_ARTEFACTS + USUAL_TIMES x the median over the blocks: with
contrast agent, every block has pixels in which a bubble passes."""

APART_SPREADS, APART_FEW, APART_RATIO = 4.3, 14.0, 2.0
"""n blocks fall into two groups if the means of the logarithms of a power differ by APART_SPREADS + (APART_FEW / n)^2
standard deviations within the groups, and by a ratio of APART_RATIO. The best split of many normal values gives 2.7, of few
values more: of 5 to 60 normal or exponential ones 0 to 2 % were split."""

MOST_UNUSUAL = 0.6
"""Largest share of the blocks in the upper group for which the lower one is usual."""

MOSTLY_BAD = "more than a fifth of its frames are bad"
MOTION = "more power remains than usual: the image moved more than in other blocks, or the gain was higher"
LOST = "less than half of the usual power remains: the gain was lower, or nothing was recorded"
WEAK = "the image is 10 dB weaker than usual: the probe had no contact, or the gain was lower"
UNLIKE = "its image is unusual: another position, animal or artefact, or it moved far; make one session of each position"
ARTEFACT = "{n} pixels have 10 times their usual power or more: an artefact, or the signal was clipped"
NOTHING = "it has no data"
"""Why a block is bad, in words."""


@dataclass(frozen=True)
class BlockLevel:
    """The quantities of a block that are compared with other blocks.

    Attributes
    ----------
    power : (n_signal,) array or None
        Power of the filtered block, NaN in pixels that were not observed; None for one without data.
    problem : str
        Why it is bad for another reason, in words; empty (the default) if it is not.
    gain_db : float
        Power of the tissue before the filter over the usual power, in dB; by default 0.
    n_frames : int
        Number of frames that were used; 0 (the default) for as many as usual.
    is_alike : bool
        Whether its image is like the reference of the session; True by default, and if blocks are not aligned.
    """

    power: NDArray[np.floating] | None
    problem: str = ""
    gain_db: float = 0.0
    n_frames: int = 0
    is_alike: bool = True


def find_bad_blocks(blocks: Sequence[BlockLevel]) -> tuple[list[str], NDArray[np.float64]]:
    """Find the blocks that differ from the other blocks.

    Parameters
    ----------
    blocks : sequence of BlockLevel
        The blocks.

    Returns
    -------
    why : list of str
        Why each block is bad, in words; empty if it is good. Fewer than five blocks are not compared with each other.
    spread : (n_blocks,) float64 array
        How much more power is left than usual where there is little blood, in robust standard deviations; NaN without data.

    Notes
    -----
    Tissue that leaks is in all pixels. A change of the blood, by contrast agent, activation or vasomotion, is in the pixels
    with blood, which have more power: it makes no block bad, as only the darker half of the pixels is compared.

    The power of a pixel over n frames has a relative standard deviation of about n^(-1/2), to which the logarithm of a high
    percentile over the pixels is proportional. So the percentiles are compared times n^(1/2).
    """
    why = [block.problem or (NOTHING if block.power is None else "") for block in blocks]
    good = np.array([not reason for reason in why], bool)
    spread = np.full(len(blocks), np.nan)
    known = [number for number, block in enumerate(blocks) if block.power is not None]
    if not good.any():
        return why, spread
    powers = np.stack([np.asarray(blocks[number].power, np.float32) for number in known])
    # Relative standard deviations of the power in shorter and longer blocks, over the usual ones
    lengths = np.array([block.n_frames for block in blocks], float)
    length = np.median(lengths[good & (lengths > 0)]) if (good & (lengths > 0)).any() else 1.0
    scales = np.sqrt(length / np.where(lengths > 0, lengths, length))
    usual, levels = good, np.full(len(blocks), np.nan)
    for _ in range(2):
        relative, is_dark = _relative(powers, usual[known])
        levels[known] = np.log(np.maximum(np.percentile(relative[:, is_dark], BAD_PERCENT, axis=1), TINY))
        # Where many blocks have far more power, the others are usual.
        upper = upper_group(np.where(good, levels / scales, np.nan))
        if upper.sum() <= MOST_UNUSUAL * good.sum():
            usual = good & ~upper
    scaled = levels / scales
    middle = np.median(scaled[usual])
    spread = (scaled - middle) / (1.4826 * np.median(np.abs(scaled[usual] - middle)) + SPREAD_FLOOR)
    if good.sum() < FEWEST_BLOCKS:
        return why, spread
    # Pixels that have far more power than usual, and than the other pixels if much of the image has more
    logs = np.log(np.maximum(relative, np.finfo(np.float32).tiny))
    rises = np.percentile(logs, BAD_PERCENT, axis=1)
    logs -= np.maximum(rises - np.median(rises[usual[known]]), 0)[:, None]
    spreads = 1.4826 * np.median(np.abs(logs[usual[known]]), axis=0) + PIXEL_FLOOR
    limits = np.maximum(np.log(PIXEL_RATIO), PIXEL_SPREADS * spreads * scales[known, None])
    artefacts = np.zeros(len(blocks), int)
    artefacts[known] = np.count_nonzero(logs > limits, axis=1)
    most = FEW_ARTEFACTS + USUAL_TIMES * np.median(artefacts[usual])
    # Without a pattern in the images none is like the reference.
    is_alike = np.array([block.is_alike for block in blocks])
    is_alike |= is_alike[usual].mean() <= 0.5
    for number in np.flatnonzero(good).tolist():
        if blocks[number].gain_db < WEAK_DB:
            why[number] = WEAK
        elif not is_alike[number]:
            why[number] = UNLIKE
        elif not usual[number] or spread[number] > BAD_SPREADS:
            why[number] = MOTION
        elif levels[number] < middle + np.log(LOST_POWER):
            why[number] = LOST
        elif artefacts[number] > most:
            why[number] = ARTEFACT.format(n=artefacts[number])
    return why, spread


def upper_group(logs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which blocks are in the upper one of two groups by the logarithm of a power; none without two groups.

    They are split where the variance between the groups is largest (Otsu, IEEE Trans. Syst. Man Cybern. 9, 1979).

    Parameters
    ----------
    logs : (n_blocks,) array
        Logarithms; NaN is in no group.
    """
    known = np.sort(logs[np.isfinite(logs)])
    n, none = len(known), np.zeros(len(logs), bool)
    if n < FEWEST_BLOCKS:
        return none
    below = np.arange(1, n)
    sums = np.cumsum(known)
    apart = (sums[-1] - sums[:-1]) / (n - below) - sums[:-1] / below
    split = int(np.argmax(below * (n - below) * apart**2))
    low, high = known[: split + 1], known[split + 1 :]
    within = np.sqrt((len(low) * low.var() + len(high) * high.var()) / n) + SPREAD_FLOOR
    if apart[split] < max((APART_SPREADS + (APART_FEW / n) ** 2) * within, np.log(APART_RATIO)):
        return none
    with np.errstate(invalid="ignore"):
        return np.asarray(logs > low[-1], bool)


def _relative(
    powers: NDArray[np.float32], good: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return powers, (n_blocks, n_signal), over the median of the good blocks, and which pixels are the darker half by it.

    Where one of the two is not known or 0, the ratio is 1.
    """
    known = powers[good]
    known[:, np.isnan(known).all(axis=0)] = 0
    usual = np.nanmedian(known, axis=0)
    # Pixels that are masked in most blocks have no usual power.
    is_known = (usual > 0) & (powers >= 0)
    relative: NDArray[np.float32] = np.divide(powers, usual, out=np.ones_like(powers), where=is_known)
    has_power = (usual > 0) | (not usual.any())
    return relative, has_power & (usual <= np.median(usual[has_power]))


def interpolated_series(
    images: NDArray[np.float32], times: NDArray[np.float64], is_bad: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Return a series whose bad blocks are interpolated linearly over time, pixel by pixel.

    A pixel is interpolated between the nearest good blocks in which it has data; before the first and after the last one it
    has their value. It is NaN without any.

    Parameters
    ----------
    images : (n_blocks, spatial) float32 array
        The series; NaN without data.
    times : (n_blocks,) array
        Times of the blocks, which do not fall.
    is_bad : (n_blocks,) boolean array
        Bad blocks; at least one block is good.
    """
    values, good, bad = images.reshape(len(images), -1), np.flatnonzero(~is_bad), np.flatnonzero(is_bad)
    filled = values.copy()
    # Most pixels have data in all good blocks.
    after = np.searchsorted(times[good], times[bad])
    first, last = good[np.maximum(after - 1, 0)], good[np.minimum(after, len(good) - 1)]
    pauses = times[last] - times[first]
    weights = np.divide(times[bad] - times[first], pauses, out=np.zeros(len(bad)), where=pauses > 0)
    filled[bad] = values[first] + weights[:, None] * (values[last].astype(np.float64) - values[first])
    is_known = np.isfinite(values[good])
    for pixel in np.flatnonzero(~is_known.all(axis=0)).tolist():
        known = good[is_known[:, pixel]]
        of_pixel = np.interp(times[bad], times[known], values[known, pixel]) if known.size else np.nan
        filled[bad, pixel] = of_pixel
    return filled.reshape(images.shape)
