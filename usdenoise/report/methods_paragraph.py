"""The methods paragraph of a report: what was done to a stack, in sentences for a paper, with the sources.

The sentences are in templates/methods.txt.
"""

import math
from itertools import pairwise
from statistics import median

from usdenoise.pipeline.filter_chunk import FRAMES_A_TEMPORAL
from usdenoise.report.charts import METHODS_TEMPLATE, template
from usdenoise.report.record import Report
from usdenoise.sessions.activation import FALSE_DISCOVERY_RATE
from usdenoise.sessions.bad_blocks import BAD_SPREADS
from usdenoise.sessions.session_estimate import TEMPORAL


def methods_paragraph(report: Report) -> tuple[str, list[str]]:
    """Describe the processing of a stack, from its report.

    Parameters
    ----------
    report : Report
        The report of a job.

    Returns
    -------
    text : str
        Sentences for the methods section of a paper, with the numbers of their sources in brackets.
    sources : list of str
        The sources in the order of their numbers, which count from 1.
    """
    sources: list[str] = []

    def cite(source: str) -> str:
        if source not in sources:
            sources.append(source)
        return f" [{sources.index(source) + 1}]"

    sizes, spacing = report.input.sizes, report.input.spacing_mm
    order = [letter for letter in "zxy" if letter in sizes]
    text = template(METHODS_TEMPLATE).render(
        report=report,
        cite=cite,
        sizes=sizes,
        order=order,
        n_pixels=math.prod(sizes[letter] for letter in order) - report.n_silent,
        pitches={letter: f"{spacing[letter]:.4g}" for letter in order if letter in spacing},
        interval=_interval(report),
        duration=_duration(report),
        n_drifts=0
        if report.sequence is None
        else sum(name.startswith("drift") for name in report.sequence.design),
        events=report.requested.get("session", {}),
        false_discovery_rate=FALSE_DISCOVERY_RATE,
        errors=_held_out_errors(report),
        bad_spreads=f"{BAD_SPREADS:g}",
        n_temporal=0
        if report.sequence is None
        else min(TEMPORAL, report.sequence.window // FRAMES_A_TEMPORAL, report.low_cutoff),
    )
    return " ".join(text.split()), sources


def _interval(report: Report) -> str:
    """Return the usual time from a block to the next one in words; empty for a single block."""
    times = () if report.sequence is None else report.sequence.time
    return f"{median(later - earlier for earlier, later in pairwise(times)):.4g}" if len(times) > 1 else ""


def _duration(report: Report) -> str:
    """Return the time from the first frame of the first block to the end of the last one in words; empty for a run."""
    if report.sequence is None:
        return ""
    first, last = report.sequence.blocks[0], report.sequence.blocks[-1]
    # A missing block has no frames, and the time of a usual one.
    frames = sum(block.n_frames or report.sequence.window for block in (first, last)) / 2
    return f"{last.time - first.time + frames / (report.input.frame_rate_hz or 1.0):.4g}"


def _held_out_errors(report: Report) -> tuple[str, str] | None:
    """Return the held-out errors at the start and of the iteration that was used; None if it is not lower, or unknown."""
    lines = [line.held_out_rmse for line in report.trace]
    if len(lines) <= report.iterations or lines[0] is None or report.held_out_rmse is None:
        return None
    if report.held_out_rmse >= lines[0]:
        return None
    return f"{lines[0]:.4g}", f"{report.held_out_rmse:.4g}"
