"""Whether a scan has to be run: what stands on disk against what is asked for now."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usdenoise.batch.plan import RECORD, Scan
from usdenoise.batch.table import Row, outcome
from usdenoise.errors import InputError
from usdenoise.formats.file_state import file_state, sha256, size_on_disk
from usdenoise.system.provenance import software

RUN, SKIP, KEEP_FAILED = "run", "skip", "keep failed"

LASTING = ("input", "options", "diverged")
"""Kinds of failure that the same input, options and version would give again."""


@dataclass(frozen=True)
class Decision:
    """What is done with a scan, and why.

    Attributes
    ----------
    action : str
        "run", "skip" (its results are whole), or "keep failed" (it would fail again).
    reason : str
        In words.
    report : mapping or None
        The report that makes it a skip.
    earlier : mapping or None
        The row of the failure that is kept.
    """

    action: str
    reason: str
    report: Mapping[str, Any] | None = None
    earlier: Mapping[str, Any] | None = None


def decide(
    scan: Scan,
    asked: Mapping[str, Any],
    failures: Mapping[str, Mapping[str, Any]],
    *,
    overwrite: bool = False,
    retry_failed: bool = False,
) -> Decision:
    """What to do with a scan.

    Parameters
    ----------
    scan : Scan
        The scan.
    asked : mapping
        What is asked of every job (:func:`usdenoise.system.provenance.requested`).
    failures : mapping from name to row
        As of :func:`earlier_failures`.
    overwrite : bool
        Run it whatever is there.
    retry_failed : bool
        Run it even if it would fail again.
    """
    if overwrite:
        return Decision(RUN, "overwrite")
    earlier = failures.get(scan.name)
    if earlier is not None and _same_input_failed(scan, earlier):
        if retry_failed:
            return Decision(RUN, "failed before, tried again")
        return Decision(KEEP_FAILED, "failed before; --retry-failed tries again", earlier=earlier)
    if not scan.report.exists():
        begun = scan.folder.is_dir() and any(scan.folder.glob(f"*{_escaped(scan.path.stem)}_*"))
        return Decision(RUN, "stopped half way" if begun else "new")
    try:
        report = json.loads(scan.report.read_text())
        outcome(report)
        reason = _difference(scan, report, asked)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Decision(RUN, "its report cannot be read")
    return Decision(SKIP, "whole", report) if reason is None else Decision(RUN, reason)


def earlier_failures(folder: Path, asked: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Rows of the last batch that would fail again under the same version and options, by their names."""
    try:
        record = json.loads((folder / RECORD).read_text())
        if record["requested"] != asked or record["software"]["usdenoise"] != software()["usdenoise"]:
            return {}
        return {row["scan"]: vars(Row(**row)) for row in record["rows"] if row["failure"] in LASTING}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _same_input_failed(scan: Scan, earlier: Mapping[str, Any]) -> bool:
    state = file_state(scan.path)
    return state is not None and state == {
        "bytes": earlier["input_bytes"],
        "mtime_ns": earlier["input_mtime_ns"],
    }


def _difference(scan: Scan, report: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """Why a report does not stand for what is asked, None where it does."""
    for key, name in report["output"].items():
        place = scan.folder / Path(name).name
        if key != "report" and size_on_disk(place) != report["output_bytes"][key]:
            return f"{place.name} is not whole"
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
    if state == {"bytes": source["bytes"], "mtime_ns": source["mtime_ns"]}:
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


def _escaped(stem: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in stem)
