"""Several positions of the probe (poses) in one session: which block shows which, by a rule or a table.

A linear probe that a motor steps through positions shows one plane in each block. Each position is a session of its own,
which :func:`usdenoise.sessions.filter_session.filter_session` filters; :mod:`usdenoise.sessions.pose_series` joins them.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.frames.alignment import mean_envelope
from usdenoise.linalg.executor import Executor
from usdenoise.options.job_options import BACK_AND_FORTH, PATHS
from usdenoise.pipeline.recording import Block, Recording
from usdenoise.stack.geometry import pitch
from usdenoise.stack.metadata import PLAUSIBLE
from usdenoise.stack.sampling import spread_rows
from usdenoise.system.text import counted

TRIED_BLOCKS = 160
"""First blocks by which an order of the positions is proposed."""

UNEVEN = 0.1
"""Part of the interval of blocks by which their times may differ from multiples of it, and say that one is missing."""

NO_POSE = "n/a"
"""Pose of a block that is not used, and place that is not known."""

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
    cell_starts : (n_sweeps, n_poses) float64 array
        Time of the first frame of the block of each position in each sweep; of one that is missing, when it would have been.
    positions_mm : tuple of float or None
        Where each position is; None (the default) if it is not known.
    notes : tuple of str
        Sentences on blocks that are missing or not used; none by default.
    """

    poses: NDArray[np.intp]
    sweeps: NDArray[np.intp]
    names: tuple[str, ...]
    cell_starts: NDArray[np.float64]
    positions_mm: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()

    def only(self, chosen: NDArray[np.bool_]) -> Self:
        """Return the plan of some blocks; the first sweep is the first one with a block of these."""
        is_used = chosen & (self.poses >= 0)
        if not is_used.any():
            return replace(self, poses=np.full_like(self.poses, -1))
        first, last = int(self.sweeps[is_used].min()), int(self.sweeps[is_used].max())
        return replace(
            self,
            poses=np.where(is_used, self.poses, -1),
            sweeps=np.where(is_used, self.sweeps - first, -1),
            cell_starts=self.cell_starts[first : last + 1],
        )

    def blocks_of(self, pose: int) -> list[int]:
        """Return the numbers of the blocks of a position, in the order of time."""
        return [number for number, shown in enumerate(self.poses.tolist()) if shown == pose]

    def over_sweeps(self, values: Sequence[NDArray[Any]], missing: float) -> NDArray[Any]:
        """Return values of each block, (n_blocks, ...) of each position, as (n_sweeps, n_poses, ...)."""
        joined = np.full((*self.cell_starts.shape, *values[0].shape[1:]), missing, values[0].dtype)
        for pose, of_pose in enumerate(values):
            joined[self.sweeps[self.blocks_of(pose)], pose] = of_pose
        return joined

    def recording_of(self, recording: Recording, pose: int) -> Recording:
        """Return the recording of the blocks of a position."""
        blocks = [recording.blocks[number] for number in self.blocks_of(pose)]
        return replace(recording, blocks=blocks, positions=())


def plan_of(
    recording: Recording, rule: str, table: Sequence[Mapping[str, str]], executor: Executor
) -> PosePlan:
    """Return the plan of a session whose blocks show several positions.

    By a rule, one block follows the other. Where the images contradict that, and the times of the blocks are multiples of
    an interval, a longer one has place for blocks that are missing.

    Parameters
    ----------
    recording : Recording
        The blocks.
    rule : str
        "N" for N positions in turn, "back-and-forth:N", or the path of a table, for messages.
    table : sequence of mappings
        Rows of the table: pose, block or file, and position_mm if it is known; empty for a rule.
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
    images = executor.local.map(partial(image_of, shape=recording.geometry.pixel_shape), blocks)
    likeness = likeness_of(list(images))
    if table:
        plan = _plan_of_table(blocks, rule, table)
    else:
        # In order, or with places for blocks that are missing, where the images agree better
        cycle = np.array(cycle_of(rule))
        timed = _slots_of_times(blocks)
        slots = max(
            [np.arange(len(blocks)), timed],
            key=lambda slots: Leads.of(cycle[slots % len(cycle)], likeness).mean,
        )
        # A clock that jumps has as many places: only a plan that is taken has them
        plan = _plan_of_rule(blocks, rule, slots)
        # After whole sweeps the order goes on, and images cannot tell them from a pause
        steps = np.diff(timed) - np.diff(slots)
        notes = (
            f"{counted(step // len(plan.names), 'sweep')} missing, or a pause, before block {_name(at, blocks[at])}"
            for at, step in enumerate(steps.tolist(), start=1)
            if step and step % len(cycle) == 0 and steps.sum() <= MOST_LOST * len(blocks)
        )
        plan = replace(plan, notes=(*plan.notes, *notes))
    leads = Leads.of(plan.poses, likeness)
    if not leads.tell_apart() and not table and (proposed := proposed_rule(likeness)):
        raise InputError(
            f"the images do not show the positions in this order; they do with poses {proposed}",
            remedy="give {poses} another number, or a table with the pose of each block",
        )
    if against := leads.contradictions():
        number, likest = against[0]
        raise InputError(
            f"block {_name(number, blocks[number])} is of pose {plan.names[plan.poses[number]]} by {rule}, and its image is "
            f"like those of pose {plan.names[likest]}; {len(against)} blocks are like those of another pose",
            remedy="give {poses} a table with the pose of each block, where one is missing, there twice or elsewhere: pose "
            "n/a if it is not to be used",
        )
    if leads.tell_apart():
        return plan
    note = "the images of the blocks do not confirm the positions: which block shows which is as given"
    return replace(plan, notes=(*plan.notes, note))


def _slots_of_times(blocks: Sequence[Block]) -> NDArray[np.intp]:
    """Return the places of blocks by their times, if these are multiples of an interval; in order, if not."""
    steps = np.diff([block.start_s for block in blocks])
    ratios = steps / max(float(np.median(steps)), 1e-9)
    if (ratios < 1 - UNEVEN).any() or (np.abs(ratios - np.rint(ratios)) > UNEVEN).any():
        return np.arange(len(blocks))
    return np.concatenate([[0], np.cumsum(np.rint(ratios))]).astype(np.intp)


def _plan_of_rule(blocks: Sequence[Block], rule: str, slots: NDArray[np.intp]) -> PosePlan:
    """Return the plan of a rule by which positions follow each other, and in which blocks have some of the places."""
    cycle = np.array(cycle_of(rule))
    n_poses = int(cycle.max()) + 1
    if len(blocks) < 2 * n_poses:
        problem = f"{len(blocks)} blocks are fewer than two sweeps over {n_poses} positions"
        raise InputError(problem, remedy="lower {poses}")
    # The time of each place, also of blocks that are not there
    places = np.arange((int(slots[-1]) // n_poses + 1) * n_poses)
    cells = np.empty((len(places) // n_poses, n_poses))
    starts = np.array([block.start_s for block in blocks])
    cells[places // n_poses, cycle[places % len(cycle)]] = _times_at(places, slots, starts)
    notes = tuple(
        f"{step - 1} missing before block {_name(number, blocks[number])}, by the times"
        for number, step in enumerate(np.diff(slots).tolist(), start=1)
        if step > 1
    )
    names = tuple(map(str, range(n_poses)))
    return PosePlan(cycle[slots % len(cycle)], slots // n_poses, names, cells, notes=notes)


def _times_at(
    places: NDArray[np.intp], known: NDArray[np.intp], starts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return times between those of known places, and with the usual step before the first and behind the last one."""
    step = float(np.median(np.diff(starts) / np.diff(known))) if len(known) > 1 else 0.0
    beyond = np.maximum(places - known[-1], 0) - np.maximum(known[0] - places, 0)
    return np.asarray(np.interp(places, known, starts) + step * beyond)


def plan_of_paths(blocks: Sequence[Block], counts: Sequence[int]) -> PosePlan:
    """Return the plan of blocks of which each position has its own, a number of them, one position after the other."""
    poses = np.repeat(np.arange(len(counts)), counts)
    sweeps = np.concatenate([np.arange(count) for count in counts])
    names = tuple(map(str, range(len(counts))))
    return PosePlan(poses, sweeps, names, _cells(poses, sweeps, blocks))


def _cells(poses: NDArray[np.intp], sweeps: NDArray[np.intp], blocks: Sequence[Block]) -> NDArray[np.float64]:
    """Return the times of blocks by sweep and position, (n_sweeps, n_poses); of missing ones by those of other sweeps."""
    starts = np.array([block.start_s for block in blocks])
    cells = np.empty((int(sweeps.max()) + 1, int(poses.max()) + 1))
    for pose, column in enumerate(cells.T):
        # In the order of the sweeps
        of_pose = np.flatnonzero(poses == pose)
        column[:] = _times_at(np.arange(len(cells)), sweeps[of_pose], starts[of_pose])
    return cells


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


def proposed_rule(likeness: NDArray[np.float64]) -> str:
    """Return the rule by which blocks show several positions in turn, by their likeness; empty if there is none."""
    likeness = likeness[:TRIED_BLOCKS, :TRIED_BLOCKS]
    best, found, n_blocks = 0.0, "", len(likeness) if np.isfinite(likeness).any() else 0
    for n_poses in range(2, n_blocks // RECENT + 1):
        for rule in (str(n_poses), f"{BACK_AND_FORTH}:{n_poses}"):
            poses = np.resize(cycle_of(rule), n_blocks)
            same = poses[:, None] == poses
            within, beside = (np.nanmean(np.where(pairs, likeness, np.nan)) for pairs in (same, ~same))
            if within - beside > best and Leads.of(poses, likeness).tell_apart():
                best, found = float(within - beside), rule
    return found


def _plan_of_table(blocks: Sequence[Block], path: str, table: Sequence[Mapping[str, str]]) -> PosePlan:
    """Return the plan of a table, which names each block by its number or its file."""
    named = dict[str, Mapping[str, str]]()
    for line, entry in enumerate(table, start=2):
        key = _block_key(entry)
        if not key or not entry.get("pose"):
            raise InputError(f"{path}: line {line} has no pose, or neither a block nor a file")
        if key in named and named[key] != entry:
            raise InputError(f"{path}: line {line} contradicts an earlier line on block {key}")
        named[key] = entry
    rows = list[Mapping[str, str]]()
    for number, block in enumerate(blocks):
        row = named.get(str(number), named.get(block.name))
        if row is None:
            raise OptionError(
                f"{path} has no row for block {_name(number, block)}",
                option="poses",
                remedy="add it, with the pose n/a if the block is not to be used",
            )
        rows.append(row)
    names, positions = _positions(rows, path)
    poses = np.array([names.index(row["pose"]) if row["pose"] in names else -1 for row in rows])
    sweeps, n_unused = _sweeps(poses), int(np.count_nonzero(poses < 0))
    notes = [f"{n_unused} blocks are of no pose by {path}, and are not used"] if n_unused else []
    if positions is not None and pitch(positions, 1.0) is None:
        notes.append(f"the positions in {path} are uneven: NIfTI files have their mean distance")
    return PosePlan(poses, sweeps, tuple(names), _cells(poses, sweeps, blocks), positions, tuple(notes))


def _block_key(entry: Mapping[str, str]) -> str:
    """Return the number of the block of a row of a table, as a text, or the name of its file."""
    number = entry.get("block", "")
    try:
        return str(int(float(number))) if number else os.path.basename(entry.get("file", ""))
    except (ValueError, OverflowError):
        return number


def _positions(rows: Sequence[Mapping[str, str]], path: str) -> tuple[list[str], tuple[float, ...] | None]:
    """Return the names of the positions of a table, and where they are, in the order of their places or numbers."""
    places = dict[str, float | None]()
    for row in rows:
        name, place = row["pose"], row.get("position_mm") or NO_POSE
        if name == NO_POSE:
            continue
        try:
            known = None if place == NO_POSE else float(place)
        except ValueError:
            known = math.nan
        if known is not None and not math.isfinite(known):
            raise InputError(f"{path}: the position_mm {place} of pose {name} is not a number")
        if places.setdefault(name, known) != known:
            raise InputError(f"{path} has two values of position_mm for pose {name}")
    names, known_places = [*places], [place for place in places.values() if place is not None]
    if len(names) < 2:
        raise InputError(f"{path} names fewer than two poses", remedy="omit {poses}")
    if known_places and (len(known_places) < len(names) or len({*known_places}) < len(names)):
        raise InputError(f"{path}: each pose needs a position_mm of its own, or none has one")
    if known_places:
        step, (least, most) = float(np.median(np.diff(sorted(known_places)))), PLAUSIBLE["spacing_mm"][2]
        if not least <= step <= most:
            problem = f"{path}: position_mm has steps of {step:g} mm, outside {least:g} to {most:g} mm"
            raise InputError(problem, remedy="give position_mm in the unit mm, or no position_mm")
        names.sort(key=lambda name: places[name] or 0.0)
        return names, tuple(sorted(known_places))
    if all(name.isdecimal() for name in names):
        names.sort(key=int)
    return names, None


def _sweeps(poses: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the sweep of each block of a table: a position that comes again begins one.

    Where positions are not visited in turn, a sweep is the number of the block in its position.
    """
    sweeps, own, seen, sweep = np.full(len(poses), -1), np.full(len(poses), -1), set[int](), 0
    for number, pose in enumerate(poses.tolist()):
        if pose in seen:
            sweep, seen = sweep + 1, set()
        if pose >= 0:
            sweeps[number], own[number] = sweep, np.count_nonzero(poses[:number] == pose)
            seen.add(pose)
    is_in_turn = sweeps.max() <= (1 + MOST_LOST) * (own.max() + 1)
    return sweeps if is_in_turn else own


def _name(number: int, block: Block) -> str:
    return f"{number} ({block.name})" if block.name else f"{number}"


PICKED_FRAMES = 8
"""Frames of a block, evenly spread. Their mean envelope is compared with the mean envelopes of other blocks."""

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
    none = np.zeros(known[0].shape, np.float32)
    structures = np.stack([none if image is None else _structure(image) for image in images])
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
    return np.asarray(np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0))


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
    poses : (n_blocks,) array of int
        Position of each block; -1 if it does not count.
    likeness : (n_blocks, n_blocks) array
        How alike the blocks are, from :func:`likeness_of`.
    values : (n_blocks,) float64 array
        Likeness to its own position minus that to the likest other one; NaN where either has no block before it.
    likest : (n_blocks,) array of int
        The likest other position; -1 where that is not known.
    spreads : (n_blocks,) float64 array
        Robust standard deviation of the likeness of two blocks of one position, among the blocks up to each.
    """

    poses: NDArray[np.intp]
    likeness: NDArray[np.float64]
    values: NDArray[np.float64]
    likest: NDArray[np.intp]
    spreads: NDArray[np.float64]

    @classmethod
    def of(cls, poses: NDArray[np.intp], likeness: NDArray[np.float64]) -> Self:
        """Return the leads of blocks by their positions and their likeness."""
        latest, pairs = dict[int, list[int]](), np.zeros(0)
        known = np.asarray(np.isfinite(likeness).any(axis=1))
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
        return cls(poses, likeness, values, likest, spreads)

    @property
    def mean(self) -> float:
        """Mean of the leads that are known; 0 without any."""
        known = self.values[np.isfinite(self.values)]
        return float(known.mean()) if len(known) else 0.0

    def tell_apart(self, stop: int | None = None) -> bool:
        """Return whether images tell positions apart, and show them as given, by the blocks before one, by default all."""
        known = self.values[:stop][np.isfinite(self.values[:stop])]
        return bool(len(known) and np.median(known) > APART_SIGMA * self.spreads[:stop][-1])

    def contradictions(self) -> list[tuple[int, int]]:
        """Return the blocks whose image is like those of another position, and that position; none if that is not known."""
        found = list[tuple[int, int]]()
        # A block that moved is like no block as usual ones are.
        nearest = np.nan_to_num(self.likeness).max(axis=1, initial=0)
        # Of a few blocks the spread is not known.
        n_first = min(RECENT * (int(self.poses.max()) + 1), len(self.poses))
        for number in np.flatnonzero(self.values < 0).tolist():
            margin = OTHER_SIGMA * self.spreads[max(number, n_first) - 1]
            is_usual = nearest[number] > np.median(nearest[: number + 1]) - margin
            # Where the images before it tell nothing, a block may be like any other one.
            if self.values[number] < -margin and is_usual and (found or self.tell_apart(number)):
                found.append((number, int(self.likest[number])))
        return found
