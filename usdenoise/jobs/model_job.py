"""The activation, regions and responses of a series that exists: ``usdenoise model`` and :func:`usdenoise.model`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.files.input_files import sha256
from usdenoise.files.power_series import read_power_series
from usdenoise.files.regions import drawn_regions
from usdenoise.jobs.job import Job, StageClock
from usdenoise.jobs.poses_job import over_positions
from usdenoise.jobs.run_job import carry_out
from usdenoise.jobs.session_inputs import events_of
from usdenoise.options import SessionOptions
from usdenoise.progress import Progress
from usdenoise.report.record import InputRecord, input_record
from usdenoise.sessions.design import Event
from usdenoise.sessions.model import modelled
from usdenoise.sessions.pose_series import PoseSeries
from usdenoise.sessions.regions import region_masks
from usdenoise.sessions.result_series import ResultSeries
from usdenoise.sessions.session_activation import check_activation


def run_model(
    path: Path, folder: Path, session: SessionOptions, overwrite: bool, watcher: Progress, **about: Any
) -> dict[str, Any]:
    """Model a series of power images that exists, and write the maps, regions and responses with their page.

    Parameters
    ----------
    path : Path
        As for :func:`usdenoise.files.power_series.read_power_series`.
    folder : Path
        Folder of the results.
    session : SessionOptions
        The events and the model.
    overwrite, watcher
        As for :func:`usdenoise.run`.
    **about
        Further fields of :class:`usdenoise.jobs.job.Job`: regions, options, reading, display, output and command.

    Returns
    -------
    dict
        The report, as written to ``<name>_report.json``.

    Raises
    ------
    UsdenoiseError
        For anything that the user can mend.
    """
    stem = Path(path.name.removesuffix(".gz")).stem.removesuffix("_sequence")
    about |= {"session": session, "events": events_of(session.events), "is_model": True}
    job = Job(paths=(path,), name=f"{stem}_model", root=folder, **about)
    return carry_out(job, _model_of_file, overwrite, watcher)


def _model_of_file(job: Job, watcher: Progress, clock: StageClock) -> tuple[ResultSeries, InputRecord]:
    """Return the modelled series of a file and the record of the file, for :func:`carry_out`."""
    with clock.stage("load"):
        series = read_power_series(job.path, job.reading, job.session_options.block_interval_s)
        source = input_record(job.path, series.geometry, series.geometry.shape)
        source = replace(source, sha256=sha256(job.path))
    events, notes = job.events
    watcher.assumed([*source.assumptions, *notes])
    with clock.stage("filter"):
        return model_of(series, job.session_options, events, job.regions), source


def model_of(
    series: ResultSeries,
    session: SessionOptions,
    events: Sequence[Event],
    regions: Mapping[str, NDArray[np.bool_] | str],
) -> ResultSeries:
    """Return a series with another activation by some events, and other regions.

    Parameters
    ----------
    series : ResultSeries
        The series, of one or several positions of the probe.
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
    if not events and not regions:
        raise OptionError("there is nothing to model", remedy="give {events}, {regions} or both")
    bare = [
        replace(each, options=session, event_doubts=(), events=(), activations={})
        for each in series.by_pose.values() or [series]
    ]
    plane, plan = bare[0].geometry, series.plan if isinstance(series, PoseSeries) else None
    drawn = {name: partial(over_positions, plane, region) for name, region in drawn_regions(regions).items()}
    # Each event must be within the series; a position may show few of them
    times = np.concatenate([each.time for each in bare])
    durations = np.concatenate([each.durations for each in bare])
    order = np.argsort(times, kind="stable")
    check_activation(plane, (times[order], durations[order]), events, session)
    for each in bare if plan else ():
        check_activation(each.geometry, (each.time, each.durations), events, session, is_planned=True)
    masks = region_masks(drawn, series.geometry) if drawn else {}
    return modelled(bare, events, masks, plan, series.geometry)
