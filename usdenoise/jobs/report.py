"""What a job says about itself: the report of a result, and the record of its input."""

from collections.abc import Mapping
from typing import Any

from usdenoise.formats.open_input import Input
from usdenoise.jobs.job import Job, StageClock
from usdenoise.jobs.result_folder import Results
from usdenoise.jobs.result_record import result_record
from usdenoise.jobs.series import Series
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.memory import PrivatePeak, peak_memory_bytes
from usdenoise.system.provenance import requested, software

_TOTALS = ("iterations", "passes", "n_unobserved", "n_sampled")
"""Fields that are summed over the blocks of a sequence."""


def source_of(source: Input, stack: Acquisition, digest: str) -> dict[str, Any]:
    """Return the record of the input of a job: its path, its SHA-256 digest, and what was read from it.

    Parameters
    ----------
    source : Input
        The open input, after the last frame was read.
    stack : Acquisition
        Frames of it, with the metadata.
    digest : str
        The digest of its files.
    """
    return {
        "path": str(source.path),
        "sha256": digest,
        "dataset": stack.name,
        "shape": list(source.shape),
        "axes": stack.axes,
        "dtype": str(stack.stored_dtype or stack.iq.dtype),
        "frame_rate_hz": stack.frame_rate_hz,
        "spacing_mm": dict(stack.spacing_mm),
        "assumptions": list(stack.assumptions),
        **source.state,
        "passes_over_file": source.passes,
    }


def report_of(
    series: Series,
    results: Results,
    source: Mapping[str, Any],
    clock: StageClock,
    peak: PrivatePeak | None = None,
) -> dict[str, Any]:
    """Return the report of a job. Of several blocks it describes the worst one, and has the record of each.

    Parameters
    ----------
    series : Series
        The filtered blocks.
    results : Results
        The files.
    source : mapping
        The record of the input, from :func:`source_of`.
    clock : StageClock
        Seconds of each stage.
    peak : PrivatePeak, optional
        Peak of the memory for a stack on the disk, whose pages do not count as memory. By default the stack is in memory.
    """
    job = results.job
    return {
        **result_record(series.result),
        "timings_s": clock.timings_s,
        "peak_memory_bytes": peak_memory_bytes() if peak is None else peak.end(),
        "scratch_bytes": 0 if peak is None else series.stack.iq.nbytes,
        "input": dict(source),
        "output": results.names,
        "notes": results.notes,
        "software": dict(software()),
        "command": job.command,
        "requested": requested(**job.asked),
        **(_sequence_fields(series, job) if job.is_windowed else {}),
    }


def _sequence_fields(series: Series, job: Job) -> dict[str, Any]:
    """Return totals over the blocks, and the record of each."""
    records = series.records
    bad_frames = {bad["frame"]: bad for record in records for bad in record["bad_frames"]}
    return {
        **{name: sum(record[name] for record in records) for name in _TOTALS},
        "bad_frames": list(bad_frames.values()),
        "frames": _frames_of_blocks(records),
        "sequence": {
            "window": job.output.window,
            "stride": job.output.stride or job.output.window,
            "time": [float(value) for value in series.times],
            "time_unit": series.time_unit,
            "worst_block": series.worst_block,
            "blocks": records,
        },
    }


def _frames_of_blocks(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record of the frames of all windows; those in two windows count twice."""
    frames = [record["frames"] for record in records]
    said = [f"window {number}: {own['sentence']}" for number, own in enumerate(frames) if own["sentence"]]
    return {
        **{name: sum(own[name] for own in frames) for name in ("n_bad", "n_left_out", "n_entries_left_out")},
        "moves_pixels": max(own["moves_pixels"] for own in frames),
        "steps": [record["first_frame"] + step for record in records for step in record["frames"]["steps"]],
        "sentence": "; ".join(said[:3]) + (f"; and {len(said) - 3} more windows" if len(said) > 3 else ""),
    }
