"""Gains, measured on the tissue: of the depths of blocks, and of single lines or depths that flicker from frame to frame.

A scanner that records line by line gives each line of each frame its own gain. The tissue that it moves by a hundredth is
stronger than blood, it is white over time, and no clutter filter of few components removes it. The tissue itself shows the
gains: they are the ratio of a frame to its low-rank model, summed along a line.

The gain of a whole block of a session may change with depth: lost contact gel, another time gain compensation, heating. In
one block it is hardly known: a smooth curve of six terms scatters by 0.1 to 0.3 dB with the speckle. But the blocks of a
session have few curves in common. These are found from all blocks, and of one block only their heights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.clutter.bad_pixels import LEAST_LINE
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.tall_matrices import TINY
from usdenoise.stack.sampling import ENOUGH_FRAMES, MANY_PIXELS, spread_rows

TISSUE_COMPONENTS = 6
"""Leading components that are the tissue."""

FLICKER_FRAMES = 96
"""Frames, in the middle of a scan, in which a flicker is looked for: in 64 of a small stack with gaps one was found."""

FLICKERS = 3.0
"""Variance of the gains over the variance that noise and blood explain from which lines flicker. On 78 stacks of two
simulators without flicker it was 0.02 to 2.0, with a flicker of 1 to 4 % 4 to 33 (1.6 for one at 135 frames/s, whose tissue
is fast), and in a carotid that was recorded line by line 14 (benchmarks/RECORDS.md)."""


@dataclass(frozen=True)
class Flicker:
    """Flicker of the lines along an axis.

    Attributes
    ----------
    axis : int
        Spatial axis, 0 for z: its positions have gains of their own.
    spread : float
        Root mean square of the gains about 1, without what is slow or common to neighbouring lines.
    """

    axis: int
    spread: float


def middle_frames(used: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the numbers of the frames, in the middle of those that are used, in which a flicker is looked for."""
    numbers = np.flatnonzero(used)
    first = max(len(numbers) - FLICKER_FRAMES, 0) // 2
    return numbers[first : first + FLICKER_FRAMES]


def find_flicker(
    values: Numbers, pixels: NDArray[np.intp], shape: tuple[int, ...], right: Numbers
) -> Flicker | None:
    """Return the flicker of the lines along the axis that has most of it; None if noise and blood explain all gains.

    The tissue moves smoothly over time and over the image. So differences of the gains, of third order over frames and of
    second order over lines, contain flicker, noise and blood alone. The other two are measured in the same differences of
    single pixels, which a flicker moves together.

    Parameters
    ----------
    values : (n_pixels, n_frames) array
        Some pixels of consecutive frames.
    pixels : (n_pixels,) array of int
        Their numbers in the image.
    shape : tuple of int
        Shape of the image.
    right : (n_frames, k) array
        Temporal vectors of the tissue, about orthonormal.
    """
    if values.shape[1] < ENOUGH_FRAMES or len(shape) < 2:
        return None
    vectors = np.linalg.qr(right[:, :TISSUE_COMPONENTS])[0]
    tissue = (values @ vectors) @ vectors.conj().T
    if 2 * np.sum(np.abs(tissue) ** 2, dtype=np.float64) < np.sum(np.abs(values) ** 2, dtype=np.float64):
        # Without tissue, the gains are not known.
        return None
    fast = np.mean(np.abs(np.diff(values - tissue, 3, axis=1)) ** 2, axis=1, dtype=np.float64) / 20
    product, energy = tissue.conj() * values, np.abs(tissue) ** 2
    found, most = None, FLICKERS
    for axis, places in enumerate(np.unravel_index(pixels, shape)):
        counts = np.bincount(places, minlength=shape[axis])
        known = counts >= LEAST_LINE
        if np.count_nonzero(known) < LEAST_LINE:
            continue
        # Sums over the pixels of a line, which follow each other in this order
        order = np.argsort(places, kind="stable")[known[np.sort(places)]]
        starts = np.append(0, np.cumsum(counts[known])[:-1])
        total = np.add.reduceat(energy[order], starts)
        if not total.min() > 0:
            continue
        gains = np.add.reduceat(product[order], starts) / total
        # What noise and blood add to a gain, and to the differences
        of_others = np.add.reduceat(energy[order] * np.asarray(fast)[order, None], starts)
        of_others /= total.astype(np.float64) ** 2
        explained = of_others.mean(axis=1)
        explained = (explained[:-2] + 4 * explained[1:-1] + explained[2:]) / 6
        differences = np.diff(np.diff(gains, 3, axis=1), 2, axis=0)
        measured = np.mean(np.abs(differences) ** 2, axis=1, dtype=np.float64) / 120
        ratio = float(np.median(measured / np.maximum(explained, TINY)))
        if ratio > most:
            found, most = Flicker(axis, float(np.sqrt(np.median(measured)))), ratio
    return found


def line_gains(x: Numbers, left: Numbers, shape: tuple[int, ...], axis: int) -> Numbers:
    """Return the gain of each line of each frame, (n, n_lines): the ratio to the tissue; 1 without tissue.

    Parameters
    ----------
    x : (n, n_pixels) array
        Frames; entries that are not finite do not count.
    left : (n_pixels, k) array
        Orthonormal spatial vectors of the tissue.
    shape : tuple of int
        Shape of the image.
    axis : int
        Axis of the lines.
    """
    finite = np.isfinite(x)
    x = x if finite.all() else np.where(finite, x, np.zeros((), x.dtype))
    tissue = (x @ left.conj()) @ left.T
    tissue *= finite
    along = tuple(1 + other for other in range(len(shape)) if other != axis)
    product = np.sum((tissue.conj() * x).reshape(-1, *shape), axis=along, dtype=np.result_type(x, np.float64))
    energy = np.sum((np.abs(tissue) ** 2).reshape(-1, *shape), axis=along, dtype=np.float64)
    known = energy > TINY
    gains = np.where(known, product / np.where(known, energy, 1), 1)
    # A line that is dark in a frame has no gain that could be divided out.
    return np.where(np.abs(gains) > 0.1, gains, 1).astype(x.dtype)


def divided(x: Numbers, gains: Numbers, shape: tuple[int, ...], axis: int) -> Numbers:
    """Return frames, (n, n_pixels), whose lines are divided by their gains, (n, n_lines), in a new array."""
    lines = gains.reshape(-1, *(n if other == axis else 1 for other, n in enumerate(shape)))
    return np.asarray((x.reshape(-1, *shape) / lines).reshape(x.shape))


def calibrated(x: Numbers, shape: tuple[int, ...], axis: int) -> Numbers:
    """Return the frames of a block, (n, n_pixels), without the flicker of the lines along an axis.

    The gains are measured twice, the second time with the tissue without the first flicker.

    Parameters
    ----------
    x : (n, n_pixels) array
        The frames.
    shape : tuple of int
        Shape of the image.
    axis : int
        Axis of the lines.
    """
    pixels = spread_rows(x.shape[1], MANY_PIXELS)
    for _ in range(2):
        few = np.nan_to_num(x[:, pixels]).astype(np.result_type(x, np.float64))
        vectors = np.linalg.eigh(few @ few.conj().T)[1][:, -TISSUE_COMPONENTS:].astype(x.dtype)
        left = np.linalg.qr(np.nan_to_num(x).T @ vectors.conj())[0]
        x = divided(x, line_gains(x, left, shape, axis), shape, axis)
    return x


TERMS, SEGMENTS = 6, 6
"""Cosines over the depth that make a curve, besides its mean, and segments of the columns whose scatter gives their standard
errors. Six cosines describe a rise over a quarter of the depth within 1 % of its height, four within 3 %."""

PROFILE_ERRORS, PROFILE_DB = 8.0, 0.35
"""Height of a curve in a block, over its standard error, and root mean square height of all blocks, in dB where the curve is
largest, from which it is divided out. In sessions of benchmarks/second_world.py whose gain changes with depth they are
16 and 0.53 at least, in others 5.8 at most. Tissue whose brightness changes by a few per cent from block to block, as in
the tests, has up to 27 and 0.3, and its blood does not change with it."""

LEAST_ERROR = 1e-3
"""Least scatter and least standard error in dB, for images that do not differ."""

MOST_SCATTER = 0.5
"""Scatter of the gain within a row, over the scatter of the image, above which the row has no tissue. It is below 0.3 in
tissue, and above 1 in noise, which differs from block to block."""


def rows_over(
    image: NDArray[np.float32], reference: NDArray[np.float32], counted: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the level of each row of an image over the reference, and its weight, (2, 1 + SEGMENTS, pixels along z).

    First of all columns, then of each segment, of which a narrow image has fewer. The level, in dB, is the median of the
    brighter half of the pixels, and the weight one over its standard error, up to a factor. Rows without tissue have the
    level NaN.

    Parameters
    ----------
    image, reference : (pixels along z, x, y) arrays
        Mean envelope of a block, and the reference.
    counted : boolean array of this shape
        Pixels that count; their values are positive.
    """
    n_rows = len(image)
    shown = np.where(counted, reference, np.nan).reshape(n_rows, -1)
    shown[~(shown > _row_medians(shown)[:, None])] = np.nan
    shown = 20 * np.log10(shown)
    levels = 20 * np.log10(np.where(np.isfinite(shown), image.reshape(n_rows, -1), np.nan)) - shown
    levels[~(_row_scatter(levels) < MOST_SCATTER * _row_scatter(shown))] = np.nan
    segments = np.array_split(levels, min(SEGMENTS, levels.shape[1]), axis=1)
    return np.stack([_levels_and_weights(part) for part in (levels, *segments)], axis=1)


def profiles_of(blocks: Sequence[NDArray[np.float64]]) -> NDArray[np.float64] | None:
    """Return the curves over depth by which the gains of blocks differ, (pixels along z, n_curves); None without any.

    The levels of each block are fitted by cosines, and the coefficients, over their standard errors, by as few principal
    components as are significant in a block.

    Parameters
    ----------
    blocks : sequence of (2, 1 + SEGMENTS, pixels along z) arrays
        Levels of the rows of each block over the reference, from :func:`rows_over`.
    """
    if len(blocks) < 2:
        return None
    is_known = np.mean([np.isfinite(block[0, 0]) for block in blocks], axis=0) > 0.5
    rows = np.flatnonzero(is_known)
    if not len(rows):
        return None
    # Beyond the first and the last row with tissue the gain is not known, and taken to be as there
    depth = (np.clip(np.arange(len(is_known)), rows[0], rows[-1]) - rows[0] + 0.5) / (rows[-1] - rows[0] + 1)
    basis = np.cos(np.pi * np.outer(depth, np.arange(TERMS + 1)))
    found, errors = [], []
    for block in blocks:
        whole, *parts = (_coefficients(part, basis) for part in block.swapaxes(0, 1))
        known = [part for part in parts if part is not None]
        if whole is not None and len(known) > SEGMENTS // 2:
            found.append(whole[1:])
            errors.append(np.std(known, axis=0, ddof=1)[1:] / np.sqrt(len(known)) + LEAST_ERROR)
    if len(found) < 2:
        return None
    coefficients = np.array(found) - np.median(found, axis=0)
    # The error of a term in a block is the usual error of the term times a factor of the block
    usual = np.median(errors, axis=0)
    factors = np.sqrt(np.mean((np.array(errors) / usual) ** 2, axis=1))
    factors = np.maximum(factors, np.median(factors))[:, None]
    heights, values, curves = np.linalg.svd(coefficients / usual / factors, full_matrices=False)
    heights *= values
    profiles: NDArray[np.float64] = basis[:, 1:] @ (usual * curves).T
    largest = np.abs(profiles).max(axis=0)
    is_significant = np.abs(heights).max(axis=0) > PROFILE_ERRORS
    is_significant &= np.sqrt(np.mean((heights * factors) ** 2, axis=0)) * largest > PROFILE_DB
    return (profiles / largest)[:, is_significant] if is_significant.any() else None


def profile_of(block: NDArray[np.float64], profiles: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the gain of a block at each depth, (pixels along z,), in dB; None if too few rows have tissue.

    Parameters
    ----------
    block : (2, 1 + SEGMENTS, pixels along z) array
        Levels of its rows over the reference, from :func:`rows_over`.
    profiles : (pixels along z, n_curves) array
        Curves from :func:`profiles_of`.
    """
    design = np.concatenate([np.ones((len(profiles), 1)), profiles], axis=1)
    found = _coefficients(block[:, 0], design)
    return None if found is None else design @ found


def _coefficients(rows: NDArray[np.float64], design: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the coefficients of levels in a design, (pixels along z, n_terms), by least squares; None with too few rows."""
    is_known = np.isfinite(rows[0])
    if np.count_nonzero(is_known) <= 2 * design.shape[1]:
        return None
    levels, weights = rows[:, is_known]
    return np.asarray(np.linalg.lstsq(design[is_known] * weights[:, None], levels * weights)[0])


def _levels_and_weights(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the medians of rows, and one over their standard errors, (2, pixels along z)."""
    scatter, n = _row_scatter(levels), np.count_nonzero(np.isfinite(levels), axis=1)
    # A few pixels may agree by chance
    usual = float(np.median(scatter[n > 0])) if n.any() else 0.0
    return np.stack([_row_medians(levels), np.sqrt(n / (scatter**2 + usual**2 + LEAST_ERROR**2))])


def _row_scatter(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the robust standard deviation of the values of each row that are not NaN; NaN without any."""
    return 1.4826 * _row_medians(np.abs(values - _row_medians(values)[:, None]))


def _row_medians(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of the values of each row that are not NaN; NaN without any."""
    ordered, rows = np.sort(values, axis=1), np.arange(len(values))
    n = np.count_nonzero(np.isfinite(values), axis=1)
    return np.asarray((ordered[rows, np.maximum(n - 1, 0) // 2] + ordered[rows, n // 2]) / 2)
