"""What ``usdenoise run`` prints at its end: the report in words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usdenoise.cli.console import Console, two_columns
from usdenoise.clutter.cutoff_reason import CutoffCertainty

if TYPE_CHECKING:
    from usdenoise.report.record import Report, SequenceRecord

_STAGES = {"load": "reading", "solve": "components", "filter": "filtering", "write": "writing"}
"""Names of the stages of a job in the summary."""


def show_summary(console: Console, report: Mapping[str, Any]) -> None:
    """Print the warnings about a run, and its summary."""
    from usdenoise.report.cautions import cautions
    from usdenoise.report.record import Report

    record = Report.from_json(report)
    warnings = cautions(record)
    for sentence in warnings:
        console.warn(sentence)
    console.show(report, lambda: two_columns(summary_rows(record, warnings)))


def summary_rows(report: "Report", warned: Sequence[str]) -> list[tuple[str, str]]:
    """Return the names and the texts of the summary of a run.

    Parameters
    ----------
    report : Report
        The report of the job.
    warned : sequence of str
        Sentences that were printed as warnings; the summary refers to them instead of repeating them.
    """
    from usdenoise.report.cautions import conditional

    source, sequence = report.input, report.sequence
    rows = [("input", f"{source.path} ({source.dataset}, {source.shape_text}, {source.dtype})")]
    if sequence is not None:
        rows.append(("blocks", _blocks(sequence)))
    if sequence is not None and sequence.alignment:
        rows.append(("aligned", sequence.alignment))
    rows += [
        ("method", f"{report.method}, rank {report.rank}{_sampled(report)}"),
        ("clutter", _clutter(report)),
        ("kept", _kept(report)),
        *([("blood", conditional(report.blood.sentence, report))] if report.blood.sentence else []),
        ("estimate", _estimate(report, warned)),
        ("error", _error(report)),
        ("stopped", _stopped(report)),
        ("time", _time(report.timings_s)),
        ("memory", f"{report.peak_memory_bytes / 2**20:.0f} MiB at the peak"),
    ]
    if sequence is not None:
        rows += [
            ("activation", "; ".join(filter(None, (f"{each.trial_type}: {each.sentence}", each.proposal))))
            for each in sequence.activation
        ]
    rows += [
        ("wrote", name)
        for key, name in report.output.items()
        if key != "report_html" and not key.endswith("_denoised")
    ]
    if report.requested.get("session", {}).get("stacks"):
        sequence_file = Path(report.output["sequence"])
        rows.append(("wrote", str(sequence_file.with_name(f"*_denoised{sequence_file.suffix}"))))
    if (page := report.output.get("report_html")) is not None:
        rows.append(("page", page))
    return rows


def _blocks(sequence: "SequenceRecord") -> str:
    blocks, length = sequence.blocks, sequence.window
    last, stride = blocks[-1].n_frames, sequence.stride
    every = "" if stride in (None, length) else f" every {stride}"
    is_usual = sequence.size == f"{length} frames"
    other = f", the last one of {last}" if is_usual and last not in (0, length) else ""
    bad = f"; {sequence.n_bad} bad" if sequence.n_bad else ""
    return f"{len(blocks)} of {sequence.size}{every}{other}{bad}"


def _sampled(report: "Report") -> str:
    return "" if report.method == "svd" else f", {report.sampled_share} of the entries sampled"


def _clutter(report: "Report") -> str:
    count, cutoff = report.low_cutoff, report.cutoff
    removed = f"{count} component{'' if count == 1 else 's'} removed"
    if report.sequence is not None:
        removed += " from all blocks"
    if cutoff.certainty == CutoffCertainty.GIVEN:
        return f"{removed}, as given"
    return f"{removed}, {cutoff.certainty}: {cutoff.reason}"


def _kept(report: "Report") -> str:
    low, high = report.low_cutoff, report.high_cutoff
    if isinstance(high, str):
        return "all other components and the residual: blood and noise"
    if report.sequence is not None:
        return "the other components"
    return (
        f"the next {high - low} component{'' if high - low == 1 else 's'}; the residual is dropped as noise"
    )


def _estimate(report: "Report", warned: Sequence[str]) -> str:
    sentence = report.estimate
    return f"{sentence.partition(':')[0]}; see the warning" if sentence in warned else sentence


def _error(report: "Report") -> str:
    noise = f"noise {report.noise_floor:.4g}, in the units of the file"
    held_out, expected = report.held_out_rmse, report.held_out_allowed
    if held_out is None:
        return noise
    if report.parameters["refit"] == "all":
        return f"held-out {held_out:.4g} before the refit, {noise}"
    shown = "" if expected is None else f" (expected {expected:.4g})"
    return f"held-out {held_out:.4g}{shown}, {noise}"


def _stopped(report: "Report") -> str:
    count = report.iterations
    return f"after {count} iteration{'' if count == 1 else 's'}: {report.stop_reason}"


def _time(seconds: Mapping[str, float]) -> str:
    parts = ", ".join(
        f"{_STAGES[name]} {value:.2f} s" for name, value in seconds.items() if name in _STAGES and value
    )
    return f"{seconds['total']:.2f} s: {parts}"
