"""The activation, regions and responses of a series that exists: ``usdenoise model`` and :func:`usdenoise.model`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter

from usdenoise.blood.doppler import POWER_IMAGES
from usdenoise.errors import OptionError, check_path
from usdenoise.files.input_files import sha256
from usdenoise.files.power_series import POSE, PowerSeries, read_power_series
from usdenoise.files.regions import drawn_regions
from usdenoise.jobs.job import Job, StageClock
from usdenoise.jobs.poses_job import over_positions
from usdenoise.jobs.run_job import carry_out
from usdenoise.jobs.session_inputs import Reading, events_of
from usdenoise.linalg.tall_matrices import TINY
from usdenoise.options import DenoiseOptions, Display, Output, SessionOptions
from usdenoise.pipeline.recording import Block, Recording, Window
from usdenoise.progress import Progress
from usdenoise.report.record import InputRecord, input_record
from usdenoise.sessions.bad_blocks import BlockLevel, find_bad_blocks
from usdenoise.sessions.design import Event
from usdenoise.sessions.model import modelled
from usdenoise.sessions.pose_series import PoseSeries
from usdenoise.sessions.poses import PosePlan
from usdenoise.sessions.regions import region_masks
from usdenoise.sessions.result_series import BlockRecord, FramesRecord, ResultSeries
from usdenoise.sessions.session_activation import check_activation
from usdenoise.stack.geometry import Geometry

LASTING = 5
"""Blocks over which the level of a series of others is the median: what lasts for more than half of them is no burst."""


def run_model(  # noqa: PLR0913
    path: str | Path,
    folder: str | Path,
    *,
    session_options: SessionOptions | None = None,
    regions: Mapping[str, NDArray[np.bool_] | str] | None = None,
    reading: Reading | None = None,
    display: Display | None = None,
    output: Output | None = None,
    overwrite: bool = False,
    command: list[str] | None = None,
    watcher: Progress | None = None,
) -> dict[str, Any]:
    """Model a series of power images that exists, and write the maps, regions and responses with their page.

    Parameters
    ----------
    path : str or Path
        As for :func:`usdenoise.files.power_series.read_power_series`.
    folder : str or Path
        Folder of the results.
    session_options : SessionOptions, optional
        The events and the model.
    regions, reading, display, output, overwrite, command, watcher
        As for :func:`usdenoise.jobs.session_job.run_session`.

    Returns
    -------
    dict
        The report, as written to ``<name>_report.json``.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    check_path(path)
    path, session = Path(path), session_options or SessionOptions()
    name = path.name.removesuffix(".gz").rpartition(".")[0].removesuffix("_sequence")
    job = Job(
        paths=(path,),
        name=f"{name}_model",
        root=Path(folder),
        options=DenoiseOptions(),
        reading=reading or {},
        session=session,
        display=display or Display(),
        output=output or Output(),
        regions=regions or {},
        events=session.events,
        command=command,
        is_model=True,
    )
    return carry_out(job, _model_of_file, overwrite, watcher or Progress())


def _model_of_file(job: Job, watcher: Progress, clock: StageClock) -> tuple[ResultSeries, InputRecord]:
    """Return the modelled series of a file and the record of the file, for :func:`carry_out`."""
    with clock.stage("load"):
        power = read_power_series(job.path, job.reading, job.session_options.block_interval_s)
        source = input_record(job.path, power.geometry, power.geometry.shape)
        source = replace(source, sha256=sha256(job.path), assumptions=power.notes)
    events, notes = events_of(job.events)
    watcher.assumed([*power.notes, *notes])
    with clock.stage("filter"):
        return model_of(power, job.session_options, events, job.regions), source


def model_of(
    power: PowerSeries,
    session: SessionOptions,
    events: Sequence[Event],
    regions: Mapping[str, NDArray[np.bool_] | str],
) -> ResultSeries:
    """Return a series with its activation by some events, and its regions.

    Parameters
    ----------
    power : PowerSeries
        The series.
    session : SessionOptions
        The model.
    events : sequence of Event
        The events; none for no activation maps.
    regions : mapping
        Name -> region whose mean power is followed, as for :func:`usdenoise.session`; none for no regions.

    Raises
    ------
    OptionError
        If there are neither events nor regions, or an option is wrong.
    InputError
        If the events do not fit the series.
    """
    if not power.poses:
        return _modelled([_series_of(power, session)], events, regions, power.geometry, None)
    sweeps, poses = np.nonzero(power.n_frames >= 0)
    # A missing block has the frames of a usual one
    n_frames = np.where(power.n_frames > 0, power.n_frames, np.median(power.n_frames[power.n_frames > 0]))
    halves = (n_frames - 1) / 2 / (power.geometry.frame_rate_hz or 1.0)
    plan = PosePlan(poses, sweeps, power.poses, power.times - halves)
    all_series = [_series_of(power, session, pose) for pose in range(len(power.poses))]
    return _modelled(all_series, events, regions, power.geometry, plan)


def remodelled(
    series: ResultSeries,
    session: SessionOptions,
    events: Sequence[Event],
    regions: Mapping[str, NDArray[np.bool_] | str],
) -> ResultSeries:
    """Return the series of a session with another activation and other regions, as :func:`model_of` does."""
    plan = series.plan if isinstance(series, PoseSeries) else None
    of_poses = series.by_pose.values() or [series]
    bare = [replace(each, options=session, event_doubts=(), events=(), activations={}) for each in of_poses]
    return _modelled(bare, events, regions, series.geometry, plan)


def _modelled(
    all_series: Sequence[ResultSeries],
    events: Sequence[Event],
    regions: Mapping[str, NDArray[np.bool_] | str],
    geometry: Geometry,
    plan: PosePlan | None,
) -> ResultSeries:
    """Return the series of one or several positions with their activation and their regions."""
    if not events and not regions:
        raise OptionError("there is nothing to model", remedy="give {events}, {regions} or both")
    drawn = drawn_regions(regions)
    if plan is not None:
        plane = all_series[0].geometry
        drawn = {name: partial(over_positions, plane, region) for name, region in drawn.items()}
    session = all_series[0].options
    for number, series in enumerate(all_series):
        check_activation(_as_recording(series), events, session, is_planned=number > 0)
    masks = region_masks(drawn, geometry) if drawn else {}
    return modelled(all_series, events, masks, plan, geometry)


def _series_of(power: PowerSeries, session: SessionOptions, pose: int | None = None) -> ResultSeries:
    """Return the series of a position of the probe, or of the only one."""
    here: tuple[Any, ...] = (slice(None),)
    geometry = power.geometry
    if pose is not None:
        here = power.n_frames[:, pose] >= 0, pose
        spatial = geometry.spatial_axes.replace(POSE, "")
        n_blocks = int(np.count_nonzero(here[0]))
        coordinates = {letter: along for letter, along in geometry.coordinates.items() if letter != POSE}
        geometry = replace(
            geometry,
            axes=f"t{spatial}",
            shape=(n_blocks, *geometry.shape_in(spatial)),
            coordinates=coordinates,
        )
    images = {name: values[here] for name, values in power.images.items()}
    bad = np.zeros(len(images["blood_power"]), bool) if power.bad is None else power.bad[here]
    why = [""] * len(bad)
    if power.bad is None:
        # A change of the whole image that lasts, as by a drug, makes no block bad
        levels = np.nanmean(images["blood_power"].reshape(len(bad), -1), axis=1, dtype=np.float64)
        usual = np.maximum(median_filter(levels, LASTING), TINY)
        scaled = zip(images["blood_power"], usual, strict=True)
        why, _ = find_bad_blocks([BlockLevel(image.ravel() / level) for image, level in scaled])
    unknown = np.full(len(bad), np.nan)
    measures = {name: values[here] for name, values in power.measures.items()}
    shifts = [measures.get(f"shift_{letter}", unknown) for letter in geometry.pixel_axes]
    is_aligned = any(np.isfinite(shift).any() for shift in shifts)
    motion, gains = (measures.get(name, unknown).tolist() for name in ("motion", "gain"))

    def known(value: float) -> float | None:
        return None if np.isnan(value) else value

    return ResultSeries(
        fit=None,
        picture_quality=None,
        geometry=geometry,
        images={"power_doppler": images["blood_power"], **images},
        means={name: values if pose is None else values[pose] for name, values in power.means.items()},
        attributes={**POWER_IMAGES, "tsnr": {"unit": "1"}},
        block_records=tuple(
            BlockRecord(
                time=time,
                n_frames=n_frames,
                complete=True,
                low_cutoff=0,
                is_bad=bool(bad[number] or why[number]),
                why=why[number],
                frames=FramesRecord(
                    displacement=known(motion[number]), displacement_unit=geometry.displacement_unit[1]
                ),
                shift_pixels=tuple(float(shift[number]) for shift in shifts) if is_aligned else None,
                gain_db=known(gains[number]),
            )
            for number, (time, n_frames) in enumerate(
                zip(power.times[here].tolist(), power.n_frames[here].tolist(), strict=True)
            )
        ),
        options=session,
    )


def _as_recording(series: ResultSeries) -> Recording:
    """Return the times of the blocks of a series as a recording without frames."""
    frame_time = 1 / (series.geometry.frame_rate_hz or 1.0)
    blocks = [
        Block(chunks=(), window=Window(0, block.n_frames, True), start_s=start)
        for block, start in zip(series.block_records, series.starts.tolist(), strict=True)
    ]
    return Recording(series.geometry, np.dtype(np.float32), blocks, frame_time)
