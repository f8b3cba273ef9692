"""The series of several positions of the probe (poses), joined: images of (sweep, pose, z, x), maps of (pose, z, x)."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.pipeline.result import Doubt
from usdenoise.sessions.activation import ActivationMap
from usdenoise.sessions.bad_blocks import interpolated_series
from usdenoise.sessions.poses import RECENT, TRIED_BLOCKS, Leads, PosePlan, likeness_of
from usdenoise.sessions.regions import mean_course, region_series
from usdenoise.sessions.result_series import BlockRecord, ResultSeries
from usdenoise.stack.arrays import NamedArray
from usdenoise.stack.data_arrays import SLICE_TIME
from usdenoise.stack.geometry import Coordinate, Geometry, pitch

POSE_AXIS = "y"
"""Axis of the positions: elevation."""

BACKLASH = (
    "the images differ between sweeps forth and back (backlash of the motor): a table of poses can name both"
)
"""Why to doubt a position that shows another slice on the way back, in words."""

_NUMBERS = re.compile(r"('[^']*'|\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
"""Names in quotes and numbers of a sentence."""


@dataclass(frozen=True, repr=False, kw_only=True)
class PoseSeries(ResultSeries):
    """The series of several positions of the probe.

    Images have the axes (sweep, pose, ...), maps (pose, ...). Each position was filtered as a session of its own, so fit and
    quality are those of the one in the middle; those of each are in `poses`. A sweep is bad if all of its blocks are.

    Attributes
    ----------
    poses : tuple of ResultSeries
        The series of each position.
    names : tuple of str
        Name of each position.
    sweeps : tuple of (n_blocks,) int arrays
        Sweep of each block of each position.
    block_times : (n_sweeps, n_poses) float64 array
        Middle of each block, in `time_unit`; where a block is missing, when it would have been.
    bad_blocks : (n_sweeps, n_poses) boolean array
        Blocks that are bad or missing.
    """

    poses: tuple[ResultSeries, ...]
    names: tuple[str, ...]
    sweeps: tuple[NDArray[np.intp], ...]
    block_times: NDArray[np.float64]
    bad_blocks: NDArray[np.bool_]

    @property
    def planes(self) -> tuple[str, ...]:
        """Each position in words, for pictures."""
        places = self.geometry.coordinates.get(POSE_AXIS)
        if places is None or places.unit != "mm":
            return tuple(f"pose {name}" for name in self.names)
        named = zip(self.names, places.values, strict=True)
        return tuple(f"pose {name}, {place:g} mm" for name, place in named)

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """The doubts about each position, those that are common to several once, with the numbers of each."""
        found = dict[tuple[str, str], list[tuple[str, str]]]()
        for name, series in self.by_pose.items():
            back = [Doubt("bad-blocks", BACKLASH)] * (name in self._other_on_the_way_back)
            for doubt in (*series.doubts, *back):
                words = _NUMBERS.sub(lambda part: part[0] if part[0].startswith("'") else "", doubt.sentence)
                found.setdefault((doubt.code, words), []).append((name, doubt.sentence))
        doubts = []
        for (code, _), named in found.items():
            names = [*dict.fromkeys(name for name, _ in named)]
            of = f"pose{'s' * (len(names) > 1)} {', '.join(names)}: " * (len(names) < len(self.poses))
            parts = zip(*(_NUMBERS.split(sentence) for _, sentence in named), strict=True)
            joined = [each[0] if len({*each}) == 1 else "/".join(each) for each in parts]
            doubts.append(Doubt(code, f"{of}{''.join(joined)}"))
        return tuple(doubts)

    @cached_property
    def _other_on_the_way_back(self) -> list[str]:
        """Names of the positions whose images differ between sweeps forth and back."""
        is_back = (self.block_times[:TRIED_BLOCKS, -1] < self.block_times[:TRIED_BLOCKS, 0]).astype(np.intp)
        # Of a few sweeps the spread is not known.
        if np.bincount(is_back, minlength=2).min() < 2 * RECENT:
            return []
        named = zip(self.names, np.moveaxis(self.images["blood_power"][:TRIED_BLOCKS], 1, 0), strict=True)
        names = [name for name, images in named if Leads.of(is_back, likeness_of(images)).tell_apart()]
        # At both ends the motor may not move in between. Of the others most differ.
        return names if 2 * len(names) >= len(self.names) - 2 else []

    @property
    def plan(self) -> PosePlan:
        """Which block shows which position, the blocks of a position one after the other."""
        poses = np.repeat(np.arange(len(self.poses)), [len(sweeps) for sweeps in self.sweeps])
        return PosePlan(poses, np.concatenate(self.sweeps), self.names, self.block_starts)

    @property
    def by_pose(self) -> dict[str, ResultSeries]:
        """Name of each position -> its series."""
        return dict(zip(self.names, self.poses, strict=True))

    @property
    def counting(self) -> NDArray[np.float32]:
        """Blood power in which bad blocks are NaN, unless they are interpolated: they do not count in courses."""
        counting = self.images["blood_power"].copy()
        if self.interpolated is None:
            counting[self.bad_blocks] = np.nan
        return counting

    @property
    def sweep_duration(self) -> float:
        """Usual time from the first frame of a sweep to its last one, in `time_unit`."""
        return float(np.median(np.ptp(self.block_times, axis=1))) + self.block_duration

    @property
    def block_duration(self) -> float:
        """Duration of a usual block, in `time_unit`."""
        return self.window / (self.geometry.frame_rate_hz or 1.0)

    @property
    def block_starts(self) -> NDArray[np.float64]:
        """Time of the first frame of each block, in `time_unit`, as `block_times`."""
        frame_time = 1 / (self.geometry.frame_rate_hz or 1.0)
        return np.asarray(self.block_times - (self.window - 1) / 2 * frame_time)

    @property
    def starts(self) -> NDArray[np.float64]:
        """Time of the first frame of each sweep, in `time_unit`."""
        return np.asarray(self.block_starts.min(axis=1))

    def filled_image(self, name: str) -> NDArray[np.float32]:
        """Return a power image in which bad and missing blocks are interpolated, each position by itself."""
        by_pose = np.moveaxis(self.images[name], 1, 0)
        of_poses = zip(by_pose, self.block_times.T, self.bad_blocks.T, strict=True)
        return np.stack([interpolated_series(*of_pose) for of_pose in of_poses], axis=1)

    def contents(self) -> list[NamedArray]:
        """Return the arrays of the result, as files and xarray have them."""
        of_sweeps = {"first_frame", "n_frames", "complete", "bad", "interpolated", *self.movement}
        arrays = {array.name: array for array in super().contents() if array.name not in of_sweeps}
        blood, time = arrays["blood_power"], arrays["time"]
        of_blood = {**blood.attributes, "poses": json.dumps(self.names)}
        arrays["blood_power"] = replace(blood, attributes=of_blood)
        meaning = "middle of each sweep over the positions, from the first frame of the first file"
        of_sweep = {"volume_acquisition_duration": self.sweep_duration, "meaning": meaning}
        arrays["time"] = replace(time, attributes={**time.attributes, **of_sweep})
        names = {"poses": ", ".join(self.names)}
        of_block = {**time.attributes, "meaning": "middle of the block of each position in each sweep"}
        bad = {"meaning": "1 if the block is bad or missing, and excluded", **names}
        of_blocks = [
            NamedArray(SLICE_TIME, self.block_times, f"t{POSE_AXIS}", {**of_block, **names}),
            NamedArray("bad", self.bad_blocks, f"t{POSE_AXIS}", bad),
        ]
        if self.interpolated is not None:
            filled = {"meaning": "1 if the powers of the block are interpolated between good blocks", **names}
            of_blocks.append(NamedArray("interpolated", self.bad_blocks, f"t{POSE_AXIS}", filled))
        # -1 where a position has no block in a sweep
        n_frames = [np.array([block.n_frames for block in series.block_records]) for series in self.poses]
        of_blocks.append(NamedArray("n_frames", self.plan.over_sweeps(n_frames, -1), f"t{POSE_AXIS}"))
        for name, array in self.poses[0].movement.items():
            moved = self.plan.over_sweeps([series.movement[name].values for series in self.poses], np.nan)
            of_blocks.append(replace(array, values=moved, axes=f"t{POSE_AXIS}"))
        return [*arrays.values(), *of_blocks]


def joined_poses(
    poses: Sequence[ResultSeries], plan: PosePlan, geometry: Geometry, masks: Mapping[str, NDArray[np.bool_]]
) -> PoseSeries:
    """Return the series of several positions as one.

    Parameters
    ----------
    poses : sequence of ResultSeries
        The series of each position, with their activation and the responses of their regions.
    plan : PosePlan
        Which block shows which position.
    geometry : Geometry
        Axes and scales of the sweeps, from :func:`pose_geometry`.
    masks : mapping
        Name of each region -> its mask over all positions; none for no regions.
    """
    first, n_poses, n_sweeps = poses[0], len(poses), geometry.n_frames
    sweeps = [plan.sweeps[plan.blocks_of(pose)] for pose in range(n_poses)]
    times = plan.over_sweeps([series.time for series in poses], np.nan)
    half = (first.window - 1) / 2 / (geometry.frame_rate_hz or 1.0)
    block_times = np.where(np.isfinite(times), times, plan.cell_starts + half).astype(np.float64)
    bad = plan.over_sweeps([series.bad for series in poses], True)
    middle = poses[n_poses // 2]
    joined = PoseSeries(
        fit=middle.fit,
        picture_quality=middle.picture_quality,
        geometry=geometry,
        images={
            name: plan.over_sweeps([series.images[name] for series in poses], np.nan) for name in first.images
        },
        means={name: np.stack([series.means[name] for series in poses]) for name in first.means},
        attributes=first.attributes,
        block_records=tuple(
            BlockRecord(
                time=float(block_times[sweep].min() + block_times[sweep].max()) / 2,
                n_frames=first.window,
                complete=True,
                low_cutoff=middle.low_cutoff,
                is_bad=bool(bad[sweep].all()),
            )
            for sweep in range(n_sweeps)
        ),
        n_unusual=sum(series.n_unusual for series in poses),
        options=first.options,
        events=first.events,
        delay_s=first.delay_s,
        poses=tuple(poses),
        names=plan.names,
        sweeps=tuple(sweeps),
        block_times=block_times,
        bad_blocks=np.asarray(bad, bool),
    ).filled()
    maps = {name: [series.activations[name] for series in poses] for name in first.activations}
    activations = {name: _joined_map(of_poses, joined) for name, of_poses in maps.items()}
    return replace(joined, activations=activations, region_series=region_series(joined.counting, masks))


def pose_geometry(geometry: Geometry, plan: PosePlan, step_mm: float | None) -> Geometry:
    """Return the geometry of a series of sweeps, whose elevation is the position of the probe.

    Parameters
    ----------
    geometry : Geometry
        Axes and scales of the blocks.
    plan : PosePlan
        Which block shows which position.
    step_mm : float or None
        Distance of the positions; None if it is not known, or the plan has their places.
    """
    spatial, (n_sweeps, n_poses) = geometry.spatial_axes, plan.cell_starts.shape
    spacing, coordinates = dict(geometry.spacing_mm), dict(geometry.coordinates)
    coordinates.pop("t", None)
    places = plan.positions_mm
    if places is None and step_mm is not None:
        places = tuple(step_mm * np.arange(n_poses))
    if places is not None:
        coordinates[POSE_AXIS] = Coordinate(np.array(places), unit="mm")
        if (step := pitch(places, 1.0)) is not None:
            spacing[POSE_AXIS] = step
    # Where the input places its voxels, it does so for one plane.
    placed = ("voxel_to_world", "voxel_to_world_units")
    return replace(
        geometry,
        axes=f"t{POSE_AXIS}{spatial}",
        shape=(n_sweeps, n_poses, *geometry.shape_in(spatial)),
        spacing_mm=spacing,
        coordinates=coordinates,
        attributes={name: value for name, value in geometry.attributes.items() if name not in placed},
        assumptions=(*geometry.assumptions, *plan.notes),
        labels=None,
    )


def _joined_map(maps: Sequence[ActivationMap], joined: PoseSeries) -> ActivationMap:
    """Return the activation maps of all positions as one; its course is the mean over the active pixels of all."""
    first, active = maps[0], np.stack([found.active for found in maps])

    # A response with free delays has them first.
    axis, of_maps = -first.active.ndim - 1, [found.images for found in maps]
    stacked: dict[str, Any] = {name: np.stack([each[name] for each in of_maps], axis) for name in of_maps[0]}
    # The response that the blocks of a sweep expect, on the mean, and the course of the pixels that are active
    of_blocks = joined.plan.over_sweeps([found.expected for found in maps], np.nan)
    sums, counts = np.nansum(of_blocks, axis=1), np.isfinite(of_blocks).sum(axis=1)
    course = mean_course(joined.counting[:, active])
    if active.any():
        course = 100 * course / np.nanmean(course[~joined.bad])
    n_smoothed = [found.n_active_smoothed for found in maps if found.n_active_smoothed is not None]
    thresholds = [found.threshold for found in maps if found.threshold is not None]
    correlations = dict[str, float]()
    for measure in first.correlations:
        correlations[measure] = max((found.correlations.get(measure, 0.0) for found in maps), key=abs)
    return replace(
        first,
        **stacked,
        active=active,
        threshold=min(thresholds, default=None),
        expected=np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0),
        course=course,
        correlations=correlations,
        clusters=tuple(mass for found in maps for mass in found.clusters),
        n_active_smoothed=sum(n_smoothed) if n_smoothed else None,
    )
