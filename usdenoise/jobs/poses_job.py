"""Sessions of several positions of the probe: each is filtered as a session of its own, and has a page of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError
from usdenoise.files.bids import read_poses
from usdenoise.jobs.job import Job, StageClock, pose_job
from usdenoise.jobs.run_job import carry_out
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.options.job_options import PATHS
from usdenoise.pipeline.doubts import Doubt
from usdenoise.pipeline.recording import Recording
from usdenoise.pipeline.series import BlockLags
from usdenoise.progress import Progress
from usdenoise.report.record import InputRecord
from usdenoise.sessions.blocks import NO_STARTS
from usdenoise.sessions.design import Event
from usdenoise.sessions.filter_session import filter_session
from usdenoise.sessions.measured_block import BlockFindings, BlockStore, Empty, MeasuredBlock
from usdenoise.sessions.pose_series import POSE_AXIS, PoseSeries, joined_poses, pose_geometry
from usdenoise.sessions.poses import PosePlan, is_table, plan_of, plan_of_paths
from usdenoise.sessions.regions import Region, region_masks
from usdenoise.sessions.result_series import ResultSeries
from usdenoise.sessions.session_activation import check_activation, with_activation


def filter_positions(
    recording: Recording,
    session: SessionOptions,
    options: DenoiseOptions,
    store: BlockStore,
    events: Sequence[Event],
    regions: Mapping[str, Region],
    doubts: tuple[Doubt, ...] = (),
    **how: Any,
) -> PoseSeries:
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
    plan, progress = _plan(recording, session, options), how.pop("progress", None) or Progress()
    progress.assumed(plan.notes)
    recordings = [plan.recording_of(recording, pose) for pose in range(len(plan.names))]
    alone = replace(session, poses=None, pose_step_mm=None)
    # Events and regions that do not fit are an error before an hour of filtering.
    for of_pose in recordings:
        check_activation(of_pose, events, alone)
    geometry = pose_geometry(recording.geometry, plan, session.pose_step_mm)
    masks = region_masks(regions, geometry) if regions else {}
    n_done, poses = 0, list[ResultSeries]()
    for pose, of_pose in enumerate(recordings):
        part = _PartOfStore(store, plan.blocks_of(pose))
        watcher = _PartOfProgress(progress, n_done, sum(len(one.blocks) for one in recordings))
        try:
            series = filter_session(of_pose, alone, options, part, progress=watcher, **how)
        except (InputError, OptionError) as error:
            raise error.at(f"pose {plan.names[pose]}") from error
        poses.append(replace(series, event_doubts=doubts))
        n_done += len(of_pose.blocks)
    filled = [replace(series, images=series.filled().images) for series in with_activation(poses, events)]
    return joined_poses(filled, plan, geometry, masks)


def _plan(recording: Recording, session: SessionOptions, options: DenoiseOptions) -> PosePlan:
    """Return which block shows which position."""
    if POSE_AXIS in recording.geometry.axes:
        raise InputError(
            "several positions of a probe that images volumes cannot be joined", remedy="omit {poses}"
        )
    rule = str(session.poses)
    if rule == PATHS:
        if len(recording.positions) < 2:
            raise OptionError(
                "paths requires a path for each position", option="poses", remedy="give several paths"
            )
        return plan_of_paths(recording.blocks, recording.positions)
    table = read_poses(Path(rule)) if is_table(rule) else []
    # The times of the blocks come from their number
    is_counted = session.block_interval_s is not None or NO_STARTS in recording.geometry.assumptions
    with ThreadExecutor(options.threads) as threads:
        return plan_of(recording, rule, table, is_counted, threads)


def write_poses(job: Job, series: PoseSeries, source: InputRecord) -> None:
    """Write the results of each position, as of a session of its own: its page, its report, its tables and its series."""
    for number, of_pose in enumerate(series.poses):
        result = of_pose, source
        carry_out(pose_job(job, number, series.names[number]), partial(_given, result), True, Progress())


def _given(
    result: tuple[ResultSeries, InputRecord], job: Job, watcher: Progress, clock: StageClock
) -> tuple[ResultSeries, InputRecord]:
    """Return a result that is there, as the filter of a job."""
    return result


@dataclass(frozen=True)
class _PartOfStore:
    """The store of some blocks of a session, which are numbered from 0."""

    store: BlockStore
    numbers: Sequence[int]

    @property
    def on_disk(self) -> Empty | None:
        return self.store.on_disk

    def put(self, number: int, block: MeasuredBlock) -> None:
        self.store.put(self.numbers[number], block)

    def has(self, number: int) -> bool:
        return self.store.has(self.numbers[number])

    def lags(self, number: int) -> BlockLags:
        return self.store.lags(self.numbers[number])

    def array(self, number: int, name: str) -> NDArray[np.floating]:
        return self.store.array(self.numbers[number], name)

    def findings(self, number: int) -> BlockFindings:
        return self.store.findings(self.numbers[number])


class _PartOfProgress(Progress):
    """The progress of some blocks of a session."""

    def __init__(self, whole: Progress, n_done: int, total: int) -> None:
        self._whole, self._n_done, self._total = whole, n_done, total
        self.iteration = whole.iteration  # type: ignore[method-assign]

    def blocks(self, done: int, total: int) -> None:
        self._whole.blocks(self._n_done + done, self._total)
