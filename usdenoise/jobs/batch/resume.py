"""Decide whether a scan has to be run, from its report on disk and the requested options."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from usdenoise.files.file_state import file_state, is_same_state
from usdenoise.jobs.batch.plan import Scan
from usdenoise.jobs.batch.table import read_report, row_of_report
from usdenoise.report.batch_row import Row, Status
from usdenoise.report.record import Report


@dataclass(frozen=True)
class Decision:
    """What a batch does with a scan, and why.

    Attributes
    ----------
    reason : str
        Reason in words.
    row : Row or None
        Row of a scan with complete results; None (the default) if the scan is run.
    """

    reason: str
    row: Row | None = None

    @property
    def action(self) -> str:
        """The action for the scan: "run" or "skip"."""
        return "run" if self.row is None else "skip"


def decide(scan: Scan, requested: Mapping[str, Any], overwrite: bool = False) -> Decision:
    """Decide what to do with a scan.

    Parameters
    ----------
    scan : Scan
        The scan.
    requested : mapping
        Options of every job, in the form of :func:`usdenoise.system.provenance.requested`.
    overwrite : bool
        Whether to run the scan even if its results are complete.
    """
    if overwrite:
        return Decision("overwrite")
    try:
        report = read_report(scan)
    except FileNotFoundError:
        return Decision("new")
    except ValueError as error:
        return Decision(str(error))
    difference = _difference(scan, report, requested)
    if difference is not None:
        return Decision(difference)
    return Decision("complete", row_of_report(scan, report, Status.SKIPPED, "complete"))


def _difference(scan: Scan, report: Report, requested: Mapping[str, Any]) -> str | None:
    """Return how the results of a report differ from the requested ones; None if they do not."""
    changes = list(_changes(report.requested, requested))
    if changes:
        return f"options changed: {', '.join(changes)}"
    state = file_state(scan.path)
    is_same = state is not None and is_same_state(state, vars(report.input))
    return None if is_same else "the input changed"


def _changes(before: Any, now: Any, name: str = "") -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            yield from _changes(before.get(key), now.get(key), str(key))
    elif before != now:
        yield f"{name} {before} -> {now}"
