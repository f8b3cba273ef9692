"""Decide whether a scan has to be run, from the results on disk and the options of now."""

import glob
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from usdenoise.batch.plan import BatchFile, Scan
from usdenoise.batch.table import Failure, Row, Status, outcome, scan_row
from usdenoise.errors import InputError
from usdenoise.formats.file_state import (
    STATE,
    file_state,
    is_same_state,
    recorded_files,
    sha256,
    size_on_disk,
)
from usdenoise.system.provenance import software

LASTING = (Failure.INPUT, Failure.OPTIONS, Failure.DIVERGED)
"""Kinds of failure that the same input, options and version would give again."""


@dataclass(frozen=True)
class Decision:
    """What a batch does with a scan, and why.

    Attributes
    ----------
    reason : str
        Reason for the action, in words.
    row : Row or None
        Row of a scan that is not run; None (the default) for one that is.
    """

    reason: str
    row: Row | None = None

    @property
    def action(self) -> str:
        """What is done with the scan: "run", "skip", or "keep failed" where it would fail again."""
        if self.row is None:
            return "run"
        return "keep failed" if self.row.status == Status.FAILED else "skip"


def decide(
    scan: Scan,
    asked: Mapping[str, Any],
    failures: Mapping[str, Row],
    *,
    overwrite: bool = False,
    retry_failed: bool = False,
) -> Decision:
    """Decide what to do with a scan.

    Parameters
    ----------
    scan : Scan
        Scan to decide about.
    asked : mapping
        Options of every job now, in the form of :func:`usdenoise.system.provenance.requested`.
    failures : mapping from str to Row
        Failed rows by the names of their scans, from :func:`earlier_failures`.
    overwrite : bool
        Whether to run the scan even if its results are complete.
    retry_failed : bool
        Whether to run the scan even if it would fail again.
    """
    if overwrite:
        return Decision("overwrite")
    earlier = failures.get(scan.name)
    if earlier is not None and _same_input_failed(scan, earlier):
        if retry_failed:
            return Decision("failed before, tried again")
        if earlier.status == Status.NO_STACK:
            return Decision(earlier.reason, earlier) if scan.is_found else Decision("new")
        reason = "failed before; --retry-failed tries again"
        return Decision(reason, replace(earlier, reason=reason))
    if not os.path.exists(scan.report):
        begun = os.path.isdir(scan.folder) and any(scan.folder.glob(f"*{glob.escape(scan.path.stem)}_*"))
        return Decision("stopped half way" if begun else "new")
    try:
        report = json.loads(scan.report.read_text())
        row = scan_row(scan, Status.SKIPPED, "complete", **outcome(report))
        difference = _difference(scan, report, asked)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Decision("its report cannot be read")
    return Decision("complete", row) if difference is None else Decision(difference)


def earlier_failures(folder: Path, asked: Mapping[str, Any]) -> dict[str, Row]:
    """Return the rows of the last batch that would fail again, or have no stack, under the same version and options."""
    try:
        record = json.loads((folder / BatchFile.RECORD).read_text())
        if record["requested"] != asked or record["software"]["usdenoise"] != software()["usdenoise"]:
            return {}
        rows = map(_read_row, record["rows"])
        return {row.scan: row for row in rows if row.failure in LASTING or row.status == Status.NO_STACK}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _read_row(fields: Mapping[str, Any]) -> Row:
    """Return a row of batch.json, or raise ValueError where it has an unknown status or failure."""
    return Row(**{**fields, "status": Status(fields["status"]), "failure": Failure(fields["failure"])})


def _same_input_failed(scan: Scan, earlier: Row) -> bool:
    state = file_state(scan.path)
    return state is not None and is_same_state(
        state, {name: getattr(earlier, f"input_{name}") for name in STATE}
    )


def _difference(scan: Scan, report: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """Return why the results of a report are not those asked for now, or None where they are."""
    for place, size in recorded_files(report, scan.folder).items():
        if size_on_disk(place) != size:
            return f"{place.name} is not complete"
    before, now = report["software"]["usdenoise"], software()["usdenoise"]
    if before != now:
        return f"made by version {before}, this is {now}"
    changes = list(_changes(report["requested"], asked))
    if changes:
        return f"options changed: {', '.join(changes)}"
    return _input_difference(scan, report["input"])


def _input_difference(scan: Scan, source: Mapping[str, Any]) -> str | None:
    if Path(source["path"]).name != scan.path.name:
        return f"made from {Path(source['path']).name}"
    state = file_state(scan.path)
    if state is None:
        return "the input is not there"
    if is_same_state(state, source):
        return None
    try:
        changed = state["bytes"] != source["bytes"] or sha256(scan.path) != source["sha256"]
    except InputError:
        changed = True
    return "the input changed" if changed else None


def _changes(before: Any, now: Any, name: str = "") -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            yield from _changes(before.get(key), now.get(key), str(key))
    elif before != now:
        yield f"{name} {before} -> {now}"
