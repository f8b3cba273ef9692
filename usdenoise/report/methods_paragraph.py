"""The methods paragraph of a report: what was done to a stack, in sentences for a paper, with the sources.

The sentences are in templates/methods.txt.
"""

import math

from usdenoise.report.page_templates import METHODS, template
from usdenoise.report.record import Report


def methods_paragraph(report: Report) -> tuple[str, list[str]]:
    """Say what was done to a stack, from its report.

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
    text = template(METHODS).render(
        report=report,
        cite=cite,
        sizes=sizes,
        order=order,
        n_pixels=math.prod(sizes[letter] for letter in order),
        pitches={letter: f"{spacing[letter]:.4g}" for letter in order if letter in spacing},
    )
    return " ".join(text.split()), sources
