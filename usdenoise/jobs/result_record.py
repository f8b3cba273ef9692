"""What is recorded of a result, or of a filtered block: its options, its errors and its frames."""

from dataclasses import asdict
from typing import Any

from usdenoise.clutter.cutoff_reason import CutoffReason
from usdenoise.recipe.result import DenoiseResult
from usdenoise.recipe.windows import FilteredWindow

_BLOCK_FIELDS = (
    "rank", "low_cutoff", "iterations", "passes", "held_out_rmse", "noise_floor", "bad_frames", "frames",
    "n_unobserved", "n_silent", "n_sampled", "blood", "fit", "verdict",
)  # fmt: skip
"""Fields of a result that each block of a sequence has in the report."""


def block_record(block: FilteredWindow) -> dict[str, Any]:
    """Return the record of a filtered block, as the report of a sequence has it."""
    window, result = block.window, result_record(block.result, block.first)
    return {
        "first_frame": window.start,
        "n_frames": window.n_frames,
        "complete": window.complete,
        "is_bad": block.is_bad,
        "cutoff_certainty": result["cutoff"]["certainty"],
        **{name: result[name] for name in _BLOCK_FIELDS},
    }


def result_record(result: DenoiseResult, first: int = 0) -> dict[str, Any]:
    """Return the record of a result, as the report has it.

    Parameters
    ----------
    result : DenoiseResult
        The result.
    first : int
        Number of its first frame in the scan, by default 0.
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
        "bad_frames": _bad_frames(result, first),
        "frames": _frames(result),
        "fit": quality.verdict.code,
        "estimate": quality.sentence,
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


def _bad_frames(result: DenoiseResult, first: int) -> list[dict[str, Any]]:
    rate = result.acquisition.frame_rate_hz
    return [
        {
            "frame": first + bad.frame,
            "time_s": None if rate is None else (first + bad.frame) / rate,
            "reason": bad.reason.value,
            "score": bad.score,
        }
        for bad in result.frame_quality.bad
    ]


def _frames(result: DenoiseResult) -> dict[str, Any]:
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
