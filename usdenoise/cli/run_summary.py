"""What ``usdenoise run`` prints at its end: the report in words."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from usdenoise.cli.console import shape_text
from usdenoise.clutter.cutoff_reason import CutoffCertainty
from usdenoise.pictures.methods_paragraph import blocks_of, value_range

_STAGES = {"load": "reading", "solve": "components", "filter": "filtering", "write": "writing"}
"""Names of the stages of a job in the summary."""


def summary_rows(report: Mapping[str, Any], warned: Sequence[str]) -> list[tuple[str, str]]:
    """Return the names and the texts of the summary of a run.

    Parameters
    ----------
    report : mapping
        The report of the job.
    warned : sequence of str
        Sentences that were printed as warnings; the summary refers to them instead of repeating them.
    """
    source, sequence = report["input"], report.get("sequence")
    rows = [("input", f"{source['path']} ({source['dataset']}, {shape_text(source)}, {source['dtype']})")]
    if sequence is not None:
        rows.append(("windows", _windows(sequence)))
    rows += [
        ("method", f"{report['method']}, rank {_rank(report)}, sampling {report['sampling']:g}"),
        ("clutter", _clutter(report)),
        ("kept", _kept(report)),
        ("blood", _blood(report)),
        ("estimate", _estimate(report, warned)),
        ("error", _error(report)),
        ("stopped", _stopped(report)),
        ("time", _time(report["timings_s"])),
        ("memory", _memory(report)),
    ]
    rows += [("wrote", name) for name in report["output"].values()]
    if (page := report["output"].get("report_html")) is not None:
        rows.append(("look", f"usdenoise view {shlex.quote(str(Path(page).parent))}"))
    return rows


def _memory(report: Mapping[str, Any]) -> str:
    peak, on_disk = report["peak_memory_bytes"], report.get("scratch_bytes", 0)
    beside = f", and {on_disk / 2**30:.3g} GiB in a temporary file" if on_disk else ""
    return f"{peak / 2**20:.0f} MiB at the peak{beside}"


def _windows(sequence: Mapping[str, Any]) -> str:
    windows, length = sequence["blocks"], sequence["window"]
    last = windows[-1]["n_frames"]
    other = "" if last == length else f", the last one of {last}"
    return f"{len(windows)} of {length} frames every {sequence['stride']}{other}; ranges below are over all of them"


def _rank(report: Mapping[str, Any]) -> str:
    return value_range([block["rank"] for block in blocks_of(report)])


def _clutter(report: Mapping[str, Any]) -> str:
    blocks, cutoff = blocks_of(report), report["cutoff"]
    count = value_range([block["low_cutoff"] for block in blocks])
    removed = f"{count} component{'' if count == '1' else 's'} removed"
    if cutoff["certainty"] == CutoffCertainty.GIVEN:
        return f"{removed}, as given"
    if len(blocks) == 1:
        return f"{removed}, {cutoff['certainty']}: {cutoff['reason']}"
    certainties = [block["cutoff_certainty"] for block in blocks]
    counts = [f"{certainties.count(kind)} {kind}" for kind in CutoffCertainty if kind in certainties]
    return f"{removed}; {', '.join(counts)}"


def _kept(report: Mapping[str, Any]) -> str:
    low, high = report["low_cutoff"], report["high_cutoff"]
    if "sequence" in report:
        return "the other components" + (" and the residual: blood and noise" if high == "none" else "")
    if high == "none":
        return f"all components from {low} on, counted from 0, and the residual: blood and noise"
    return f"components {low} to {high - 1}, counted from 0; the rest is dropped as noise"


def _blood(report: Mapping[str, Any]) -> str:
    if "sequence" not in report:
        sentence: str = report["blood"]["sentence"]
        return sentence
    pictures = [block["blood"] for block in blocks_of(report)]
    found = [picture for picture in pictures if picture["lost_share"] is not None]
    dominated = value_range([100 * picture["noise_share"] for picture in pictures], "{:.0f}", " %")
    if not found:
        return f"found in none of {len(pictures)} windows; noise dominates in {dominated} of the image"
    shares = value_range([100 * picture["vessel_share"] for picture in found], "{:.0f}", " %")
    levels = value_range([picture["blood_to_noise_db"] for picture in found], "{:.0f}", " dB")
    agreement = value_range([picture["reproducibility"] for picture in found], "{:.2f}")
    parts = [
        f"found in {len(found)} of {len(pictures)} windows",
        f"vessels in {shares} of the image" + (f", {levels} over noise in them" if levels else ""),
        f"noise dominates in {dominated}",
        *([f"two halves of a window correlate at {agreement}"] if agreement else []),
    ]
    return "; ".join(parts)


def _estimate(report: Mapping[str, Any], warned: Sequence[str]) -> str:
    sentence: str = report["estimate"]
    if sentence in warned:
        sentence = f"{sentence.partition(':')[0]}; see the warning"
    if (sequence := report.get("sequence")) is None:
        return sentence
    return f"{sentence} (window {sequence['worst_block']}, counted from 0, the worst)"


def _error(report: Mapping[str, Any]) -> str:
    blocks = blocks_of(report)
    noise = (
        f"noise {value_range([block['noise_floor'] for block in blocks], '{:.4g}')}, in the units of the file"
    )
    held_out = value_range([block["held_out_rmse"] for block in blocks], "{:.4g}")
    if not held_out:
        return noise
    expected = report["held_out_allowed"]
    shown = "" if expected is None or len(blocks) > 1 else f" (expected {expected:.4g})"
    return f"held-out {held_out}{shown}, {noise}"


def _stopped(report: Mapping[str, Any]) -> str:
    blocks = blocks_of(report)
    iterations = [block["iterations"] for block in blocks]
    count = value_range(iterations)
    sentence = f"after {count} iteration{'' if count == '1' else 's'}"
    return f"{sentence}: {report['stop_reason']}" if len(blocks) == 1 else f"{sentence} in a window"


def _time(seconds: Mapping[str, float]) -> str:
    parts = ", ".join(f"{_STAGES[name]} {value:.2f} s" for name, value in seconds.items() if name in _STAGES)
    return f"{seconds['total']:.2f} s: {parts}"
