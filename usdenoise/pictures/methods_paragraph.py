"""The methods paragraph of a report: what was done to a stack, in sentences for a paper, with the sources.

The sentences are in templates/methods.txt.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from usdenoise.pictures.page_templates import METHODS, template


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

    source, blocks = report["input"], blocks_of(report)
    sizes = dict(zip(source["axes"], source["shape"], strict=True))
    order = [letter for letter in "zxy" if letter in sizes]
    spacing = source["spacing_mm"]
    text = template(METHODS).render(
        report=report,
        cite=cite,
        sizes=sizes,
        order=order,
        n_pixels=math.prod(sizes[letter] for letter in order),
        pitches={letter: f"{spacing[letter]:.4g}" for letter in order if letter in spacing},
        ranks=value_range([block["rank"] for block in blocks]),
        removed=value_range([block["low_cutoff"] for block in blocks]),
    )
    return " ".join(text.split()), sources


def blocks_of(report: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the records of the windows of a report; of an image, the report itself."""
    blocks: Sequence[Mapping[str, Any]] = report.get("sequence", {}).get("blocks", [report])
    return blocks


def value_range(values: Sequence[float | None], form: str = "{}", unit: str = "", missing: str = "") -> str:
    """Return the smallest and the largest value in words, or the value where these look the same.

    Parameters
    ----------
    values : sequence of float or None
        The values; those that are None do not count.
    form : str
        Format of a value; by default as Python shows it.
    unit : str
        Text after the last value; by default none.
    missing : str
        Text where no value is known; by default none.
    """
    known = [form.format(value) for value in sorted(value for value in values if value is not None)]
    if not known:
        return missing
    return f"{known[0]}{unit}" if known[0] == known[-1] else f"{known[0]} to {known[-1]}{unit}"
