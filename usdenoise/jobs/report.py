"""What a job says about itself: the report of a result, and the record of its input."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from usdenoise.clutter.cutoff_reason import CutoffReason
from usdenoise.formats.file_state import size_on_disk
from usdenoise.jobs.frame_files import bad_frames_of
from usdenoise.recipe.result import DenoiseResult
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.memory import peak_memory_bytes
from usdenoise.system.provenance import requested, software

REPORT, PAGE = "report", "report_html"
"""Keys of the report and of its page among the files of a job. The report is reserved last, as the record of the
others."""


def source_of(path: Path, acquisition: Acquisition, digest: str) -> dict[str, Any]:
    """Return the record of the input of a job: its path, its SHA-256 digest, and what was read from it."""
    dtype = acquisition.stored_dtype or acquisition.iq.dtype
    return {
        "path": str(path),
        "sha256": digest,
        "dataset": acquisition.name,
        "shape": list(acquisition.iq.shape),
        "axes": acquisition.axes,
        "dtype": str(dtype),
        "frame_rate_hz": acquisition.frame_rate_hz,
        "spacing_mm": dict(acquisition.spacing_mm),
        "assumptions": list(acquisition.assumptions),
    }


def cutoff_of(result: DenoiseResult) -> dict[str, Any]:
    """Return the record of the low cutoff of a result: the rule that decided, the reason in words, the certainty."""
    choice = result.cutoff
    record = {
        "low": result.options.low_cutoff,
        "rule": CutoffReason.GIVEN.code if choice is None else choice.reason.code,
        "reason": result.cutoff_sentence,
        "certainty": result.cutoff_certainty.value,
    }
    if choice is None:
        return record
    return {
        **record,
        "two_squares": choice.two_squares,
        "similarity_profile": [float(value) for value in choice.profile],
        "doppler_cycles_a_frame": [float(value) for value in choice.doppler_cycles],
    }


def frames_of(result: DenoiseResult) -> dict[str, Any]:
    """Return the record of the frames of a result: how many were left out, how the image moves, and a sentence."""
    quality = result.frame_quality
    movement = quality.movement
    return {
        "n_bad": len(quality.bad),
        "n_left_out": quality.n_left_out,
        "n_entries_left_out": quality.n_left_out * result.power_doppler.size,
        "moves_pixels": movement.range_pixels,
        "steps": list(movement.steps),
        "sentence": quality.sentence,
    }


def report_of(
    result: DenoiseResult,
    source: Mapping[str, Any],
    outputs: Mapping[str, str],
    timings: Mapping[str, float],
    command: list[str] | None,
    asked: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the report of a result.

    Parameters
    ----------
    result : DenoiseResult
        The result.
    source : mapping
        The record of the input, from :func:`source_of`.
    outputs : mapping
        Key of each file that was written -> its path.
    timings : mapping
        Seconds of each stage, and "total".
    command : list of str or None
        The command line; None for a library call.
    asked : mapping
        Everything that the results depend on, besides the input.
    """
    solution, options, quality = result.solution, result.options, result.fit_quality
    picture, high = result.picture_quality, options.high_cutoff
    return {
        "method": options.method,
        "rank": options.rank,
        "sampling": options.sampling,
        "seed": options.seed,
        "low_cutoff": options.low_cutoff,
        "high_cutoff": options.rank if high == "rank" else high,
        "iterations": solution.iterations if solution else 0,
        "passes": solution.passes if solution else 0,
        "stop_reason": solution.stop_reason.value if solution else "the SVD is not iterative",
        "held_out_rmse": result.held_out_rmse,
        "held_out_allowed": quality.allowed_rmse,
        "held_out_ratio": quality.held_out_ratio,
        "residual_rms": quality.residual_rms,
        "blood": {**asdict(picture), "sentence": picture.sentence},
        "reproducibility": picture.reproducibility,
        "bad_frames": bad_frames_of(result),
        "frames": frames_of(result),
        "fit": quality.verdict.code,
        "estimate": quality.sentence,
        "verdict": result.verdict,
        "cutoff": cutoff_of(result),
        "noise_floor": result.noise_floor,
        "n_sampled": result.n_sampled,
        "n_unobserved": result.n_unobserved,
        "trace": [asdict(line) for line in solution.trace] if solution else [],
        "singular_values": [float(value) for value in result.singular_values],
        "parameters": asdict(options),
        "timings_s": dict(timings),
        "peak_memory_bytes": peak_memory_bytes(),
        "input": dict(source),
        "output": dict(outputs),
        "software": dict(software()),
        "command": command,
        "requested": requested(**asked),
    }


def file_sizes(places: Mapping[str, Path]) -> dict[str, int | None]:
    """Return the bytes of each file of a job, from which a later batch tells that the results are whole.

    Parameters
    ----------
    places : mapping
        Key of each file -> where it was written. The report itself is not counted.
    """
    return {key: size_on_disk(place) for key, place in places.items() if key != REPORT}
