"""Which blocks of a session show the same position of the probe, by their images."""

from collections.abc import Sequence

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
"""Latest blocks of each position with which a block is compared: the tissue may move slowly."""

APART_SIGMA, OTHER_SIGMA, JUMP_SIGMA = 1.0, 5.0, 5.0
"""Standard deviations of the likeness of two blocks of one position. By the first, the latest blocks of its own position are
more like a usual block than those of any other, if images tell positions apart. By the second, those of another one are, if
a block is of that one. By the third, of the means, pairs before and after a jump must gain by it."""

JUMPS = (-1, 1, 2, 3, 4)
"""Places that are skipped at a jump: an extra block, or lost ones."""


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


def _of_latest(
    poses: NDArray[np.intp], likeness: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return how alike a block is to the latest ones of its position, to those of the likest other one, and the spread.

    The first two, (n_blocks,), are NaN where there are none before it. The spread is the robust standard deviation of the
    likeness of two blocks of one position.
    """
    latest, known, pairs = dict[int, list[int]](), _has_data(likeness), list[NDArray[np.float64]]()
    own, other = np.full((2, len(poses)), np.nan)
    for number, pose in enumerate(poses.tolist()):
        if pose < 0 or not known[number]:
            continue
        means = {name: float(likeness[number, at].mean()) for name, at in latest.items()}
        others = [mean for name, mean in means.items() if name != pose]
        if pose in means and others:
            own[number], other[number] = means[pose], max(others)
            pairs.append(likeness[number, latest[pose]])
        latest[pose] = [*latest.get(pose, []), number][-RECENT:]
    values = np.concatenate(pairs) if pairs else np.zeros(1)
    return own, other, 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _has_data(likeness: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(likeness).any(axis=1))


def tells_apart(poses: NDArray[np.intp], likeness: NDArray[np.float64]) -> bool:
    """Return whether images tell positions apart, (n_blocks,), and show them as given; -1 for blocks that do not count."""
    own, other, spread = _of_latest(poses, likeness)
    leads = (own - other)[np.isfinite(own)]
    return bool(leads.size and np.median(leads) > APART_SIGMA * spread)


def contradictions(poses: NDArray[np.intp], likeness: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the blocks whose image is like those of another position than the own one; none if that is not known."""
    own, other, spread = _of_latest(poses, likeness)
    if not np.isfinite(own).any():
        return np.zeros(0, np.intp)
    lead, margin = float(np.nanmedian(own - other)), OTHER_SIGMA * spread
    # Where images tell nothing, a block may be like any other one.
    is_known = lead > APART_SIGMA * spread or lead < -margin
    # A block that moved is like no block as usual ones are.
    nearest = np.nan_to_num(likeness).max(axis=1)
    is_usual = nearest > np.median(nearest[np.isfinite(own)]) - margin
    return np.flatnonzero(is_known & is_usual & (own - other < -margin))


def slots_of_images(
    likeness: NDArray[np.float64], cycle: Sequence[int], slots: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return the place of each block in the endless order of positions, by the images.

    Places as expected are corrected by jumps, one after the other: the one that makes pairs of blocks of one position most
    alike, if it does so beyond chance.

    Parameters
    ----------
    likeness : (n_blocks, n_blocks) array
        From :func:`likeness_of`.
    cycle : sequence of int
        The positions until they repeat.
    slots : (n_blocks,) array of int
        The expected places.
    """
    order, reach = np.array(cycle), 2 * RECENT * (max(cycle) + 1)
    n_blocks = len(likeness)
    # Pairs of a block and the next ones, (n_blocks, reach)
    later = np.arange(n_blocks)[:, None] + np.arange(1, reach + 1)
    values = likeness[np.arange(n_blocks)[:, None], np.minimum(later, n_blocks - 1)]
    known = np.isfinite(values) & (later < n_blocks)
    if not known.any():
        return slots
    later, values = np.minimum(later, n_blocks - 1), np.where(known, values, 0)
    centred = np.where(known, values - values[known].mean(), 0)
    slots = slots.copy()
    for _ in range(n_blocks):
        shown = order[slots % len(cycle)]
        same = known & (shown[:, None] == shown[later])
        best = (0.0, (0, 0), 0, 0)
        for jump in JUMPS:
            moved = order[(slots + jump) % len(cycle)]
            across = known & (shown[:, None] == moved[later])
            # Pairs behind a jump may change, too, where the positions come back and forth.
            behind = _changes(centred, same, known & (moved[:, None] == moved[later]))
            behind = np.cumsum(behind[::-1], axis=0)[::-1]
            for number in range(1, n_blocks):
                near = slice(max(0, number - reach), number)
                is_across = later[near] >= number
                of_near = _changes(centred[near], same[near] & is_across, across[near] & is_across)
                counts, sums, squares = of_near.sum(axis=0) + behind[number]
                if counts.min() < 2:
                    continue
                means = sums / counts
                variance = float(np.sum(np.maximum(squares / counts - means**2, 0) / counts))
                if means[0] - means[1] > JUMP_SIGMA * np.sqrt(variance):
                    # Of equal gains the smallest jump, and rather a lost block than an extra one
                    best = max(best, (float(sums[0] - sums[1]), (-abs(jump), jump), number, jump))
        if not best[0]:
            break
        *_, number, jump = best
        slots[number:] += jump
    return slots


def _changes(
    values: NDArray[np.float64], before: NDArray[np.bool_], after: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the number, sum and sum of squares of the values that become pairs, and of those that cease, (n_rows, 3, 2)."""
    changed = np.stack([after & ~before, before & ~after])
    sums = [np.sum(changed, axis=2), np.sum(changed * values, axis=2), np.sum(changed * values**2, axis=2)]
    return np.array(sums, np.float64).transpose(2, 0, 1)


def agreement(poses: NDArray[np.intp], likeness: NDArray[np.float64]) -> float:
    """Return by how much blocks are more like the latest ones of their position than of any other one, on the mean."""
    own, other, _ = _of_latest(poses, likeness)
    return float(np.nanmean(own - other)) if np.isfinite(own).any() else 0.0
