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


def slots_of_images(likeness: NDArray[np.float64], cycle: Sequence[int]) -> NDArray[np.intp]:
    """Return the place of each block in the endless order of positions, by the images.

    They are one after the other, but for jumps, each of which makes the pairs of blocks before and after it that are of one
    position more alike. One after the other the best jump is made.

    Parameters
    ----------
    likeness : (n_blocks, n_blocks) array
        From :func:`likeness_of`.
    cycle : sequence of int
        The positions until they repeat.
    """
    n_blocks, order, reach = len(likeness), np.array(cycle), RECENT * (max(cycle) + 1)
    slots, known = np.arange(n_blocks), np.isfinite(likeness)
    values = np.where(known, likeness, 0)

    def shown(at: slice, jump: int = 0) -> NDArray[np.intp]:
        return order[(slots[at] + jump) % len(cycle)]

    def alike(before: slice, after: slice, jump: int) -> tuple[float, float, int]:
        """Return the sums of the likeness of pairs of one position, and of its square, and the number of pairs."""
        same = (shown(before)[:, None] == shown(after, jump)) & known[before, after]
        of_pairs = values[before, after][same]
        return float(of_pairs.sum()), float((of_pairs**2).sum()), int(same.sum())

    for _ in range(n_blocks):
        # Of equal gains the smallest jump, and rather a lost block than an extra one
        best = (0.0, (0, 0), 0, 0)
        for number in range(1, n_blocks):
            before, after = slice(max(0, number - reach), number), slice(number, number + reach)
            usual, squares, n_usual = alike(before, after, 0)
            for jump in JUMPS:
                total, more, n_pairs = alike(before, after, jump)
                if min(n_usual, n_pairs) < 2:
                    continue
                gain = total / n_pairs - usual / n_usual
                variance = max(more / n_pairs - (total / n_pairs) ** 2, 0.0)
                variance = variance / n_pairs + max(squares / n_usual - (usual / n_usual) ** 2, 0.0) / n_usual
                if gain > JUMP_SIGMA * np.sqrt(variance):
                    best = max(best, (gain, (-abs(jump), jump), number, jump))
        if not best[0]:
            break
        *_, number, jump = best
        slots[number:] += jump
    return slots
