"""Several positions of the probe (poses) in one session: which block shows which, by a rule, a table and the images.

A linear probe that a motor steps through positions shows one plane in each block. Each position is a session of its own,
which :func:`usdenoise.sessions.filter_session.filter_session` filters; :mod:`usdenoise.sessions.pose_series` joins them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.frames.alignment import mean_envelope
from usdenoise.linalg.executor import Executor
from usdenoise.options.job_options import BACK_AND_FORTH, PATHS
from usdenoise.pipeline.recording import Block, Recording
from usdenoise.stack.sampling import spread_rows

PICKED_FRAMES = 8
"""Frames of a block, evenly spread, whose mean envelope is compared with those of other blocks."""

FINE, COARSE = 1.5, 6.0
"""Standard deviations, in pixels, between which images are compared: displacements by less than the first change little, and
the attenuation over depth, which all planes have, is wider than the second."""

SAME_SHARE = 0.75
"""Share of the blocks most like a block that must be of its position. If from the middle of a session on each block is the
plane of the next position, it is one half."""

APART_SIGMA = 3.0
"""Standard deviations of the likeness of blocks of other positions by which those of the same one must be above them: images
tell positions apart then."""

TRIED_ANCHORS = 64
"""Series of consecutive blocks, one for each position, that are tried as references, at most."""

MOST_PROPOSED, TRIED_SWEEPS = 40, 4
"""Positions that are proposed at most, and sweeps over as many by which they are found."""

MOST_LOST = 0.2
"""Share of the blocks that may be missing in between; with more the order is not that of the rule."""


@dataclass(frozen=True)
class PosePlan:
    """Which position of the probe each block of a session shows, and in which sweep over the positions.

    Attributes
    ----------
    poses, sweeps : (n_blocks,) int arrays
        Number of the position and of the sweep, from 0; -1 for a block that is not used.
    names : tuple of str
        Name of each position.
    start_s : (n_blocks,) float64 array
        Time of the first frame of each block.
    positions_mm : tuple of float or None
        Where each position is; None (the default) if it is not known.
    notes : tuple of str
        Sentences on blocks that are missing or not used; none by default.
    """

    poses: NDArray[np.intp]
    sweeps: NDArray[np.intp]
    names: tuple[str, ...]
    start_s: NDArray[np.float64]
    positions_mm: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()

    def checked(self, likeness: NDArray[np.float64]) -> Self:
        """Return the plan with a note if the images of the blocks do not tell the positions apart."""
        if _tells_apart(self.poses, likeness):
            return self
        note = "the images of the blocks do not tell the positions apart: which block shows which is as given"
        return replace(self, notes=(*self.notes, note))

    def blocks_of(self, pose: int) -> list[int]:
        """Return the numbers of the blocks of a position, in the order of time."""
        numbers: list[int] = np.flatnonzero(self.poses == pose).tolist()
        return numbers

    def recording_of(self, recording: Recording, pose: int) -> Recording:
        """Return the recording of the blocks of a position."""
        blocks = [
            replace(recording.blocks[number], start_s=float(self.start_s[number]))
            for number in self.blocks_of(pose)
        ]
        return replace(recording, blocks=blocks)


def plan_of(
    recording: Recording, rule: str, table: Sequence[Mapping[str, str]], is_counted: bool, executor: Executor
) -> PosePlan:
    """Return the plan of a session whose blocks show several positions.

    Parameters
    ----------
    recording : Recording
        The blocks.
    rule : str
        "N" for N positions in turn, "back-and-forth:N", or the path of a table, for messages.
    table : sequence of mappings
        Rows of the table: pose, block or file, and position_mm if it is known; empty for a rule.
    is_counted : bool
        Whether the times of the blocks come from their number: one that is missing has none then, and its time is added.
    executor : Executor
        Maps over the blocks.

    Raises
    ------
    InputError
        If the images contradict the rule or the table, naming a block, or there are too few blocks.
    OptionError
        If the table does not name each block.
    """
    blocks = recording.blocks
    likeness = _likeness(recording, executor)
    starts = np.array([block.start_s for block in blocks])
    if table:
        return _plan_of_table(blocks, rule, table, starts, likeness).checked(likeness)
    cycle = cycle_of(rule)
    n_poses = max(cycle) + 1
    if len(blocks) < 2 * n_poses:
        raise InputError(
            f"{len(blocks)} blocks are fewer than two sweeps over {n_poses} positions", remedy="lower {poses}"
        )
    slots, notes, names = np.arange(len(blocks)), tuple[str, ...](), tuple(map(str, range(n_poses)))
    if len(_contradictions(np.resize(cycle, len(blocks)), likeness)):
        # A block is missing or there twice: the images say which position each shows.
        shown = _by_images(likeness, cycle)
        slots, notes = _slots(shown, cycle, blocks, likeness)
    is_used = np.diff(slots, prepend=-1) > 0
    if is_counted and notes:
        starts = slots * float(np.median(np.diff(starts)))
    return PosePlan(
        poses=np.where(is_used, np.array(cycle)[slots % len(cycle)], -1),
        sweeps=np.where(is_used, slots // n_poses, -1),
        names=names,
        start_s=starts,
        notes=notes,
    ).checked(likeness)


def plan_of_paths(blocks: Sequence[Block], counts: Sequence[int]) -> PosePlan:
    """Return the plan of blocks of which each position has its own, a number of them, one position after the other."""
    return PosePlan(
        poses=np.repeat(np.arange(len(counts)), counts),
        sweeps=np.concatenate([np.arange(count) for count in counts]),
        names=tuple(map(str, range(len(counts)))),
        start_s=np.array([block.start_s for block in blocks]),
    )


def cycle_of(rule: str) -> list[int]:
    """Return the positions of the blocks until they repeat.

    Examples
    --------
    >>> cycle_of("3"), cycle_of("back-and-forth:3")
    ([0, 1, 2], [0, 1, 2, 2, 1, 0])
    """
    kind, _, number = rule.rpartition(":")
    forth = [*range(int(number))]
    return [*forth, *forth[::-1]] if kind == BACK_AND_FORTH else forth


def is_table(rule: str) -> bool:
    """Return whether a value of the option is the path of a table."""
    return rule != PATHS and not (rule.isdecimal() or rule.startswith(f"{BACK_AND_FORTH}:"))


def proposed_rule(images: NDArray[np.floating]) -> str:
    """Return the rule by which the blocks of a session show several positions in turn; empty if there is none.

    Parameters
    ----------
    images : (n_blocks, spatial) array
        An image of each block; NaN without data.
    """
    features = np.stack([_feature(image) for image in images[: MOST_PROPOSED * TRIED_SWEEPS]])
    likeness = features @ features.T
    np.fill_diagonal(likeness, np.nan)
    return _rule_of(likeness)


def _rule_of(likeness: NDArray[np.float64]) -> str:
    """Return the rule by which the likeness of blocks is that of several positions; empty if there is none."""
    likeness = likeness[: MOST_PROPOSED * TRIED_SWEEPS, : MOST_PROPOSED * TRIED_SWEEPS]
    best, found, n_blocks = 0.0, "", len(likeness)
    for n_poses in range(2, min(n_blocks // 2, MOST_PROPOSED) + 1):
        for rule in (str(n_poses), f"{BACK_AND_FORTH}:{n_poses}"):
            poses = np.resize(cycle_of(rule), n_blocks)
            same = poses[:, None] == poses
            within, beside = (np.nanmean(np.where(pairs, likeness, np.nan)) for pairs in (same, ~same))
            is_right = within - beside > best and not len(_contradictions(poses, likeness))
            if is_right and _tells_apart(poses, likeness):
                best, found = float(within - beside), rule
    return found


def _plan_of_table(
    blocks: Sequence[Block],
    path: str,
    table: Sequence[Mapping[str, str]],
    starts: NDArray[np.float64],
    likeness: NDArray[np.float64],
) -> PosePlan:
    """Return the plan of a table, which names each block by its number or its file."""
    named = dict[str, Mapping[str, str]]()
    for line, entry in enumerate(table, start=2):
        key = entry.get("block") or entry.get("file") or ""
        if not key or not entry.get("pose"):
            raise InputError(f"{path}: line {line} has no pose, or neither a block nor a file")
        named[key] = entry
    rows = [named.get(str(number), named.get(block.name)) for number, block in enumerate(blocks)]
    for number, (block, row) in enumerate(zip(blocks, rows, strict=True)):
        if row is None:
            raise OptionError(
                f"{path} has no row for block {_name(number, block)}",
                option="poses",
                remedy="add it, with the pose n/a if the block is not to be used",
            )
    labels = [row["pose"] for row in rows if row is not None]
    names = [label for label in dict.fromkeys(labels) if label != "n/a"]
    places = {row["pose"]: row.get("position_mm") or "n/a" for row in named.values()}
    known = {name: places[name] for name in names if places[name] != "n/a"}
    positions: tuple[float, ...] | None = None
    try:
        if len(known) == len(names):
            # In the order of their places
            names.sort(key=lambda name: float(known[name]))
            positions = tuple(float(known[name]) for name in names)
        elif all(name.isdecimal() for name in names):
            names.sort(key=int)
    except ValueError as error:
        raise InputError(f"{path}: a position_mm is not a number") from error
    if len(names) < 2:
        raise InputError(f"{path} names fewer than two poses", remedy="omit {poses}")
    poses = np.array([names.index(label) if label in names else -1 for label in labels])
    contradicting = _contradictions(poses, likeness)
    if len(contradicting):
        number = int(contradicting[0])
        raise InputError(
            f"block {_name(number, blocks[number])} is of pose {labels[number]} by {path}, and its image is like those of "
            f"another pose; so are those of {len(contradicting)} blocks",
            remedy="correct the table",
        )
    sweeps, seen, sweep = np.full(len(blocks), -1), set[int](), 0
    for number, pose in enumerate(poses.tolist()):
        if pose in seen:
            # A position that comes again begins a sweep.
            sweep, seen = sweep + 1, set()
        if pose >= 0:
            sweeps[number] = sweep
            seen.add(pose)
    n_unused = int(np.count_nonzero(poses < 0))
    notes = (f"{n_unused} blocks are of no pose by {path}, and are not used",) if n_unused else ()
    return PosePlan(poses, sweeps, tuple(names), starts, positions, notes)


def _name(number: int, block: Block) -> str:
    return f"{number} ({block.name})" if block.name else f"{number}"


def _feature(image: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the structure of an image between two widths, of norm 1; 0 without data."""
    from scipy.ndimage import gaussian_filter

    values = np.nan_to_num(np.asarray(image, np.float64))
    wide = gaussian_filter(values, COARSE)
    structure = gaussian_filter(values, FINE) / np.where(wide > 0, wide, 1) - (wide > 0)
    # Neighbours within FINE are alike
    sampled = structure[(slice(None, None, 2),) * structure.ndim].ravel()
    sampled -= sampled.mean()
    norm = np.linalg.norm(sampled)
    feature: NDArray[np.float64] = sampled / norm if norm > 0 else np.zeros_like(sampled)
    return feature


def _likeness(recording: Recording, executor: Executor) -> NDArray[np.float64]:
    """Return how alike the images of all blocks are, (n_blocks, n_blocks); NaN without data, and of a block and itself."""
    shape = recording.geometry.pixel_shape

    def feature(block: Block) -> NDArray[np.float64] | None:
        try:
            frames = block.pick(spread_rows(block.n_frames, PICKED_FRAMES))
        except (InputError, ValueError):
            return None
        found = _feature(mean_envelope(frames, shape))
        return found if found.any() else None

    found = list(executor.local.map(feature, recording.blocks))
    empty = np.zeros(next((len(one) for one in found if one is not None), 1))
    features = np.stack([empty if one is None else one for one in found])
    likeness: NDArray[np.float64] = features @ features.T
    np.fill_diagonal(likeness, np.nan)
    missing = np.array([one is None for one in found])
    likeness[missing] = likeness[:, missing] = np.nan
    return likeness


def _tells_apart(poses: NDArray[np.intp], likeness: NDArray[np.float64]) -> bool:
    """Return whether the blocks that are most like each other stand out: as many as there are of a position."""
    best, others = list[float](), list[float]()
    counts = np.bincount(poses[poses >= 0])
    for pose, row in zip(poses.tolist(), likeness, strict=True):
        known = np.sort(row[np.isfinite(row) & (poses >= 0)])[::-1]
        if pose >= 0 and len(known) >= counts[pose] > 1:
            best.append(float(known[: counts[pose] - 1].mean()))
            others += known[counts[pose] - 1 :].tolist()
    if not best or not others:
        return False
    middle = float(np.median(others))
    spread = 1.4826 * float(np.median(np.abs(np.array(others) - middle)))
    return float(np.median(best)) - middle > APART_SIGMA * spread


def _contradictions(poses: NDArray[np.intp], likeness: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the blocks whose image is like those of other positions; none if images do not tell positions apart."""
    if not _tells_apart(poses, likeness):
        return np.zeros(0, np.intp)
    contradicting, counts = [], np.bincount(poses[poses >= 0])
    for number, (pose, row) in enumerate(zip(poses.tolist(), likeness, strict=True)):
        known = np.flatnonzero(np.isfinite(row) & (poses >= 0))
        if pose < 0 or counts[pose] < 2 or len(known) < counts[pose] - 1:
            continue
        nearest = known[np.argsort(-row[known])[: counts[pose] - 1]]
        if np.count_nonzero(poses[nearest] == pose) < SAME_SHARE * len(nearest):
            contradicting.append(number)
    return np.array(contradicting, np.intp)


def _by_images(likeness: NDArray[np.float64], cycle: Sequence[int]) -> NDArray[np.intp]:
    """Return the position that each block shows by its image, if the first one shows the first position; -1 without data."""
    n_blocks, n_poses = len(likeness), max(cycle) + 1
    known = np.asarray(np.isfinite(likeness).any(axis=1))
    alike = np.where(np.eye(n_blocks, dtype=bool) & known, 1.0, likeness)
    # Consecutive blocks of which the others are each most like one: the positions in some order
    firsts = [first for first in range(n_blocks - n_poses + 1) if known[first : first + n_poses].all()]
    tried = [firsts[at] for at in spread_rows(len(firsts), TRIED_ANCHORS).tolist()]
    if not tried:
        return np.resize(cycle, n_blocks)
    columns = {first: alike[:, first : first + n_poses] for first in tried}
    best = max(tried, key=lambda first: float(columns[first][known].max(axis=1).mean()))
    shown = np.full(n_blocks, -1)
    shown[known] = np.argmax(columns[best][known], axis=1)
    for _ in range(2):
        # The mean likeness to all blocks of a position, instead of one
        members = np.eye(n_poses)[shown] * known[:, None]
        counts = np.isfinite(likeness).astype(float) @ members
        shown[known] = np.argmax((np.nan_to_num(likeness) @ members / np.maximum(counts, 1))[known], axis=1)
    first = int(np.argmax(known))
    expected = cycle[first % len(cycle)]
    if len(cycle) == n_poses:
        shown[known] = (shown[known] - shown[first] + expected) % n_poses
    elif shown[first] != expected:
        shown[known] = n_poses - 1 - shown[known]
    return shown


def _slots(
    shown: NDArray[np.intp], cycle: Sequence[int], blocks: Sequence[Block], likeness: NDArray[np.float64]
) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return the place of each block in the endless order of positions, equal to that before it if it is there twice."""
    period, slots, notes, n_lost = len(cycle), [0], list[str](), 0
    for number, pose in enumerate(shown.tolist()[1:], start=1):
        slot = slots[-1]
        # Steps to the next place of this position
        steps = [1 + (at - slot - 1) % period for at in range(period) if cycle[at] == pose] or [1]
        step, name = min(steps), _name(number, blocks[number])
        if step > 1 and pose == cycle[slot % period]:
            notes.append(f"block {name} shows the same position as the block before it, and is not used")
            step = 0
        elif step > 1:
            n_lost += step - 1
            missing = "a block is" if step == 2 else f"{step - 1} blocks are"
            notes.append(f"{missing} missing before block {name}, by the positions that the images show")
        if n_lost > MOST_LOST * len(blocks):
            proposed = _rule_of(likeness)
            shows = f"; they are as with poses {proposed}" if proposed else ""
            raise InputError(
                f"the images do not show the positions in this order: block {name} shows position {pose}, and position "
                f"{cycle[(slot + 1) % period]} is expected{shows}",
                remedy="give {poses} another number, or a table with the pose of each block",
            )
        slots.append(slot + step)
    return np.array(slots, np.intp), tuple(notes)
