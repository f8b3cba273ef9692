"""Sentences about a result: cautions and remarks, in a few words for a batch, and the methods paragraph with its sources.

The sentences are in templates/methods.txt and methods_short.txt, their sources in templates/sources.txt.
"""

import math
from itertools import pairwise
from statistics import median

from usdenoise.pipeline.filter_chunk import FRAMES_A_TEMPORAL
from usdenoise.report.charts import template
from usdenoise.report.record import ModelReport, Report
from usdenoise.sessions.activation import rule_words
from usdenoise.sessions.bad_blocks import BAD_SPREADS
from usdenoise.sessions.session_estimate import TEMPORAL
from usdenoise.stack.geometry import GriddedStack
from usdenoise.system.text import counted

NAMED_PIXELS = 4
"""Largest number of lines and pixels that a sentence names; the report lists all."""


def displacement_text(displacement: float, geometry: GriddedStack) -> str:
    """Return a displacement of the tissue, in its unit, in words; NaN if it is not known."""
    return "unknown" if math.isnan(displacement) else f"{displacement:.2g} {geometry.displacement_unit[1]}"


def cautions(report: ModelReport) -> list[str]:
    """Return the sentences of the doubts about the results, and then the remarks."""
    return [*(doubt.sentence for doubt in report.doubts), *remarks(report)]


def conditional(summary: str, report: ModelReport) -> str:
    """Return what the pictures show, under a condition if there are doubts about them."""
    return f"if the doubts are unfounded: {summary}" if report.doubts and summary else summary


def remarks(report: ModelReport) -> list[str]:
    """Return a sentence for each thing that a user should know before the results are used, besides the doubts.

    Parameters
    ----------
    report : ModelReport
        The report of a job.
    """
    if not isinstance(report, Report):
        return list(report.notes)
    has_poses = report.sequence is not None and len(report.sequence.poses) > 0
    sentences = []
    if report.n_missing > 0:
        sentences.append(
            f"{report.n_missing} entries were NaN or infinite; they were not used, and are filled from the low-rank model"
        )
    if report.n_bad_pixels and not has_poses:
        places = "; ".join(report.bad_pixels[:NAMED_PIXELS])
        more = len(report.bad_pixels) - NAMED_PIXELS
        sentences.append(
            f"{report.n_bad_pixels} pixels are far noisier than their neighbours ({places}"
            f"{f' and {more} more' if more > 0 else ''}); they are excluded from all computations and set to 0 in the output"
        )
    for axis, spread in () if has_poses else report.flicker.items():
        sentences.append(
            f"the gain of each position along {axis} flickered from frame to frame, by {100 * spread:.2g} %; it was "
            "measured on the tissue and divided out"
        )
    if report.n_silent > report.n_bad_pixels + report.n_saturated and not has_poses:
        is_shifted = report.sequence is not None and any(block.is_shifted for block in report.sequence.blocks)
        outside = ", or leave the image in some blocks" if is_shifted else ""
        n_silent = report.n_silent - report.n_bad_pixels - report.n_saturated
        sentences.append(
            f"{n_silent} pixels have no signal{outside}; they are excluded from all computations and set to 0 in the output"
        )
    if report.frames.sentence:
        sentences.append(report.frames.sentence)
    rule, has_nifti = report.requested.get("session", {}).get("bad_blocks", "auto"), "nifti" in report.output
    is_interpolated = rule == "interpolate" or (rule == "auto" and has_nifti)
    if report.sequence is not None and report.sequence.n_bad and is_interpolated:
        sentences.append(
            f"{'in NIfTI, ' * (rule == 'auto')}the powers of bad blocks are interpolated between good blocks; means and the "
            "activation exclude bad blocks"
        )
    if report.sequence is not None and len(report.sequence.blocks) == 1:
        sentences.append("the session is a single block; name more files, or set a window to cut a long one")
    return [*sentences, *report.notes]


def remark(report: Report) -> str:
    """Return doubts and remarks in a few words; empty if there are none."""
    n_bad, missing = len(report.bad_frames), report.n_missing / math.prod(report.input.shape)
    words = {
        **dict.fromkeys((doubt.code.replace("-", " ") for doubt in report.doubts), True),
        counted(n_bad, "bad frame"): n_bad,
        f"{100 * missing:.3g} % missing": missing > 0,
    }
    return ", ".join(word for word, is_so in words.items() if is_so)


def methods_paragraph(report: ModelReport, is_short: bool = False) -> tuple[str, list[str]]:
    """Describe the processing of a stack, from its report.

    Parameters
    ----------
    report : ModelReport
        The report of a job.
    is_short : bool
        Whether it has about 120 words instead of all steps and numbers; by default not.

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
    sequence, interval, duration, n_temporal = report.sequence, "", "", 0
    # What was removed from the blocks, of all positions of the probe
    low, removed, is_own, own_poses, errors, n_silent = 0, "", False, list[str](), None, 0
    if isinstance(report, Report):
        low, is_own, n_silent = report.low_cutoff, report.cutoff.is_own, report.n_silent
        removed = str(low)
        # Held-out errors at the start and of the iteration that was used, if it is lower
        started = report.trace[0].held_out_rmse if len(report.trace) > report.iterations else None
        if started is not None and report.held_out_rmse is not None and report.held_out_rmse < started:
            errors = f"{started:.4g}", f"{report.held_out_rmse:.4g}"
    if sequence is not None and sequence.poses:
        low, removed = max(pose.low_cutoff for pose in sequence.poses), sequence.removed
        own_poses = [pose.name for pose in sequence.poses if pose.is_own]
        is_own = len(own_poses) == len(sequence.poses)
    if sequence is not None:
        if len(sequence.time) > 1:
            interval = f"{median(later - earlier for earlier, later in pairwise(sequence.time)):.4g}"
        # From the first frame of the first block to the end of the last one
        first, last = sequence.blocks[0], sequence.blocks[-1]
        # A missing block has no frames, and the time of a usual one.
        n_frames = sum(block.n_frames or sequence.window for block in (first, last)) / 2
        duration = f"{last.time - first.time + n_frames / (report.input.frame_rate_hz or 1.0):.4g}"
        most = 0 if is_own else low
        n_temporal = min(TEMPORAL, sequence.window // FRAMES_A_TEMPORAL, most)
    text = template("methods_short.txt" if is_short else "methods.txt").render(
        report=report,
        cite=cite,
        sizes=sizes,
        order=order,
        n_pixels=math.prod(sizes[letter] for letter in order) - n_silent,
        pitches={letter: f"{spacing[letter]:.4g}" for letter in order if letter in spacing},
        interval=interval,
        duration=duration,
        rule=rule_words(report.requested.get("session", {}).get("threshold", "fdr:0.05")),
        errors=errors,
        bad_spreads=f"{BAD_SPREADS:g}",
        n_temporal=n_temporal,
        low=low,
        removed=removed,
        is_own=is_own,
        own_poses=[] if is_own else own_poses,
    )
    return " ".join(text.split()), sources
