"""Gain and phase of single lines or depths that flicker from frame to frame, measured on the tissue.

A scanner that records line by line gives each line of each frame its own gain. The tissue that it moves by a hundredth is
stronger than blood, it is white over time, and no clutter filter of few components removes it. The tissue itself shows the
gains: they are the ratio of a frame to its low-rank model, summed along a line.
"""

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
    calibrated: Numbers = (x.reshape(-1, *shape) / lines).reshape(x.shape)
    return calibrated


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
