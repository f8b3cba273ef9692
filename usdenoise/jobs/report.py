"""What a job says about itself: the report of a result, and the record of its input."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from usdenoise.files.open_input import Input
from usdenoise.jobs.job import Job, StageClock
from usdenoise.jobs.result_folder import Results
from usdenoise.jobs.result_record import result_record
from usdenoise.jobs.series import Series
from usdenoise.stack.file_stack import FileStack
from usdenoise.stack.geometry import GriddedStack
from usdenoise.system.memory import peak_memory_bytes
from usdenoise.system.provenance import requested, software


def source_of(source: Input, stack: GriddedStack, digest: str) -> dict[str, Any]:
    """Return the record of the input of a job: its path, its SHA-256 digest, and what was read from it.

    Parameters
    ----------
    source : Input
        The open input, after the last frame was read.
    stack : Geometry or Acquisition
        Its metadata.
    digest : str
        The digest of its files.
    """
    about = record_of_stack(source.path, stack, source.shape, digest)
    return {**about, **source.state, "passes_over_file": source.passes}


def record_of_stack(
    path: Path, stack: GriddedStack, shape: Sequence[int], digest: str | None
) -> dict[str, Any]:
    """Return the record of a stack that was read: its place, its shape and its scales.

    Parameters
    ----------
    path : Path
        File, or folder of files.
    stack : Geometry or Acquisition
        Its metadata.
    shape : sequence of int
        Its shape, with all frames.
    digest : str or None
        The SHA-256 digest of its files; None for several files.
    """
    return {
        "path": str(path),
        "sha256": digest,
        "dataset": stack.name,
        "shape": list(shape),
        "axes": stack.axes,
        "dtype": str(stack.stored_dtype or stack.dtype),
        "frame_rate_hz": stack.frame_rate_hz,
        "spacing_mm": dict(stack.spacing_mm),
        "assumptions": list(stack.assumptions),
    }


def report_of(
    series: Series,
    results: Results,
    source: Mapping[str, Any],
    clock: StageClock,
) -> dict[str, Any]:
    """Return the report of a job. Of a session it describes the fit to its sample, and has the record of each block.

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
    """
    job = results.job
    return {
        **result_record(series.result),
        "timings_s": clock.timings_s,
        "peak_memory_bytes": peak_memory_bytes(),
        **_scratch_fields(series.result.acquisition.iq),
        "input": dict(source),
        "output": results.names,
        "notes": results.notes,
        "software": dict(software()),
        "command": job.command,
        "requested": requested(**job.asked),
        **(_sequence_fields(series, job) if job.is_session else {}),
    }


def _scratch_fields(iq: Any) -> dict[str, int]:
    """Return the size of the file that takes the place of memory, and the bytes that were read from it and written to it."""
    if not isinstance(iq, FileStack):
        return {"scratch_bytes": 0}
    return {
        "scratch_bytes": iq.nbytes,
        "scratch_bytes_read": iq.rows.raw.read,
        "scratch_bytes_written": iq.rows.raw.written,
    }


def _sequence_fields(series: Series, job: Job) -> dict[str, Any]:
    """Return totals over the blocks of a session, and the record of each."""
    records, session = series.records, job.session_options
    bad_frames = {(r["file"], bad["frame"]): bad for r in records for bad in r["bad_frames"]}
    several = len(job.paths) > 1
    return {
        "n_unobserved": sum(record["n_unobserved"] for record in records),
        "bad_frames": [{**bad, "file": file} if several else bad for (file, _), bad in bad_frames.items()],
        "frames": _frames_of_blocks(records),
        "sequence": {
            "window": series.frames_a_block(session.window),
            "size": _size([record["n_frames"] for record in records if record["n_frames"]]),
            "stride": session.stride or session.window,
            "time": [float(value) for value in series.times],
            "time_unit": series.time_unit,
            "sampled_frames": series.result.frame_quality.n_frames,
            "n_bad": int(series.is_bad.sum()),
            "blocks": records,
        },
    }


def _size(lengths: list[int]) -> str:
    """Return the number of frames of the blocks, in words; the last one may be shorter."""
    is_even = len(set(lengths[:-1])) <= 1
    return f"{lengths[0]} frames" if is_even else f"{min(lengths)} to {max(lengths)} frames"


def _frames_of_blocks(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record of the frames of all blocks; those in two blocks count twice. Bad blocks are named in words."""
    frames = [record["frames"] for record in records]
    said = [
        f"block {number}{_of_file(record)} is bad: {record['why']}"
        for number, record in enumerate(records)
        if record["is_bad"]
    ]
    if (more := len(said) - 3) > 0:
        said[3:] = [f"and {more} more block{'' if more == 1 else 's'}"]
    n_left_out = sum(own["n_left_out"] for own in frames)
    if n_left_out:
        said.insert(0, f"{n_left_out} bad frames are left out")
    return {
        **{name: sum(own[name] for own in frames) for name in ("n_bad", "n_left_out", "n_entries_left_out")},
        "moves_pixels": max(own["moves_pixels"] for own in frames),
        "steps": [record["first_frame"] + step for record in records for step in record["frames"]["steps"]],
        "sentence": "; ".join(said),
    }


def _of_file(record: Mapping[str, Any]) -> str:
    return f" ({record['file']})" if record["file"] else ""
