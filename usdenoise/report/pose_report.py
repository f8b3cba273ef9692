"""The report of a session of several positions of the probe: what each shows, and its page."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from usdenoise.pipeline.result import Doubt
from usdenoise.report.charts import POSES_PAGE, template
from usdenoise.report.page_content import BLOCK_MOTION, BLOOD_COURSE, block_charts, picture_of
from usdenoise.report.pictures import REGIONS, activation_title
from usdenoise.report.record import ActivationRecord, InputRecord, RegionRecord
from usdenoise.report.scan_page import PICTURE_BYTES, Picture
from usdenoise.sessions.pose_series import POSE_AXIS, PoseSeries
from usdenoise.system.resources import peak_memory_bytes
from usdenoise.system.text import plain, software


@dataclass(frozen=True)
class PoseRecord:
    """A position of the probe.

    Attributes
    ----------
    name : str
        Its name.
    position_mm : float or None
        Where it is; None if that is not known.
    low_cutoff : int
        Clutter components that are removed from its blocks.
    certainty : str
        How sure this number is.
    blood_to_noise_db : float or None
        Median of blood over noise in its vessels; None without any.
    n_blocks, n_bad : int
        Number of its blocks, and of bad ones among them.
    moves_pixels : float or None
        Largest displacement of a block against its reference; None if blocks were not aligned.
    n_active : dict
        Type of event -> number of active pixels.
    doubts : tuple of Doubt
        Reasons not to trust its maps.
    """

    name: str
    position_mm: float | None
    low_cutoff: int
    certainty: str
    blood_to_noise_db: float | None
    n_blocks: int
    n_bad: int
    moves_pixels: float | None
    n_active: dict[str, int]
    doubts: tuple[Doubt, ...]


@dataclass(frozen=True)
class PosesReport:
    """The report of a session of several positions. Other fields are as in :class:`usdenoise.report.record.Report`.

    Attributes
    ----------
    poses : tuple of PoseRecord
        The positions.
    n_sweeps : int
        Number of sweeps over the positions.
    time : tuple of float
        Middle of each sweep, in `time_unit`.
    activation : tuple of ActivationRecord
        The activation by each type of event over all positions; empty without events.
    regions : tuple of RegionRecord
        The regions, the whole image first; empty without any.
    """

    poses: tuple[PoseRecord, ...]
    n_sweeps: int
    time: tuple[float, ...]
    time_unit: str
    activation: tuple[ActivationRecord, ...]
    regions: tuple[RegionRecord, ...]
    verdict: str
    doubts: tuple[Doubt, ...]
    input: InputRecord
    output: dict[str, str]
    notes: tuple[str, ...]
    timings_s: dict[str, float]
    peak_memory_bytes: int
    software: dict[str, str]
    command: tuple[str, ...] | None
    requested: dict[str, Any]
    output_bytes: dict[str, int | None]
    memory_limit_bytes: int | None = None

    @property
    def n_bad(self) -> int:
        """Number of bad blocks of all positions."""
        return sum(pose.n_bad for pose in self.poses)

    @property
    def sentences(self) -> list[str]:
        """The answers of the session, in words: the active pixels of each type of event, and the regions."""
        activation = [
            "; ".join(filter(None, (f"activation by {each.name}: {each.sentence}", each.proposal)))
            for each in self.activation
        ]
        return [*activation, *(f"region {region.sentence}" for region in self.regions[1:])]

    def as_json(self) -> dict[str, Any]:
        """Return the report as the JSON object of its file."""
        values: dict[str, Any] = plain(self)
        return values


def pose_report_of(
    series: PoseSeries,
    source: InputRecord,
    output: Mapping[str, str],
    notes: Sequence[str],
    timings_s: Mapping[str, float],
    command: Sequence[str] | None,
    requested: Mapping[str, Any],
) -> PosesReport:
    """Return the report of a session of several positions; the arguments are as for `report_of` of a single one."""
    places = series.geometry.coordinates.get(POSE_AXIS)
    poses = tuple(
        PoseRecord(
            name=name,
            position_mm=None if places is None else float(places.values[number]),
            low_cutoff=of_pose.low_cutoff,
            certainty=of_pose.fit.cutoff_certainty.value,
            blood_to_noise_db=of_pose.picture_quality.blood_to_noise_db,
            n_blocks=len(of_pose.block_records),
            n_bad=int(of_pose.bad.sum()),
            moves_pixels=None if of_pose.shifts is None else float(np.nanmax(np.abs(of_pose.shifts))),
            n_active={name: int(found.active.sum()) for name, found in of_pose.activation.items()},
            doubts=of_pose.doubts,
        )
        for number, (name, of_pose) in enumerate(zip(series.names, series.poses, strict=True))
    )
    doubted = {doubt.sentence for doubt in series.doubts}
    assumptions = (*source.assumptions, *series.geometry.assumptions)
    report = PosesReport(
        poses=poses,
        n_sweeps=len(series.time),
        time=tuple(series.time.tolist()),
        time_unit=series.time_unit,
        activation=tuple(ActivationRecord.of(name, found) for name, found in series.activations.items()),
        regions=tuple(RegionRecord.of(name, each, series.bad) for name, each in series.region_series.items()),
        verdict="",
        doubts=series.doubts,
        input=replace(
            source, assumptions=tuple(note for note in dict.fromkeys(assumptions) if note not in doubted)
        ),
        output=dict(output),
        notes=tuple(notes),
        timings_s=dict(timings_s),
        peak_memory_bytes=peak_memory_bytes(),
        software=dict(software()),
        command=None if command is None else tuple(command),
        requested=dict(requested),
        output_bytes={},
    )
    of_blocks = f"{report.n_bad} of {sum(pose.n_blocks for pose in poses)} blocks are bad"
    return replace(report, verdict="; ".join([*report.sentences, of_blocks]))


def pose_page(
    stem: str,
    series: PoseSeries,
    report: PosesReport,
    pictures: Mapping[str, bytes],
    activations: Mapping[str, bytes],
    pages: Mapping[str, str],
) -> str:
    """Return the page of a session of several positions: its planes side by side, and the blocks of each position.

    Parameters
    ----------
    stem : str
        Name of the session.
    series : PoseSeries
        The series.
    report : PosesReport
        The report.
    pictures : mapping
        Name of each picture in the order of the page -> PNG.
    activations : mapping
        Type of event, or "" for any -> PNG of its activation map.
    pages : mapping
        Name of each position -> path of its page from the folder of this page.

    Returns
    -------
    str
        HTML. Every text is escaped.
    """
    maps = []
    for trial_type, png in activations.items():
        title = activation_title(trial_type, series.activations[trial_type])
        caption = (
            "Planes with most active pixels first. The significance is among the pixels of all positions."
        )
        maps.append(Picture(title, png, title, caption))
    shown = [
        Picture("Regions", png, "Regions over the front view", "Blood power of the regions.")
        if name == REGIONS
        else picture_of(name, png, series)
        for name, png in pictures.items()
    ]
    charts = [
        (plane, [chart for chart in block_charts(of_pose) if chart.title in (BLOOD_COURSE, BLOCK_MOTION)])
        for plane, of_pose in zip(series.planes, series.poses, strict=True)
    ]
    most = PICTURE_BYTES // max(1, len(shown) + len(maps))
    names = [Path(path).name for path in report.output.values()]
    return template(POSES_PAGE).render(
        name=stem,
        kind="session of several positions",
        report=report,
        doubts=[doubt.sentence for doubt in report.doubts],
        maps=[picture.within(most) for picture in maps],
        pictures=[picture.within(most) for picture in shown],
        charts=charts,
        pages={name: f"./{quote(os.fsencode(path))}" for name, path in pages.items()},
        command=None if report.command is None else shlex.join(report.command),
        files=[(name, f"./{quote(os.fsencode(name))}") for name in names],
    )
