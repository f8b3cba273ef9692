"""Which blocks of a session show the same position of the probe, by their images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError
from usdenoise.frames.alignment import mean_envelope
from usdenoise.pipeline.recording import Block
from usdenoise.stack.sampling import spread_rows

PICKED_FRAMES = 8
"""Frames of a block, evenly spread, whose mean envelope is compared with those of other blocks."""

FINE, COARSE = 1.5, 6.0
"""Standard deviations, in pixels, between which images are compared: displacements by less than the first change little, and
the attenuation over depth, which all planes have, is wider than the second."""

REACH = 1
"""Displacement of two images, in pixels along each axis, up to which their likeness does not depend on it."""

RECENT = 3
"""Latest blocks of each position with which a block is compared, as the tissue may move slowly, and fewest sweeps over the
positions by which an order is proposed."""

APART_SIGMA, OTHER_SIGMA = 1.0, 5.0
"""Standard deviations of the likeness of two blocks of one position. By the first, the latest blocks of its own position are
more like a usual block than those of any other, if images tell positions apart. By the second, those of another one are, if
a block is of that one."""


def image_of(block: Block, shape: tuple[int, ...]) -> NDArray[np.float32] | None:
    """Return the mean envelope of some frames of a block, (pixels along z, x, y); None if it cannot be read."""
    try:
        return mean_envelope(block.pick(spread_rows(block.n_frames, PICKED_FRAMES)), shape)
    except (InputError, ValueError):
        return None


def likeness_of(images: Sequence[NDArray[np.floating] | None] | NDArray[np.floating]) -> NDArray[np.float64]:
    """Return how alike images are, (n, n): the largest correlation of their structure over small displacements.

    It is NaN without data, and on the diagonal.

    Parameters
    ----------
    images : sequence of (spatial) arrays
        The images; NaN or None without data.
    """
    known = [image for image in images if image is not None]
    if not known:
        return np.full((len(images), len(images)), np.nan)
    structures = np.stack(
        [np.zeros(known[0].shape, np.float32) if image is None else _structure(image) for image in images]
    )
    # Neighbours within FINE are alike
    sampled = (slice(None), *[slice(None, None, 2)] * (structures.ndim - 1))
    rows = _normed(structures[sampled])
    missing, likeness = ~rows.any(axis=1), np.full((len(rows), len(rows)), -1.0)
    for offset in np.ndindex((2 * REACH + 1,) * (structures.ndim - 1)):
        moved = np.roll(structures, np.array(offset) - REACH, range(1, structures.ndim))
        np.maximum(likeness, rows @ _normed(moved[sampled]).T, out=likeness)
    likeness = np.asarray(np.maximum(likeness, likeness.T))
    likeness[missing], likeness[:, missing] = np.nan, np.nan
    np.fill_diagonal(likeness, np.nan)
    return likeness


def _normed(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return images as rows without their mean, of norm 1; 0 without data."""
    rows = images.reshape(len(images), -1)
    rows = rows - rows.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    normed: NDArray[np.float32] = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return normed


def _structure(image: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the structure of an image between two widths; 0 without data."""
    from scipy.ndimage import gaussian_filter

    values = np.nan_to_num(np.asarray(image, np.float64))
    wide = gaussian_filter(values, COARSE)
    structure: NDArray[np.float64] = gaussian_filter(values, FINE) / np.where(wide > 0, wide, 1) - (wide > 0)
    return structure.astype(np.float32)


@dataclass(frozen=True)
class Leads:
    """How much more alike each block is to the latest ones of its position than to those of any other one.

    Attributes
    ----------
    values : (n_blocks,) float64 array
        Likeness to its own position minus that to the likest other one; NaN where either has no block before it.
    likest : (n_blocks,) array of int
        The likest other position; -1 where that is not known.
    spreads : (n_blocks,) float64 array
        Robust standard deviation of the likeness of two blocks of one position, among the blocks up to each.
    """

    values: NDArray[np.float64]
    likest: NDArray[np.intp]
    spreads: NDArray[np.float64]

    @classmethod
    def of(cls, poses: NDArray[np.intp], likeness: NDArray[np.float64]) -> "Leads":
        """Return the leads of blocks, whose position is -1 if they do not count, by their likeness, (n_blocks, n_blocks)."""
        latest, known, pairs = (
            dict[int, list[int]](),
            np.asarray(np.isfinite(likeness).any(axis=1)),
            np.zeros(0),
        )
        values, likest, spreads = np.full(len(poses), np.nan), np.full(len(poses), -1), np.zeros(len(poses))
        for number, pose in enumerate(poses.tolist()):
            if pose >= 0 and known[number]:
                means = {name: float(likeness[number, at].mean()) for name, at in latest.items()}
                own = means.pop(pose, None)
                if own is not None and means:
                    likest[number] = max(means, key=means.__getitem__)
                    values[number] = own - means[likest[number]]
                    pairs = np.append(pairs, likeness[number, latest[pose]])
                latest[pose] = [*latest.get(pose, []), number][-RECENT:]
            if len(pairs):
                spreads[number] = 1.4826 * float(np.median(np.abs(pairs - np.median(pairs))))
        return cls(values, likest, spreads)

    @property
    def mean(self) -> float:
        """Mean of the leads that are known; 0 without any."""
        known = self.values[np.isfinite(self.values)]
        return float(known.mean()) if len(known) else 0.0

    def tell_apart(self, stop: int) -> bool:
        """Return whether images tell positions apart, and show them as given, by the blocks before one."""
        known = self.values[:stop][np.isfinite(self.values[:stop])]
        return bool(len(known) and np.median(known) > APART_SIGMA * self.spreads[stop - 1])


def tells_apart(poses: NDArray[np.intp], likeness: NDArray[np.float64]) -> bool:
    """Return whether images tell positions apart, (n_blocks,), and show them as given; -1 for blocks that do not count."""
    return Leads.of(poses, likeness).tell_apart(len(poses))


def contradictions(poses: NDArray[np.intp], likeness: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the blocks whose image is like those of another position, and that position; none if that is not known."""
    leads, found = Leads.of(poses, likeness), list[tuple[int, int]]()
    # A block that moved is like no block as usual ones are.
    nearest = np.nan_to_num(likeness).max(axis=1, initial=0)
    for number in np.flatnonzero(leads.values < 0).tolist():
        # Of a few blocks the spread is not known.
        margin = OTHER_SIGMA * leads.spreads[max(number, min(RECENT * (poses.max() + 1), len(poses))) - 1]
        is_usual = nearest[number] > np.median(nearest[: number + 1]) - margin
        # Where the images before it tell nothing, a block may be like any other one.
        if leads.values[number] < -margin and is_usual and (found or leads.tell_apart(number)):
            found.append((number, int(leads.likest[number])))
    return found
