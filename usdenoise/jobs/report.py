"""What a job says about itself: the report of a denoised stack, and the record of its input."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from usdenoise.formats.file_state import size_on_disk
from usdenoise.pipeline.denoise import DenoiseResult
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.memory import peak_memory_bytes
from usdenoise.system.provenance import requested, software


def source_of(path: Path, acquisition: Acquisition, digest: str) -> dict[str, Any]:
    """The input of a job: where it is, its SHA-256 digest, and what was read of it."""
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
    """How the low cutoff of a result came about."""
    choice = result.cutoff
    if choice is None:
        return {"low": result.options.low_cutoff, "reason": "as given", "certainty": "given"}
    return {
        "low": choice.low,
        "reason": choice.reason,
        "certainty": choice.certainty,
        "two_squares": choice.two_squares,
        "similarity_profile": [float(value) for value in choice.profile],
        "doppler_cycles_a_frame": [float(value) for value in choice.doppler_cycles],
    }


def report_of(
    result: DenoiseResult,
    source: Mapping[str, Any],
    outputs: Mapping[str, str],
    timings: Mapping[str, float],
    command: list[str] | None,
) -> dict[str, Any]:
    """The report of a result.

    Parameters
    ----------
    result : DenoiseResult
        What came out.
    source : mapping
        Of :func:`source_of`.
    outputs : mapping
        What was written: key -> path.
    timings : mapping
        Seconds by stage.
    command : list of str or None
        The command line.
    """
    solution, options = result.solution, result.options
    high = options.high_cutoff
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
        "held_out_allowed": result.judgement.allowed_rmse,
        "held_out_ratio": result.judgement.held_out_ratio,
        "residual_rms": result.judgement.residual_rms,
        "verdict": result.judgement.verdict,
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
        "software": software(),
        "command": command,
    }


def complete_report(
    report: Mapping[str, Any], places: Mapping[str, Path], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """A report with what it takes to tell later that nothing has to be done again.

    Parameters
    ----------
    report : mapping
        Of :func:`report_of`.
    places : mapping
        The files as written, under the keys of its outputs; the report itself is not counted.
    asked : mapping
        Everything that the results depend on besides the input.
    """
    sizes = {key: size_on_disk(place) for key, place in places.items() if key != "report"}
    return {**report, "requested": requested(**asked), "output_bytes": sizes}
