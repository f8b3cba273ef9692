"""What is doubtful about results, in sentences for the terminal and for the page."""

from collections.abc import Mapping
from typing import Any

from usdenoise.clutter.cutoff_reason import CutoffCertainty
from usdenoise.pipeline.fit_quality import Verdict


def cautions(report: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each thing that a user should know before the results are used.

    Parameters
    ----------
    report : mapping
        The report of a job.
    """
    sentences = []
    frames = report["frames"]
    n_missing = report["n_unobserved"] - frames["n_entries_left_out"]
    if n_missing > 0:
        sentences.append(
            f"{n_missing} entries were NaN or infinite; they were not used, and are filled from the low-rank model"
        )
    if report["n_silent"]:
        sentences.append(
            f"{report['n_silent']} pixels have no signal; they are excluded from all computations and set to 0 in the output"
        )
    if frames["sentence"]:
        sentences.append(frames["sentence"])
    if len(report.get("sequence", {}).get("blocks", [0, 0])) == 1:
        sentences.append("the session is a single block; name more files, or set a window to cut a long one")
    if not Verdict.from_code(report["fit"]).is_good:
        sentences.append(report["estimate"])
    if report["start_caution"]:
        sentences.append(report["start_caution"])
    if report["cutoff"]["certainty"] == CutoffCertainty.UNSURE:
        sentences.append(
            f"the low cutoff {report['low_cutoff']} is unsure; look at the picture, or set the low cutoff"
        )
    return [*sentences, *report["notes"]]
