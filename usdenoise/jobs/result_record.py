"""What is recorded of a result: its options, its errors and its frames."""

from dataclasses import asdict
from typing import Any

from usdenoise.clutter.cutoff_reason import CutoffReason
from usdenoise.frames.bad_frames import FrameSearch
from usdenoise.pipeline.result import DenoiseResult


def result_record(result: DenoiseResult) -> dict[str, Any]:
    """Return the record of a result, as the report has it."""
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
        "bad_frames": bad_frames_record(result.frame_quality, 0, result.acquisition.frame_rate_hz),
        "frames": frames_record(result.frame_quality, result.power_doppler.size),
        "fit": quality.verdict.code,
        "estimate": quality.sentence,
        "start_caution": quality.start_caution,
        "verdict": result.verdict,
        "cutoff": _cutoff(result),
        "noise_floor": result.noise_floor,
        "n_sampled": result.n_sampled,
        "n_unobserved": result.n_unobserved,
        "n_silent": result.n_silent,
        "trace": [asdict(line) for line in solution.trace] if solution else [],
        "singular_values": [float(value) for value in result.singular_values],
        "parameters": asdict(options),
    }


def bad_frames_record(search: FrameSearch, first: int, rate: float | None) -> list[dict[str, Any]]:
    """Return the record of bad frames, whose numbers and times are counted from the first frame of the file.

    Parameters
    ----------
    search : FrameSearch
        The frames.
    first : int
        Number of their first frame in the file.
    rate : float or None
        Frames per second.
    """
    return [
        {
            "frame": first + bad.frame,
            "time_s": None if rate is None else (first + bad.frame) / rate,
            "reason": bad.reason.value,
            "score": bad.score,
        }
        for bad in search.bad
    ]


def frames_record(search: FrameSearch, n_pixels: int) -> dict[str, Any]:
    """Return the record of the frames of a stack: how many are bad, and how the image moves."""
    n_left_out = 0 if search.left_out is None else int(search.left_out.sum())
    return {
        "n_bad": len(search.bad),
        "n_left_out": n_left_out,
        "n_entries_left_out": n_left_out * n_pixels,
        "moves_pixels": search.movement.range_pixels,
        "steps": list(search.movement.steps),
        "sentence": search.sentence,
    }


def _cutoff(result: DenoiseResult) -> dict[str, Any]:
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
