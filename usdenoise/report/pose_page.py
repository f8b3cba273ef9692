"""The page of a session of several positions of the probe. Template: templates/poses.html."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from usdenoise.report.charts import POSES_PAGE, template
from usdenoise.report.page_content import BLOCK_MOTION, BLOOD_COURSE, block_charts, picture_of
from usdenoise.report.pictures import REGIONS, activation_title
from usdenoise.report.pose_report import PosesReport
from usdenoise.report.scan_page import PICTURE_BYTES, Picture
from usdenoise.sessions.pose_series import PoseSeries


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
