"""The page of a live session. The template is templates/live.html."""

from collections.abc import Sequence

from usdenoise.pictures.charts import Chart
from usdenoise.pictures.page_templates import LIVE_PAGE, template
from usdenoise.pictures.scan_page import Picture

RELOAD_S = 2
"""Seconds after which the page loads itself again."""


def live_page(
    name: str,
    figures: Sequence[tuple[str, str, str]],
    pictures: Sequence[Picture],
    charts: Sequence[Chart],
    remarks: Sequence[str],
    report: str | None,
) -> str:
    """Return the page of a live session, which needs no other file, and loads itself again while the session runs.

    Parameters
    ----------
    name : str
        Name of the session.
    figures : sequence of (str, str, str)
        Name, value and meaning of the numbers at the top.
    pictures : sequence of Picture
        The pictures.
    charts : sequence of Chart
        Curves over the blocks.
    remarks : sequence of str
        Warnings, in sentences.
    report : str or None
        Name of the page of the finished session, if it is finished.

    Returns
    -------
    str
        HTML. Every text is escaped.
    """
    page: str = template(LIVE_PAGE).render(
        name=name,
        figures=figures,
        pictures=pictures,
        charts=charts,
        remarks=remarks,
        report=report,
        reload_s=None if report else RELOAD_S,
    )
    return page
