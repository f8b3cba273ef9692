"""Sessions of several positions of the probe: each is filtered as a session of its own, and has a page of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.files.bids import read_poses
from usdenoise.jobs.job import Job, StageClock, pose_job
from usdenoise.jobs.run_job import carry_out
from usdenoise.jobs.session_inputs import ONE_PATH
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.options.job_options import PATHS
from usdenoise.pipeline.recording import Recording
from usdenoise.pipeline.result import Doubt
from usdenoise.progress import Progress
from usdenoise.report.record import InputRecord
from usdenoise.sessions.design import Event
from usdenoise.sessions.filter_session import filter_session
from usdenoise.sessions.measured_block import BlockStore
from usdenoise.sessions.model import modelled
from usdenoise.sessions.pose_series import POSE_AXIS, PoseSeries, pose_geometry
from usdenoise.sessions.poses import PosePlan, is_table, plan_of, plan_of_paths
from usdenoise.sessions.regions import Region, region_masks
from usdenoise.sessions.result_series import ResultSeries
from usdenoise.sessions.session_activation import check_activation
from usdenoise.stack.geometry import Geometry

LEAST_BLOCKS = 2
"""Blocks of each position, at least."""


def filter_positions(
    recording: Recording,
    session: SessionOptions,
    options: DenoiseOptions,
    store: BlockStore,
    events: Sequence[Event],
    regions: Mapping[str, Region],
    doubts: tuple[Doubt, ...] = (),
    **how: Any,
) -> ResultSeries:
    """Filter the blocks of several positions of the probe, each as a session of its own, and return their joined series.

    Parameters
    ----------
    recording, session, options, store, events, regions, doubts, **how
        As for :func:`usdenoise.jobs.session_job.filter_series`. The events have the time of each block, and the responses
        one significance for all positions.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    progress = how.pop("progress", None) or Progress()
    plan = _plan(recording, session, options)
    progress.assumed(plan.notes)
    geometry = pose_geometry(recording.geometry, plan, session.pose_step_mm)
    alone = replace(session, poses=None, pose_step_mm=None, blocks=None)
    recordings = [_recording_of(recording, plan, geometry, pose) for pose in range(len(plan.names))]
    # Events and regions that do not fit are an error before an hour of filtering. A position may show few of the events.
    used = sorted((block for each in recordings for block in each.blocks), key=lambda block: block.start_s)
    of_all_blocks = replace(recording, blocks=used).block_times
    check_activation(recording.geometry, of_all_blocks, events, alone)
    of_all = {name: partial(over_positions, recording.geometry, region) for name, region in regions.items()}
    masks = region_masks(of_all, geometry) if regions else {}
    n_done, poses = 0, list[ResultSeries]()
    for pose, part in enumerate(recordings):
        watcher = _PartOfProgress(progress, n_done, len(used))
        try:
            check_activation(part.geometry, part.block_times, events, alone, is_planned=True)
            if all(block.problem for block in part.blocks):
                raise InputError(f"none of its blocks can be read; the first one: {part.blocks[0].problem}")
            series = filter_session(part, alone, options, store.part(pose), progress=watcher, **how)
        except (InputError, OptionError) as error:
            raise error.at(f"pose {plan.names[pose]}") from error
        poses.append(replace(series, event_doubts=doubts))
        n_done += len(part.blocks)
    return modelled(poses, events, masks, plan, geometry)


def over_positions(plane: Geometry, region: Region, geometry: Geometry) -> NDArray[np.generic]:
    """Return the mask or labels of a region over all positions; one of a plane is in each of them."""
    try:
        mask = np.asarray(region(geometry) if callable(region) else region)
    except OptionError:
        # It may be right for a plane, and if not, that error is what a user can mend.
        mask = np.asarray(region(plane) if callable(region) else region)
    if mask.shape != plane.shape_in(plane.spatial_axes):
        return mask
    return np.broadcast_to(mask, geometry.shape_in(geometry.spatial_axes))


def _plan(recording: Recording, session: SessionOptions, options: DenoiseOptions) -> PosePlan:
    """Return which block shows which position."""
    if POSE_AXIS in recording.geometry.axes:
        raise InputError(
            "several positions of a probe that images volumes cannot be joined", remedy="omit {poses}"
        )
    rule = str(session.poses)
    if rule == PATHS:
        if len(recording.positions) < 2:
            raise OptionError(ONE_PATH, remedy="give several paths")
        plan = plan_of_paths(recording.blocks, recording.positions)
    else:
        table = read_poses(Path(rule)) if is_table(rule) else []
        with ThreadExecutor(options.threads) as threads:
            plan = plan_of(recording, rule, table, threads)
    if session.pose_step_mm is not None and plan.positions_mm is not None:
        raise OptionError(f"stands beside the places in {rule}", option="pose_step_mm", remedy="omit it")
    if session.blocks is not None:
        chosen = np.zeros(len(recording.blocks), bool)
        chosen[session.blocks] = True
        plan = plan.only(chosen)
    few = [name for pose, name in enumerate(plan.names) if len(plan.blocks_of(pose)) < LEAST_BLOCKS]
    if few:
        raise InputError(
            f"pose {few[0]} has fewer than {LEAST_BLOCKS} blocks, and a series requires more",
            remedy="check {poses}",
        )
    return plan


def _recording_of(recording: Recording, plan: PosePlan, geometry: Geometry, pose: int) -> Recording:
    """Return the recording of a position, whose image is at its place."""
    of_pose, places = plan.recording_of(recording, pose), geometry.coordinates.get(POSE_AXIS)
    if places is None:
        return of_pose
    coordinates = {**of_pose.geometry.coordinates, POSE_AXIS: places[slice(pose, pose + 1)]}
    return replace(of_pose, geometry=replace(of_pose.geometry, coordinates=coordinates))


def write_poses(job: Job, series: PoseSeries, source: InputRecord) -> None:
    """Write the results of each position, as of a session of its own: its page, its report, its tables and its series."""
    over_all = (
        f"active pixels are significant among the pixels of all {len(series.poses)} positions of the probe"
    )
    for number, of_pose in enumerate(series.poses):
        n_frames = sum(block.n_frames for block in of_pose.block_records)
        shape = [n_frames if axis == "t" else n for axis, n in zip(source.axes, source.shape, strict=True)]
        result = of_pose, replace(source, shape=tuple(shape))
        of_job = replace(pose_job(job, number, series.names), notes=(over_all,) if of_pose.activation else ())
        carry_out(of_job, partial(_given, result), True, Progress())


def _given(
    result: tuple[ResultSeries, InputRecord], job: Job, watcher: Progress, clock: StageClock
) -> tuple[ResultSeries, InputRecord]:
    """Return a result that is there, as the filter of a job."""
    return result


class _PartOfProgress(Progress):
    """The progress of some blocks of a session."""

    def __init__(self, whole: Progress, n_done: int, total: int) -> None:
        self._whole, self._n_done, self._total = whole, n_done, total
        self.iteration = whole.iteration  # type: ignore[method-assign]

    def blocks(self, done: int, total: int) -> None:
        self._whole.blocks(self._n_done + done, self._total)
