"""The methods paragraph of a report: what was done to a stack, in sentences for a paper, with the sources.

The sentences are in templates/methods.txt.
"""

import math
from collections.abc import Mapping
from typing import Any

from usdenoise.report.page_templates import METHODS, template


def methods_paragraph(report: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Say what was done to a stack, from its report.

    Parameters
    ----------
    report : mapping
        The report of a job, as it is written to ``<stem>_report.json``.

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

    source = report["input"]
    sizes = dict(zip(source["axes"], source["shape"], strict=True))
    order = [letter for letter in "zxy" if letter in sizes]
    spacing = source["spacing_mm"]
    text = template(METHODS).render(
        report=report,
        cite=cite,
        sizes=sizes,
        order=order,
        n_pixels=math.prod(sizes[letter] for letter in order),
        sampled=sampled_share(report),
        pitches={letter: f"{spacing[letter]:.4g}" for letter in order if letter in spacing},
        ranks=str(report["rank"]),
        removed=str(report["low_cutoff"]),
    )
    return " ".join(text.split()), sources


def sampled_share(report: Mapping[str, Any]) -> str:
    """Return the share of the entries that were sampled in words, for example "2.1 %"; of a session those of its sample."""
    sizes = dict(zip(report["input"]["axes"], report["input"]["shape"], strict=True))
    if (sequence := report.get("sequence")) is not None:
        sizes["t"] = sequence["sampled_frames"]
    return f"{100 * report['n_sampled'] / math.prod(sizes.values()):.3g} %"
